// experts_cuda.c - the launches of both operations. The choice table below is read from the top: the first
// rule that fits is taken.
#include "gemm/cuda/gemm_plan.h"
#include "ops/cuda_table.h"
#include "ops/experts/experts_cuda.h"

enum experts_kernel { EXPERTS_PLAIN, EXPERTS_INT8, EXPERTS_MANY };
enum { MOST_SHARED = 64 << 10 }; // for the packed row of a block of experts_int8

// A product, for the choice and the launch.
struct experts_product {
    struct experts_params params;
    u32 max_rows;
    bool exact, invariant;
};

static bool is_exact(const struct experts_product *x)
{
    return x->exact;
}
static bool is_invariant(const struct experts_product *x)
{
    return x->invariant;
}
static bool has_odd_width(const struct experts_product *x)
{
    return x->params.n_cols % 32 != 0;
}
static bool has_two_formats(const struct experts_product *x)
{
    return x->params.w[0].format != x->params.w[1].format;
}

#define FORMAT_BIT(NAME, name, with) 1u << QUANT_##NAME |
enum {
    F32 = 1u << QUANT_F32,
    QUANTISED = QUANT_BLOCK_FORMATS(FORMAT_BIT, ) 0,
    ALL = QUANT_FORMATS(FORMAT_BIT, ) 0,
    ANY_ROWS = ~0u >> 1
};

// clang-format off
static const struct experts_rule {
    enum experts_kernel kernel;
    u32 max_rows; // that the tape can get
    u32 formats;
    bool (*when)(const struct experts_product *x); // NULL: always
} rules[] = {
    // kernel        rows              weights    when             what it is
    { EXPERTS_PLAIN, ANY_ROWS,         F32,       NULL },          // fp32 sums, entry by entry
    { EXPERTS_PLAIN, ANY_ROWS,         ALL,       is_exact },
    { EXPERTS_PLAIN, ANY_ROWS,         ALL,       has_odd_width },
    { EXPERTS_PLAIN, ANY_ROWS,         ALL,       has_two_formats },
    { EXPERTS_MANY,  ANY_ROWS,         ALL,       is_invariant },  // one order of sums for any rows
    { EXPERTS_INT8,  EXPERTS_FEW_ROWS, QUANTISED, NULL },          // int8: an expert's weights are read once
    { EXPERTS_MANY,  ANY_ROWS,         ALL,       NULL },          // bf16 mma, tiles of 128 entries
};
// clang-format on

static enum experts_kernel kernel_of(const struct experts_product *x)
{
    for (u32 i = 0; i < sizeof rules / sizeof *rules; i++)
        if (x->max_rows <= rules[i].max_rows && rules[i].formats >> x->params.w[0].format & 1 &&
            (!rules[i].when || rules[i].when(x)))
            return rules[i].kernel;
    CHECK(!"the last rule takes every product");
    return EXPERTS_MANY;
}

#define KERNEL(NAME, name, family) [QUANT_##NAME] = #family "_" #name,
static const gemm_kernel_names int8_names = { QUANT_BLOCK_FORMATS(KERNEL, experts_int8) };
static const gemm_kernel_names many_names = { QUANT_HALF_FORMATS(KERNEL, experts_many)
                                                  QUANT_BLOCK_FORMATS(KERNEL, experts_many) };

// Lanes that share a task: as many as leave each at least three blocks of 32, within a warp.
static u32 lanes_for(u32 n_cols)
{
    u32 lanes = 32;

    while (lanes > 4 && n_cols / 32 < 3 * lanes)
        lanes /= 2;
    return lanes;
}

static u64 aligned(u64 at)
{
    return (at + 15) / 16 * 16;
}

// A packed row's bytes; 0: the kernel reads fp32.
static u32 packed_stride(enum experts_kernel kernel, u32 n_cols)
{
    return kernel == EXPERTS_INT8   ? experts_int8_stride(n_cols)
           : kernel == EXPERTS_MANY ? experts_bf16_stride(n_cols)
                                    : 0;
}

static u64 packed_bytes(const struct cuda_plan *p, const struct experts_params *params)
{
    return (u64)p->tape.max_rows * (params->slot_stride ? params->n_slots : 1) * params->packed_stride;
}

static void add(struct cuda_plan *p, const char *kernel, struct cuda_shape shape,
                const struct experts_params *params)
{
    cuda_launch_add(p, kernel, shape, params, sizeof *params);
}

