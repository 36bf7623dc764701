// attend_cuda.c - chooses the kernel: attend_few for up to 16 rows, attend_many for more, attend_plain for fp32 pages and odd heads.
#include "ops/attend/attend_cuda.h"
#include "ops/cuda_table.h"

enum { FEW_ROWS = 16, MANY_ROWS = 64, MOST_PAGES = 64, LEAST_PAGES = 16, FEW_WARPS = 16 };

static u32 divide_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}

// Positions are split so that a short context still fills the device; a split's scores must fit into shared memory.
static void launch_few(struct cuda_plan *p, struct attend_params *params)
{
    const struct page_shape *s = &params->args.pages;
    u32 rows = p->tape.max_rows, group = params->args.n_heads / s->n_kv_heads;
    u32 n_splits = 4 * p->device.n_sms / (rows * s->n_kv_heads);

    n_splits = n_splits < 4 ? 4 : n_splits;
    n_splits = divide_up(s->max_pages, n_splits) > MOST_PAGES ? divide_up(s->max_pages, MOST_PAGES) : n_splits;
    n_splits = n_splits > divide_up(s->max_pages, LEAST_PAGES) ? divide_up(s->max_pages, LEAST_PAGES) : n_splits;
    params->n_splits = n_splits;
    params->most_pages = divide_up(s->max_pages, n_splits);
    params->most_pages = params->most_pages < LEAST_PAGES ? LEAST_PAGES : params->most_pages;
    p->counters_bytes = (u64)rows * s->n_kv_heads * 4;
    p->private_bytes = (u64)rows * s->n_kv_heads * n_splits * group * (s->head_dim + 2) * 4;
    params->arrived = p->counters_at;
    params->partial = p->private_at;
    u32 shared = (group * s->head_dim * (1 + FEW_WARPS) + group * params->most_pages * PAGE_TOKENS + 2 * group) * 4;
    cuda_launch_add(p, "attend_few", (struct cuda_shape){ { n_splits, s->n_kv_heads, rows }, 32 * FEW_WARPS, shared }, params,
                    sizeof *params);
}

void cuda_plan_attend(struct cuda_plan *p)
{
    struct attend_params params = { .q = cuda_at(p, ATTEND_Q),
                                    .k_pages = cuda_at(p, ATTEND_K_PAGES),
                                    .v_pages = cuda_at(p, ATTEND_V_PAGES),
                                    .table = cuda_at(p, ATTEND_TABLE),
                                    .out = cuda_at(p, ATTEND_OUT),
                                    .args = *(const struct attend_args *)p->command->args };
    const struct page_shape *s = &params.args.pages;
    u32 rows = p->tape.max_rows, n_heads = params.args.n_heads;

    if (s->k_format == KV_F16 && s->head_dim % 4 == 0 && s->head_dim <= 256 && rows <= FEW_ROWS &&
        n_heads / s->n_kv_heads * s->head_dim <= 2048) {
        launch_few(p, &params);
    } else if (s->k_format == KV_F16 && (s->head_dim == 64 || s->head_dim == 128) && rows > FEW_ROWS) {
        char name[32];
        snprintf(name, sizeof name, "attend_many_%u", s->head_dim);
        cuda_launch_add(p, name, (struct cuda_shape){ { divide_up(rows, MANY_ROWS), n_heads, 1 }, 128, 4 * 64 * s->head_dim * 2 },
                        &params, sizeof params);
    } else {
        cuda_launch_add(p, "attend_plain", (struct cuda_shape){ { n_heads, rows, 1 }, 128, s->head_dim * 4 * 2 }, &params,
                        sizeof params);
    }
}
