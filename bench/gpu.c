// gpu.c - single operations on an NVIDIA GPU: our bf16 products beside cuBLAS, and attention over pages in
// order and shuffled: bench_gpu [jsonl] [seeds] [PRODUCT].
//
// Two comparisons. The product alone: bf16 rows are packed as each wants them, sums come out in fp32, and
// both play as a graph. The operation: fp32 rows come in as in a model, once by our kernels and once as
// --gemm vendor does it, which makes bf16 rows by a plain kernel, calls cuBLAS, and ends by another kernel,
// launch by launch; for up to 16 rows it takes ours. One row makes its bf16 form in the product itself, so
// that there is no product alone.
// All four take turns: a time is the median of nine runs, each of many plays between two waits. Several
// matrices, or the pages of several layers, take turns too, so that what a product reads is not in the L2
// cache (a larger matrix does that alone). The results are compared first. Random numbers; sizes of an 8B, or
// with `seeds` of a Llama of 7B with the head of an 8B.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda_internal.h"
#include "device/step.h"
#include "ops/attend/attend.h"
#include "ops/cuda_table.h"
#include "ops/matmul/matmul.h"
#include "gpu_turns.h"

enum { MOST_TURNS = 16, COMPARED_ROWS = 128 };

static bool jsonl;

static cu_address address_of(const struct buffer *b)
{
    return (cu_address)(uintptr_t)b->native;
}

struct products {
    uint32_t n_out, n_cols, n_rows, turns;
    struct weight w[MOST_TURNS];
    struct buffer x, x_bf16, out; // x: numbers that bf16 holds exactly
    struct vendor *vendor;
};

static void take_weights(struct products *p)
{
    struct weight_source s = {
        .n_rows = p->n_out, .n_cols = p->n_cols, .format = QUANT_BF16, .use = WEIGHT_PRODUCT, .name = "w"
    };
    struct err err = { 0 };

    s.bytes = (uint64_t)p->n_out * p->n_cols * 2;
    p->turns = (uint32_t)((COLD_BYTES + s.bytes - 1) / s.bytes);
    uint16_t *data = mem_alloc(s.bytes);
    for (uint64_t i = 0; i < s.bytes / 2; i++) {
        uint32_t word = random_word(); // a sign, three exponents below 2^-4, a mantissa
        data[i] = (uint16_t)((word & 0x8000) | (0x3c80 + (word >> 16) % 3 * 0x80) | (word & 0x7f));
    }
    s.data = data;
    for (uint32_t i = 0; i < p->turns; i++)
        must(weight_create(gpu, &s, &p->w[i], &err), &err);
    mem_free(data);
}

static void take_rows(struct products *p)
{
    uint64_t n = (uint64_t)p->n_rows * p->n_cols;
    float *x = mem_alloc(n * 4);
    uint16_t *halves = mem_alloc(n * 2);

    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        x[i] = (float)((int)(random_word() % 255) - 127) / 64;
        memcpy(&bits, &x[i], 4);
        halves[i] = (uint16_t)(bits >> 16);
    }
    p->x = device_buffer(x, n * 4);
    p->x_bf16 = device_buffer(halves, n * 2);
    p->out = device_buffer(NULL, (uint64_t)p->n_rows * p->n_out * 4);
    mem_free(x);
    mem_free(halves);
}

static uint32_t play_vendor(void *arg)
{
    struct products *p = arg;
    struct err err = { 0 };

    for (uint32_t i = 0; i < p->turns; i++) {
        struct vendor_product product = { .out = address_of(&p->out),
                                          .x = address_of(&p->x_bf16),
                                          .w = address_of(&p->w[i].buffer),
                                          .n_rows = p->n_rows,
                                          .n_out = p->n_out,
                                          .n_cols = p->n_cols };
        must(vendor_multiply(p->vendor, &product, &err), &err);
    }
    return p->turns;
}

