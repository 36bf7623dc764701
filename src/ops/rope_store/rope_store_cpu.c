// rope_store_cpu.c - the definition.
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_store/rope_store.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

void rope_rotate_plain(float *x, const float *angles, uint32_t n_dims, enum rope_pairs pairs)
{
    for (uint32_t i = 0; i < n_dims / 2; i++) {
        float *a = x + (pairs == ROPE_ADJACENT ? 2 * i : i);
        float *b = a + (pairs == ROPE_ADJACENT ? 1 : n_dims / 2);
        float cosine = angles[2 * i], sine = angles[2 * i + 1], first = *a, second = *b;
        *a = first * cosine - second * sine;
        *b = second * cosine + first * sine;
    }
}

static void prepare_heads(const struct rope_store_args *args, float *heads, uint32_t n, const float *norm,
                          const float *angles)
{
    uint32_t head_dim = args->pages.head_dim;

    for (uint32_t h = 0; h < n; h++) {
        float *head = heads + h * head_dim;
        if (norm)
            rmsnorm_row_plain(head, norm, head, head_dim, args->eps);
        rope_rotate_plain(head, angles, args->n_dims, (enum rope_pairs)args->pairs);
    }
}

static void store_heads(const struct rope_store_args *args, const struct rope_row *row)
{
    const struct page_shape *s = &args->pages;
    uint32_t page = row->table[row->position / PAGE_TOKENS], token = row->position % PAGE_TOKENS;

    for (uint32_t h = 0; h < s->n_kv_heads; h++) {
        page_write(&(struct page_token){ s, row->k_pages, page, h, token, false }, row->k + h * s->head_dim);
        page_write(&(struct page_token){ s, row->v_pages, page, h, token, true }, row->v + h * s->head_dim);
    }
}

void rope_store_row_plain(const struct rope_store_args *args, const struct rope_row *row)
{
    prepare_heads(args, row->q, args->n_heads, row->q_norm, row->angles);
    prepare_heads(args, row->k, args->pages.n_kv_heads, row->k_norm, row->angles);
    store_heads(args, row);
}

static struct rope_row row_of(const struct cpu_call *call, uint32_t r)
{
    const struct rope_store_args *args = cpu_args(call);

    return (struct rope_row){
        .q = cpu_row(call, ROPE_Q, r),
        .k = cpu_row(call, ROPE_K, r),
        .v = cpu_row(call, ROPE_V, r),
        .q_norm = cpu_base(call, ROPE_Q_NORM),
        .k_norm = cpu_base(call, ROPE_K_NORM),
        .angles = cpu_row(call, ROPE_ANGLES, r),
        .k_pages = cpu_base(call, ROPE_K_PAGES),
        .v_pages = cpu_base(call, ROPE_V_PAGES),
        .table = (const uint32_t *)cpu_base(call, ROPE_TABLE) +
                 (uint64_t)step_slots(call->step)[r] * args->pages.max_pages,
        .position = step_positions(call->step)[r],
    };
}

static void rope_store_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        struct rope_row row = row_of(call, r);
        rope_store_row_plain(cpu_args(call), &row);
    }
}

static void rope_store_fast(const struct cpu_call *call, struct row_range range,
                            const struct row_kernels *rows)
{
    const struct rope_store_args *args = cpu_args(call);

    for (uint32_t r = range.first; r < range.last; r++) {
        struct rope_row row = row_of(call, r);
        rows->rope_store(args, &row, (struct head_range){ 0, args->n_heads + 2 * args->pages.n_kv_heads });
    }
}
ROW_KERNELS(rope_store_fast)

const struct cpu_op cpu_op_rope_store = { .name = "rope_store",
                                          .by_rows = true,
                                          .plain = { plan_rows, rope_store_run },
                                          .fast = { ROW_CHOICES(plan_rows, rope_store_fast) } };
