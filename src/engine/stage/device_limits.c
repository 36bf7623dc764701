// device_limits.c - see device_limits.h.
#include "engine/stage/device_limits.h"
#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/stage/take.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

enum { CHAIN = 64, CHAIN_COLS = 64, MOST_PLAYS = 9, SIDE_CPU = 4096, SIDE_GPU = 8192, MANY_ROWS = 512 };
static const uint64_t READ_BYTES = 512u << 20, ENOUGH_NS = 400000000;

// A tape of one operation on made-up numbers.
struct trial {
    struct device *device;
    struct tape *tape;
    struct weight weight;
    struct buffer in, out, step;
    unsigned char *bytes; // of the weight
};

static void trial_close(struct trial *t)
{
    tape_destroy(t->tape);
    weight_release(&t->weight);
    buffer_release(&t->in);
    buffer_release(&t->out);
    buffer_release(&t->step);
    mem_free_aligned(t->bytes);
}

// Bytes that are small normal numbers in every format, also as scales of blocks.
static void fill(unsigned char *at, uint64_t n)
{
    uint64_t x = 1;

    for (uint64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        at[i] = (unsigned char)(0x20 | (x >> 59));
    }
}

static bool make_weight(struct trial *t, enum quant format, uint32_t n_rows, uint32_t n_cols, struct err *err)
{
    const struct quant_info *info = quant_info(format);
    uint64_t bytes = (uint64_t)n_rows * n_cols / info->block_elements * info->block_bytes;
    struct weight_source source = { .bytes = bytes,
                                    .n_rows = n_rows,
                                    .n_cols = n_cols,
                                    .format = format,
                                    .use = WEIGHT_PRODUCT,
                                    .name = "limits" };

    t->bytes = mem_alloc_aligned((bytes + 63) / 64 * 64, 64);
    if (!t->bytes)
        return err_memory(err, "a matrix to measure with");
    fill(t->bytes, bytes);
    source.data = t->bytes;
    return weight_create(t->device, &source, &t->weight, err);
}

static bool make_step(struct trial *t, uint32_t n_rows, struct err *err)
{
    struct step *step = mem_alloc(step_bytes(n_rows, 1));
    bool ok = step && buffer_alloc(t->device, step_bytes(n_rows, 1), &t->step, err);

    if (!step)
        return err_memory(err, "a step");
    *step = (struct step){ .n_rows = n_rows, .n_outputs = 1, .max_rows = n_rows, .max_outputs = 1 };
    ok = ok && buffer_write(&t->step, 0, step, step_bytes(n_rows, 1), err);
    mem_free(step);
    return ok;
}

static bool fill_rows(struct trial *t, struct err *err)
{
    unsigned char *bytes = mem_alloc(t->in.bytes);
    bool ok = bytes || err_memory(err, "activations to measure with");

    if (ok) {
        fill(bytes, t->in.bytes);
        ok = buffer_write(&t->in, 0, bytes, t->in.bytes, err);
    }
    mem_free(bytes);
    return ok;
}

static bool make_rows(struct trial *t, uint32_t n_rows, uint32_t n_in, uint32_t n_out, struct err *err)
{
    t->tape = tape_create(t->device, (struct tape_limits){ .max_rows = n_rows, .max_outputs = 1 });
    return (t->tape || err_memory(err, "a tape")) && make_step(t, n_rows, err) &&
           buffer_alloc(t->device, (uint64_t)n_rows * n_in * 4, &t->in, err) &&
           buffer_alloc(t->device, (uint64_t)n_rows * n_out * 4, &t->out, err) && fill_rows(t, err);
}

static bool play_once(struct trial *t, uint64_t *ns, struct err *err)
{
    uint64_t begun = clock_ns();
    bool ok = tape_play(t->tape, &t->step, err) && t->device->ops->wait(t->device, err);

    *ns = clock_ns() - begun;
    return ok;
}