static struct recorded record_products(struct products *p, enum gemm gemm)
{
    struct recorded r = record_begin(p->n_rows, p->turns, gemm);
    struct tensor in = tape_tensor_bound(r.tape, p->n_cols, ROWS_STEP, &p->x),
                  out = tape_tensor_bound(r.tape, p->n_out, ROWS_STEP, &p->out);
    struct err err = { 0 };

    tape_label(r.tape, "product");
    for (uint32_t i = 0; i < p->turns; i++)
        op_matmul(r.tape, (struct matmul){ .in = in, .out = out, .w = &p->w[i] });
    must(tape_seal(r.tape, &err), &err);
    return r;
}

// Leaves a tape that has been played whole with its products alone: their packed rows stay where they lie.
// false: it has no others.
static bool drop_packing(struct recorded *r)
{
    struct cuda_tape *n = r->tape->native;
    struct cuda *c = (struct cuda *)gpu;
    cu_function packing = cuda_function(c, "pack_bf16");
    uint32_t n_kept = 0, n_launches = n->plan.n_launches;

    for (uint32_t i = 0, command = 0; i < n_launches; i++) {
        while (command <= n->plan.launches[i].command)
            n->first_launch[command++] = n_kept;
        if (n->plan.launches[i].function != packing)
            n->plan.launches[n_kept++] = n->plan.launches[i];
    }
    n->first_launch[r->tape->n_commands] = n->plan.n_launches = n_kept;
    c->cu->graph_exec_destroy(n->graphs[0]); // a product is one segment
    n->graphs[0] = NULL;
    return n_kept < n_launches;
}

// cuBLAS's turns as a graph.
struct captured {
    cu_exec exec;
    uint32_t turns;
};

static uint32_t play_captured(void *arg)
{
    struct captured *g = arg;
    struct cuda *c = (struct cuda *)gpu;
    struct err err = { 0 };

    must(cuda_check(c, c->cu->graph_launch(g->exec, c->stream), "cuBLAS's graph", &err), &err);
    return g->turns;
}

static struct captured capture_vendor(struct products *p)
{
    struct cuda *c = (struct cuda *)gpu;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    cu_result (*start)(cu_stream stream, int mode), (*stop)(cu_stream stream, cu_graph * graph);
    struct captured g = { .turns = p->turns };
    struct err err = { 0 };
    cu_graph graph;

    play_vendor(p); // what it allocates, it allocates now
    *(void **)&start = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&stop = dlsym(library, "cuStreamEndCapture");
    must(start && stop && cuda_check(c, start(c->stream, 1), "recording cuBLAS", &err), &err);
    play_vendor(p);
    must(cuda_check(c, stop(c->stream, &graph), "recording cuBLAS", &err), &err);
    must(cuda_check(c, c->cu->graph_instantiate(&g.exec, graph, 0), "cuBLAS's graph", &err), &err);
    c->cu->graph_destroy(graph);
    return g;
}

// Numbers of the last rows, and where they begin.
static uint64_t compared(const struct products *p, uint64_t *first)
{
    uint32_t rows = p->n_rows < COMPARED_ROWS ? p->n_rows : COMPARED_ROWS;

    *first = (uint64_t)(p->n_rows - rows) * p->n_out * 4;
    return (uint64_t)rows * p->n_out;
}

static float *results_of(struct products *p, queue_turns *play, void *arg)
{
    uint64_t first, n = compared(p, &first);
    float *out = mem_alloc(n * 4);
    struct err err = { 0 };

    memset(out, 0x7f, n * 4); // what is not written shows
    must(buffer_write(&p->out, first, out, n * 4, &err), &err);
    play(arg);
    must(buffer_read(&p->out, first, out, n * 4, &err), &err);
    return out;
}

// Normalised squared error of a side's results against cuBLAS's.
static double difference(struct products *p, const float *vendor, queue_turns *play, void *arg)
{
    float *own = results_of(p, play, arg);
    double error = 0, size = 0;
    uint64_t first, n = compared(p, &first);

    for (uint64_t i = 0; i < n; i++) {
        double d = (double)own[i] - vendor[i];
        error += d * d;
        size += (double)vendor[i] * vendor[i];
    }
    mem_free(own);
    return error / size;
}

