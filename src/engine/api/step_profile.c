// step_profile.c - see step_profile.h.
#include "engine/api/step_profile.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/stats.h"
#include "engine/api.h"
#include "engine/api/step_fronts.h"
#include "engine/api/step_spread.h"
#include "engine/group/group.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/stage/batch.h"
#include "engine/stage/link.h"
#include "engine/tiles.h"

enum { LEAST_PLAYS = 6, ALONE_PLAYS = 8, WARM_UP_PLAYS = 2 };
enum { MOST_AT_ONCE = DEVICE_SAMPLES, LEAST_FRONTS = 4 }; // plays at once; samples of a front
#define AT_ONCE_NS 1e7                                    // plays at once take about this long at most
#define CUTS_SHARE 0.02 // of a step's time that cuts may take: less than the 3 % that are promised

// What one command took in one stamped play.
struct command_sample {
    float ns, wait_ns;
};
struct play_sample { // of stamped plays at once, their mean
    double total, start, link, host;
    double on_device[MAX_STAGES];    // of stages with cuts, from begin to end
    struct command_sample *commands; // [n_commands], of the other stages
};

// A tape of the step, with what it needs to be played.
struct profiled_tape {
    struct tape *tape;
    struct device *device;
    struct buffer *step;  // on the device
    struct link *link;    // from the tape before, or NULL
    struct fronts fronts; // of a device that samples
};

struct profiling {
    struct engine *engine;
    const struct step_profile_request *request;
    struct step_profile *profile;
    const struct step *step;
    uint64_t step_bytes;
    uint32_t *slots, n_slots;               // that the step's sequences have
    struct profiled_tape tapes[MAX_STAGES]; // [profile->n_stages]
    struct play_sample samples[STEP_PROFILE_PLAYS];
    struct command_sample *all; // [STEP_PROFILE_PLAYS, n_commands]
    uint32_t n_at_once;         // plays, in turn plain and stamped
    uint32_t every, n_cut;      // commands from cut to cut; plays with cuts so far
    double cut_ns;              // that a cut takes
    double *cut_times;          // [n_commands + 1] of a play
};

// ---- the step

static uint32_t token_at(const struct profiling *w, uint32_t sequence, uint32_t position)
{
    uint64_t x = ((uint64_t)sequence << 32 | position) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((x ^ x >> 31) % w->engine->loaded->model.config.n_vocab);
}

static const struct step *lay_out(const struct profiling *w)
{
    struct batch *b = w->engine->batch;
    const struct stage *first = &w->engine->loaded->stages[0];
    const struct bucket *bucket = &first->buckets[stage_bucket_index(first, b->n_rows, b->n_outputs)];

    return batch_layout(b, bucket->max_rows, bucket->max_outputs);
}

// A step before the one that is profiled.
static bool play_past(const struct profiling *w, const struct step *step, struct err *err)
{
    const struct engine_loaded *l = w->engine->loaded;

    for (uint32_t i = 0; i < l->n_stages; i++)
        if ((i > 0 && !link_pass(&l->links[i - 1], step->n_rows, err)) ||
            !(l->group ? group_play(l->group, w->engine->batch->step, err)
                       : stage_play(&l->stages[i], step, err)))
            return false;
    struct device *last = l->stages[l->n_stages - 1].device;
    return last->ops->wait(last, err);
}

static void add_rows(struct profiling *w, uint32_t sequence, uint32_t slot, struct layer_range positions)
{
    uint32_t state = kv_state_own(&w->engine->kv, slot);

    for (uint32_t at = positions.first; at < positions.last; at++)
        batch_add_row(w->engine->batch,
                      (struct batch_row){ .token = token_at(w, sequence, at),
                                          .position = at,
                                          .slot = slot,
                                          .state_from = at > positions.first ? STATE_NEXT
                                                        : at > 0             ? state
                                                                             : STATE_ZERO,
                                          .state_to = at + 1 < positions.last ? STATE_NONE : state });
}

