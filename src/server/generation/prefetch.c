// prefetch.c - see prefetch.h. A job outlives its generation when the client leaves: then it ends by itself.
#include "server/generation/prefetch.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "server/generation/engine_thread.h"
#include "server/generation/generation.h"
#include "server/generation/metrics.h"
#include "server/generation/page_question.h"

enum { REST_S = 5 };

struct prefetch_job {
    struct prefetch_job *next;
    struct prefetch *prefetch;
    struct generation *generation; // NULL: nobody waits; guarded by the engine thread's lock
    atomic_bool left;              // the same, for who asks without the lock
    uint64_t deadline_ns;          // UINT64_MAX: none
    uint32_t *tokens;              // [n_tokens]
    size_t n_tokens;
    char salt[PAGE_SALT_BYTES];
    struct ingot_pages *pages;
    struct err refused; // why bytes that came were not taken
};

struct fetched {
    bool asked, ok;
    size_t n_tokens;
    uint64_t n_bytes;
    double s;
};

static void job_free(struct prefetch_job *job)
{
    mem_free(job->tokens);
    mem_free(job);
}

// Also who asks whether the request goes on learns that its time is over.
static bool job_goes_on(void *arg)
{
    const struct prefetch_job *job = arg;
    return !atomic_load(&job->left) && clock_ns() <= job->deadline_ns;
}

static bool job_take(void *arg, const char *bytes, size_t n)
{
    struct prefetch_job *job = arg;
    return ingot_pages_take(job->pages, bytes, n, (struct ingot_error *)&job->refused);
}

// ---- asking

static bool ask(struct prefetch_job *job, size_t n_known, struct err *err)
{
    const struct prefetch_options *o = job->prefetch->options;
    struct page_question q = { .info = job->prefetch->info,
                               .tokens = job->tokens,
                               .n_tokens = ingot_pages_most_tokens(job->pages) + 1, // a row has to be read
                               .n_known = n_known };
    struct buf text = { 0 };

    memcpy(q.cache_salt, job->salt, sizeof q.cache_salt);
    bool ok = page_question_write(&q, &text) || err_memory(err, "a question");
    struct prefetch_call call = { buf_as_str(&text), job, job_take, job_goes_on };
    ok = ok && o->ask(o->arg, &call, err);
    ok = ok && ingot_pages_finish(job->pages, (struct ingot_error *)&job->refused);
    if (job->refused.code != ERR_NONE)
        *err = job->refused;
    buf_free(&text);
    return ok;
}

static bool fetch(struct prefetch_job *job, struct fetched *f, struct err *err)
{
    struct prefetch *p = job->prefetch;

    job->pages =
        ingot_pages_expect(p->engine, job->tokens, job->n_tokens, job->salt, (struct ingot_error *)err);
    if (!job->pages)
        return false;
    size_t n_known = ingot_pages_n_tokens(job->pages), most = ingot_pages_most_tokens(job->pages);
    bool ok = most - n_known < p->options->least_tokens; // another request has brought them
    if (!ok) {
        f->asked = true;
        ok = ask(job, n_known, err);
        f->n_tokens = ingot_pages_n_tokens(job->pages) - n_known;
        if (ok && f->n_tokens == 0)
            ok = err_set(err, ERR_NOT_FOUND, "it sent no page");
    }
    ingot_pages_close(job->pages);
    return ok;
}