enum { PRODUCT, VENDOR_PRODUCT, OPERATION, VENDOR_OPERATION, N_SIDES };

static void print_product(const char *name, const struct products *p, const double *us, double error)
{
    double ratio = us[VENDOR_PRODUCT] / us[PRODUCT], whole = us[VENDOR_OPERATION] / us[OPERATION];

    printf(jsonl
               ? "{\"product\": \"%s\", \"n_out\": %u, \"n_cols\": %u, \"n_rows\": %u, \"product_us\": %.2f, "
                 "\"vendor_product_us\": %.2f, \"ratio\": %.3f, \"operation_us\": %.2f, "
                 "\"vendor_operation_us\": %.2f, "
                 "\"operation_ratio\": %.3f, \"error\": %.1e}\n"
               : "| %s, %u x %u | %u | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f | %.0e |\n",
           name, p->n_out, p->n_cols, p->n_rows, us[PRODUCT], us[VENDOR_PRODUCT], ratio, us[OPERATION],
           us[VENDOR_OPERATION], whole, error);
    fflush(stdout);
}

static void show_product(const char *name, struct products *p)
{
    take_rows(p);
    struct recorded operation = record_products(p, GEMM_OWN), product = record_products(p, GEMM_OWN),
                    by_vendor = record_products(p, GEMM_VENDOR);
    struct captured captured = capture_vendor(p);
    bool vendor_takes_part = ((struct cuda_tape *)by_vendor.tape->native)->plan.n_products > 0;
    double us[N_SIDES], errors[3];
    uint32_t worst = 0;
    float *vendor = results_of(p, play_captured, &captured);

    errors[0] = difference(p, vendor, play_tape, &operation);
    errors[1] = difference(p, vendor, play_tape, &by_vendor);
    play_tape(&product);
    drop_packing(&product);
    errors[2] = difference(p, vendor, play_tape, &product);
    for (uint32_t i = 1; i < 3; i++)
        if (!(errors[i] <= errors[worst])) // a NaN is the worst
            worst = i;
    mem_free(vendor);
    struct contender sides[N_SIDES] = { [PRODUCT] = { .play = play_tape, .arg = &product },
                                        [VENDOR_PRODUCT] = { .play = play_captured, .arg = &captured },
                                        [OPERATION] = { .play = play_tape, .arg = &operation },
                                        [VENDOR_OPERATION] = { .play = vendor_takes_part ? play_tape : NULL,
                                                               .arg = &by_vendor } };
    race(sides, N_SIDES, us);
    print_product(name, p, us, errors[worst]);
    record_end(&operation);
    record_end(&product);
    record_end(&by_vendor);
    ((struct cuda *)gpu)->cu->graph_exec_destroy(captured.exec);
    buffer_release(&p->x);
    buffer_release(&p->x_bf16);
    buffer_release(&p->out);
}

struct product_shape {
    const char *name;
    uint32_t n_out, n_cols;
};
enum { N_SHAPES = 6 };
static const struct product_shape sizes_8b[N_SHAPES] = { { "q, k, v", 6144, 4096 },
                                                         { "o", 4096, 4096 },
                                                         { "gate, up", 28672, 4096 },
                                                         { "down", 4096, 14336 },
                                                         { "head", 128256, 4096 } },
                                  sizes_seeds[N_SHAPES] = {
                                      { "q, k, v", 12288, 4096 }, { "o", 4096, 4096 },
                                      { "gate", 11008, 4096 },    { "gate, up", 22016, 4096 },
                                      { "down", 4096, 11008 },    { "head", 128256, 4096 }
                                  };