// For a step with the rows from `at` to `end` of the slot.
static bool give_pages(const struct profiling *w, uint32_t slot, uint32_t at, uint32_t end, struct err *err)
{
    struct engine *e = w->engine;

    pthread_mutex_lock(&e->state);
    kv_window_advance(&e->kv, slot, at);
    bool room = engine_grow(e, slot, end);
    pthread_mutex_unlock(&e->state);
    return room || err_set(err, ERR_LIMIT, "no KV pages for %u sequences of %u tokens",
                           w->request->shape.n_sequences, end);
}

// Computes the tokens before the step's.
static bool fill_depth(struct profiling *w, uint32_t sequence, uint32_t slot, struct err *err)
{
    struct batch *b = w->engine->batch;
    uint32_t depth = w->request->shape.depth;

    for (uint32_t at = 0; at < depth; at += b->max_rows) {
        uint32_t end = depth - at < b->max_rows ? depth : at + b->max_rows;
        batch_clear(b);
        if (!give_pages(w, slot, at, end, err))
            return false;
        add_rows(w, sequence, slot, (struct layer_range){ at, end });
        if (!play_past(w, lay_out(w), err))
            return false;
    }
    return true;
}

static bool check_shape(const struct profiling *w, struct err *err)
{
    const struct step_shape *s = &w->request->shape;
    const struct engine *e = w->engine;

    if (e->loaded->group && !group_goes_ahead(e->loaded->group))
        return err_set(err, ERR_UNSUPPORTED,
                       "ranks that exchange through the host have no profile; leave out %s",
                       err_option("n_tensor_parallel"));
    if (s->n_rows == 0 || s->n_sequences == 0 || (uint64_t)s->n_rows * s->n_sequences > e->batch->max_rows ||
        s->n_sequences > e->batch->max_outputs || s->n_sequences > e->kv.n_slots)
        return err_set(err, ERR_INPUT, "a step of %u sequences with %u rows each; a step holds %u rows of %u",
                       s->n_sequences, s->n_rows, e->batch->max_rows, e->kv.n_slots);
    if ((uint64_t)s->depth + s->n_rows + 1 > e->loaded->n_context)
        return err_set(err, ERR_INPUT, "%u tokens at a depth of %u; the context has %u: give -d less",
                       s->n_rows, s->depth, e->loaded->n_context);
    return true;
}

static bool take_tapes(struct profiling *w, struct err *err)
{
    const struct engine_loaded *l = w->engine->loaded;

    for (uint32_t i = 0; i < l->n_stages; i++) {
        struct stage *s = &l->stages[i];
        if (s->away)
            return err_set(err, ERR_UNSUPPORTED, "experts elsewhere have no profile yet; leave out %s",
                           err_option("experts"));
        struct bucket *b = stage_bucket(s, w->step->n_rows, w->step->n_outputs, err);
        if (!b)
            return false;
        w->tapes[w->profile->n_stages++] =
            (struct profiled_tape){ b->tape, s->device, &s->step, i > 0 ? &l->links[i - 1] : NULL, { 0 } };
    }
    return true;
}

// Sequences with their past, and the step's rows.
static bool make_step(struct profiling *w, struct err *err)
{
    const struct step_shape *s = &w->request->shape;
    struct engine *e = w->engine;
    uint32_t *slots;

    if (!check_shape(w, err))
        return false;
    if (!(slots = w->slots = mem_alloc_array(s->n_sequences, sizeof *w->slots)))
        return err_memory(err, "a step's sequences");
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        pthread_mutex_lock(&e->state);
        slots[i] = kv_slot_take(&e->kv);
        w->n_slots += slots[i] != KV_NONE;
        pthread_mutex_unlock(&e->state);
        if (slots[i] == KV_NONE)
            return err_set(err, ERR_LIMIT, "no slot for %u sequences", s->n_sequences);
        if (!fill_depth(w, i, slots[i], err) ||
            !give_pages(w, slots[i], s->depth, s->depth + s->n_rows + 1, err))
            return false;
    }
    batch_clear(e->batch);
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        add_rows(w, i, slots[i], (struct layer_range){ s->depth, s->depth + s->n_rows });
        batch_add_output(e->batch, (struct batch_output){ .params = { .repeat_penalty = 1 } });
    }
    w->step = lay_out(w);
    w->step_bytes = step_bytes(w->step->max_rows, w->step->max_outputs);
    return take_tapes(w, err);
}

