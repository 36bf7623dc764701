// pipeline.c - see pipeline.h. One lock and one condition: a step takes far longer than either.
#include "engine/flight/pipeline.h"
#include <pthread.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "engine/stage/devices.h"

struct pipeline_step { // a step on its way
    const struct step *step;
    struct step_news news;
};

// How long a section computes a step of a bucket. The first ones make tapes, and tell nothing.
struct pipeline_pace {
    uint64_t ns, at; // a running mean; the step that was noted last
    uint32_t n;      // noted
};
enum { PACE_FIRST = 2, PACE_SHARE = 8, PACE_OLD = 1000 }; // steps; a new one's share of the mean

struct section {
    struct pipeline *pipeline;
    uint32_t first, last; // stages
    pthread_t thread;
    bool has_thread;
    // Guarded by the lock. Steps: those whose slot it has emptied, those that it has put in one.
    uint64_t n_taken, n_given;
    uint64_t busy_ns;
    struct pipeline_pace pace[N_BUCKETS];
    // Of the link to the next section: in the host's memory.
    void *slots[PIPELINE_SLOTS];
    struct device *pinned_by; // they are that device's pins; or NULL
};

struct pipeline {
    struct stage *stages; // borrowed, as the links
    struct link *links;
    uint32_t n, most;
    struct section sections[MAX_DEVICES];    // [n]
    struct pipeline_step jobs[MOST_FLIGHTS]; // [most], step i at i % most
    uint64_t begun_ns;                       // of the last section's play

    pthread_mutex_t lock;
    pthread_cond_t moved;
    // Guarded by the lock.
    uint64_t n_pushed;
    struct step_news news; // told since the last step
    bool stops, failed;
    struct err failure;
};

static bool needs_host(const struct link *l)
{
    return l->kind == LINK_HOST;
}

uint32_t pipeline_n_sections(const struct link *links, uint32_t n_stages)
{
    uint32_t n = 1;

    for (uint32_t i = 1; i < n_stages; i++)
        n += needs_host(&links[i - 1]);
    return n;
}

// ---- what is told

static bool write_one(struct stage *s, const uint32_t head[4], const uint32_t *words, struct err *err)
{
    const uint32_t slot = head[1], from = head[2], n = head[3];

    if (head[0] == PIPELINE_SCALES)
        return s->n_adapters == 0 || buffer_write(&s->scales, (uint64_t)slot * n * 4, words, n * 4ull, err);
    if (head[0] == STEP_NEWS_HISTORY)
        return stage_history_write(s, slot, words, n, err);
    if (head[0] == STEP_NEWS_WINDOWS)
        return stage_window_pages_write(s, slot, (struct layer_range){ from, from + n }, words, err);
    return stage_pages_write(s, slot, (struct layer_range){ from, from + n }, words, err);
}

static bool write_news(const struct section *s, const struct step_news *news, struct err *err)
{
    for (size_t at = 0; at < news->n; at += 4 + news->at[at + 3])
        for (uint32_t i = s->first; i < s->last; i++)
            if (!write_one(&s->pipeline->stages[i], news->at + at, news->at + at + 4, err))
                return false;
    return true;
}

void pipeline_tell(struct pipeline *p, const uint32_t head[4], const uint32_t *words)
{
    pthread_mutex_lock(&p->lock);
    step_news_add(&p->news, head, words);
    pthread_mutex_unlock(&p->lock);
}

bool pipeline_flush(struct pipeline *p, struct err *err)
{
    bool ok = !p->news.failed || err_memory(err, "news of a step");

    for (uint32_t i = 0; i < p->n && ok; i++)
        ok = write_news(&p->sections[i], &p->news, err);
    p->news.n = 0;
    return ok;
}

// ---- waiting. The lock is held.

// Steps that wait for the section, or have been there.
static uint64_t n_arrived(const struct section *s)
{
    return s == s->pipeline->sections ? s->pipeline->n_pushed : s[-1].n_given;
}

static bool is_over(const struct pipeline *p)
{
    return p->stops || p->failed;
}

static bool wait_for_step(struct section *s, uint64_t step)
{
    struct pipeline *p = s->pipeline;

    while (!is_over(p) && n_arrived(s) <= step)
        pthread_cond_wait(&p->moved, &p->lock);
    return !is_over(p);
}

static bool wait_for_slot(struct section *s, uint64_t step)
{
    struct pipeline *p = s->pipeline;

    while (!is_over(p) && step - s[1].n_taken >= PIPELINE_SLOTS)
        pthread_cond_wait(&p->moved, &p->lock);
    return !is_over(p);
}

static void fail(struct pipeline *p, const struct err *why)
{
    if (!p->failed)
        p->failure = *why;
    p->failed = true;
    pthread_cond_broadcast(&p->moved);
}

// ---- a section's thread

