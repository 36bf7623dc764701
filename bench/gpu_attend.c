// gpu_attend.c - decode attention on an NVIDIA GPU: bench_gpu_attend [jsonl] [KIND [FORMAT]].
//
// For each head size, page format, context length and number of sequences: the time of one layer's attention
// (us) and the rate at which its pages are read (GB/s). The tape has several layers with their own pages, so
// that pages come from memory and not from the L2 cache; nothing runs between two layers. Tests check the
// results.
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "gpu_turns.h"
#include "ops/attend/attend.h"
#include "ops/cuda_table.h"
#include "ops/latent/latent.h"

enum { MOST_LAYERS = 32, LEAST_LAYERS = 2 };

struct attend_kind {
    const char *name;
    uint32_t n_heads, n_kv_heads, head_dim, latent; // latent: dims of values that are the keys' first, or 0
};
static const struct attend_kind kinds[] = {
    { "llama-8b", 32, 8, 128, 0 },
    { "llama-3.2-1b", 32, 8, 64, 0 },
    { "qwen3-30b", 32, 4, 128, 0 },
    { "qwen3.5-35b", 16, 2, 256, 0 },
    { "gemma-4-26b, window", 16, 8, 256, 0 },
    { "gemma-4-26b", 16, 2, 512, 0 },
    { "glm-4.7-flash", 20, 1, 576, 512 },
};
static const struct {
    uint32_t n_sequences, depth;
} pasts[] = { { 1, 100 }, { 1, 1000 }, { 1, 4096 }, { 1, 8192 }, { 1, 16384 }, { 1, 32768 }, { 8, 4096 } };

struct attend_case {
    const struct attend_kind *kind;
    uint32_t n_sequences, depth, n_layers;
    enum kv_format format;
    struct page_shape shape;
    struct buffer q, out, table, k[MOST_LAYERS], v[MOST_LAYERS];
};

static const char *const names[] = { "f32", "f16", "bf16", "q8_0" };
static bool jsonl;
static uint16_t *words;
static uint64_t n_words;

// Numbers near +-1 in F16 and near 0 in BF16, and scales of about 1; the same for all.
static struct buffer pages_of(const struct attend_case *c)
{
    uint64_t bytes = (uint64_t)c->n_sequences * c->shape.max_pages * c->shape.n_kv_heads *
                     page_head_bytes(c->format, c->shape.head_dim);

    if (bytes / 2 > n_words) {
        words = mem_realloc(words, bytes);
        for (; n_words < bytes / 2; n_words++)
            words[n_words] = (uint16_t)((n_words * 2654435761u >> 13 & 0x807f) | 0x3c00);
    }
    return device_buffer(words, bytes);
}

static void record_layer(struct recorded *r, struct attend_case *c, uint32_t i)
{
    const struct attend_kind *k = c->kind;
    struct tensor q = tape_tensor_bound(r->tape, k->n_heads * k->head_dim, ROWS_STEP, &c->q),
                  out = tape_tensor_bound(r->tape, k->n_heads * (k->latent ? k->latent : k->head_dim),
                                          ROWS_STEP, &c->out);
    struct pages pages = { &c->k[i], k->latent ? NULL : &c->v[i], &c->table, c->shape };

    if (k->latent)
        op_latent_attend(
            r->tape, (struct latent_attend){
                         .out = out, .q = q, .pages = pages, .latent_dims = k->latent, .scale = 0.0625f });
    else
        op_attend(r->tape, (struct attend){ .out = out, .q = q, .pages = pages, .scale = 0.0625f });
}