static void give_slots_back(struct profiling *w)
{
    pthread_mutex_lock(&w->engine->state);
    for (uint32_t i = 0; i < w->n_slots; i++)
        kv_slot_return(&w->engine->kv, w->slots[i]);
    pthread_mutex_unlock(&w->engine->state);
    mem_free(w->slots);
}

// ---- its commands

static uint32_t layer_of(const char *label)
{
    const char *at = strstr(label, "layer"); // "layer3.attn_out", "vision.layer3.up"
    unsigned layer;
    return at && sscanf(at, "layer%u", &layer) == 1 ? layer : NO_LAYER;
}

static uint32_t device_index(const struct profiling *w, const struct device *d)
{
    const struct devices *devices = &w->engine->loaded->devices;
    uint32_t i = 0;

    while (i < devices->n && devices->at[i] != d)
        i++;
    CHECK(i < devices->n);
    return i;
}

static bool spans_open(struct profiling *w, uint32_t stage, struct err *err)
{
    struct step_profile *p = w->profile;
    struct device *d = w->tapes[stage].device;
    uint32_t n = tape_n_commands(w->tapes[stage].tape),
             n_lanes = d->timing ? d->timing->n_lanes(d) : d->sampling != NULL;

    p->spans[stage] =
        (struct stage_spans){ .first_command = p->n_commands, .n_commands = n, .device = device_index(w, d) };
    p->is_timed &= n_lanes > 0;
    p->n_commands += n;
    p->n_barriers += tape_n_barriers(w->tapes[stage].tape);
    p->spans[stage].times.spans = mem_alloc_array((size_t)n * n_lanes + 1, sizeof(struct command_span));
    return p->spans[stage].times.spans || err_memory(err, "the times of commands");
}

static void list_commands(struct profiling *w, uint32_t stage)
{
    const struct stage_spans *s = &w->profile->spans[stage];
    const struct tape *t = w->tapes[stage].tape;

    for (uint32_t i = 0; i < s->n_commands; i++) {
        const struct command *c = tape_command(t, i);
        w->profile->commands[s->first_command + i] =
            (struct profiled_command){ .name = c->name,
                                       .label = c->label,
                                       .stage = stage,
                                       .layer = layer_of(c->label),
                                       .device = s->device,
                                       .barrier = c->barrier,
                                       .cost = cost_of_command(t, c, w->step) };
    }
}

static bool open_commands(struct profiling *w, struct err *err)
{
    struct step_profile *p = w->profile;

    for (uint32_t i = 0; i < p->n_stages; i++)
        if (!spans_open(w, i, err))
            return false;
    p->commands = mem_alloc_array(p->n_commands, sizeof *p->commands);
    w->all = mem_alloc_array((size_t)p->n_commands * STEP_PROFILE_PLAYS, sizeof *w->all);
    w->cut_times = mem_alloc_array((size_t)p->n_commands + 1, sizeof *w->cut_times);
    if (!p->commands || !w->all || !w->cut_times)
        return err_memory(err, "the times of commands");
    for (uint32_t i = 0; i < p->n_stages; i++)
        list_commands(w, i);
    for (uint32_t i = 0; i < STEP_PROFILE_PLAYS; i++)
        w->samples[i].commands = w->all + (size_t)i * p->n_commands;
    return true;
}

// ---- plays

static double since(uint64_t begun)
{
    return (double)(clock_ns() - begun);
}

