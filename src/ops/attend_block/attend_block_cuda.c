// attend_block_cuda.c - the operation's launch: one, where the shapes and formats are those of its kernel and
// a block's weights fit its shared memory; else the parts'.
#include "ops/attend_block/attend_block_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"

enum { ALONE = 2 }; // a past of so many turns of a block is not split

static const char *kernel_of(const struct cuda_plan *p, const struct attend_block_args *a)
{
    static const char *const names[][KV_Q8_0 + 1] = {
        { [KV_F16] = "attend_block_q4_0_f16",
          [KV_BF16] = "attend_block_q4_0_bf16",
          [KV_Q8_0] = "attend_block_q4_0_q8_0" },
        { [KV_F16] = "attend_block_q8_0_f16",
          [KV_BF16] = "attend_block_q8_0_bf16",
          [KV_Q8_0] = "attend_block_q8_0_q8_0" },
    };
    static const u32 others[] = { QKV_WK, QKV_WV, ATTEND_BLOCK_O };
    const struct page_shape *s = &a->qkv.rope.pages;
    u32 format = cuda_weight(p, QKV_WQ)->format;

    for (u32 i = 0; i < sizeof others / sizeof *others; i++)
        if (cuda_weight(p, others[i])->format != format)
            return NULL;
    if ((format != QUANT_Q4_0 && format != QUANT_Q8_0) || s->k_format != s->v_format || s->k_format > KV_Q8_0)
        return NULL;
    const char *name = names[format == QUANT_Q8_0][s->k_format];
    return name && cuda_has_kernel(p, name) ? name : NULL;
}

static bool shapes_suit(const struct cuda_plan *p, const struct attend_block_args *a)
{
    return p->device.capability >= 90 && !a->qkv.exact && a->qkv.rope.pages.head_dim == ATTEND_BLOCK_DIM &&
           a->qkv.n_cols % 32 == 0 && !cuda_weight(p, QKV_BQ) && !cuda_weight(p, QKV_BK) &&
           !cuda_weight(p, QKV_BV);
}

// Deals rows to the first n_blocks blocks. Returns the bytes of a block's.
static u32 deal(struct attend_block_rows *r, u32 format, u32 n_rows, u32 n_cols, u32 n_blocks)
{
    u32 n = n_rows / BLOCK_ROWS_GROUP;

    r->n_cols = n_cols;
    r->n_blocks = n < n_blocks ? n : n_blocks;
    return block_rows_deal(&r->of_block, format, n_rows, n_cols, r->n_blocks);
}

// Places in shared memory: what comes later lies where the first weights were. Those of the output are none
// of the blocks that attend where a past is not split: these are the last. Returns the bytes; 0: too many
// rows.
static u32 place(struct attend_block_params *b, u32 format, u32 n_blocks)
{
    const struct rope_store_args *rope = &b->args.qkv.rope;
    u32 dim = ATTEND_BLOCK_DIM, n_cols = b->args.qkv.n_cols, n_q = rope->n_heads * dim,
        n_rows = n_q + 2 * rope->pages.n_kv_heads * dim, most,
        attend = ATTEND_FEW_SHARED(dim, dim, ATTEND_FEW_PARTS(dim), ATTEND_BLOCK_THREADS),
        qkv = deal(&b->qkv, format, n_rows, n_cols, n_blocks),
        out = deal(&b->rows, format, n_cols, n_q, n_blocks - b->tiles);

    if (b->rows.of_block.each >= ATTEND_BLOCK_MOST_ROWS / BLOCK_ROWS_GROUP)
        return 0;
    most = qkv > attend ? qkv : attend;
    most = most > out ? most : out;
    b->row_at = divide_up(most, 128) * 128;
    b->state_at = b->row_at + block_rows_activations(n_cols > n_q ? n_cols : n_q);
    return b->state_at + ATTEND_BLOCK_STATE;
}

// How a past is split, and the words that blocks hand on.
static void place_memory(struct cuda_plan *p, struct attend_block_params *b, u32 n_blocks)
{
    const struct rope_store_args *rope = &b->args.qkv.rope;
    u32 slots = ATTEND_BLOCK_THREADS / 32, n_q = rope->n_heads * ATTEND_BLOCK_DIM,
        n_kv = rope->pages.n_kv_heads * ATTEND_BLOCK_DIM, most = divide_up(rope->pages.max_pages, slots),
        n = n_blocks / b->tiles;

    n = n < most ? n : most;
    b->attend.n_splits = n < ATTEND_FEW_SPLITS ? n : ATTEND_FEW_SPLITS;
    b->attend.alone_pages = ALONE * slots;
    b->attend.fewest_pages = slots;
    b->attend.partial = p->private_at;
    p->private_bytes = (u64)rope->n_heads * b->attend.n_splits * (ATTEND_BLOCK_DIM + 2) * 4;
    b->heads = p->counters_at;
    b->attend.out = b->heads + (u64)(n_q + 2 * n_kv) * 4;
    b->attend.arrived = b->attend.out + (u64)n_q * 2;
    b->arrived = b->attend.arrived + (u64)b->tiles * 8;
    p->counters_bytes = b->arrived + 4 - p->counters_at;
}

static bool plan_block(struct cuda_plan *p, const struct attend_block_args *a)
{
    const struct rope_store_args *rope = &a->qkv.rope;
    const char *kernel = kernel_of(p, a);
    u32 n_blocks = p->device.n_sms, group = rope->n_heads / rope->pages.n_kv_heads;
    struct attend_block_params b = {
        .attend = { .k_pages = cuda_at(p, QKV_K_PAGES),
                    .v_pages = cuda_at(p, QKV_V_PAGES),
                    .table = cuda_at(p, QKV_TABLE),
                    .args = { rope->pages, rope->n_heads, a->window, a->scale, 0 } },
        .in = cuda_at(p, QKV_IN),
        .norm = cuda_at(p, QKV_NORM),
        .q_norm = cuda_at(p, QKV_Q_NORM),
        .k_norm = cuda_at(p, QKV_K_NORM),
        .angles = cuda_at(p, QKV_ANGLES),
        .out = cuda_at(p, ATTEND_BLOCK_OUT),
        .w = { weight_layout_of(p, QKV_WQ), weight_layout_of(p, QKV_WK), weight_layout_of(p, QKV_WV) },
        .o = weight_layout_of(p, ATTEND_BLOCK_O),
        .args = *a,
        .tiles = rope->pages.n_kv_heads * divide_up(group, ATTEND_FEW_HEADS)
    };

    if (!kernel || !shapes_suit(p, a) || 2 * b.tiles > n_blocks)
        return false;
    u32 shared = place(&b, cuda_weight(p, QKV_WQ)->format, n_blocks);
    if (shared == 0 || shared > p->device.shared_bytes)
        return false;
    place_memory(p, &b, n_blocks);
    cuda_launch_add(p, kernel, (struct cuda_shape){ { n_blocks, 1, 1 }, ATTEND_BLOCK_THREADS, shared }, &b,
                    sizeof b);
    return true;
}

void cuda_plan_attend_block(struct cuda_plan *p)
{
    if (!plan_block(p, (const struct attend_block_args *)p->command->args))
        cuda_plan_parts(p);
}