// The fastest of a few plays after the first. On a processor, for which nothing is compiled, one that takes
// long is enough.
static bool best_play(struct trial *t, double *best_ns, struct err *err)
{
    uint64_t ns, best = UINT64_MAX, spent = 0;
    bool ok = tape_seal(t->tape, err) && play_once(t, &ns, err);

    if (ok && !t->device->queue && ns >= ENOUGH_NS)
        best = spent = ns;
    for (uint32_t i = 0; ok && i < MOST_PLAYS && (best == UINT64_MAX || spent < ENOUGH_NS); i++) {
        ok = play_once(t, &ns, err);
        best = ns < best ? ns : best;
        spent += ns;
    }
    *best_ns = (double)best;
    return ok;
}

struct trial_product {
    enum quant format;
    uint32_t n_rows, n_out, n_cols;
};

static bool time_product(struct device *d, const struct trial_product *p, double *ns, struct err *err)
{
    struct trial t = { .device = d };
    bool ok = make_rows(&t, p->n_rows, p->n_cols, p->n_out, err) &&
              make_weight(&t, p->format, p->n_out, p->n_cols, err);

    if (ok) {
        struct tensor in = tape_tensor_bound(t.tape, p->n_cols, ROWS_STEP, &t.in),
                      out = tape_tensor_bound(t.tape, p->n_out, ROWS_STEP, &t.out);
        op_matmul(t.tape, (struct matmul){ .in = in, .out = out, .w = &t.weight });
        ok = best_play(&t, ns, err);
    }
    trial_close(&t);
    return ok;
}

static bool time_chain(struct device *d, double *ns, struct err *err)
{
    struct trial t = { .device = d };
    const float scale[CHAIN_COLS] = { 1 };
    bool ok = make_rows(&t, 1, CHAIN_COLS, CHAIN_COLS, err) &&
              take_numbers(&(struct take){ .device = d }, scale, CHAIN_COLS, "limits", &t.weight, err);

    if (ok) {
        struct tensor at = tape_tensor_bound(t.tape, CHAIN_COLS, ROWS_STEP, &t.in);
        for (uint32_t i = 0; i < CHAIN; i++) {
            struct tensor next = tape_tensor(t.tape, CHAIN_COLS, ROWS_STEP);
            op_rmsnorm(t.tape, (struct rmsnorm){ .in = at, .out = next, .scale = &t.weight, .eps = 1e-5f });
            at = next;
        }
        ok = best_play(&t, ns, err);
    }
    trial_close(&t);
    return ok;
}

static bool probe_reading(struct device *d, const struct trial_product *like, unsigned n_threads,
                          double *per_second, struct err *err)
{
    const struct quant_info *info = quant_info(like->format);
    struct trial_product p = *like;
    double ns;

    if (!d->queue) {
        *per_second = bandwidth_read(n_threads);
        return true;
    }
    double row_bytes = (double)p.n_cols / info->block_elements * info->block_bytes;
    p.n_rows = 1;
    p.n_out = (uint32_t)((double)READ_BYTES / row_bytes) / 256 * 256;
    if (!time_product(d, &p, &ns, err))
        return false;
    *per_second = row_bytes * p.n_out / ns * 1e9;
    return true;
}

bool device_limits_probe(struct device *d, enum quant format, unsigned n_threads,
                         struct device_limits *limits, struct err *err)
{
    uint32_t side = d->queue ? SIDE_GPU : SIDE_CPU;
    struct trial_product p = { format, MANY_ROWS, side, side };
    double ns;

    *limits = (struct device_limits){ 0 };
    if (!probe_reading(d, &p, n_threads, &limits->read_bytes, err) || !time_product(d, &p, &ns, err))
        return err_prefix(err, "measuring what %s can do", d->name);
    limits->operations = 2.0 * p.n_rows * p.n_out * p.n_cols / ns * 1e9;
    if (!time_chain(d, &ns, err))
        return err_prefix(err, "measuring what %s can do", d->name);
    limits->command_ns = ns / CHAIN;
    return true;
}