// along: of several ranks the first one's tape is profiled, and the others play along.
static bool write_step(const struct profiling *w, const struct profiled_tape *t, bool along, struct err *err)
{
    struct rank_group *g = along ? w->engine->loaded->group : NULL;
    return (!g || group_play_others(g, w->engine->batch->step, err)) &&
           buffer_write(t->step, 0, w->step, w->step_bytes, err);
}

// Only the last stage's results are waited for, and of several stages after each play, since a decoding step
// is one play.
static bool wait_after(const struct profiling *w, uint32_t play, struct err *err)
{
    struct device *last = w->tapes[w->profile->n_stages - 1].device;
    return (w->profile->n_stages == 1 && play + 1 < w->n_at_once) || last->ops->wait(last, err);
}

// The mean of one play in *ns.
static bool play_plain(const struct profiling *w, double *ns, struct err *err)
{
    uint64_t begun = clock_ns();

    for (uint32_t play = 0; play < w->n_at_once; play++) {
        for (uint32_t i = 0; i < w->profile->n_stages; i++) {
            const struct profiled_tape *t = &w->tapes[i];
            if ((t->link && !link_pass(t->link, w->step->n_rows, err)) || !write_step(w, t, true, err) ||
                !tape_play(t->tape, t->step, err))
                return false;
        }
        if (!wait_after(w, play, err))
            return false;
    }
    *ns = since(begun) / w->n_at_once;
    return true;
}

// Each lane's commands follow each other: what lies between one's end and the next one's begin is waiting.
static void take_times(const struct profiling *w, const struct stage_spans *s, struct play_sample *to)
{
    const struct play_times *t = &s->times;
    double n = t->n_lanes * w->n_at_once;

    for (uint32_t lane = 0; lane < t->n_lanes; lane++) {
        const struct command_span *at = t->spans + (size_t)lane * s->n_commands;
        to->start += (double)(at[0].begin - t->begun) / n;
        for (uint32_t i = 0; i < s->n_commands; i++) {
            struct command_sample *c = &to->commands[s->first_command + i];
            uint64_t next = i + 1 < s->n_commands ? at[i + 1].begin : t->ended;
            c->ns += (float)((double)(next - at[i].begin) / n);
            c->wait_ns += (float)((double)(next - at[i].end) / n);
        }
    }
    to->host -= (double)(t->ended - t->begun) / w->n_at_once;
}

static struct play_cuts cuts_of(const struct profiling *w, uint32_t play)
{
    return (struct play_cuts){ play, 1 + (w->n_cut + play) % w->every, w->every };
}

static bool prepare_cuts(const struct profiling *w, struct err *err)
{
    for (uint32_t i = 0; i < w->profile->n_stages; i++) {
        const struct profiled_tape *t = &w->tapes[i];
        for (uint32_t play = 0; t->device->sampling && play < w->n_at_once; play++) {
            struct play_cuts cuts = cuts_of(w, play);
            if (!t->device->sampling->prepare(t->device, t->tape, t->step, &cuts, err))
                return false;
        }
    }
    return true;
}

static bool read_cuts(struct profiling *w, uint32_t stage, struct play_sample *to, struct err *err)
{
    struct profiled_tape *t = &w->tapes[stage];
    uint32_t n_commands = w->profile->spans[stage].n_commands;

    for (uint32_t play = 0; play < w->n_at_once; play++) {
        struct play_cuts cuts = cuts_of(w, play);
        if (!t->device->sampling->read(t->device, t->tape, play, w->cut_times, err))
            return false;
        to->on_device[stage] += w->cut_times[fronts_n_cuts(n_commands, &cuts)] / w->n_at_once;
        if (t->fronts.n)
            fronts_add(&t->fronts, cuts.first, w->cut_times);
    }
    to->host -= to->on_device[stage];
    return true;
}

static bool play_stamped(struct profiling *w, uint32_t stage, uint32_t play, struct play_sample *to,
                         struct err *err)
{
    const struct profiled_tape *t = &w->tapes[stage];
    struct play_times *times = &w->profile->spans[stage].times;