struct wanted {
    bool seeds;
    const char *only;
};
static const struct product_shape *shapes_of(struct wanted wanted)
{
    return wanted.seeds ? sizes_seeds : sizes_8b;
}
static bool is_wanted(struct wanted wanted, const struct product_shape *shape)
{
    return shape->name && (!wanted.only || strcmp(wanted.only, shape->name) == 0);
}

static void show_shape(const struct product_shape *shape, struct vendor *vendor)
{
    static const uint32_t rows[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048 };
    struct products p = { .n_out = shape->n_out, .n_cols = shape->n_cols, .vendor = vendor };

    take_weights(&p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.n_rows = rows[i];
        show_product(shape->name, &p);
    }
    for (uint32_t i = 0; i < p.turns; i++)
        weight_release(&p.w[i]);
}

static void show_products(struct wanted wanted)
{
    const struct product_shape *shapes = shapes_of(wanted);
    struct err err = { 0 };
    struct vendor *vendor = vendor_open(((struct cuda *)gpu)->stream, &err);

    if (!vendor) {
        fprintf(stderr, "no products: %s\n", err.message);
        return;
    }
    if (!jsonl)
        printf("| bf16 product | rows | product alone, us | cuBLAS | cuBLAS / ours | operation, us | by "
               "cuBLAS | ratio | "
               "difference |\n"
               "|---|---|---|---|---|---|---|---|---|\n");
    for (size_t s = 0; s < N_SHAPES; s++)
        if (is_wanted(wanted, &shapes[s]))
            show_shape(&shapes[s], vendor);
    vendor_close(vendor);
}

enum { N_HEADS = 32, N_KV_HEADS = 8, HEAD_DIM = 128, LAYERS = 8 };

struct layers {
    struct buffer q, out, table, k[LAYERS], v[LAYERS];
    struct page_shape shape;
    uint32_t n_sequences, depth;
};

static struct buffer page_buffer(const struct layers *l)
{
    uint64_t n = (uint64_t)l->n_sequences * l->shape.max_pages * N_KV_HEADS * PAGE_TOKENS * HEAD_DIM;
    uint16_t *halves = mem_alloc(n * 2);

    for (uint64_t i = 0; i < n; i++) { // +-1 to 2 in F16
        uint32_t word = random_word();
        halves[i] = (uint16_t)((word & 0x8000) | 0x3c00 | (word & 0x3ff));
    }
    struct buffer b = device_buffer(halves, n * 2);
    mem_free(halves);
    return b;
}

static void deal_pages(struct layers *l, bool shuffled)
{
    uint32_t n = l->n_sequences * l->shape.max_pages, *table = mem_alloc_array(n, sizeof *table);
    struct err err = { 0 };

    for (uint32_t i = 0; i < n; i++)
        table[i] = i;
    for (uint32_t i = n - 1; shuffled && i > 0; i--) {
        uint32_t other = random_word() % (i + 1), was = table[i];
        table[i] = table[other];
        table[other] = was;
    }
    must(buffer_write(&l->table, 0, table, n * 4, &err), &err);
    mem_free(table);
}

static struct recorded record_attention(struct layers *l)
{
    struct recorded r = record_begin(l->n_sequences, LAYERS, GEMM_OWN);
    struct err err = { 0 };

    for (uint32_t i = 0; i < l->n_sequences; i++) {
        must(buffer_write(&r.step, (step_at_positions(l->n_sequences) + i) * 4, &l->depth, 4, &err), &err);
        must(buffer_write(&r.step, (step_at_slots(l->n_sequences) + i) * 4, &i, 4, &err), &err);
    }
    tape_label(r.tape, "attention");
    for (uint32_t i = 0; i < LAYERS; i++)
        op_attend(r.tape,
                  (struct attend){ .q = tape_tensor_bound(r.tape, N_HEADS * HEAD_DIM, ROWS_STEP, &l->q),
                                   .out = tape_tensor_bound(r.tape, N_HEADS * HEAD_DIM, ROWS_STEP, &l->out),
                                   .pages = { &l->k[i], &l->v[i], &l->table, l->shape },
                                   .scale = 0.088388f });
    must(tape_seal(r.tape, &err), &err);
    return r;
}