static bool rests(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    bool yes = clock_ns() < p->rest_until_ns;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

// What failed once is left alone for a while, so that requests do not wait for a server that is not there.
static void note_failure(struct prefetch_job *job, const struct err *err)
{
    struct prefetch *p = job->prefetch;

    if (!job_goes_on(job))
        return;
    log_line(LOG_WARN, "prefill", "%s: %s; the prompt of %zu tokens is read here", p->options->name,
             err->message, job->n_tokens);
    if (err->code == ERR_LIMIT) // of this engine
        return;
    pthread_mutex_lock(&p->lock);
    p->rest_until_ns = clock_ns() + REST_S * 1000000000ull;
    pthread_mutex_unlock(&p->lock);
}

static void start_requests(struct generation *g)
{
    for (uint32_t i = 0; i < g->n_choices; i++)
        ingot_start(g->choices[i].request);
    g->thread->n_submitted++;
    pthread_cond_signal(&g->thread->work);
}

static void finish(struct prefetch_job *job, const struct fetched *f)
{
    struct engine_thread *t = job->prefetch->thread;

    pthread_mutex_lock(&t->lock);
    struct generation *g = job->generation;
    if (g) {
        g->job = NULL;
        g->asked = f->asked;
        g->n_fetched = (uint32_t)f->n_tokens;
        g->fetch_ms = f->s * 1e3;
        start_requests(g);
    }
    pthread_mutex_unlock(&t->lock);
    metrics_prefetch(t->metrics, f->asked, f->ok || !job_goes_on(job), f->n_tokens, f->s);
    job_free(job);
}

static void run_job(struct prefetch_job *job)
{
    uint64_t begun = clock_ns();
    struct fetched f = { .ok = true };
    struct err err = { 0 };

    if (job_goes_on(job) && !rests(job->prefetch)) {
        f.ok = fetch(job, &f, &err);
        if (!f.ok)
            note_failure(job, &err);
    }
    f.s = (double)(clock_ns() - begun) / 1e9;
    finish(job, &f);
}

static struct prefetch_job *next_job(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->first && !p->stop)
        pthread_cond_wait(&p->work, &p->lock);
    struct prefetch_job *job = p->first;
    if (job) {
        p->first = job->next;
        p->last = p->first ? p->last : &p->first;
    }
    pthread_mutex_unlock(&p->lock);
    return job;
}

static void *run(void *arg)
{
    struct prefetch *p = arg;

    thread_name("ingot prefetch");
    for (struct prefetch_job *job; (job = next_job(p));)
        run_job(job);
    return NULL;
}

// ---- begin and end

void prefetch_create(struct prefetch *p, const struct prefetch_options *options, struct engine_thread *t)
{
    *p = (struct prefetch){ .options = options, .thread = t };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->last = &p->first;
}

void prefetch_destroy(struct prefetch *p)
{
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
}

bool prefetch_start(struct prefetch *p, struct ingot_engine *engine, struct err *err)
{
    if (!p->options)
        return true;
    if (!ingot_pages_info(engine, &p->info, (struct ingot_error *)err))
        return false;
    p->engine = engine;
    while (p->n_threads < PREFETCH_THREADS && pthread_create(&p->threads[p->n_threads], NULL, run, p) == 0)
        p->n_threads++;
    return p->n_threads > 0 || err_set(err, ERR_MEMORY, "no thread to fetch pages");
}

void prefetch_stop(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    while (p->n_threads > 0)
        pthread_join(p->threads[--p->n_threads], NULL);
}

bool prefetch_wants(struct prefetch *p, const struct prefetch_prompt *prompt)
{
    if (!p->options || prompt->n_tokens <= p->options->least_tokens || rests(p))
        return false;
    size_t n_kept = ingot_prompt_kept(p->engine, prompt->tokens, prompt->n_tokens, prompt->cache_salt);
    return prompt->n_tokens - n_kept > p->options->least_tokens;
}

static struct prefetch_job *job_create(struct prefetch *p, const struct prefetch_prompt *prompt)
{
    struct prefetch_job *job = mem_alloc(sizeof *job);
    uint32_t *tokens = job ? mem_alloc_array(prompt->n_tokens, sizeof *tokens) : NULL;

    if (!tokens) {
        mem_free(job);
        return NULL;
    }
    memcpy(tokens, prompt->tokens, prompt->n_tokens * sizeof *tokens);
    job->prefetch = p;
    job->tokens = tokens;
    job->n_tokens = prompt->n_tokens;
    job->deadline_ns = prompt->deadline_ms ? clock_ns() + prompt->deadline_ms * 1000000ull : UINT64_MAX;
    atomic_init(&job->left, false);
    snprintf(job->salt, sizeof job->salt, "%s", prompt->cache_salt);
    return job;
}

static void prefetch_join(struct prefetch_job *job, struct generation *g)
{
    job->generation = g;
    g->job = job;
}

void prefetch_begin(struct prefetch *p, struct generation *g, const struct prefetch_prompt *prompt)
{
    struct prefetch_job *job = job_create(p, prompt);

    pthread_mutex_lock(&g->thread->lock);
    if (!job)
        start_requests(g);
    else if (g->cancelled)
        prefetch_leave(job);
    else
        prefetch_join(job, g);
    pthread_mutex_unlock(&g->thread->lock);
    if (!job)
        return;
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

void prefetch_leave(struct prefetch_job *job)
{
    if (job->generation)
        job->generation->job = NULL;
    job->generation = NULL;
    atomic_store(&job->left, true);
}
