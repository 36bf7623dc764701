// group.c - see group.h.
//
// The threads are a pool's whose one run is a step: its barriers are those of the collectives, and it sleeps
// between steps. A rank that fails goes on to the next collective, where all see it and leave together.
#include "engine/group/group.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "device/tape_exchange.h"
#include "engine/group/collective.h"
#include "engine/group/direct.h"

struct rank_group {
    struct stage *ranks[EXCHANGE_RANKS]; // [n]; the first is the engine's
    struct stage *others;                // [n - 1]
    uint32_t n;
    const struct buffer *pool;           // the first rank's rows of pictures, or NULL
    struct buffer pools[EXCHANGE_RANKS]; // of the others
    struct thread_pool *threads;
    struct collective collective;
    struct direct direct;
    const struct step *step; // of the run
    struct err errs[EXCHANGE_RANKS];
};

// ---- loading

static bool make_others(struct rank_group *g, const struct group_plan *plan, struct stage_progress *progress,
                        struct err *err)
{
    const struct model *m = &plan->parts[0];

    for (uint32_t i = 1; i < plan->n; i++) {
        struct stage *s = &g->others[i - 1];
        struct stage_plan own = { .model = &plan->parts[i],
                                  .device = plan->devices[i],
                                  .layers = { 0, m->config.n_layers },
                                  .shape = plan->shape,
                                  .pool = g->pool ? &g->pools[i] : NULL,
                                  .adapters = plan->adapters };
        if ((g->pool && !buffer_alloc(own.device, g->pool->bytes, &g->pools[i], err)) ||
            !stage_create(s, &own, progress, err))
            return err_prefix(err, "rank %u", i);
        g->ranks[g->n++] = s;
    }
    return true;
}

static bool make_collective(struct rank_group *g, struct communicator *communicator, struct err *err)
{
    g->collective = (struct collective){
        .ranks = g->ranks, .n = g->n, .threads = g->threads, .communicator = communicator
    };
    return collective_create(&g->collective, err);
}

bool group_create(struct rank_group **group, struct stage *first, const struct group_plan *plan,
                  struct stage_progress *progress, struct err *err)
{
    struct rank_group *g = *group = mem_alloc(sizeof *g);

    CHECK(plan->n > 1 && plan->n <= EXCHANGE_RANKS);
    if (!g)
        return err_memory(err, "ranks");
    g->ranks[g->n++] = first;
    g->pool = plan->pool;
    g->others = mem_alloc_array(plan->n - 1, sizeof *g->others);
    g->threads = thread_pool_create(plan->n);
    if (!g->others || !g->threads)
        return err_memory(err, "ranks and their threads");
    if (!make_others(g, plan, progress, err) ||
        !direct_open(&g->direct, g->ranks, g->n, plan->communicator, err) ||
        !make_collective(g, plan->communicator, err))
        return false;
    first->others = g->others;
    first->n_others = g->n - 1;
    return true;
}

void group_free(struct rank_group *g)
{
    if (!g)
        return;
    thread_pool_destroy(g->threads);
    collective_release(&g->collective);
    for (uint32_t i = 0; i < g->n; i++) { // a rank may still write to another one's inbox
        g->ranks[i]->device->ops->wait(g->ranks[i]->device, NULL);
        g->ranks[i]->exchange = NULL;
    }
    if (g->n > 0) {
        g->ranks[0]->others = NULL;
        g->ranks[0]->n_others = 0;
    }
    for (uint32_t i = 1; i < g->n; i++)
        stage_release(g->ranks[i]);
    direct_close(&g->direct);
    for (uint32_t i = 0; i < EXCHANGE_RANKS; i++)
        buffer_release(&g->pools[i]);
    mem_free(g->others);
    mem_free(g);
}

// ---- playing

bool group_share_pool(struct rank_group *g, uint64_t offset, uint64_t bytes, struct err *err)
{
    void *rows = mem_alloc(bytes);
    bool ok = rows ? buffer_read(g->pool, offset, rows, bytes, err) : err_memory(err, "a picture's rows");

    for (uint32_t i = 1; i < g->n && ok; i++)
        ok = buffer_write(&g->pools[i], offset, rows, bytes, err);
    mem_free(rows);
    return ok;
}