static void show_attention(uint32_t n_sequences, uint32_t depth)
{
    struct layers l = { .n_sequences = n_sequences, .depth = depth };
    uint64_t n = (uint64_t)n_sequences * N_HEADS * HEAD_DIM;
    double us[2];

    l.shape = (struct page_shape){ N_KV_HEADS, HEAD_DIM, depth / PAGE_TOKENS + 1, KV_F16, KV_F16 };
    float *q = mem_alloc(n * 4);
    for (uint64_t i = 0; i < n; i++)
        q[i] = (float)(random_word() % 2001) / 1000 - 1;
    l.q = device_buffer(q, n * 4);
    l.out = device_buffer(NULL, n * 4);
    l.table = device_buffer(NULL, (uint64_t)n_sequences * l.shape.max_pages * 4);
    for (uint32_t i = 0; i < LAYERS; i++) {
        l.k[i] = page_buffer(&l);
        l.v[i] = page_buffer(&l);
    }
    struct recorded r = record_attention(&l);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        deal_pages(&l, shuffled);
        race(&(struct contender){ .play = play_tape, .arg = &r }, 1, &us[shuffled]);
    }
    double bytes = (double)n_sequences * (depth + 1) * N_KV_HEADS * HEAD_DIM * 4;
    printf(jsonl ? "{\"attention_sequences\": %u, \"depth\": %u, \"in_order_us\": %.2f, \"shuffled_us\": "
                   "%.2f, \"ratio\": %.3f, "
                   "\"in_order_gb_s\": %.0f}\n"
                 : "| %u | %u | %.1f | %.1f | %.2f | %.0f |\n",
           n_sequences, depth, us[0], us[1], us[1] / us[0], bytes / us[0] * 1e-3);
    record_end(&r);
    for (uint32_t i = 0; i < LAYERS; i++) {
        buffer_release(&l.k[i]);
        buffer_release(&l.v[i]);
    }
    buffer_release(&l.q);
    buffer_release(&l.out);
    buffer_release(&l.table);
    mem_free(q);
}

static void show_attentions(void)
{
    if (!jsonl)
        printf("\n| sequences, F16 pages | depth | in order, us a layer | shuffled, us | shuffled / in order "
               "| GB/s in order |\n"
               "|---|---|---|---|---|---|\n");
    show_attention(1, 8192);
    show_attention(8, 2048);
}

static bool is_known(struct wanted wanted)
{
    const struct product_shape *shapes = shapes_of(wanted);
    bool known = false;

    for (uint32_t s = 0; s < N_SHAPES; s++)
        known |= is_wanted(wanted, &shapes[s]);
    if (known)
        return true;
    fprintf(stderr, "bench_gpu: no product is called '%s', want one of:", wanted.only);
    for (uint32_t s = 0; s < N_SHAPES; s++)
        if (shapes[s].name)
            fprintf(stderr, " '%s'", shapes[s].name);
    fprintf(stderr, "\n");
    return false;
}

static bool is_word(const char *argument, const char *word, bool *said)
{
    bool same = strcmp(argument, word) == 0;
    *said |= same;
    return same;
}

int main(int argc, char **argv)
{
    struct wanted wanted = { 0 };
    struct err err = { 0 };

    for (int i = 1; i < argc; i++) {
        if (is_word(argv[i], "jsonl", &jsonl) || is_word(argv[i], "seeds", &wanted.seeds))
            continue;
        if (wanted.only) {
            fprintf(stderr, "usage: bench_gpu [jsonl] [seeds] [PRODUCT]\n");
            return 1;
        }
        wanted.only = argv[i];
    }
    if (!is_known(wanted))
        return 1;
    gpu = cuda_open(0, &cuda_table, &err);
    must(gpu != NULL, &err);
    show_products(wanted);
    if (!wanted.only && !wanted.seeds)
        show_attentions();
    device_close(gpu);
    return 0;
}
