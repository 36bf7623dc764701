// latent_prompt_cuda.c - the operation's launches: the parts, but for rows of sequences with many rows in the
// step, and for those expanded keys and values and attention over them, in turns; where shapes, formats and
// device have no such kernels the parts alone.
#include "ops/latent_prompt/latent_prompt_cuda.h"
#include <stdio.h>
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "ops/latent/latent_cuda.h"

static u32 n_key(const struct latent_prompt_params *e)
{
    return e->args.qk.project.n_cols + e->args.qk.project.n_rotated;
}

static u32 n_chunks(const struct latent_prompt_params *e) // of a tile
{
    return (n_key(e) + e->args.n_value) / PROMPT_TILE;
}

struct prompt_kernels {
    char expand[CUDA_NAME_BYTES], attend[CUDA_NAME_BYTES];
};

static bool find_kernels(const struct cuda_plan *p, const struct latent_prompt_params *e,
                         struct prompt_kernels *k)
{
    snprintf(k->expand, sizeof k->expand, "latent_prompt_expand_%u_%u", n_key(e), e->args.n_value);
    snprintf(k->attend, sizeof k->attend, "latent_prompt_attend_%u_%u", n_key(e), e->args.n_value);
    return cuda_has_kernel(p, k->expand) && cuda_has_kernel(p, k->attend);
}

// Whether the kernel of absorbed attention can leave rows out.
static bool absorbed_leaves_out(const struct cuda_plan *p)
{
    struct command parts[LATENT_PROMPT_N_PARTS];
    struct cuda_plan of_part = *p;

    latent_prompt_parts(p->command, parts);
    of_part.command = &parts[LATENT_PROMPT_ATTEND];
    return latent_attend_hopper(&of_part);
}

static bool shapes_suit(const struct latent_prompt_params *e)
{
    const struct latent_qk_args *a = &e->args.qk;

    return a->store.pages.head_dim == LATENT_KEY && a->store.latent_dims == LATENT_VALUE &&
           a->project.n_rotated == PROMPT_TILE && a->project.n_cols % PROMPT_TILE == 0 &&
           e->args.n_value % PROMPT_TILE == 0 && a->store.pairs == a->project.pairs;
}

// Memory: the runs, what lies between two turns, both matrices.
static void place_memory(struct cuda_plan *p, struct latent_prompt_params *e)
{
    u32 n_heads = e->args.qk.project.n_heads;
    u64 state = (u64)p->tape.max_rows * n_heads * 8,
        matrices = (u64)n_heads * (n_chunks(e) - 1) * PROMPT_MATRIX;

    e->runs = p->private_at;
    e->state = e->runs + divide_up(sizeof(struct latent_runs), 256) * 256;
    e->matrices = e->state + (state + 255) / 256 * 256;
    p->private_bytes = e->matrices + matrices - p->private_at;
    e->tiles = cuda_at(p, LATENT_PROMPT_EXPANDED);
    e->n_tiles = p->tape.max_rows * LATENT_PROMPT_KEYS / PROMPT_TILE;
}

static u32 n_turns_of(const struct cuda_plan *p, const struct latent_prompt_params *e)
{
    u32 n = divide_up(e->args.qk.store.pages.max_pages * PAGE_TOKENS, e->n_tiles * PROMPT_TILE),
        most = p->tape.max_rows / LATENT_PROMPT_TURN_ROWS;

    return n < most ? n : most;
}

// All rows that are in no run.
static void launch_absorbed(struct cuda_plan *p, const struct latent_prompt_params *e)
{
    const struct command *whole = p->command;
    struct command parts[LATENT_PROMPT_N_PARTS];

    latent_prompt_parts(whole, parts);
    p->command = &parts[LATENT_PROMPT_QK];
    latent_qk_launch(p, e->runs);
    p->command = &parts[LATENT_PROMPT_ATTEND];
    latent_attend_launch(p, e->runs);
    p->command = &parts[LATENT_PROMPT_PROJECT];
    latent_project_launch(p, e->runs);
    p->command = whole;
}

// The others, whose results stand in the place of what the projection may have put there.
static void launch_turns(struct cuda_plan *p, struct latent_prompt_params *e, const struct prompt_kernels *k)
{
    u32 n_heads = e->args.qk.project.n_heads, values = e->args.n_value / PROMPT_TILE,
        keys = n_chunks(e) - values, rows = p->tape.max_rows;
    struct cuda_shape matrices = { { (keys - 1) * PROMPT_LATENT_CHUNKS + e->args.n_value / 16, n_heads, 1 },
                                   PROMPT_WEIGHTS_THREADS,
                                   0 },
                      expand = { { p->device.n_sms, 1, 1 }, PROMPT_THREADS, PROMPT_EXPAND_SHARED },
                      attend = { { n_heads,
                                   divide_up(rows, PROMPT_QUERIES) + rows / LATENT_PROMPT_ROWS, // runs' ends
                                   1 },
                                 PROMPT_THREADS,
                                 2 * PROMPT_CHUNK * (2 * keys + values) + PROMPT_BARRIERS };

    cuda_launch_add(p, "latent_prompt_weights", matrices, e, sizeof *e);
    for (; e->first_tile < e->most_tiles; e->first_tile += e->n_tiles) {
        cuda_launch_add(p, k->expand, expand, e, sizeof *e);
        cuda_launch_add(p, k->attend, attend, e, sizeof *e);
    }
}

static bool plan_expanded(struct cuda_plan *p)
{
    struct latent_prompt_params e = { .q = cuda_at(p, LATENT_QK_Q),
                                      .angles = cuda_at(p, LATENT_STORE_ANGLES),
                                      .pages = cuda_at(p, LATENT_STORE_PAGES),
                                      .table = cuda_at(p, LATENT_STORE_TABLE),
                                      .out = cuda_at(p, LATENT_PROMPT_OUT),
                                      .k_b = weight_layout_of(p, LATENT_QK_W),
                                      .v_b = weight_layout_of(p, LATENT_PROMPT_V_B),
                                      .args = *(const struct latent_prompt_args *)p->command->args };
    struct prompt_kernels kernels;

    if (!shapes_suit(&e) || !absorbed_leaves_out(p) || !find_kernels(p, &e, &kernels))
        return false;
    place_memory(p, &e);
    e.most_tiles = n_turns_of(p, &e) * e.n_tiles;
    u64 bytes = p->private_bytes;
    cuda_launch_add(p, "latent_prompt_runs", (struct cuda_shape){ { 1, 1, 1 }, PROMPT_RUNS_THREADS, 0 }, &e,
                    sizeof e);
    launch_absorbed(p, &e);
    launch_turns(p, &e, &kernels);
    p->private_bytes = bytes;
    return true;
}

void cuda_plan_latent_prompt(struct cuda_plan *p)
{
    if (!plan_expanded(p))
        cuda_plan_parts(p);
}
