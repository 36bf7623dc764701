// latent_store_cpu.c - the definition; one vector a row, so there is no faster kernel.
#include <string.h>
#include "ops/latent/latent.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_store/rope_store.h"
#include "ops/rows.h"

static void store_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct latent_store_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->pages.head_dim * sizeof(float);
}

static void store_row(const struct cpu_call *call, uint32_t r)
{
    const struct latent_store_args *args = cpu_args(call);
    const struct page_shape *s = &args->pages;
    const float *in = cpu_row(call, LATENT_STORE_IN, r);
    const uint32_t *table = (const uint32_t *)cpu_base(call, LATENT_STORE_TABLE) +
                            (uint64_t)step_slots(call->step)[r] * s->max_pages;
    uint32_t position = step_positions(call->step)[r], n_rotated = s->head_dim - args->latent_dims;
    float *key = call->local;

    rmsnorm_row_plain(in, cpu_base(call, LATENT_STORE_NORM), key, args->latent_dims, args->eps);
    memcpy(key + args->latent_dims, in + args->latent_dims, n_rotated * sizeof *key);
    rope_rotate_plain(key + args->latent_dims, cpu_row(call, LATENT_STORE_ANGLES, r), n_rotated,
                      (enum rope_pairs)args->pairs);
    page_write(&(struct page_token){ s, cpu_base(call, LATENT_STORE_PAGES), table[position / PAGE_TOKENS], 0,
                                     position % PAGE_TOKENS, false },
               key);
}

static void store_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        store_row(call, r);
}

const struct cpu_op cpu_op_latent_store = { .name = "latent_store",
                                            .by_rows = true,
                                            .plain = { store_plan, store_run } };
