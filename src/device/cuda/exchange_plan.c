// exchange_plan.c - the launches of the commands by which ranks exchange; exchange.cu has the kernels.
#include <string.h>
#include "device/cuda/cuda_internal.h"
#include "device/cuda/exchange_cuda.h"
#include "device/fuse.h"

static u32 rows_of_tape(const struct cuda_plan *p, u32 rows)
{
    return rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
}

static u32 blocks_for(uint64_t n_fours)
{
    return (u32)((n_fours + EXCHANGE_THREADS - 1) / EXCHANGE_THREADS);
}

static struct exchange_peers peers_of(const struct exchange *x)
{
    return (struct exchange_peers){ .error = x->error, .rank = x->rank, .n = x->n };
}

static void plan_all_reduce(struct cuda_plan *p, const struct exchange *x, const struct exchange_args *args)
{
    struct all_reduce_params params = { .v = cuda_at(p, 0),
                                        .peers = peers_of(x),
                                        .turn_bytes = 4 * exchange_turn_words(x),
                                        .index = args->index,
                                        .n_cols = args->n_cols,
                                        .rows = args->rows };
    uint64_t n_fours = ((uint64_t)rows_of_tape(p, args->rows) * args->n_cols + 3) / 4;
    u32 blocks = blocks_for(n_fours), most = p->device.n_sms * EXCHANGE_MANY_BLOCKS;
    bool few = blocks <= p->device.n_sms * EXCHANGE_FEW_BLOCKS;
    char name[32];

    CHECK(4 * n_fours <= x->sum_words);
    for (u32 r = 0; r < x->n; r++)
        if (r != x->rank) {
            params.peers.to[r] = x->inboxes[r] + 4 * exchange_at_sums(x, r, x->rank);
            params.peers.from[r] = x->inboxes[x->rank] + 4 * exchange_at_sums(x, x->rank, r);
        }
    if (fuse_packed(p->command, true)) {
        p->cuda->table->reduce_packed(p, &params);
        return;
    }
    snprintf(name, sizeof name, "all_reduce_%s_%u", few ? "few" : "many", x->n <= 2 ? 2 : x->n <= 4 ? 4 : 8);
    cuda_launch_add(p, name, (struct cuda_shape){ { few ? blocks : most, 1, 1 }, EXCHANGE_THREADS, 0 },
                    &params, sizeof params);
}

static void plan_all_gather(struct cuda_plan *p, const struct exchange *x)
{
    struct all_gather_params params = {
        .own = cuda_at(p, 0), .whole = cuda_at(p, 1), .peers = peers_of(x), .rows = ROWS_OUTPUT
    };
    u32 most_cols = 0;

    for (u32 r = 0; r < x->n; r++) {
        params.cols[r] = x->part_cols[r];
        params.all += x->part_cols[r];
        most_cols = x->part_cols[r] > most_cols ? x->part_cols[r] : most_cols;
        if (x->rank == 0 && r > 0)
            params.peers.from[r] = x->inboxes[0] + 4 * exchange_at_parts(x, r);
    }
    if (x->rank > 0)
        params.peers.to[0] = x->inboxes[0] + 4 * exchange_at_parts(x, x->rank);
    uint64_t n_fours = ((uint64_t)p->tape.max_outputs * most_cols + 3) / 4;
    u32 blocks = blocks_for(n_fours), most = p->device.n_sms * EXCHANGE_MANY_BLOCKS;
    CHECK(4 * n_fours <= x->part_words);
    cuda_launch_add(p, "all_gather",
                    (struct cuda_shape){ { blocks < most ? blocks : most, 1, 1 }, EXCHANGE_THREADS, 0 },
                    &params, sizeof params);
}

static void plan_tell(struct cuda_plan *p, const struct exchange *x, const struct exchange_args *args)
{
    struct tell_params params = { .results = cuda_at(p, 0),
                                  .history = cuda_at(p, 1),
                                  .peers = peers_of(x),
                                  .history_stride = args->history_stride };

    CHECK(p->tape.max_outputs <= x->token_words);
    for (u32 r = 1; r < x->n && x->rank == 0; r++)
        params.peers.to[r] = x->inboxes[r] + 4 * exchange_at_tokens(x);
    if (x->rank > 0)
        params.peers.from[0] = x->inboxes[x->rank] + 4 * exchange_at_tokens(x);
    cuda_launch_add(p, "tell", (struct cuda_shape){ { 1, 1, 1 }, EXCHANGE_THREADS, 0 }, &params,
                    sizeof params);
}

void cuda_plan_exchange(struct cuda_plan *p)
{
    struct exchange_args args;

    memcpy(&args, p->command->args, sizeof args);
    CHECK(p->exchange);
    if (p->command->op == TAPE_ALL_REDUCE)
        plan_all_reduce(p, p->exchange, &args);
    else if (p->command->op == TAPE_ALL_GATHER)
        plan_all_gather(p, p->exchange);
    else
        plan_tell(p, p->exchange, &args);
}
