// attend_cpu.c - the definition: two passes over the past, the maximum first.
#include <math.h>
#include "ops/attend/attend.h"
#include "ops/attend/attend_rows.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

struct query_head { // one query head of one row, and where its sequence's pages are
    const struct attend_args *args;
    const uint32_t *table;
    void *k_pages, *v_pages;
    const float *q, *sink;         // sink: NULL: there is none
    float *token;                  // [head_dim] room for one token's K or V
    uint32_t kv_head, first, last; // positions first..last
};

static const float *read_token(const struct query_head *h, uint32_t position, bool is_v)
{
    page_read(&(struct page_token){ &h->args->pages, is_v ? h->v_pages : h->k_pages,
                                    h->table[position / PAGE_TOKENS], h->kv_head, position % PAGE_TOKENS,
                                    is_v },
              h->token);
    return h->token;
}

static float score(const struct query_head *h, uint32_t position)
{
    const float *k = read_token(h, position, false);
    float sum = 0;

    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        sum += h->q[d] * k[d];
    return sum * h->args->scale;
}

static void head_plain(const struct query_head *h, float *out)
{
    float row_max = h->sink ? *h->sink : -INFINITY, row_sum = 0;

    for (uint32_t j = h->first; j <= h->last; j++)
        row_max = fmaxf(row_max, score(h, j));
    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        out[d] = 0;
    for (uint32_t j = h->first; j <= h->last; j++) {
        float weight = expf(score(h, j) - row_max);
        const float *v = read_token(h, j, true);
        row_sum += weight;
        for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
            out[d] += weight * v[d];
    }
    row_sum += h->sink ? expf(*h->sink - row_max) : 0;
    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        out[d] /= row_sum;
}

static void attend_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->pages.head_dim * sizeof(float);
}

// The sinks from this head on, or NULL.
static const float *sinks_from(const struct cpu_call *call, uint32_t head)
{
    const float *sinks = cpu_base(call, ATTEND_SINKS);
    return sinks ? sinks + head : NULL;
}

static void row_plain(const struct cpu_call *call, uint32_t r)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t position = step_positions(call->step)[r];
    struct query_head h = { .args = args,
                            .table = (const uint32_t *)cpu_base(call, ATTEND_TABLE) +
                                     (uint64_t)step_slots(call->step)[r] * args->pages.max_pages,
                            .k_pages = cpu_base(call, ATTEND_K_PAGES),
                            .v_pages = cpu_base(call, ATTEND_V_PAGES),
                            .token = call->local,
                            .first =
                                args->window && position >= args->window ? position - args->window + 1 : 0,
                            .last = position };

    for (uint32_t i = 0; i < args->n_heads; i++) {
        h.q = (const float *)cpu_row(call, ATTEND_Q, r) + i * args->pages.head_dim;
        h.sink = sinks_from(call, i);
        h.kv_head = i / (args->n_heads / args->pages.n_kv_heads);
        head_plain(&h, (float *)cpu_row(call, ATTEND_OUT, r) + i * args->pages.head_dim);
    }
}

static void attend_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        row_plain(call, r);
}

// Fast: a tile is a few rows of the step, a KV head, and one split of the past where the splits' sums have
// room; else the whole past. Neighbouring rows of one sequence in a tile share the reads of K and V.
enum { TILES_PER_THREAD = 4, PAGE_BYTES = 8 << 10 };
struct tiling {
    uint32_t rows, n_blocks, n_splits; // rows of a tile; tiles of rows; splits of the past
    uint32_t split_floats;             // of one row and split in the workspace
    bool heads_together;               // all KV heads' tiles of a split run together
};

// A page holds all KV heads one after the other, and a core reads one long stretch of memory faster than many
// short ones. All columns of a decoding row must fit, and L1 must hold two pages and the prefetched lines;
// see ops/vec/attend_stream.h.
static bool heads_together(const struct attend_args *args)
{
    const struct page_shape *s = &args->pages;

    return s->k_format == KV_BF16 && s->v_format == KV_BF16 && s->head_dim % 64 == 0 &&
           args->n_heads <= ATTEND_MAX_COLUMNS &&
           s->n_kv_heads * page_head_bytes(KV_BF16, s->head_dim) <= PAGE_BYTES;
}

static struct tiling tiling_of(const struct cpu_call *call)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t n = call->step->n_rows, n_kv = args->pages.n_kv_heads, heads = args->n_heads / n_kv;
    struct tiling t = { .rows = heads < ATTEND_MAX_COLUMNS ? ATTEND_MAX_COLUMNS / heads : 1,
                        .n_splits = cpu_has(call, ATTEND_WORK) ? attend_splits(call->step) : 1 };
    uint32_t together = t.n_splits > 1 ? attend_longest_run(call->step) : t.rows;

    t.rows = together < t.rows ? together : t.rows;
    while (t.rows > 1 && (n + t.rows - 1) / t.rows * n_kv * t.n_splits < TILES_PER_THREAD * call->n_threads)
        t.rows /= 2;
    t.n_blocks = (n + t.rows - 1) / t.rows;
    t.split_floats = args->n_heads * (args->pages.head_dim + ATTEND_SUMS_FLOATS);
    t.heads_together = t.n_splits > 1 && t.rows == 1 && heads_together(args);
    return t;
}

