// ranks.c - see ranks.h: the queues, and how a group begins and ends. The thread is in rank_thread.c.
#include "engine/ranks/ranks.h"
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "engine/ranks/plugin.h"
#include "engine/ranks/ranks_internal.h"

static atomic_bool was_lost;
atomic_int ranks_alarms;

// ---- queues

void ranks_put(struct rank_queue *q, struct rank_message *m)
{
    m->next = NULL;
    if (q->last)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
}

struct rank_message *ranks_pop(struct rank_queue *q, uint32_t kinds)
{
    struct rank_message *before = NULL, *m = q->first;

    while (m && !(RANK_BIT(m->kind) & kinds)) {
        before = m;
        m = m->next;
    }
    if (!m)
        return NULL;
    if (before)
        before->next = m->next;
    else
        q->first = m->next;
    if (q->last == m)
        q->last = before;
    m->next = NULL;
    return m;
}

static void free_all(struct rank_message *m)
{
    for (struct rank_message *next; m; m = next) {
        next = m->next;
        mem_free(m->all);
        mem_free(m);
    }
}

// ---- messages

// One that is large enough, else another, whose memory is replaced.
static struct rank_message *take_idle(struct ranks *g, size_t n)
{
    struct rank_message **at = &g->idle;

    while (*at && (*at)->capacity < n && (*at)->next)
        at = &(*at)->next;
    struct rank_message *m = *at ? *at : mem_alloc(sizeof *m);
    if (*at)
        *at = m->next;
    if (!m || m->capacity >= n)
        return m;
    mem_free(m->all);
    m->all = mem_alloc(n);
    m->capacity = m->all ? n : 0;
    if (m->all)
        return m;
    mem_free(m);
    return NULL;
}

struct rank_message *ranks_room_locked(struct ranks *g, enum rank_kind kind, size_t body_bytes)
{
    struct rank_message *m = take_idle(g, sizeof(struct rank_head) + body_bytes);

    if (!m)
        return NULL;
    const struct rank_head head = { RANK_MAGIC, kind, body_bytes };
    m->kind = kind;
    m->n_bytes = body_bytes;
    m->n_all = sizeof head + body_bytes;
    m->body = m->all + sizeof head;
    memcpy(m->all, &head, sizeof head);
    return m;
}

struct rank_message *ranks_room(struct ranks *g, enum rank_kind kind, size_t body_bytes, struct err *err)
{
    pthread_mutex_lock(&g->lock);
    struct rank_message *m = ranks_room_locked(g, kind, body_bytes);
    pthread_mutex_unlock(&g->lock);
    if (!m)
        err_memory(err, "a message to another rank");
    return m;
}

void ranks_post_locked(struct ranks *g, uint32_t to, struct rank_message *m)
{
    struct rank_peer *peer = &g->peers[to];

    m->peer = to;
    if (m->kind == RANK_STEP || m->kind == RANK_RESULT) {
        peer->traffic.n_sent++;
        peer->traffic.sent_bytes += m->n_all;
        peer->n_unsent++;
        if (peer->n_unsent > peer->traffic.most_unsent)
            peer->traffic.most_unsent = peer->n_unsent;
    }
    ranks_put(&g->outbox, m);
    pthread_cond_signal(&g->wake);
}

void ranks_post(struct ranks *g, uint32_t to, struct rank_message *m)
{
    struct rank_head head;

    memcpy(&head, m->all, sizeof head); // a message that came may be passed on
    head.kind = m->kind;
    memcpy(m->all, &head, sizeof head);
    pthread_mutex_lock(&g->lock);
    ranks_post_locked(g, to, m);
    pthread_mutex_unlock(&g->lock);
}

struct rank_message *ranks_take(struct ranks *g, uint32_t kinds, struct err *err)
{
    struct rank_message *m = NULL;

    pthread_mutex_lock(&g->lock);
    while (!g->lost && !(m = ranks_pop(&g->inbox, kinds)))
        pthread_cond_wait(&g->news, &g->lock);
    if (!m && err)
        *err = g->why;
    pthread_mutex_unlock(&g->lock);
    return m;
}

void ranks_free(struct ranks *g, struct rank_message *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&g->lock);
    m->next = g->idle;
    g->idle = m;
    pthread_mutex_unlock(&g->lock);
}

// ---- the group

uint32_t ranks_rank(const struct ranks *g)
{
    return g->rank;
}

uint32_t ranks_n(const struct ranks *g)
{
    return g->n;
}

void ranks_limit(struct ranks *g, size_t body_bytes)
{
    pthread_mutex_lock(&g->lock);
    g->limit = body_bytes > RANK_HELLO_BYTES ? body_bytes : RANK_HELLO_BYTES;
    pthread_mutex_unlock(&g->lock);
}

void ranks_name_locked(const struct ranks *g, uint32_t rank, char to[RANK_NAME_BYTES])
{
    const char *host = g->peers[rank].host;

    if (*host)
        snprintf(to, RANK_NAME_BYTES, "rank %u (%s)", rank, host);
    else
        snprintf(to, RANK_NAME_BYTES, "rank %u", rank);
}

void ranks_name(struct ranks *g, uint32_t rank, char to[RANK_NAME_BYTES])
{
    pthread_mutex_lock(&g->lock);
    ranks_name_locked(g, rank, to);
    pthread_mutex_unlock(&g->lock);
}