    if (!write_step(w, t, true, err))
        return false;
    if (t->device->timing) {
        if (!tape_play_timed(t->tape, t->step, times, err))
            return false;
        take_times(w, &w->profile->spans[stage], to);
        return true;
    }
    times->begun = clock_ns();
    return t->device->sampling->play(t->device, t->tape, t->step, play, err) &&
           (w->profile->n_stages == 1 || t->device->ops->wait(t->device, err));
}

static bool play_timed(struct profiling *w, struct play_sample *to, struct err *err)
{
    uint32_t n_stages = w->profile->n_stages;
    uint64_t begun = clock_ns();

    *to = (struct play_sample){ .commands = to->commands };
    memset(to->commands, 0, w->profile->n_commands * sizeof *to->commands);
    for (uint32_t play = 0; play < w->n_at_once; play++) {
        for (uint32_t i = 0; i < n_stages; i++) {
            const struct link *link = w->tapes[i].link;
            uint64_t passing = clock_ns();
            if (link && !link_pass(w->tapes[i].link, w->step->n_rows, err))
                return false;
            to->link += link ? since(passing) / w->n_at_once : 0;
            if (!play_stamped(w, i, play, to, err))
                return false;
        }
        if (!wait_after(w, play, err))
            return false;
    }
    to->total = since(begun) / w->n_at_once;
    to->host += to->total - to->link;
    for (uint32_t i = 0; i < n_stages; i++)
        if (w->tapes[i].device->sampling && !read_cuts(w, i, to, err))
            return false;
    return true;
}

// ---- turns

static bool samples_fronts(const struct profiling *w)
{
    for (uint32_t i = 0; i < w->profile->n_stages; i++)
        if (w->tapes[i].device->sampling)
            return true;
    return false;
}

// A GPU is given a few plays at once, as decoding does, so that submission and wait are hidden behind them,
// and plays with cuts are few enough at once to be many in turn.
static bool choose_at_once(struct profiling *w, struct err *err)
{
    double *ns = &w->profile->plain_ns[0];

    w->n_at_once = 1;
    for (uint32_t i = 0; i < WARM_UP_PLAYS; i++)
        if (!play_plain(w, ns, err))
            return false;
    if (samples_fronts(w) || (w->profile->n_stages == 1 && w->tapes[0].device->queue))
        w->n_at_once = *ns * MOST_AT_ONCE < AT_ONCE_NS ? MOST_AT_ONCE
                       : *ns * 2 > AT_ONCE_NS          ? 1
                                                       : (uint32_t)(AT_ONCE_NS / *ns);
    return true;
}

static double cuts_per_play(const struct profiling *w, uint32_t stage)
{
    double n = 0;

    for (uint32_t play = 0; play < w->n_at_once; play++) {
        struct play_cuts cuts = cuts_of(w, play);
        n += fronts_n_cuts(w->profile->spans[stage].n_commands, &cuts);
    }
    return n / w->n_at_once;
}

struct cut_time {
    double ns, n_cuts; // on all devices that sample
};

// Of plays with cuts so far apart.
static bool time_cuts(struct profiling *w, uint32_t every, struct cut_time *time, struct err *err)
{
    struct play_sample *sample = &w->samples[0];

    w->every = every;
    for (uint32_t i = 0; i < WARM_UP_PLAYS; i++) {
        struct cut_time now = { 0 };
        if (!prepare_cuts(w, err) || !play_timed(w, sample, err))
            return false;
        for (uint32_t k = 0; k < w->profile->n_stages; k++) {
            now.ns += sample->on_device[k];
            now.n_cuts += w->tapes[k].device->sampling ? cuts_per_play(w, k) : 0;
        }
        *time = i == 0 || now.ns < time->ns ? now : *time;
    }
    return true;
}

