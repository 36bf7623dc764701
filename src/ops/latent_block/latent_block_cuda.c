// latent_block_cuda.c - the operation's launch: one, where the shapes and formats are those of its kernel and
// all weights of a block fit its shared memory; else the parts'.
#include "ops/latent_block/latent_block_cuda.h"
#include "ops/cuda_table.h"

static const u32 operands[BLOCK_N_PRODUCTS] = { LATENT_BLOCK_Q_A, LATENT_BLOCK_Q_B, LATENT_BLOCK_K_B,
                                                LATENT_BLOCK_V_B, LATENT_BLOCK_O };

static const char *kernel_of(const struct cuda_plan *p, const struct latent_block_args *a)
{
    static const char *const names[][KV_Q8_0 + 1] = {
        { [KV_F16] = "latent_block_q4_0_f16",
          [KV_BF16] = "latent_block_q4_0_bf16",
          [KV_Q8_0] = "latent_block_q4_0_q8_0" },
        { [KV_F16] = "latent_block_q8_0_f16",
          [KV_BF16] = "latent_block_q8_0_bf16",
          [KV_Q8_0] = "latent_block_q8_0_q8_0" },
    };
    u32 format = cuda_weight(p, LATENT_BLOCK_Q_A)->format;

    for (u32 i = 0; i < BLOCK_N_PRODUCTS; i++)
        if (cuda_weight(p, operands[i])->format != format)
            return NULL;
    if (cuda_weight(p, LATENT_BLOCK_KV_A)->format != format ||
        (format != QUANT_Q4_0 && format != QUANT_Q8_0) || a->store.pages.k_format > KV_Q8_0)
        return NULL;
    const char *name = names[format == QUANT_Q8_0][a->store.pages.k_format];
    return name && cuda_has_kernel(p, name) ? name : NULL;
}

static bool shapes_suit(const struct cuda_plan *p, const struct latent_block_args *a)
{
    const struct latent_project_args *q = &a->absorb;

    return p->device.capability >= 90 && !q->exact && a->store.pages.head_dim == LATENT_KEY &&
           a->store.latent_dims == LATENT_VALUE && a->n_cols % 32 == 0 && a->n_cols <= 8 * BLOCK_THREADS &&
           a->q_latent % 32 == 0 && a->q_latent <= 8 * BLOCK_THREADS && q->n_cols % 32 == 0 &&
           q->n_cols <= a->n_cols && a->n_value % 32 == 0 && q->n_heads * a->n_value <= 16 * BLOCK_THREADS &&
           q->n_heads <= p->device.n_sms;
}

// Pages lie where the first products' weights were, and in what is free of `all` bytes: those weights move
// up. Returns by how much.
static u32 place_pages(struct latent_block_params *b, u32 bytes, u32 all)
{
    const struct page_shape *pages = &b->args.store.pages;
    u32 slots = BLOCK_SLOTS * page_head_bytes(pages->k_format, pages->head_dim),
        read = b->rows[BLOCK_EXPAND].at, room = read + (all > bytes ? all - bytes : 0) / 128 * 128,
        depth = room < BLOCK_SLOT_SUMS ? 0 : room / slots;

    b->depth = depth < BLOCK_DEPTH ? depth : BLOCK_DEPTH;
    u32 want = b->depth * slots < BLOCK_SLOT_SUMS ? BLOCK_SLOT_SUMS : b->depth * slots,
        more = b->depth && want > read ? divide_up(want - read, 128) * 128 : 0;
    for (u32 i = 0; i < BLOCK_N_PRODUCTS; i++)
        b->rows[i].at += more;
    b->row_at[0] += more;
    b->row_at[1] += more;
    b->state_at += more;
    return more;
}