static void attend_plan_fast(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);
    struct tiling t = tiling_of(call);

    plan->n_phases = 2;
    plan->n_tiles[0] = t.n_blocks * args->pages.n_kv_heads * t.n_splits;
    plan->n_together = args->pages.n_kv_heads; // of one page
    plan->n_tiles[1] = t.n_splits > 1 ? call->step->n_rows * args->pages.n_kv_heads : 0;
    plan->local_bytes = attend_local_bytes(&args->pages, 0);
}

// Tiles of one split and its neighbouring KV heads.
static void attend_tiles(const struct cpu_call *call, const struct tiling *t, struct row_range tiles,
                         const struct row_kernels *rows)
{
    const struct attend_args *args = cpu_args(call);
    const struct page_shape *s = &args->pages;
    uint32_t kv_head = tiles.first % s->n_kv_heads, split = tiles.first / s->n_kv_heads % t->n_splits;
    uint32_t first = tiles.first / s->n_kv_heads / t->n_splits * t->rows;
    uint32_t end = first + t->rows < call->step->n_rows ? first + t->rows : call->step->n_rows;
    uint32_t head = kv_head * (args->n_heads / s->n_kv_heads);

    for (uint32_t r = first, length; r < end; r += length) {
        length = attend_run_length(call->step, r, end);
        // [n_splits][n_heads][head_dim + sums]
        float *partial = t->n_splits > 1 ? cpu_row(call, ATTEND_WORK, r) : NULL;
        rows->attend(&(struct attend_run){
            .args = args,
            .table = (const uint32_t *)cpu_base(call, ATTEND_TABLE) +
                     (uint64_t)step_slots(call->step)[r] * s->max_pages,
            .k_pages = cpu_base(call, ATTEND_K_PAGES),
            .v_pages = cpu_base(call, ATTEND_V_PAGES),
            .sinks = sinks_from(call, head),
            .q = (const float *)cpu_row(call, ATTEND_Q, r) + head * s->head_dim,
            .out = (float *)cpu_row(call, ATTEND_OUT, r) + head * s->head_dim,
            .q_stride = (size_t)args->n_heads * s->head_dim,
            .out_stride = (size_t)args->n_heads * s->head_dim,
            .n_rows = length,
            .position = step_positions(call->step)[r],
            .kv_head = kv_head,
            .n_kv = tiles.last - tiles.first,
            .local = call->local,
            .partial = partial ? partial + split * t->split_floats + head * (s->head_dim + ATTEND_SUMS_FLOATS)
                               : NULL,
            .partial_stride = call->command->operands[ATTEND_WORK].row_bytes / sizeof(float),
            .split = split,
        });
    }
}

static void merge_tile(const struct cpu_call *call, const struct tiling *t, uint32_t tile,
                       const struct row_kernels *rows)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t r = tile / args->pages.n_kv_heads, n_heads = args->n_heads / args->pages.n_kv_heads;
    uint32_t head = tile % args->pages.n_kv_heads * n_heads, head_dim = args->pages.head_dim;

    rows->attend_merge(&(struct attend_merge){
        .partial = (const float *)cpu_row(call, ATTEND_WORK, r) + head * (head_dim + ATTEND_SUMS_FLOATS),
        .split_stride = t->split_floats,
        .sinks = sinks_from(call, head),
        .out = (float *)cpu_row(call, ATTEND_OUT, r) + head * head_dim,
        .n_heads = n_heads,
        .head_dim = head_dim,
        .last = step_positions(call->step)[r] / ATTEND_SPLIT,
    });
}

static void attend_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const uint32_t n_kv = ((const struct attend_args *)cpu_args(call))->pages.n_kv_heads;
    struct tiling t = tiling_of(call);

    for (uint32_t tile = range.first, n; tile < range.last; tile += n) {
        n = range.phase == 0 && t.heads_together && tile % n_kv == 0 && tile + n_kv <= range.last ? n_kv : 1;
        if (range.phase == 0)
            attend_tiles(call, &t, (struct row_range){ .first = tile, .last = tile + n }, rows);
        else
            merge_tile(call, &t, tile, rows);
    }
}
ROW_KERNELS(attend_fast)

const struct cpu_op cpu_op_attend = { .name = "attend",
                                      .by_rows = true,
                                      .plain = { attend_plan, attend_run },
                                      .fast = { ROW_CHOICES(attend_plan_fast, attend_fast) } };