// After how many commands the operations repeat, as those of layers do: nine of ten are the same again. 1:
// they do not.
static uint32_t period_of(const struct step_profile *p)
{
    for (uint32_t period = 1; period <= p->n_commands / 2; period++) {
        uint32_t n = p->n_commands - period, n_same = 0;
        for (uint32_t i = 0; i < n; i++)
            n_same += !strcmp(p->commands[i].name, p->commands[i + period].name);
        if (10 * n_same >= 9 * n)
            return period;
    }
    return 1;
}

// How far cuts must be apart: from the time of plays with one a stage, and with all of them.
static bool choose_cuts(struct profiling *w, struct err *err)
{
    uint32_t most = w->n_at_once * STEP_PROFILE_PLAYS / LEAST_FRONTS;
    struct cut_time one, all;

    if (!time_cuts(w, w->profile->n_commands, &one, err) || !time_cuts(w, 1, &all, err))
        return false;
    w->cut_ns = all.n_cuts > one.n_cuts ? fmax(all.ns - one.ns, 0) / (all.n_cuts - one.n_cuts) : 0;
    double n = CUTS_SHARE * one.ns / fmax(w->cut_ns, 1) - 2; // two more: at the begin and the end
    w->every = n >= all.n_cuts ? 1 : (uint32_t)fmin(ceil(all.n_cuts / fmax(n, 1)), most);
    uint32_t period = period_of(w->profile), whole = (w->every + period - 1) / period * period;
    w->every = w->every > 1 && whole <= most ? whole : w->every; // the cuts of a play cost alike
    return true;
}

static bool fronts_begin(struct profiling *w, struct err *err)
{
    for (uint32_t i = 0; i < w->profile->n_stages; i++)
        if (w->tapes[i].device->sampling && !fronts_open(&w->tapes[i].fronts, w->profile->spans[i].n_commands,
                                                         w->every, w->n_at_once * STEP_PROFILE_PLAYS, err))
            return false;
    return true;
}

// Both, either of them first in every other turn.
static bool play_turn(struct profiling *w, uint32_t turn, struct err *err)
{
    double *plain = &w->profile->plain_ns[turn];
    struct play_sample *stamped = &w->samples[turn];
    bool ok = !w->profile->is_timed || prepare_cuts(w, err);

    if (turn % 2 == 0)
        ok = ok && play_plain(w, plain, err);
    ok = ok && (!w->profile->is_timed || play_timed(w, stamped, err));
    if (turn % 2)
        ok = ok && play_plain(w, plain, err);
    w->n_cut += w->n_at_once;
    return ok;
}

static bool play_turns(struct profiling *w, struct err *err)
{
    const struct step_profile_request *r = w->request;
    struct step_profile *p = w->profile;
    uint64_t begun = clock_ns();

    if (!choose_at_once(w, err) ||
        (p->is_timed && samples_fronts(w) && !(choose_cuts(w, err) && fronts_begin(w, err))))
        return false;
    uint32_t least = LEAST_FRONTS * w->every / w->n_at_once;
    least = least > LEAST_PLAYS ? least : LEAST_PLAYS;
    while (p->n_plays < STEP_PROFILE_PLAYS && (p->n_plays < least || since(begun) < r->seconds * 1e9)) {
        if (!play_turn(w, p->n_plays, err))
            return false;
        p->timed_ns[p->n_plays] = w->samples[p->n_plays].total;
        p->n_plays++;
        if (r->goes_on && !r->goes_on(r->arg))
            return err_set(err, ERR_CANCELLED, "stopped");
    }
    return true;
}

// Commands in their order, so that each has the inputs that it has in the step.
static bool play_alone(struct profiling *w, struct err *err)
{
    for (uint32_t i = 0; i < w->profile->n_stages; i++) {
        const struct stage_spans *s = &w->profile->spans[i];
        const struct profiled_tape *t = &w->tapes[i];
        if ((t->link && !link_pass(t->link, w->step->n_rows, err)) || !write_step(w, t, false, err))
            return false;
        for (uint32_t c = 0; c < s->n_commands; c++) {
            uint64_t begun = clock_ns();
            if (tape_command(t->tape, c)->op < TAPE_TELL && // else the other ranks would not answer
                !tape_play_repeated(t->tape, t->step, c, ALONE_PLAYS, err))
                return false;
            w->profile->commands[s->first_command + c].alone_ns = since(begun) / ALONE_PLAYS;
            if (w->request->goes_on && !w->request->goes_on(w->request->arg))
                return err_set(err, ERR_CANCELLED, "stopped");
        }
    }
    return true;
}

