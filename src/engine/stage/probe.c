// probe.c - see probe.h.
//
// Three stages, played in turns: one layer; some layers, none of them the first or the last; as many with the
// head behind them. The second and the first give what a layer takes and what a stage takes beside its
// layers; the third and the second, the head. In turns, since other programs slow all three down alike.
// A device with a queue is asked for some plays at once, as steps are that follow each other (measured:
// bench/results/2026-11-28-plan-predictions.md).
// Layers count as alike. Some layers and not one: a layer alone would be played from the processor's cache,
// which a whole model is not.
#include "engine/stage/probe.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "device/link_speed.h"
#include "engine/stage/place.h"
#include "ops/cost.h"

enum { PROBE_ROWS = 256, PROBE_PLAYS = 15, QUEUED_PLAYS = 4, MOST_LAYERS = 16, MOST_MANY = 64 };
static const uint64_t BEYOND_CACHES = 640u << 20, BEYOND_GPU_CACHES = 96u << 20;
static const uint64_t SLOW_NS = 50000000;    // a layer's prompt: one layer is enough then
static const uint64_t ENOUGH_NS = 300000000; // a slow device is not played more often than needed

enum { TRIAL_ONE, TRIAL_SOME, TRIAL_TAIL, N_TRIALS };

// A stage of some layers.
struct probe_trial {
    struct stage stage;
    struct step *step;
    struct layer_range layers;
    uint64_t ns[N_PROBE_STEPS]; // first quartiles
    struct probe_work work;
};

