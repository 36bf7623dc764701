// attend_cuda.c - chooses the kernel: attend_few for up to 16 rows of fp16 pages, attend_many for more and for the other formats,
// attend_plain for fp32 pages and odd heads.
#include "ops/attend/attend_cuda.h"
#include "ops/cuda_table.h"

enum { FEW_ROWS = 16, MANY_ROWS = 64 };

static u32 divide_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}

// Two blocks a multiprocessor, but no share below the pages that a block's warps take at once.
static void launch_few(struct cuda_plan *p, struct attend_params *params)
{
    const struct page_shape *s = &params->args.pages;
    u32 rows = p->tape.max_rows, n_heads = params->args.n_heads, most = divide_up(s->max_pages, ATTEND_FEW_THREADS / 32);
    u32 n_splits = 2 * p->device.n_sms / (rows * n_heads);
    char name[32];

    n_splits = n_splits < most ? n_splits : most;
    params->n_splits = n_splits > 0 && !p->tape.invariant ? n_splits : 1;
    p->counters_bytes = (u64)rows * n_heads * 4;
    p->private_bytes = (u64)rows * n_heads * params->n_splits * 4 * (s->head_dim + 2) * 4;
    params->arrived = p->counters_at;
    params->partial = p->private_at;
    snprintf(name, sizeof name, "attend_few_%u", s->head_dim);
    cuda_launch_add(p, name, (struct cuda_shape){ { params->n_splits, n_heads, rows }, ATTEND_FEW_THREADS, 0 }, params,
                    sizeof *params);
}

static void launch_many(struct cuda_plan *p, const struct attend_params *params)
{
    u32 head_dim = params->args.pages.head_dim;
    struct cuda_shape shape = { { divide_up(p->tape.max_rows, MANY_ROWS), params->args.n_heads, 1 }, 128, 4 * 64 * head_dim * 2 };
    char name[32];

    snprintf(name, sizeof name, "attend_hopper_%u", head_dim);
    if (p->device.capability < 90 || !cuda_has_kernel(p, name))
        snprintf(name, sizeof name, "attend_many_%u", head_dim);
    cuda_launch_add(p, name, shape, params, sizeof *params);
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
    bool tiles = s->k_format != KV_F32 && s->v_format != KV_F32 && (s->head_dim == 64 || s->head_dim == 128);

    if (tiles && (rows <= FEW_ROWS || p->tape.invariant) && s->k_format == KV_F16 && s->v_format == KV_F16) {
        launch_few(p, &params);
    } else if (tiles) {
        launch_many(p, &params);
    } else {
        cuda_launch_add(p, "attend_plain", (struct cuda_shape){ { n_heads, rows, 1 }, 128, s->head_dim * 4 * 2 }, &params,
                        sizeof params);
    }
}
