// experts_metal.c - the operations' launches; listed_choice.c chooses the kernels. One row: a threadgroup
// takes a slot's weights (up), a simdgroup takes a slot and one owner adds them (down). More rows: a table of
// tiles, products, and for down the sum of each row's slots. The shared expert's product runs beside the
// others.
#include "ops/experts/experts_metal.h"
#include "base/divide.h"
#include "gemm/metal/listed_choice.h"
#include "ops/metal_table.h"

enum { UP, DOWN };

static const char *const kernels[2][N_LISTED_VARIANTS] = {
    [UP] = { "experts_up_one", "experts_up_few", "experts_up_many_half", "experts_up_many_float",
             "experts_up_plain" },
    [DOWN] = { "experts_down_one", "experts_down_few", "experts_down_many_half", "experts_down_many_float",
               "experts_down_plain" },
};

struct experts_job {
    struct metal_plan *p;
    const struct experts_args *args;
    const struct weight *w[2], *shared[2];
    uint32_t way;  // UP or DOWN
    uint32_t bias; // bit i: matrix i of the experts has one
};

static enum listed_variant variant_of(const struct experts_job *j)
{
    const struct experts_args *a = j->args;
    bool odd = j->way == UP ? a->n_cols % 8 != 0 : a->n_ffn % 8 != 0 || a->n_shared % 8 != 0;

    return listed_choose(
        j->p, &(struct listed_product){
                  .w = { j->w[0], j->w[1], j->shared[0], j->shared[1] }, .odd = odd, .exact = a->exact });
}

// Of one of the experts, or of the shared one.
static struct product_args product_of(const struct experts_job *j, bool shared)
{
    struct product_args args = listed_args(shared ? j->shared : j->w, shared ? 1 : j->args->n_experts);

    args.activation = j->args->activation;
    args.limit = j->args->limit;
    return args;
}

static enum product_mode mode_of(const struct experts_job *j)
{
    return j->way == UP ? PRODUCT_GATED : PRODUCT_PLAIN;
}

static void launch_table(const struct experts_job *j, const struct experts_metal_args *args)
{
    struct metal_kernel kernel = { .name = "experts_tiles",
                                   .grid = { 1, 1, 1 },
                                   .threads = EXPERTS_TABLE_THREADS };

    listed_constants(j->w, mode_of(j), &kernel);
    j->p->private_bytes =
        (experts_entries_at(args->n_tiles) + (uint64_t)j->p->tape.max_rows * args->n_slots) *
        sizeof(uint32_t);
    metal_launch_add(j->p, &kernel, args, sizeof *args);
}

// Of the experts, or of the shared one.
static void launch_product(const struct experts_job *j, struct experts_metal_args args,
                           enum listed_variant variant, uint32_t n_tiles)
{
    const struct listed_shape *shape = &listed_shapes[variant];
    struct metal_kernel kernel = { .name = kernels[j->way][variant],
                                   .threads = shape->threads,
                                   .beside = args.of_shared };

    args.product = product_of(j, args.of_shared);
    listed_constants(args.of_shared ? j->shared : j->w, mode_of(j), &kernel);
    kernel.constants[PRODUCT_C_BIAS] = args.of_shared ? 0 : j->bias;
    kernel.grid[0] = divide_up(product_pairs(mode_of(j), args.product.n_out[0]), shape->pairs);
    kernel.grid[1] = n_tiles;
    kernel.grid[2] = 1;
    metal_launch_add(j->p, &kernel, &args, sizeof args);
}

static void launch_products(const struct experts_job *j, struct experts_metal_args *args)
{
    enum listed_variant variant = variant_of(j);
    uint32_t rows = j->p->tape.max_rows, entries = rows * args->n_slots;

    args->tile_rows = listed_shapes[variant].tile_rows;
    args->n_tiles = entries / args->tile_rows + (args->n_experts < entries ? args->n_experts : entries);
    if (variant != LISTED_ONE)
        launch_table(j, args);
    launch_product(j, *args, variant, variant == LISTED_ONE ? args->n_slots : args->n_tiles);
    if (!j->shared[0])
        return;
    args->of_shared = 1;
    launch_product(j, *args, variant, divide_up(rows, args->tile_rows));
    args->of_shared = 0;
}