static void open_case(struct attend_case *c, struct recorded *r)
{
    const struct attend_kind *k = c->kind;
    uint64_t n_q = (uint64_t)c->n_sequences * k->n_heads * k->head_dim;
    uint32_t n_pages = c->n_sequences * c->shape.max_pages;
    float *q = mem_alloc(n_q * 4);
    uint32_t *table = mem_alloc_array(n_pages, sizeof *table);
    struct err err = { 0 };

    for (uint64_t i = 0; i < n_q; i++)
        q[i] = (float)(random_word() % 2001) / 1000 - 1;
    for (uint32_t i = 0; i < n_pages; i++) // scattered, by a prime above their number
        table[i] = (uint32_t)((uint64_t)i * 1000003 % n_pages);
    c->q = device_buffer(q, n_q * 4);
    c->out = device_buffer(NULL, n_q * 4);
    c->table = device_buffer(table, n_pages * 4);
    *r = record_begin(c->n_sequences, c->n_layers, GEMM_OWN);
    for (uint32_t i = 0; i < c->n_sequences; i++) {
        must(buffer_write(&r->step, (step_at_positions(c->n_sequences) + i) * 4, &c->depth, 4, &err), &err);
        must(buffer_write(&r->step, (step_at_slots(c->n_sequences) + i) * 4, &i, 4, &err), &err);
    }
    tape_label(r->tape, "attention");
    for (uint32_t i = 0; i < c->n_layers; i++) {
        c->k[i] = pages_of(c);
        if (!k->latent)
            c->v[i] = pages_of(c);
        record_layer(r, c, i);
    }
    must(tape_seal(r->tape, &err), &err);
    mem_free(q);
    mem_free(table);
}

static void close_case(struct attend_case *c, struct recorded *r)
{
    record_end(r);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        buffer_release(&c->k[i]);
        if (!c->kind->latent)
            buffer_release(&c->v[i]);
    }
    buffer_release(&c->q);
    buffer_release(&c->out);
    buffer_release(&c->table);
}

static void show(const struct attend_kind *kind, enum kv_format format, uint32_t n_sequences, uint32_t depth)
{
    struct attend_case c = { .kind = kind, .n_sequences = n_sequences, .depth = depth, .format = format };
    struct recorded r;
    double us;

    c.shape = (struct page_shape){ kind->n_kv_heads, kind->head_dim, depth / PAGE_TOKENS + 1, (u16)format,
                                   (u16)format };
    uint64_t bytes = (uint64_t)n_sequences * c.shape.max_pages * kind->n_kv_heads *
                     page_head_bytes(format, kind->head_dim) * (kind->latent ? 1 : 2);
    uint64_t n = COLD_BYTES / bytes + 1;
    c.n_layers = n < LEAST_LAYERS ? LEAST_LAYERS : n > MOST_LAYERS ? MOST_LAYERS : (uint32_t)n;
    open_case(&c, &r);
    race(&(struct contender){ .play = play_tape, .arg = &r }, 1, &us);
    close_case(&c, &r);
    printf(jsonl ? "{\"attention\": \"%s\", \"format\": \"%s\", \"sequences\": %u, \"depth\": %u, \"us\": "
                   "%.2f, \"gb_s\": %.0f}\n"
                 : "| %s | %s | %u | %u | %.1f | %.0f |\n",
           kind->name, names[format], n_sequences, depth, us, (double)bytes / us * 1e-3);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const enum kv_format formats[] = { KV_F16, KV_BF16, KV_Q8_0 };
    struct err err = { 0 };

    if (argc > 1 && strcmp(argv[1], "jsonl") == 0) {
        jsonl = true;
        argc--;
        argv++;
    }
    gpu = cuda_open(0, &cuda_table, &err);
    must(gpu != NULL, &err);
    if (!jsonl)
        printf("| shape | pages | sequences | depth | us a layer | GB/s |\n|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (size_t i = 0; i < sizeof pasts / sizeof *pasts; i++)
                if ((argc < 2 || strcmp(argv[1], kinds[k].name) == 0) &&
                    (argc < 3 || strcmp(argv[2], names[formats[f]]) == 0))
                    show(&kinds[k], formats[f], pasts[i].n_sequences, pasts[i].depth);
    device_close(gpu);
    return 0;
}