// ---- means

static int compare_totals(const void *a, const void *b)
{
    const struct play_sample *x = a, *y = b;
    return x->total < y->total ? -1 : x->total > y->total;
}

static struct layer_range middle_half(uint32_t n)
{
    return (struct layer_range){ n / 4, n - n / 4 };
}

static double middle_mean(const double *samples, uint32_t n)
{
    double sorted[STEP_PROFILE_PLAYS];

    memcpy(sorted, samples, n * sizeof *sorted);
    return stats_interquartile_mean(sorted, n);
}

// A stage of which a play with cuts took ns: its commands, and their spans in a play that has none. To show
// its begin and end costs as much as a cut.
static bool take_fronts(struct profiling *w, uint32_t stage, double ns, struct err *err)
{
    struct stage_spans *s = &w->profile->spans[stage];
    struct profiled_command *commands = &w->profile->commands[s->first_command];
    struct fronts *f = &w->tapes[stage].fronts;
    double n_cuts = (double)(f->n_commands - 1) / f->every, cut = fmin(w->cut_ns, ns / (n_cuts + 1)),
           at = (double)s->times.begun;

    if (!fronts_solve(f, cut, ns - n_cuts * cut, w->cut_times, err))
        return false;
    w->profile->cuts_ns += (n_cuts + 1) * cut;
    s->times.n_lanes = 1;
    for (uint32_t i = 0; i < s->n_commands; i++) {
        commands[i].ns = w->cut_times[i];
        s->times.spans[i].begin = (uint64_t)at;
        at += commands[i].ns;
        s->times.spans[i].end = (uint64_t)at;
    }
    s->times.ended = (uint64_t)at;
    return true;
}

static bool take_means(struct profiling *w, struct err *err)
{
    struct step_profile *p = w->profile;
    struct layer_range middle = middle_half(p->n_plays);
    double n = middle.last - middle.first, on_device[MAX_STAGES] = { 0 };
    bool ok = true;

    p->plain = middle_mean(p->plain_ns, p->n_plays);
    if (!p->is_timed)
        return true;
    qsort(w->samples, p->n_plays, sizeof *w->samples, compare_totals);
    for (uint32_t i = middle.first; i < middle.last; i++) {
        const struct play_sample *s = &w->samples[i];
        p->timed += s->total / n;
        p->start_ns += s->start / n;
        p->link_ns += s->link / n;
        p->host_ns += s->host / n;
        for (uint32_t k = 0; k < p->n_stages; k++)
            on_device[k] += s->on_device[k] / n;
        for (uint32_t c = 0; c < p->n_commands; c++) {
            p->commands[c].ns += (double)s->commands[c].ns / n;
            p->commands[c].wait_ns += (double)s->commands[c].wait_ns / n;
        }
    }
    for (uint32_t i = 0; ok && i < p->n_stages; i++)
        ok = !w->tapes[i].device->sampling || take_fronts(w, i, on_device[i], err);
    return ok;
}

// ---- experts