static void launch_pack(struct cuda_plan *p, enum experts_kernel kernel, const struct experts_params *params)
{
    u32 rows = p->tape.max_rows * (params->slot_stride ? params->n_slots : 1);

    if (kernel != EXPERTS_PLAIN && params->packed)
        add(p, kernel == EXPERTS_INT8 ? "experts_pack_int8" : "experts_pack_bf16",
            (struct cuda_shape){ { rows, 1, 1 }, EXPERTS_ROW_THREADS, 0 }, params);
}

static void launch_many(struct cuda_plan *p, const struct experts_params *params)
{
    u32 entries = p->tape.max_rows * params->n_slots, tiles = divide_up(entries, EXPERTS_TILE_ENTRIES);

    if (params->ids) { // each expert's last tile may be partial
        add(p, "experts_group", (struct cuda_shape){ { params->n_experts, 1, 1 }, EXPERTS_ROW_THREADS, 0 },
            params);
        tiles = entries / EXPERTS_TILE_ENTRIES + (params->n_experts < entries ? params->n_experts : entries);
    }
    struct cuda_shape shape = { { tiles, divide_up(params->n_pairs, EXPERTS_TILE_PAIRS), 1 },
                                EXPERTS_MANY_THREADS,
                                EXPERTS_MANY_SHARED };
    add(p, many_names[params->w[0].format], shape, params);
}

static void launch_product(struct cuda_plan *p, enum experts_kernel kernel,
                           const struct experts_params *params)
{
    u32 entries = p->tape.max_rows * params->n_slots, warps = EXPERTS_ROW_THREADS / 32;

    if (kernel == EXPERTS_MANY)
        launch_many(p, params);
    else if (kernel == EXPERTS_INT8)
        add(p, int8_names[params->w[0].format],
            (struct cuda_shape){ { p->device.n_sms, 1, 1 },
                                 EXPERTS_INT8_THREADS,
                                 params->packed ? 0 : (u32)packed_bytes(p, params) },
            params);
    else
        add(p, "experts_plain",
            (struct cuda_shape){ { divide_up(params->n_pairs, warps), entries < 32768 ? entries : 32768, 1 },
                                 EXPERTS_ROW_THREADS,
                                 0 },
            params);
}

// Completes the parameters: packed rows go to *room, which moves behind them; the lists of experts_many go to
// the tape's private memory.
static enum experts_kernel complete(struct cuda_plan *p, struct experts_product *x, u64 *room)
{
    struct experts_params *m = &x->params;
    u64 first_bytes = aligned(((u64)m->n_experts + 1) * sizeof(u32));

    x->max_rows = p->tape.max_rows;
    x->invariant = p->tape.invariant;
    enum experts_kernel kernel = kernel_of(x);
    m->n_pairs = m->gated ? m->n_out : divide_up(m->n_out, 2);
    m->packed_stride = packed_stride(kernel, m->n_cols);
    m->lanes = lanes_for(m->n_cols);
    // else blocks pack for themselves
    if (kernel != EXPERTS_INT8 || p->tape.max_rows > 1 || packed_bytes(p, m) > MOST_SHARED) {
        m->packed = *room;
        *room += packed_bytes(p, m);
    }
    if (kernel == EXPERTS_MANY && m->ids) {
        m->first = p->private_at;
        m->entries = p->private_at + first_bytes;
        p->private_bytes = first_bytes + (u64)p->tape.max_rows * m->n_slots * sizeof(u32);
    }
    return kernel;
}

static bool fits(const struct cuda_plan *p, u32 work, u64 end)
{
    return end <= cuda_at(p, work) + p->command->operands[work].bytes;
}

static struct experts_product up_product(const struct cuda_plan *p, const struct experts_args *args)
{
    return (struct experts_product){
        .params = { .w = { weight_layout_of(p, EXPERTS_UP_GATE), weight_layout_of(p, EXPERTS_UP_UP) },
                    .bias = { cuda_at(p, EXPERTS_UP_GATE_BIAS), cuda_at(p, EXPERTS_UP_UP_BIAS) },
                    .ids = cuda_at(p, EXPERTS_UP_IDS),
                    .in = cuda_at(p, EXPERTS_UP_IN),
                    .out = cuda_at(p, EXPERTS_UP_OUT),
                    .n_cols = args->n_cols,
                    .n_out = args->n_ffn,
                    .n_experts = args->n_experts,
                    .n_slots = args->n_slots,
                    .in_stride = args->n_cols,
                    .out_stride = experts_hidden_cols(args->n_slots, args->n_ffn, args->n_shared),
                    .gated = true,
                    .activation = args->activation,
                    .limit = args->limit },
        .exact = args->exact,
    };
}

