// trellis_experts_cuda.c - the operation's launches: rows turned, gate and up, hidden numbers, down, the sum
// of a row's slots; with more than one row, entries are first grouped by expert. One row of MUL1 on Hopper:
// two launches (trellis_experts_hopper.cu).
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "ops/experts/experts_cuda.h"
#include "ops/trellis_experts/trellis_experts_cuda.h"

enum { THREADS = TRELLIS_EXPERTS_WARPS * 32, BLOCKS_OF_SM = 3 };

struct experts_launches {
    struct cuda_plan *p;
    const struct trellis_experts_args *args;
    struct trellis_experts_params params;
    u32 most_entries, eights; // eights of entries in a group
    u64 partial, first, entries;
    u64 partial_numbers; // at most
};

static void place_rows(struct experts_launches *x)
{
    struct trellis_experts_params *m = &x->params;
    u64 n = x->most_entries, number = m->exact ? 4 : 2;

    m->of_up = cuda_at(x->p, TRELLIS_EXPERTS_WORK);
    m->up_scales = m->of_up + n * 2 * m->n_in * number;
    m->of_down = m->of_up + n * 2 * m->n_in * 4;
    m->down_scales = m->of_down + n * m->n_hidden * number;
}

static struct experts_launches launches_of(struct cuda_plan *p)
{
    const struct trellis_experts_args *a = (const struct trellis_experts_args *)p->command->args;
    struct experts_launches x = { .p = p, .args = a };

    x.most_entries = p->tape.max_rows * a->experts.n_slots;
    x.eights = x.most_entries > 8 * a->experts.n_experts ? 2 : 1;
    x.params = (struct trellis_experts_params){
        .stacks = { cuda_at(p, TRELLIS_EXPERTS_GATE), cuda_at(p, TRELLIS_EXPERTS_UP),
                    cuda_at(p, TRELLIS_EXPERTS_DOWN) },
        .in = cuda_at(p, TRELLIS_EXPERTS_IN),
        .ids = cuda_at(p, TRELLIS_EXPERTS_IDS),
        .weights = cuda_at(p, TRELLIS_EXPERTS_WEIGHTS),
        .shared = cuda_at(p, TRELLIS_EXPERTS_SHARED),
        .add = cuda_at(p, TRELLIS_EXPERTS_ADD),
        .out = cuda_at(p, TRELLIS_EXPERTS_OUT),
        .n_cols = a->experts.n_cols,
        .n_ffn = a->experts.n_ffn,
        .n_in = exl3_padded(a->experts.n_cols),
        .n_hidden = exl3_padded(a->experts.n_ffn),
        .n_slots = a->experts.n_slots,
        .activation = a->experts.activation,
        .exact = a->experts.exact,
        .bits = { a->bits[0], a->bits[1], a->bits[2] },
    };
    place_rows(&x);
    return x;
}

// The lists are in private memory, and behind them the products' sums.
static void launch_group(struct experts_launches *x)
{
    const struct experts_args *e = &x->args->experts;
    struct cuda_plan *p = x->p;
    u64 lists = ((u64)e->n_experts + 1 + x->most_entries) * sizeof(u32);

    x->partial = p->private_at;
    if (p->tape.max_rows == 1 || e->exact)
        return;
    x->first = p->private_at;
    x->entries = x->first + ((u64)e->n_experts + 1) * sizeof(u32);
    x->partial = p->private_at + (lists + 255) / 256 * 256;
    struct experts_params group = { .ids = x->params.ids,
                                    .first = x->first,
                                    .entries = x->entries,
                                    .n_experts = e->n_experts,
                                    .n_slots = e->n_slots };
    cuda_launch_add(p, "experts_group", (struct cuda_shape){ { e->n_experts, 1, 1 }, EXPERTS_ROW_THREADS, 0 },
                    &group, sizeof group);
}