uint64_t group_pool_bytes(const struct rank_group *g)
{
    return g->pool ? (g->n - 1) * g->pool->bytes : 0;
}

// What one rank does of a step.
static bool play_rank(struct rank_group *g, uint32_t rank, struct err *err)
{
    struct stage *s = g->ranks[rank];
    const struct bucket *b = stage_bucket(s, g->step->n_rows, g->step->n_outputs, err);
    uint32_t n = tape_n_segments(b->tape); // recorded before: see group_play
    bool ok = stage_step_write(s, g->step, err);

    for (uint32_t i = 0; i < n; i++) {
        ok = ok && stage_play_segment(s, b, i, err);
        if (i + 1 == n)
            break;
        struct collective_call at = { rank, b->tape, tape_segment_border(b->tape, i), g->step };
        if (!collective_run(&g->collective, &at, &ok, err))
            return ok;
    }
    ok = ok && (rank == 0 || g->direct.ranks.n > 0 || s->device->ops->wait(s->device, err));
    if (!ok)
        collective_stop(&g->collective);
    return ok;
}

static void play_one(void *arg, unsigned thread)
{
    struct rank_group *g = arg;

    play_rank(g, thread, &g->errs[thread]);
}

// Makes what plays need, on this thread: while ranks wait for each other on their devices, none may wait for
// memory.
static bool prepare(struct rank_group *g, const struct step *step, struct err *err)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct stage *s = g->ranks[i];
        const struct bucket *b = stage_bucket(s, step->n_rows, step->n_outputs, err);
        bool at_once;
        if (!b || !tape_prepare(b->tape, &s->step, &at_once, err))
            return err_prefix(err, "rank %u of %u", i, g->n);
    }
    return true;
}

static bool play_by_threads(struct rank_group *g, const struct step *step, struct err *err)
{
    if (g->collective.communicator && g->direct.ranks.n == 0 && !prepare(g, step, err))
        return false;
    g->step = step;
    for (uint32_t i = 0; i < g->n; i++)
        g->errs[i] = (struct err){ 0 };
    collective_begin(&g->collective);
    thread_pool_run(g->threads, play_one, g);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->errs[i].code != ERR_NONE) {
            *err = g->errs[i];
            return err_prefix(err, "rank %u of %u", i, g->n);
        }
    return true;
}

bool group_play(struct rank_group *g, struct step *step, struct err *err)
{
    // records what was not, on this thread
    const struct bucket *b = stage_bucket(g->ranks[0], step->n_rows, step->n_outputs, err);
    bool at_once = false;

    if (!b || (g->direct.ranks.n > 0 && !direct_ready(&g->direct, g->ranks, step, &at_once, err)) ||
        !(at_once ? direct_play(&g->direct, g->ranks, step, true, err) : play_by_threads(g, step, err)))
        return false;
    direct_count(&g->direct, b->tape);
    return true;
}

bool group_play_others(struct rank_group *g, struct step *step, struct err *err)
{
    const struct bucket *b = stage_bucket(g->ranks[0], step->n_rows, step->n_outputs, err);
    bool at_once = false;

    if (!b || !direct_ready(&g->direct, g->ranks, step, &at_once, err))
        return false;
    if (!at_once)
        return err_set(err, ERR_UNSUPPORTED, "ranks whose steps are not one submission each have no profile");
    direct_count(&g->direct, b->tape);
    return direct_play(&g->direct, g->ranks, step, false, err);
}

bool group_goes_ahead(const struct rank_group *g)
{
    return g->direct.ranks.n > 0;
}

bool group_check(const struct rank_group *g, struct err *err)
{
    return exchange_check(&g->direct.ranks, err) && collective_check(&g->collective, err);
}

uint64_t group_inbox_bytes(const struct rank_group *g)
{
    return direct_bytes(&g->direct);
}