static uint64_t step_bytes_of(const struct stage *s, const struct step *step)
{
    return (uint64_t)step->n_rows * s->parts.model->config.n_cols * sizeof(float);
}

// From the slot that the section before has filled.
static bool take_in(struct section *s, uint64_t step, struct err *err)
{
    struct pipeline *p = s->pipeline;
    const struct pipeline_step *job = &p->jobs[step % p->most];
    struct stage *to = &p->stages[s->first];

    if (s == p->sections)
        return true;
    bool ok =
        buffer_write(&to->block, 0, s[-1].slots[step % PIPELINE_SLOTS], step_bytes_of(to, job->step), err);
    pthread_mutex_lock(&p->lock);
    s->n_taken = step + 1;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool give_out(struct section *s, uint64_t step, struct err *err)
{
    const struct stage *from = &s->pipeline->stages[s->last - 1];
    void *slot = s->slots[step % PIPELINE_SLOTS];
    uint64_t bytes = step_bytes_of(from, s->pipeline->jobs[step % s->pipeline->most].step);

    if (!from->block.host)
        return buffer_read(&from->block, 0, slot, bytes, err);
    memcpy(slot, from->block.host, bytes); // the device has been waited for
    return true;
}

// The lock is held, if it is not the last section's.
static void note(struct section *s, uint64_t step, uint64_t ns)
{
    const struct pipeline *p = s->pipeline;
    const struct step *what = p->jobs[step % p->most].step;
    struct pipeline_pace *pace =
        &s->pace[stage_bucket_index(&p->stages[s->first], what->n_rows, what->n_outputs)];

    s->busy_ns += ns;
    pace->at = step;
    if (pace->n++ < PACE_FIRST)
        return;
    pace->ns = pace->ns ? pace->ns - pace->ns / PACE_SHARE + ns / PACE_SHARE : ns;
}

static bool play(struct section *s, uint64_t step, struct err *err)
{
    struct pipeline *p = s->pipeline;
    const struct pipeline_step *job = &p->jobs[step % p->most];
    struct device *last = p->stages[s->last - 1].device;
    uint64_t begun = clock_ns();

    bool ok = write_news(s, &job->news, err) && take_in(s, step, err);
    for (uint32_t i = s->first; i < s->last && ok; i++)
        ok = (i == s->first || link_pass(&p->links[i - 1], job->step->n_rows, err)) &&
             stage_play(&p->stages[i], job->step, err);
    ok = ok && last->ops->wait(last, err);
    pthread_mutex_lock(&p->lock);
    note(s, step, clock_ns() - begun);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static void *run_section(void *arg)
{
    struct section *s = arg;
    struct pipeline *p = s->pipeline;
    struct err err = { 0 };

    thread_name("ingot stage");
    pthread_mutex_lock(&p->lock);
    for (uint64_t step = 0; wait_for_step(s, step); step++) {
        pthread_mutex_unlock(&p->lock);
        bool ok = play(s, step, &err);
        pthread_mutex_lock(&p->lock);
        if (ok && !wait_for_slot(s, step))
            break;
        pthread_mutex_unlock(&p->lock);
        ok = ok && give_out(s, step, &err);
        pthread_mutex_lock(&p->lock);
        if (!ok)
            fail(p, &err);
        s->n_given = step + 1;
        pthread_cond_broadcast(&p->moved);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

// ---- the engine's thread

bool pipeline_push(struct pipeline *p, const struct step *step, struct err *err)
{
    pthread_mutex_lock(&p->lock);
    struct pipeline_step *job = &p->jobs[p->n_pushed % p->most];
    CHECK(p->n_pushed - p->sections[p->n - 1].n_taken < p->most);
    struct step_news room = job->news;
    bool ok = !p->news.failed;
    if (ok) {
        job->step = step;
        job->news = p->news;
        p->news = room;
        p->news.n = 0;
        p->n_pushed++;
        pthread_cond_broadcast(&p->moved);
    }
    pthread_mutex_unlock(&p->lock);
    return ok || err_memory(err, "news of a step");
}

bool pipeline_take(struct pipeline *p, uint32_t *first, struct err *err)
{
    struct section *s = &p->sections[p->n - 1];
    uint64_t step = s->n_given;

    pthread_mutex_lock(&p->lock);
    bool ok = wait_for_step(s, step);
    if (!ok)
        *err = p->failure;
    pthread_mutex_unlock(&p->lock);
    *first = s->first;
    p->begun_ns = clock_ns();
    return ok && write_news(s, &p->jobs[step % p->most].news, err) && take_in(s, step, err);
}

void pipeline_done(struct pipeline *p)
{
    struct section *s = &p->sections[p->n - 1];

    note(s, s->n_given, clock_ns() - p->begun_ns);
    s->n_given++;
}

void pipeline_fail(struct pipeline *p, const struct err *why)
{
    pthread_mutex_lock(&p->lock);
    fail(p, why);
    pthread_mutex_unlock(&p->lock);
}

uint64_t pipeline_busy_ns(struct pipeline *p, uint32_t section)
{
    pthread_mutex_lock(&p->lock);
    uint64_t ns = p->sections[section].busy_ns;
    pthread_mutex_unlock(&p->lock);
    return ns;
}

uint64_t pipeline_round_ns(struct pipeline *p, uint32_t n_answers, uint32_t n_steps)
{
    const struct stage_shape *shape = &p->stages[0].shape;
    uint32_t most = shape->max_rows < shape->max_outputs ? shape->max_rows : shape->max_outputs;
    uint32_t rows = (n_answers + n_steps - 1) / n_steps, of_step = rows < most ? rows : most;
    uint32_t bucket = stage_bucket_index(&p->stages[0], of_step, of_step);
    uint64_t sum = 0, slowest = 0;
    bool known = true;

    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pipeline_pace *pace = &p->sections[i].pace[bucket];
        known &= pace->n > PACE_FIRST && p->n_pushed - pace->at < PACE_OLD;
        sum += pace->ns;
        slowest = pace->ns > slowest ? pace->ns : slowest;
    }
    pthread_mutex_unlock(&p->lock);
    return !known ? 0 : n_steps * slowest > sum ? n_steps * slowest : sum;
}

// ---- opening

static void cut(struct pipeline *p, const struct pipeline_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (i == 0 || needs_host(&plan->links[i - 1]))
            p->sections[p->n++] = (struct section){ .pipeline = p, .first = i };
        p->sections[p->n - 1].last = i + 1;
    }
}

static uint64_t slot_bytes(const struct section *s)
{
    const struct stage *from = &s->pipeline->stages[s->last - 1];

    return (uint64_t)from->shape.max_rows * from->parts.model->config.n_cols * sizeof(float);
}

uint64_t pipeline_slot_bytes(const struct pipeline *p)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i + 1 < p->n; i++)
        bytes += PIPELINE_SLOTS * slot_bytes(&p->sections[i]);
    return bytes;
}