static void launch_rows(struct experts_launches *x, const char *kernel, u64 n_warps)
{
    cuda_launch_add(
        x->p, kernel,
        (struct cuda_shape){ { (u32)divide_up(n_warps, TRELLIS_EXPERTS_WARPS), 1, 1 }, THREADS, 0 },
        &x->params, sizeof x->params);
}

// Splits of the columns that give every multiprocessor some blocks; one, where a row must have the same bits
// in any step.
static void split_columns(const struct experts_launches *x, struct trellis_experts_product_params *m)
{
    u32 n_blocks = m->n_in / EXL3_BLOCK, n_experts = x->args->experts.n_experts,
        groups = x->most_entries < n_experts ? x->most_entries : n_experts,
        blocks = groups * m->n_matrices * (m->n_out / EXL3_BLOCK),
        n = BLOCKS_OF_SM * x->p->device.n_sms / blocks;

    n = x->p->tape.invariant || n < 1 ? 1 : n > n_blocks ? n_blocks : n;
    m->split_blocks = divide_up(n_blocks, n);
}

// One launch for matrices alike, [first, first + n) of the stacks.
static void launch_alike(struct experts_launches *x, struct trellis_experts_product_params *m, u32 stack,
                         u32 n)
{
    static const char *const codebooks[] = {
        [EXL3_3INST] = "3inst", [EXL3_MCG] = "mcg", [EXL3_MUL1] = "mul1"
    };
    u32 groups = x->first ? x->most_entries / (8 * x->eights) + m->n_experts : x->most_entries;
    struct cuda_shape shape = { { n * (m->n_out / EXL3_BLOCK), x->params.n_splits, groups }, THREADS, 0 };
    char name[40] = "trellis_experts_exact";

    m->bits = x->args->bits[stack];
    m->codebook = x->args->codebook[stack];
    for (u32 i = 0; i < n; i++)
        m->stacks[i] = x->params.stacks[stack + i];
    if (!m->scales)
        shape.grid[2] = x->most_entries;
    else
        snprintf(name, sizeof name, "trellis_experts_%s_%u_%u", codebooks[m->codebook], m->bits, x->eights);
    cuda_launch_add(x->p, name, shape, m, sizeof *m);
}

// The sums of [stack, stack + n) to `partial`, where the next kernel of rows finds them.
static void launch_product(struct experts_launches *x, u32 stack, u32 n)
{
    const struct trellis_experts_args *a = x->args;
    struct trellis_experts_params *params = &x->params;
    bool down = stack == TRELLIS_DOWN;
    struct trellis_experts_product_params m = { .ids = params->ids,
                                                .rows = down ? params->of_down : params->of_up,
                                                .scales = down ? params->down_scales : params->up_scales,
                                                .partial = x->partial,
                                                .first = x->first,
                                                .entries = x->entries,
                                                .n_in = down ? params->n_hidden : params->n_in,
                                                .n_out = down ? params->n_in : params->n_hidden,
                                                .n_experts = a->experts.n_experts,
                                                .n_slots = a->experts.n_slots,
                                                .n_matrices = n };

    split_columns(x, &m);
    if (params->exact) {
        m.scales = 0;
        m.split_blocks = m.n_in / EXL3_BLOCK;
    }
    params->partial = m.partial;
    params->n_splits = divide_up(m.n_in / EXL3_BLOCK, m.split_blocks);
    params->split_stride = m.split_stride = (u64)x->most_entries * n * m.n_out;
    u64 numbers = params->n_splits * m.split_stride;
    x->partial_numbers = numbers > x->partial_numbers ? numbers : x->partial_numbers;
    bool alike =
        n == 2 && a->bits[stack] == a->bits[stack + 1] && a->codebook[stack] == a->codebook[stack + 1];
    for (u32 i = 0; i < n; i += alike ? 2 : 1) {
        m.matrix = i;
        launch_alike(x, &m, stack + i, alike ? 2 : 1);
    }
}