struct rank_traffic ranks_traffic(struct ranks *g, uint32_t peer)
{
    pthread_mutex_lock(&g->lock);
    struct rank_traffic traffic = g->peers[peer].traffic;
    pthread_mutex_unlock(&g->lock);
    return traffic;
}

static void tell(struct ranks *g, uint32_t to, const struct err *why)
{
    struct rank_message *m = ranks_room_locked(g, RANK_FAIL, sizeof why->message);

    if (m)
        memcpy(m->body, why->message, sizeof why->message);
    if (m)
        ranks_post_locked(g, to, m);
}

void ranks_lose(struct ranks *g, const struct err *why)
{
    if (g->lost)
        return;
    g->lost = true;
    g->why = *why;
    atomic_store(&was_lost, true);
    for (uint32_t i = 1; i < g->n && g->rank == 0; i++)
        tell(g, i, why);
    if (g->rank != 0 && !g->told)
        tell(g, 0, why);
    g->on_lost();
    pthread_cond_broadcast(&g->news);
}

void ranks_fail(struct ranks *g, const struct err *why)
{
    pthread_mutex_lock(&g->lock);
    ranks_lose(g, why);
    pthread_mutex_unlock(&g->lock);
}

bool ranks_is_lost(struct ranks *g, struct err *why)
{
    pthread_mutex_lock(&g->lock);
    bool lost = g->lost;
    if (lost && why)
        *why = g->why;
    pthread_mutex_unlock(&g->lock);
    return lost;
}

bool ranks_were_lost(void)
{
    return atomic_load(&was_lost);
}

void ranks_alarm(void)
{
    atomic_fetch_add(&ranks_alarms, 1);
}

// A process number means the same to all processes of one host that share a name space.
static void fill_card(struct rank_card *c)
{
    char space[64] = "";

    if (gethostname(c->host, sizeof c->host - 1) != 0)
        snprintf(c->host, sizeof c->host, "?");
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    c->pid = n > 0 ? (uint64_t)getpid() : 0;
    snprintf(c->place, sizeof c->place, "%.*s %.*s", RANK_HOST_BYTES - 1, c->host, n > 0 ? (int)n : 0, space);
}

static void create_condition(pthread_cond_t *c)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
    pthread_condattr_setclock(&attributes, RANK_CLOCK);
#endif
    pthread_cond_init(c, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void destroy(struct ranks *g)
{
    free_all(g->inbox.first);
    free_all(g->outbox.first);
    free_all(g->idle);
    pthread_cond_destroy(&g->wake);
    pthread_cond_destroy(&g->news);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static void rest(struct ranks *g)
{
    struct timespec until;

    clock_gettime(RANK_CLOCK, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&g->news, &g->lock, &until);
}

// Waits for the thread to have started MPI, which waits for all ranks. *is_stuck: it still does.
static bool wait_started(struct ranks *g, bool *is_stuck, struct err *err)
{
    pthread_mutex_lock(&g->lock);
    while (!g->started && atomic_load(&ranks_alarms) == 0)
        rest(g);
    *is_stuck = !g->started;
    bool ok = g->n > 0;
    pthread_mutex_unlock(&g->lock);
    if (*is_stuck) {
        atomic_store(&was_lost, true);
        return err_set(err, ERR_DEVICE, "mpirun ends the job before all ranks have started: one is gone");
    }
    if (!ok)
        pthread_join(g->thread, NULL);
    return ok || err_set(err, ERR_UNSUPPORTED,
                         "MPI does not start: it was started before in this process, or takes no threads, or "
                         "has more than %d ranks",
                         MAX_RANKS);
}

struct ranks *ranks_open(void (*on_lost)(void), struct err *err)
{
    const struct mpi_plugin *mpi = plugin_open(err);
    struct ranks *g = mpi ? mem_alloc(sizeof *g) : NULL;

    if (!g) {
        if (mpi)
            err_memory(err, "a group of ranks");
        return NULL;
    }
    g->mpi = mpi;
    g->on_lost = on_lost;
    g->limit = RANK_HELLO_BYTES;
    fill_card(&g->card);
    pthread_mutex_init(&g->lock, NULL);
    create_condition(&g->wake);
    create_condition(&g->news);
    bool ok = pthread_create(&g->thread, NULL, ranks_run, g) == 0 || err_memory(err, "a thread");
    bool is_stuck = false;
    if (ok && wait_started(g, &is_stuck, err))
        return g;
    if (!is_stuck) // else the thread still has it, until the process ends
        destroy(g);
    return NULL;
}

void ranks_close(struct ranks *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    for (uint32_t i = 0; i < g->n; i++) {
        const struct rank_traffic *t = &g->peers[i].traffic;
        if (t->n_sent + t->n_received > 0)
            log_line(LOG_INFO, "ranks",
                     "rank %u and rank %u: sent %llu steps, %llu bytes, at most %u at once; received %llu "
                     "steps, %llu bytes",
                     g->rank, i, (unsigned long long)t->n_sent, (unsigned long long)t->sent_bytes,
                     t->most_unsent, (unsigned long long)t->n_received,
                     (unsigned long long)t->received_bytes);
    }
    destroy(g);
}
