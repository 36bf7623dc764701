// flight_run.c - see flight_run.h.
#include "engine/flight/flight_run.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/flight/pipeline.h"
#include "engine/request.h"
#include "engine/stage/batch.h"
#include "engine/stage/link.h"
#include "engine/stage/remote.h"
#include "engine/tiles.h"
#include "models/arch.h"

// ---- how many

static uint32_t at_most_flights(uint32_t n)
{
    return n < MOST_FLIGHTS ? n : MOST_FLIGHTS;
}

// Steps that have to wait for their share of the time are one at a time.
static bool may_follow(const struct engine *e)
{
    return e->pace.set.compute == 0 && !usage_limits_watch(&e->pace.set);
}

// More threads than processors would wait for each other, and one stage at a time has them all.
static bool has_processors(const struct devices *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->n; i++)
        n += !d->at[i]->queue && d->at[i]->timing ? d->at[i]->timing->n_lanes(d->at[i]) : 0;
    return n <= thread_count_available();
}

// Whether what one of them computes goes to the next through the host.
static bool any_host_link(const struct devices *d)
{
    for (uint32_t i = 1; i < d->n; i++)
        if (!device_can_send(d->at[i - 1], d->at[i]))
            return true;
    return false;
}

// While a thread waits for a GPU, the threads of a CPU want its processor.
static void let_sleep(const struct devices *d, bool sleeps)
{
    bool any_cpu = false;

    for (uint32_t i = 0; i < d->n; i++)
        any_cpu |= !d->at[i]->queue;
    for (uint32_t i = 0; i < d->n; i++)
        d->at[i]->sleeps = sleeps && any_cpu;
}

const char *flight_in_turn(const struct engine *e, const struct stage_shape *shape)
{
    const struct engine_loaded *l = e->loaded;

    if (l->remote)
        return "ranks have a way of their own";
    if (l->n_parts)
        return "each rank has a part of every layer";
    if (!may_follow(e))
        return "the limits make steps wait";
    if (l->devices.experts)
        return "the experts are elsewhere";
    if (l->options.draft || shape->drafts)
        return "drafts need the step before";
    if (l->model.arch->is_encoder)
        return "an encoder reads a text in one step";
    if (!any_host_link(&l->devices))
        return "the devices send to each other";
    return has_processors(&l->devices)
               ? NULL
               : "each of the CPUs has all processors; -t divides them among the devices";
}

// As many steps at once as there are ranks, or devices, where all of them go on by themselves and pass
// activations so.
static uint32_t n_steps_at_once(const struct engine *e)
{
    const struct engine_loaded *l = e->loaded;

    if (!may_follow(e))
        return 1;
    if (l->remote)
        return at_most_flights(l->remote->placement.n);
    for (uint32_t i = 0; i < l->n_stages; i++)
        if (!l->stages[i].device->queue || l->stages[i].away || (i > 0 && l->links[i - 1].kind == LINK_HOST))
            return 1;
    return at_most_flights(l->devices.n < l->n_stages ? l->devices.n : l->n_stages);
}

// One more step than sections: it waits in a slot for a section that is done before the others.
bool flight_start(struct engine *e, uint32_t n_sections, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    uint32_t most = at_most_flights(n_sections + 1);

    if (!flight_create(&e->flight, most, e->batch, err))
        return false;
    e->flight.n_shares = n_sections < most ? n_sections : most;
    let_sleep(&l->devices, true);
    return pipeline_open(&e->pipeline, &(struct pipeline_plan){ l->stages, l->links, l->n_stages, most },
                         err);
}

bool flight_open(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    uint32_t n_sections = pipeline_n_sections(l->links, l->n_stages);

    e->batch->fetch = FETCH_BATCH; // where devices were lost, the two may be others than at first
    e->ahead->fetch = FETCH_AHEAD;
    if (n_sections > 1 && l->stages[0].shape.overlaps)
        return flight_start(e, n_sections, err);
    return flight_create(&e->flight, n_steps_at_once(e), e->batch, err);
}

void flight_close(struct engine *e)
{
    pipeline_close(e->pipeline);
    e->pipeline = NULL;
    if (e->loaded)
        let_sleep(&e->loaded->devices, false);
    flight_release(&e->flight);
    e->flight = (struct flight){ .most = 1 };
}

bool flight_waits_for_one(const struct engine *e)
{
    uint32_t n_running = 0, n_answers = 0;

    for (const struct request *r = e->first; r; r = r->next) {
        n_running += r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
        n_answers += r->state == REQUEST_DECODE;
    }
    return !e->loaded->remote && e->flight.n == 0 && n_running == 1 && n_answers == 1;
}

// ---- a step

static bool submit(struct engine *e, struct batch *b, struct err *err)
{
    if (e->pipeline)
        return pipeline_push(e->pipeline, engine_lay_out(e, b), err);
    return engine_play(e, b, err) && engine_fetch(e, b, err);
}

// The last section is this thread's.
static bool finish(struct engine *e, struct batch *b, struct err *err)
{
    struct pipeline *p = e->pipeline;
    uint32_t first;

    if (!p)
        return engine_collect(e, b, err);
    bool ok = pipeline_take(p, &first, err) && engine_play_from(e, b, first, err) &&
              engine_fetch(e, b, err) && engine_collect(e, b, err);
    if (ok)
        pipeline_done(p);
    else
        pipeline_fail(p, err);
    return ok;
}

bool flight_run(struct engine *e, struct err *err)
{
    struct flight *f = &e->flight;

    e->block_is_fresh = false;
    if (e->batch->n_rows > 0) {
        e->batch->played_ns = clock_ns();
        if (!tiles_encode(e, err) || !submit(e, e->batch, err))
            return false;
        e->batch = flight_begin(f, e->batch);
        if (f->n < f->most)
            return true;
    }
    if (f->n == 0)
        return true;
    bool ok = f->at[0]->is_over || finish(e, f->at[0], err);
    e->batch = flight_end(f, e->batch);
    return ok && (f->n > 0 || !e->pipeline || pipeline_flush(e->pipeline, err));
}

static bool settle(struct engine *e, struct err *err)
{
    struct flight *f = &e->flight;

    if (!e->pipeline)
        return true;
    for (uint32_t i = 0; i < f->n; i++) {
        if (!f->at[i]->is_over && !finish(e, f->at[i], err))
            return false;
        f->at[i]->is_over = true;
    }
    return pipeline_flush(e->pipeline, err);
}

bool flight_move(struct engine *e, stage_mover *mover, uint32_t index, unsigned char *at, bool to_device,
                 struct err *err)
{
    bool ok = settle(e, err);

    for (uint32_t i = 0; i < e->loaded->n_stages && ok; i++)
        ok = mover(&e->loaded->stages[i], index, &at, to_device, err);
    return ok;
}