static void name_of_row(const struct experts_launches *x, u32 stack, char name[40])
{
    snprintf(name, 40, "trellis_experts_%s_%u", stack == TRELLIS_DOWN ? "down" : "up", x->args->bits[stack]);
}

static bool is_row(const struct experts_launches *x)
{
    const struct trellis_experts_args *a = x->args;
    bool fits = x->p->tape.max_rows == 1 && !x->p->tape.invariant && !a->experts.exact &&
                x->p->device.capability >= 90 && a->bits[TRELLIS_GATE] == a->bits[TRELLIS_UP];

    for (u32 i = 0; i < TRELLIS_STACKS && fits; i++) {
        char name[40];
        name_of_row(x, i, name);
        fits = a->codebook[i] == EXL3_MUL1 && cuda_has_kernel(x->p, name);
    }
    return fits;
}

// All blocks are on the device at once, where there are not more of them than it has room for. Gives where
// the sums end, which begin at m->sums.
static u64 launch_row(struct experts_launches *x, struct trellis_experts_row_params *m, u32 stack)
{
    bool down = stack == TRELLIS_DOWN;
    u32 n_in = down ? m->x.n_hidden : m->x.n_in, n_out = down ? m->x.n_in : m->x.n_hidden,
        columns = m->x.n_slots * (down ? 1 : 2) * (n_out / EXL3_BLOCK), blocks = n_in / EXL3_BLOCK,
        room = BLOCKS_OF_SM * x->p->device.n_sms, n = room / columns;
    char name[40];

    n = n < 1 ? 1 : n > blocks ? blocks : n;
    m->split_blocks = divide_up(blocks, n);
    m->n_splits = divide_up(blocks, m->split_blocks);
    m->sums_stride = (u64)columns * EXL3_BLOCK;
    name_of_row(x, stack, name);
    cuda_launch_add(
        x->p, name,
        (struct cuda_shape){ { columns < room ? columns : room, m->n_splits, 1 },
                             TRELLIS_HOPPER_WARPS * 32,
                             trellis_experts_shared_bytes(x->args->bits[stack], m->split_blocks) },
        m, sizeof *m);
    return m->sums + m->n_splits * m->sums_stride * sizeof(f32);
}

static void launch_one_row(struct experts_launches *x)
{
    struct cuda_plan *p = x->p;
    struct trellis_experts_row_params m = { .x = x->params,
                                            .sums = p->private_at,
                                            .arrived = p->counters_at };

    u64 end = launch_row(x, &m, TRELLIS_GATE);
    m.x.partial = m.sums;
    m.x.split_stride = m.sums_stride;
    m.x.n_splits = m.n_splits;
    m.sums = end;
    p->private_bytes = launch_row(x, &m, TRELLIS_DOWN) - p->private_at;
    p->counters_bytes = m.x.n_in / EXL3_BLOCK * 4;
}

void cuda_plan_trellis_experts(struct cuda_plan *p)
{
    struct experts_launches x = launches_of(p);

    if (is_row(&x)) {
        launch_one_row(&x);
        return;
    }
    const struct trellis_experts_params *m = &x.params;

    launch_group(&x);
    launch_rows(&x, "trellis_experts_turn", (u64)x.most_entries * 2 * (m->n_in / EXL3_BLOCK));
    launch_product(&x, TRELLIS_GATE, 2);
    launch_rows(&x, "trellis_experts_hidden", (u64)x.most_entries * (m->n_hidden / EXL3_BLOCK));
    launch_product(&x, TRELLIS_DOWN, 1);
    cuda_launch_add(p, "trellis_experts_sum",
                    (struct cuda_shape){ { m->n_in / EXL3_BLOCK, p->tape.max_rows, 1 }, THREADS, 0 }, m,
                    sizeof *m);
    p->private_bytes = x.partial - p->private_at + x.partial_numbers * sizeof(f32);
}