static bool places_fit(const struct experts_job *j)
{
    const struct experts_args *a = j->args;
    uint64_t hidden = experts_hidden_cols(a->n_slots, a->n_ffn, a->n_shared),
             found = (uint64_t)(a->n_slots + 1) * a->n_cols;

    return (hidden > found ? hidden : found) * j->p->tape.max_rows <= UINT32_MAX ||
           err_set(&j->p->error, ERR_UNSUPPORTED,
                   "%u rows of %u experts, %u and %u numbers each; their places want more than 32 bits",
                   j->p->tape.max_rows, a->n_slots, a->n_ffn, a->n_cols);
}

static struct experts_metal_args metal_args_of(const struct experts_args *a)
{
    return (struct experts_metal_args){ .n_experts = a->n_experts,
                                        .n_slots = a->n_slots,
                                        .n_ffn = a->n_ffn,
                                        .n_shared = a->n_shared,
                                        .has_shared = a->n_shared > 0 };
}

void metal_plan_experts_up(struct metal_plan *p)
{
    struct experts_job j = { .p = p,
                             .args = (const struct experts_args *)p->command->args,
                             .w = { metal_weight(p, EXPERTS_UP_GATE), metal_weight(p, EXPERTS_UP_UP) },
                             .shared = { metal_weight(p, EXPERTS_UP_SHARED_GATE),
                                         metal_weight(p, EXPERTS_UP_SHARED_UP) },
                             .way = UP,
                             .bias = metal_has(p, EXPERTS_UP_GATE_BIAS) };
    struct experts_metal_args args = metal_args_of(j.args);

    if (places_fit(&j))
        launch_products(&j, &args);
}

// One row: one kernel has the experts' matrix and the shared one's.
static void launch_slots(const struct experts_job *j, struct experts_metal_args args)
{
    const struct weight *const both[2] = { j->w[0], j->shared[0] };
    uint32_t n_slots = args.n_slots + args.has_shared;
    struct metal_kernel kernel = { .name = "experts_down_slots" };

    args.product = product_of(j, false);
    if (args.has_shared)
        args.shared = product_of(j, true);
    listed_constants(both, mode_of(j), &kernel);
    kernel.constants[PRODUCT_C_BIAS] = j->bias;
    kernel.threads = 32 * (n_slots < EXPERTS_DOWN_SIMDS ? n_slots : EXPERTS_DOWN_SIMDS);
    memcpy(kernel.grid,
           (uint32_t[]){ divide_up(product_pairs(PRODUCT_PLAIN, args.product.n_out[0]), EXPERTS_DOWN_PAIRS),
                         1, 1 },
           sizeof kernel.grid);
    metal_launch_add(j->p, &kernel, &args, sizeof args);
}

static void launch_sum(const struct experts_job *j, struct experts_metal_args args)
{
    struct metal_kernel kernel = { .name = "experts_sum", .threads = EXPERTS_SUM_THREADS };

    args.product = product_of(j, false);
    listed_constants(j->w, mode_of(j), &kernel);
    memcpy(kernel.grid,
           (uint32_t[]){ divide_up(args.product.n_out[0], EXPERTS_SUM_THREADS), j->p->tape.max_rows, 1 },
           sizeof kernel.grid);
    metal_launch_add(j->p, &kernel, &args, sizeof args);
}

void metal_plan_experts_down(struct metal_plan *p)
{
    struct experts_job j = { .p = p,
                             .args = (const struct experts_args *)p->command->args,
                             .w = { metal_weight(p, EXPERTS_DOWN_DOWN) },
                             .shared = { metal_weight(p, EXPERTS_DOWN_SHARED) },
                             .way = DOWN,
                             .bias = metal_has(p, EXPERTS_DOWN_BIAS) };
    struct experts_metal_args args = metal_args_of(j.args);

    args.adds = metal_has(p, EXPERTS_DOWN_ADD);
    if (!places_fit(&j))
        return;
    if (variant_of(&j) == LISTED_ONE) {
        launch_slots(&j, args);
        return;
    }
    launch_products(&j, &args);
    launch_sum(&j, args);
}