// Plays the step once more, command by command, and asks each for its choice before another overwrites it.
static bool find_spread(struct profiling *w, struct err *err)
{
    const struct engine_loaded *l = w->engine->loaded;
    struct step_profile *p = w->profile;
    bool ok = true;

    if (l->model.n_experts == 0)
        return true;
    p->experts = mem_alloc_array(l->model.config.n_layers, sizeof *p->experts);
    if (!p->experts)
        return err_memory(err, "the spread of experts");
    for (uint32_t i = 0; ok && i < p->n_stages; i++) {
        const struct profiled_tape *t = &w->tapes[i];
        ok = (!t->link || link_pass(t->link, w->step->n_rows, err)) && write_step(w, t, true, err);
        for (uint32_t k = 0; ok && k < tape_n_commands(t->tape); k++) {
            const struct command *c = tape_command(t->tape, k);
            bool chooses = step_spread_has(c) && p->n_experts < l->model.config.n_layers;
            ok = tape_play_repeated(t->tape, t->step, k, 1, err) &&
                 (!chooses || step_spread_read(c, w->step->n_rows, &p->experts[p->n_experts++], err));
            if (ok && chooses)
                p->experts[p->n_experts - 1].layer = layer_of(c->label);
        }
    }
    return ok;
}

// ---- all

static bool measure(struct profiling *w, struct err *err)
{
    struct step_profile *p = w->profile;

    p->is_timed = true;
    if (!open_commands(w, err) || !play_turns(w, err) || !take_means(w, err))
        return false;
    // Spans that are kept are those of the last play.
    return (!w->request->alone || play_alone(w, err)) && find_spread(w, err);
}

typedef bool make_tapes(struct profiling *w, struct err *err);

// make: fills the step and finds its tapes.
static bool profile_with(struct ingot_engine *engine, const struct step_profile_request *request,
                         struct step_profile *profile, make_tapes *make, struct err *err)
{
    struct engine *e = &engine->inner;
    struct profiling *w = mem_alloc(sizeof *w);

    *profile = (struct step_profile){ .shape = request->shape };
    if (!w)
        return err_memory(err, "a profile");
    *w = (struct profiling){ .engine = e, .request = request, .profile = profile };
    pthread_mutex_lock(&e->stepping);
    bool ok = make(w, err) && measure(w, err);
    batch_clear(e->batch);
    give_slots_back(w);
    pthread_mutex_unlock(&e->stepping);
    for (uint32_t i = 0; i < profile->n_stages; i++)
        fronts_close(&w->tapes[i].fronts);
    mem_free(w->cut_times);
    mem_free(w->all);
    mem_free(w);
    return ok;
}

bool step_profile_run(struct ingot_engine *engine, const struct step_profile_request *request,
                      struct step_profile *profile, struct err *err)
{
    return profile_with(engine, request, profile, make_step, err);
}

static bool make_tower(struct profiling *w, struct err *err)
{
    if (!w->engine->tiles)
        return err_set(err, ERR_UNSUPPORTED, "this model takes no pictures");
    struct vision *v = &w->engine->tiles->vision;
    uint32_t n = v->buckets[0];
    unsigned char *pixels = mem_alloc_array(n, vision_tile_bytes(v));
    struct vision_tile tiles[VISION_MOST_TILES];
    for (uint32_t i = 0; pixels && i < n; i++)
        tiles[i] = (struct vision_tile){ pixels + i * vision_tile_bytes(v), i };
    bool ok = pixels ? vision_encode(v, tiles, n, err) && v->device->ops->wait(v->device, err)
                     : err_memory(err, "a picture");
    mem_free(pixels);
    w->step = v->host_step;
    w->step_bytes = step_at_samples(w->step->max_rows, w->step->max_outputs) * 4ull;
    w->tapes[0] = (struct profiled_tape){ v->tapes[0], v->device, &v->step, NULL, { 0 } };
    w->profile->shape = (struct step_shape){ n, w->step->n_rows / n, 0 };
    w->profile->n_stages = 1;
    return ok;
}

bool step_profile_tower(struct ingot_engine *engine, const struct step_profile_request *request,
                        struct step_profile *profile, struct err *err)
{
    return profile_with(engine, request, profile, make_tower, err);
}

void step_profile_release(struct step_profile *profile)
{
    for (uint32_t i = 0; i < profile->n_stages; i++)
        mem_free(profile->spans[i].times.spans);
    mem_free(profile->commands);
    mem_free(profile->experts);
    *profile = (struct step_profile){ 0 };
}