// A product of all rows with one matrix, or a pair of them, without choice.
static void make_shared(struct experts_params *m, struct weight_planes first, struct weight_planes second)
{
    m->w[0] = first;
    m->w[1] = second;
    m->bias[0] = m->bias[1] = m->ids = 0;
    m->n_experts = m->n_slots = 1;
    m->slot_stride = 0;
}

// Both products read the same rows: they are packed once for each kernel.
void cuda_plan_experts_up(struct cuda_plan *p)
{
    const struct experts_args *args = (const struct experts_args *)p->command->args;
    u64 room = aligned(cuda_at(p, EXPERTS_UP_WORK));
    struct experts_product routed = up_product(p, args), shared = routed;
    enum experts_kernel kernel = complete(p, &routed, &room);

    launch_pack(p, kernel, &routed.params);
    launch_product(p, kernel, &routed.params);
    if (args->n_shared) {
        make_shared(&shared.params, weight_layout_of(p, EXPERTS_UP_SHARED_GATE),
                    weight_layout_of(p, EXPERTS_UP_SHARED_UP));
        shared.params.out += (u64)args->n_slots * args->n_ffn * sizeof(f32);
        shared.params.n_out = args->n_shared;
        enum experts_kernel other = complete(p, &shared, &room);
        if (other == kernel)
            shared.params.packed = routed.params.packed;
        else
            launch_pack(p, other, &shared.params);
        launch_product(p, other, &shared.params);
    }
    CHECK(fits(p, EXPERTS_UP_WORK, room));
}

static struct experts_product down_product(const struct cuda_plan *p, const struct experts_args *args)
{
    struct weight_planes down = weight_layout_of(p, EXPERTS_DOWN_DOWN);
    u64 bias = cuda_at(p, EXPERTS_DOWN_BIAS);

    return (struct experts_product){
        .params = { .w = { down, down },
                    .bias = { bias, bias },
                    .ids = cuda_at(p, EXPERTS_DOWN_IDS),
                    .in = cuda_at(p, EXPERTS_DOWN_IN),
                    .n_cols = args->n_ffn,
                    .n_out = args->n_cols,
                    .n_experts = args->n_experts,
                    .n_slots = args->n_slots,
                    .in_stride = experts_hidden_cols(args->n_slots, args->n_ffn, args->n_shared),
                    .slot_stride = args->n_ffn,
                    .out_stride = (args->n_slots + (args->n_shared > 0)) * args->n_cols },
        .exact = args->exact,
    };
}

static void launch_sum(struct cuda_plan *p, const struct experts_args *args, u64 parts)
{
    struct experts_sum_params params = { .parts = parts,
                                         .weights = cuda_at(p, EXPERTS_DOWN_WEIGHTS),
                                         .add = cuda_at(p, EXPERTS_DOWN_ADD),
                                         .out = cuda_at(p, EXPERTS_DOWN_OUT),
                                         .n_cols = args->n_cols,
                                         .n_slots = args->n_slots,
                                         .has_shared = args->n_shared > 0 };
    struct cuda_shape shape = { { divide_up(args->n_cols, EXPERTS_ROW_THREADS), p->tape.max_rows, 1 },
                                EXPERTS_ROW_THREADS,
                                0 };
    cuda_launch_add(p, "experts_sum", shape, &params, sizeof params);
}

// The sums of each slot go to the workspace, behind the packed rows.
void cuda_plan_experts_down(struct cuda_plan *p)
{
    const struct experts_args *args = (const struct experts_args *)p->command->args;
    u64 room = aligned(cuda_at(p, EXPERTS_DOWN_WORK));
    struct experts_product routed = down_product(p, args), shared = routed;
    struct weight_planes w = weight_layout_of(p, EXPERTS_DOWN_SHARED);
    enum experts_kernel kernel = complete(p, &routed, &room), other = kernel;

    make_shared(&shared.params, w, w);
    shared.params.in += (u64)args->n_slots * args->n_ffn * sizeof(f32);
    shared.params.n_cols = args->n_shared;
    if (args->n_shared)
        other = complete(p, &shared, &room);
    routed.params.out = room;
    shared.params.out = room + (u64)args->n_slots * args->n_cols * sizeof(f32);
    CHECK(fits(p, EXPERTS_DOWN_WORK, room + (u64)p->tape.max_rows * routed.params.out_stride * sizeof(f32)));
    launch_pack(p, kernel, &routed.params);
    launch_product(p, kernel, &routed.params);
    if (args->n_shared) {
        launch_pack(p, other, &shared.params);
        launch_product(p, other, &shared.params);
    }
    launch_sum(p, args, room);
}