// Places in shared memory, of which there are `all` bytes. Returns the bytes.
static u32 place(struct latent_block_params *b, u32 format, u32 n_blocks, u32 all)
{
    const struct latent_block_args *a = &b->args;
    const struct latent_project_args *q = &a->absorb;
    u32 n_values = q->n_heads * a->n_value,
        rows[BLOCK_N_PRODUCTS] = { a->q_latent + LATENT_KEY, q->n_cols + q->n_rotated, q->n_rows, a->n_value,
                                   a->n_cols },
        cols[BLOCK_N_PRODUCTS] = { a->n_cols, a->q_latent, q->n_cols, LATENT_VALUE, n_values }, at = 0;
    static const u32 shifts[BLOCK_N_PRODUCTS] = { 5, 3, 1, 3, 5 };

    b->head_blocks = n_blocks / q->n_heads;
    for (u32 i = 0; i < BLOCK_N_PRODUCTS; i++) {
        struct latent_rows *r = &b->rows[i];
        u32 n = i == BLOCK_DOWN || i == BLOCK_OUT ? n_blocks : b->head_blocks;
        *r =
            (struct latent_rows){ .at = at, .n_rows = rows[i], .n_blocks = cols[i] / 32, .shift = shifts[i] };
        at += divide_up(block_rows_deal(&r->of_block, format, rows[i], cols[i], n), 128) * 128;
    }
    b->row_at[0] = at;
    at += block_rows_activations(a->n_cols > n_values ? a->n_cols : n_values);
    b->row_at[1] = at;
    at += block_rows_activations(a->q_latent > LATENT_VALUE ? a->q_latent : LATENT_VALUE);
    b->state_at = at;
    at += BLOCK_STATE;
    return at + place_pages(b, at, all);
}

static void place_words(struct cuda_plan *p, struct latent_block_params *b)
{
    const struct latent_project_args *q = &b->args.absorb;
    u64 at = p->counters_at;

    b->words[BLOCK_DOWN] = at;
    b->words[BLOCK_UP] = at + (u64)BLOCK_COPIES * (b->args.q_latent + LATENT_KEY) * 4;
    b->words[BLOCK_ABSORB] = b->words[BLOCK_UP] + (u64)q->n_heads * (q->n_cols + q->n_rotated) * 2;
    b->parts = b->words[BLOCK_ABSORB] + (u64)q->n_heads * q->n_rows * 2;
    b->n_words = (u32)((b->parts - at) / 4);
    b->words[BLOCK_EXPAND] = b->parts + (u64)BLOCK_SPLITS * q->n_heads * (LATENT_VALUE + 4) * 4;
    b->arrived = b->words[BLOCK_EXPAND] + (u64)BLOCK_COPIES * q->n_heads * b->args.n_value * 2;
    p->counters_bytes = b->arrived + 4 - at;
}

static bool plan_block(struct cuda_plan *p, const struct latent_block_args *a)
{
    const char *kernel = kernel_of(p, a);
    u32 n_blocks = p->device.n_sms;
    struct latent_block_params b = {
        .attend = { .k_pages = cuda_at(p, LATENT_BLOCK_PAGES),
                    .table = cuda_at(p, LATENT_BLOCK_TABLE),
                    .args = { a->store.pages, a->absorb.n_heads, 0, a->scale, a->store.latent_dims } },
        .in = cuda_at(p, LATENT_BLOCK_IN),
        .norms = { cuda_at(p, LATENT_BLOCK_NORM), cuda_at(p, LATENT_BLOCK_Q_NORM) },
        .kv_norm = cuda_at(p, LATENT_BLOCK_KV_NORM),
        .angles = cuda_at(p, LATENT_BLOCK_ANGLES),
        .out = cuda_at(p, LATENT_BLOCK_OUT),
        .kv_a = weight_layout_of(p, LATENT_BLOCK_KV_A),
        .args = *a,
        .inverse_cols = { 1.0f / (f32)a->n_cols, 1.0f / (f32)a->q_latent },
        .tiles = divide_up(a->absorb.n_heads, ATTEND_FEW_HEADS)
    };

    if (!kernel || !shapes_suit(p, a))
        return false;
    u32 most = n_blocks / b.tiles, shared = place(&b, b.kv_a.format, n_blocks, p->device.shared_bytes);
    if (shared > p->device.shared_bytes || most == 0)
        return false;
    for (u32 i = 0; i < BLOCK_N_PRODUCTS; i++)
        b.w[i] = weight_layout_of(p, operands[i]);
    b.n_splits = most < BLOCK_SPLITS ? most : BLOCK_SPLITS;
    place_words(p, &b);
    cuda_launch_add(p, kernel, (struct cuda_shape){ { n_blocks, 1, 1 }, BLOCK_THREADS, shared }, &b,
                    sizeof b);
    return true;
}

void cuda_plan_latent_block(struct cuda_plan *p)
{
    if (!plan_block(p, (const struct latent_block_args *)p->command->args))
        cuda_plan_parts(p);
}