static int compare_ns(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

// Of a play, as it is among others.
static bool time_play(struct probe_trial *t, uint64_t *ns, struct err *err)
{
    struct stage *s = &t->stage;
    uint32_t n = s->device->queue ? QUEUED_PLAYS : 1;
    uint64_t begun = clock_ns();

    for (uint32_t i = 0; i < n; i++)
        if (!stage_play(s, t->step, err))
            return false;
    if (!s->device->ops->wait(s->device, err))
        return false;
    *ns = (clock_ns() - begun) / n;
    return true;
}

// n_rows tokens: of one sequence behind `depth` others, the last one's logits; or one of each sequence.
static void fill_step(struct step *step, const struct bucket *bucket, uint32_t n_rows, uint32_t n_slots,
                      uint32_t depth)
{
    uint32_t *words = (uint32_t *)step, max_rows = bucket->max_rows;
    bool many = n_slots > 1;

    memset(step, 0, step_bytes(max_rows, bucket->max_outputs));
    *step = (struct step){ .n_rows = n_rows,
                           .n_outputs = many ? n_rows : 1,
                           .max_rows = max_rows,
                           .max_outputs = bucket->max_outputs };
    for (uint32_t i = 0; i < n_rows; i++) {
        words[step_at_positions(max_rows) + i] = depth + (many ? 0 : i);
        words[step_at_slots(max_rows) + i] = many ? i : 0;
        words[step_at_states_from(max_rows) + i] = i && !many ? STATE_NEXT : STATE_ZERO;
        words[step_at_states_to(max_rows) + i] = many ? i : i + 1 == n_rows ? 0 : STATE_NONE;
    }
    for (uint32_t i = 0; i < step->n_outputs; i++)
        words[step_at_outputs(max_rows) + i] = many ? i : n_rows - 1;
}

static void add_work(const struct tape *t, const struct step *step, struct probe_work *work)
{
    for (uint32_t i = 0; i < tape_n_commands(t); i++) {
        struct cost cost = cost_of_command(t, tape_command(t, i), step);
        work->bytes += cost_bytes(&cost);
        work->operations += cost.operations;
        work->commands++;
    }
}

// Every sequence has pages of its own.
static bool write_table(struct stage *s, struct err *err)
{
    uint32_t n = s->shape.n_slots * s->shape.max_pages;
    uint32_t *pages = mem_alloc_array(n, sizeof *pages);

    if (!pages)
        return err_memory(err, "a page table");
    for (uint32_t i = 0; i < n; i++)
        pages[i] = i;
    bool ok = buffer_write(&s->table, 0, pages, n * sizeof *pages, err) &&
              (!s->shape.n_windows || buffer_write(&s->window_table, 0, pages, n * sizeof *pages, err));
    mem_free(pages);
    return ok;
}

uint32_t probe_n_many(const struct stage_shape *s)
{
    uint32_t n = s->n_slots < s->max_outputs ? s->n_slots : s->max_outputs;

    return n < s->max_rows ? n : s->max_rows;
}

static bool is_of_many(uint32_t kind)
{
    return kind == PROBE_HALF || kind == PROBE_MANY;
}

// The rows of each step: no more sequences or rows than the engine will have.
static void choose_rows(const struct probe_request *p, uint32_t n_rows[N_PROBE_STEPS])
{
    const struct stage_shape *s = p->shape;
    uint32_t n_many = probe_n_many(s);

    n_rows[PROBE_ONE] = 1;
    n_rows[PROBE_MANY] = n_many < MOST_MANY ? n_many : MOST_MANY;
    n_rows[PROBE_HALF] = n_rows[PROBE_MANY] > 1 ? n_rows[PROBE_MANY] / 2 : 1;
    n_rows[PROBE_PROMPT] = s->max_rows < PROBE_ROWS ? s->max_rows : PROBE_ROWS;
}

// A prompt's rows behind `depth` tokens, and many sequences' one row.
static struct stage_shape small_shape(const struct probe_request *p, const uint32_t n_rows[N_PROBE_STEPS])
{
    struct stage_shape small = *p->shape;
    uint32_t most = n_rows[PROBE_PROMPT] > n_rows[PROBE_MANY] ? n_rows[PROBE_PROMPT] : n_rows[PROBE_MANY];

    small.max_rows = most;
    small.max_outputs = small.n_slots = small.n_states = n_rows[PROBE_MANY];
    small.max_pages = (p->depth + most + PAGE_TOKENS - 1) / PAGE_TOKENS;
    small.n_pages = small.max_pages * small.n_slots;
    small.n_windows = small.n_windows ? small.n_pages : 0;
    small.history_stride = p->depth + most + 1;
    return small;
}

static void trial_close(struct probe_trial *t)
{
    stage_release(&t->stage); // zeroed when it was not made
    mem_free(t->step);
}

// Of the model's last n_away layers the experts are elsewhere.
static bool trial_open(struct probe_trial *t, const struct probe_request *p, uint32_t n_away, struct err *err)
{
    uint32_t n_rows[N_PROBE_STEPS];
    struct stage_progress silent = { 0 };

    choose_rows(p, n_rows);
    struct stage_shape small = small_shape(p, n_rows);
    small.n_away = n_away;
    struct stage_plan plan = { .model = p->model,
                               .device = p->device,
                               .layers = t->layers,
                               .shape = &small,
                               .experts = p->experts,
                               .experts_exact = small.exact,
                               .is_probe = true };
    t->step = mem_alloc(step_bytes(small.max_rows, small.max_outputs));
    if (!t->step)
        return err_memory(err, "a step");
    return stage_create(&t->stage, &plan, &silent, err) && write_table(&t->stage, err);
}

// Lays out a step, and plays it once.
static bool trial_begin(struct probe_trial *t, enum probe_step kind, const uint32_t n_rows[N_PROBE_STEPS],
                        uint32_t depth, struct err *err)
{
    uint32_t n_slots = is_of_many(kind) ? n_rows[kind] : 1;
    const struct bucket *bucket = stage_bucket(&t->stage, n_rows[kind], n_slots, err);

    if (!bucket)
        return false;
    fill_step(t->step, bucket, n_rows[kind], n_slots, depth);
    if (kind == PROBE_ONE)
        add_work(bucket->tape, t->step, &t->work);
    return time_play(t, &t->ns[kind], err);
}

// Plays the trials in turns and takes the first quartiles: what else runs on a machine only adds time.
static bool time_in_turns(struct probe_trial *t, uint32_t n_trials, enum probe_step kind, struct err *err)
{
    uint64_t ns[N_TRIALS][PROBE_PLAYS], spent = 0;
    uint32_t n = 0;

    while (n < PROBE_PLAYS && (n == 0 || spent < ENOUGH_NS)) {
        for (uint32_t i = 0; i < n_trials; i++) {
            if (!time_play(&t[i], &ns[i][n], err))
                return false;
            spent += ns[i][n];
        }
        n++;
    }
    for (uint32_t i = 0; i < n_trials; i++) {
        qsort(ns[i], n, sizeof **ns, compare_ns);
        t[i].ns[kind] = ns[i][n / 4];
    }
    return true;
}

static bool time_steps(struct probe_trial *t, uint32_t n_trials, const struct probe_request *p,
                       struct err *err)
{
    uint32_t n_rows[N_PROBE_STEPS];

    choose_rows(p, n_rows);
    for (uint32_t kind = 0; kind < N_PROBE_STEPS; kind++) {
        bool same = is_of_many(kind) && n_rows[kind] == 1;
        for (uint32_t i = 0; i < n_trials; i++) {
            t[i].ns[kind] = t[i].ns[PROBE_ONE];
            if (!same && !trial_begin(&t[i], (enum probe_step)kind, n_rows, p->depth, err))
                return false;
        }
        if (!same && !time_in_turns(t, n_trials, (enum probe_step)kind, err))
            return false;
    }
    return true;
}

// How many layers no processor's cache holds; one where a prompt's rows take long.
static uint32_t choose_layers(const struct probe_request *p, uint64_t prompt_ns)
{
    uint32_t n = p->model->config.n_layers, inner = n > 3 ? n - 2 : 1;
    uint32_t most = inner < MOST_LAYERS ? inner : MOST_LAYERS;
    uint64_t bytes = place_range_memory(p->model, p->shape, (struct layer_range){ n - 2, n - 1 }).weights;
    uint64_t caches = p->device->queue ? BEYOND_GPU_CACHES : BEYOND_CACHES;
    uint64_t wanted = bytes ? caches / bytes + 1 : MOST_LAYERS;

    if (prompt_ns > SLOW_NS)
        return 1;
    return wanted < 2 && most > 1 ? 2 : wanted < most ? (uint32_t)wanted : most;
}

// What the trials say together. A difference of noise must not say that a layer takes nothing.
static struct probe_part part_of(const struct probe_trial *t, uint32_t kind)
{
    uint64_t one = t[TRIAL_ONE].ns[kind], some = t[TRIAL_SOME].ns[kind], tail = t[TRIAL_TAIL].ns[kind];
    uint64_t n = t[TRIAL_SOME].layers.last - t[TRIAL_SOME].layers.first, least = some / (2 * n) + 1;
    uint64_t layer = n > 1 && some > one ? (some - one) / (n - 1) : some;

    layer = layer < least ? least : layer > some / n ? some / n : layer;
    return (struct probe_part){ .layer_ns = layer,
                                .head_ns = tail > some ? tail - some : 0,
                                .stage_ns = some > n * layer ? some - n * layer : 0 };
}

struct probe_layers {
    struct probe_part at[N_PROBE_STEPS];
    struct probe_work layer, head;
};

static struct probe_work less(const struct probe_work *a, const struct probe_work *b, double n)
{
    return (struct probe_work){ (a->bytes - b->bytes) / n, (a->operations - b->operations) / n,
                                (a->commands - b->commands) / n };
}

static void summarise(const struct probe_trial *t, struct probe_layers *found)
{
    uint32_t n = t[TRIAL_SOME].layers.last - t[TRIAL_SOME].layers.first;

    for (uint32_t kind = 0; kind < N_PROBE_STEPS; kind++)
        found->at[kind] = part_of(t, kind);
    found->layer = n > 1 ? less(&t[TRIAL_SOME].work, &t[TRIAL_ONE].work, n - 1) : t[TRIAL_ONE].work;
    found->head = less(&t[TRIAL_TAIL].work, &t[TRIAL_SOME].work, 1);
}

// Of the model's last n_away layers the experts are elsewhere.
static bool probe_layers(const struct probe_request *p, uint32_t n_away, struct probe_layers *found,
                         struct err *err)
{
    uint32_t end = p->model->config.n_layers, n_rows[N_PROBE_STEPS];
    struct probe_trial t[N_TRIALS] = { [TRIAL_ONE] = { .layers = { end - 2, end - 1 } } };

    choose_rows(p, n_rows);
    bool ok = trial_open(&t[TRIAL_ONE], p, n_away, err) &&
              trial_begin(&t[TRIAL_ONE], PROBE_PROMPT, n_rows, p->depth, err);
    uint32_t n = choose_layers(p, t[TRIAL_ONE].ns[PROBE_PROMPT]);
    t[TRIAL_SOME].layers = (struct layer_range){ end - 1 - n, end - 1 };
    t[TRIAL_TAIL].layers = (struct layer_range){ end - n, end };
    ok = ok && trial_open(&t[TRIAL_SOME], p, n_away, err) && trial_open(&t[TRIAL_TAIL], p, n_away, err) &&
         time_steps(t, N_TRIALS, p, err);
    if (ok)
        summarise(t, found);
    for (uint32_t i = 0; i < N_TRIALS; i++)
        trial_close(&t[i]);
    return ok || err_prefix(err, "probing %s", p->device->name);
}

bool probe_device(const struct probe_request *p, struct probe_speed *speed, struct err *err)
{
    uint32_t n = p->model->config.n_layers, n_away = p->shape->n_away;
    bool none_here = n_away >= n - p->model->config.n_dense; // no layer has its experts on the device
    struct probe_layers layer, away;

    *speed = (struct probe_speed){ 0 };
    choose_rows(p, speed->n_rows);
    if (n_away > 0 && !probe_layers(p, n, &away, err))
        return false;
    if (n_away > 0 && none_here)
        layer = away;
    else if (!probe_layers(p, 0, &layer, err))
        return false;
    for (uint32_t kind = 0; kind < N_PROBE_STEPS; kind++) {
        speed->at[kind] = layer.at[kind];
        speed->at[kind].away_ns = n_away > 0 ? away.at[kind].layer_ns : 0;
    }
    speed->layer = layer.layer;
    speed->head = layer.head;
    return !p->limits ||
           device_limits_probe(p->device, QUANT_Q8_0, thread_count_available(), &speed->limits, err);
}

// The processor's end is the host's memory; what a GPU and a CPU pass on is copied once.
bool probe_links(struct device *from, struct device *to, struct probe_link *link, struct err *err)
{
    bool back = from->queue && !to->queue; // the host is the first end
    struct link_speed speed;

    *link = (struct probe_link){ 0 };
    if (!from->queue && !to->queue)
        return true;
    if (!link_speed_measure(back || !from->queue ? NULL : from, back ? from : to, &speed, err))
        return err_prefix(err, "the link from %s to %s", from->name, to->name);
    *link = (struct probe_link){ back ? speed.back : speed.there, speed.latency_s * 1e9 };
    return true;
}