// A GPU at either end copies faster from and to memory that its driver has pinned.
static bool make_slots(struct section *s, struct err *err)
{
    const struct stage *from = &s->pipeline->stages[s->last - 1], *ends[] = { from, from + 1 };
    uint64_t bytes = slot_bytes(s);

    for (uint32_t i = 0; i < 2 && !s->pinned_by; i++)
        if (ends[i]->device->queue && ends[i]->device->queue->pin)
            s->pinned_by = ends[i]->device;
    for (uint32_t i = 0; i < PIPELINE_SLOTS && s->pinned_by; i++)
        s->slots[i] = s->pinned_by->queue->pin(s->pinned_by, bytes);
    for (uint32_t i = 0; i < PIPELINE_SLOTS && !s->pinned_by; i++)
        s->slots[i] = mem_alloc_aligned(bytes, 64);
    return (s->slots[0] && s->slots[1]) || err_memory(err, "activations between two stages");
}

static void free_slots(struct section *s)
{
    for (uint32_t i = 0; i < PIPELINE_SLOTS; i++) {
        if (!s->pinned_by)
            mem_free_aligned(s->slots[i]);
        else if (s->slots[i])
            s->pinned_by->queue->unpin(s->pinned_by, s->slots[i]);
    }
}

bool pipeline_open(struct pipeline **pipeline, const struct pipeline_plan *plan, struct err *err)
{
    struct pipeline *p = mem_alloc(sizeof *p);
    bool ok = true;

    *pipeline = NULL;
    if (!p)
        return err_memory(err, "a pipeline");
    *p = (struct pipeline){ .stages = plan->stages, .links = plan->links, .most = plan->most };
    CHECK(plan->most >= 1 && plan->most <= MOST_FLIGHTS);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->moved, NULL);
    cut(p, plan);
    for (uint32_t i = 0; i + 1 < p->n && ok; i++)
        ok = make_slots(&p->sections[i], err);
    for (uint32_t i = 0; i + 1 < p->n && ok; i++) {
        struct section *s = &p->sections[i];
        int failed = pthread_create(&s->thread, NULL, run_section, s);
        s->has_thread = !failed;
        ok = !failed || err_set(err, ERR_MEMORY, "a thread for a stage: %s", strerror(failed));
    }
    if (!ok) {
        pipeline_close(p);
        return false;
    }
    *pipeline = p;
    return true;
}

void pipeline_close(struct pipeline *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->sections[i].has_thread)
            pthread_join(p->sections[i].thread, NULL);
        free_slots(&p->sections[i]);
    }
    for (uint32_t i = 0; i < p->most; i++)
        step_news_free(&p->jobs[i].news);
    step_news_free(&p->news);
    pthread_cond_destroy(&p->moved);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
