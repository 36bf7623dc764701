// rank_thread.c - the thread that makes all calls of MPI: sends, receives, beats, and notes who is gone.
//
// It tests for 50 us after the last message, then sleeps between tests, or until something is posted: a
// hundredth of the time since that message, at least 100 us and at most 10 ms. So a step is held up by a
// hundredth of what it waited for, and a group without work takes 1 % of a core a rank. Open MPI itself would
// take a whole one.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/ranks/ranks_internal.h"

static const uint64_t MS = 1000000, SECOND = 1000000000;
enum { SPIN_NS = 50000, SLEEP_NS = 100000, LONG_SLEEP_NS = 10000000, SLEEP_SHARE = 100 };
enum { WATCH_MS = 100, ANSWER_MS = 400, FLUSH_MS = 300, WARN_S = 10, LOST_S = 15 };

static void lose(struct ranks *g, uint32_t rank, const char *what)
{
    struct err why = { 0 };
    char name[RANK_NAME_BYTES];

    ranks_name_locked(g, rank, name);
    err_set(&why, ERR_DEVICE, "%s %s", name, what);
    ranks_lose(g, &why);
}

static void give_idle(struct ranks *g, struct rank_message *m)
{
    m->next = g->idle;
    g->idle = m;
}

// ---- sends

static void sent(struct ranks *g, struct rank_message *m)
{
    if (m->kind == RANK_STEP || m->kind == RANK_RESULT)
        g->peers[m->peer].n_unsent--;
    give_idle(g, m);
}

static void end_sends(struct ranks *g)
{
    for (uint32_t i = 0; i < MPI_PLUGIN_SLOTS; i++) {
        struct rank_message *m = g->sending[i];
        int over = m ? g->mpi->test(m->slot) : 0;
        if (over < 0)
            lose(g, m->peer, "cannot be reached: MPI reports an error");
        if (over == 0)
            continue;
        g->sending[i] = NULL;
        sent(g, m);
    }
}

// Leaves room for a receive.
static void begin_sends(struct ranks *g, uint64_t now)
{
    for (uint32_t i = 0; i + 1 < MPI_PLUGIN_SLOTS && g->outbox.first; i++) {
        if (g->sending[i])
            continue;
        struct rank_message *m = ranks_pop(&g->outbox, UINT32_MAX);
        m->slot = g->mpi->send((int)m->peer, m->all, m->n_all);
        g->peers[m->peer].sent_ns = now;
        g->moved_ns = m->kind == RANK_BEAT ? g->moved_ns : now;
        if (m->slot >= 0) {
            g->sending[i] = m;
        } else {
            lose(g, m->peer, "cannot be reached: MPI reports an error");
            sent(g, m);
        }
    }
}

static bool is_sending(const struct ranks *g)
{
    bool any = g->outbox.first != NULL;

    for (uint32_t i = 0; i < MPI_PLUGIN_SLOTS; i++)
        any |= g->sending[i] != NULL;
    return any;
}

// ---- receives

static bool may_come(const struct ranks *g, uint32_t kind, uint32_t from)
{
    bool star = (g->rank == 0) != (from == 0), before = (from + 1) % g->n == g->rank;

    switch (kind) {
    case RANK_NAME:
    case RANK_BEAT:
    case RANK_FAIL:
        return star;
    case RANK_HELLO:
        return star && g->rank == 0;
    case RANK_VERDICT:
        return star && from == 0;
    case RANK_STEP:
        return before && g->rank != 0;
    case RANK_RESULT:
        return before && g->rank == 0;
    case RANK_CLOSE:
    case RANK_JOIN:
        return before;
    default:
        return false;
    }
}

static bool take_name(struct ranks *g, const struct rank_message *m)
{
    struct rank_peer *peer = &g->peers[m->peer];
    struct rank_card card;

    if (m->n_bytes != sizeof card)
        return false;
    memcpy(&card, m->body, sizeof card);
    card.host[RANK_HOST_BYTES - 1] = card.place[RANK_PLACE_BYTES - 1] = 0;
    for (char *c = card.host; *c; c++)
        *c = *c > ' ' && *c < 0x7f ? *c : '?';
    memcpy(peer->host, card.host, sizeof peer->host);
    bool near = card.pid > 1 && card.pid < INT32_MAX && g->card.pid && !strcmp(card.place, g->card.place);
    peer->pid = near ? (pid_t)card.pid : 0;
    return true;
}

static bool answer_beat(struct ranks *g, const struct rank_message *m)
{
    uint32_t asks = 0;

    if (m->n_bytes != sizeof asks)
        return false;
    memcpy(&asks, m->body, sizeof asks);
    struct rank_message *beat = asks ? ranks_room_locked(g, RANK_BEAT, sizeof asks) : NULL;
    if (beat) {
        memset(beat->body, 0, sizeof asks);
        ranks_post_locked(g, m->peer, beat);
    }
    return true;
}

static bool take_failure(struct ranks *g, const struct rank_message *m)
{
    struct err why = { .code = ERR_DEVICE };

    if (m->n_bytes != sizeof why.message)
        return false;
    memcpy(why.message, m->body, sizeof why.message);
    why.message[sizeof why.message - 1] = 0;
    for (char *c = why.message; *c; c++)
        *c = (unsigned char)*c >= ' ' ? *c : ' ';
    if (m->peer == 0)
        g->told = true;
    else
        err_prefix(&why, "rank %u (%s)", m->peer, g->peers[m->peer].host);
    ranks_lose(g, &why);
    return true;
}

// True: it is not for the inbox.
static bool is_inner(struct ranks *g, const struct rank_message *m, bool *ok)
{
    switch (m->kind) {
    case RANK_NAME:
        *ok = take_name(g, m);
        return true;
    case RANK_BEAT:
        *ok = answer_beat(g, m);
        return true;
    case RANK_FAIL:
        *ok = take_failure(g, m);
        return true;
    default:
        return false;
    }
}

static void arrived(struct ranks *g, struct rank_message *m, uint64_t now)
{
    struct rank_peer *peer = &g->peers[m->peer];
    struct rank_head head;
    bool ok;

    memcpy(&head, m->all, sizeof head);
    m->kind = head.kind;
    ok = head.magic == RANK_MAGIC && head.n_bytes == m->n_bytes && may_come(g, head.kind, m->peer);
    if (!ok || is_inner(g, m, &ok)) {
        give_idle(g, m);
    } else {
        if (m->kind == RANK_STEP || m->kind == RANK_RESULT) {
            peer->traffic.n_received++;
            peer->traffic.received_bytes += m->n_all;
        }
        g->moved_ns = now;
        ranks_put(&g->inbox, m);
        pthread_cond_broadcast(&g->news);
    }
    if (!ok)
        lose(g, m->peer, "sent a message that has no place here; all ranks need the same ingot");
}

static void begin_receive(struct ranks *g, uint32_t from, size_t n)
{
    struct rank_message *m = NULL;

    if (from >= g->n || from == g->rank || n < sizeof(struct rank_head) ||
        n > g->limit + sizeof(struct rank_head)) {
        struct err why = { 0 };
        err_set(&why, ERR_DEVICE,
                "rank %u sent a message of %zu bytes; want %zu to %zu; all ranks need the same ingot", from,
                n, sizeof(struct rank_head), g->limit + sizeof(struct rank_head));
        ranks_lose(g, &why);
        return;
    }
    m = ranks_room_locked(g, RANK_BEAT, n - sizeof(struct rank_head));
    if (m)
        m->slot = g->mpi->receive(m->all, n);
    if (m && m->slot >= 0) {
        m->peer = from;
        g->receiving = m;
        return;
    }
    lose(g, from, m ? "sent what MPI cannot receive" : "sent a message for which there is no memory");
    if (m)
        give_idle(g, m);
}

// After an error that found a message which is not received, no other is looked for.
static void receive_some(struct ranks *g, uint64_t now)
{
    int from = 0, found = 0;
    size_t n = 0;

    if (!g->receiving && (g->lost || (found = g->mpi->probe(&from, &n)) == 0))
        return;
    if (found < 0)
        lose(g, g->rank, "has an error of MPI while it looks for messages");
    if (found > 0)
        begin_receive(g, (uint32_t)from, n);
    int over = g->receiving ? g->mpi->test(g->receiving->slot) : 0;
    if (over == 0)
        return;
    struct rank_message *m = g->receiving;
    g->receiving = NULL;
    g->peers[m->peer].heard_ns = now;
    g->peers[m->peer].warned = g->peers[m->peer].asked = false;
    if (over > 0) {
        arrived(g, m, now);
    } else {
        lose(g, m->peer, "sent what MPI cannot receive");
        give_idle(g, m);
    }
}

// ---- who is there

static void beat(struct ranks *g, uint32_t to, uint32_t asks)
{
    struct rank_message *m = ranks_room_locked(g, RANK_BEAT, sizeof asks);

    if (!m)
        return;
    memcpy(m->body, &asks, sizeof asks);
    ranks_post_locked(g, to, m);
}

static void watch_peer(struct ranks *g, uint32_t i, uint64_t now)
{
    struct rank_peer *p = &g->peers[i];
    char name[RANK_NAME_BYTES];

    if (now > p->sent_ns + SECOND)
        beat(g, i, 0);
    if (p->pid && kill(p->pid, 0) != 0 && errno == ESRCH) {
        lose(g, i, "is gone: its process has ended; the model's other layers cannot answer without it");
    } else if (p->asked && now > g->asked_ns + ANSWER_MS * MS) {
        lose(g, i,
             "does not answer, and mpirun is ending the job; the other layers cannot answer without it");
    } else if (now > p->heard_ns + LOST_S * SECOND) {
        lose(g, i, "has been silent for 15 s and is given up; look at its machine and start the job again");
    } else if (now > p->heard_ns + WARN_S * SECOND && !p->warned) {
        p->warned = true;
        ranks_name_locked(g, i, name);
        log_line(LOG_WARN, "ranks", "%s has been silent for 10 s; after 15 s it is given up", name);
    }
}

// Rank 0 watches all, the others watch rank 0.
static void watch(struct ranks *g, uint64_t now)
{
    uint32_t first = g->rank == 0 ? 1 : 0, last = g->rank == 0 ? g->n : 1;

    if (g->rank == 0 && atomic_load(&ranks_alarms) > 0) {
        atomic_store(&ranks_alarms, 0);
        g->asked_ns = now;
        for (uint32_t i = first; i < last; i++) {
            g->peers[i].asked = true;
            beat(g, i, 1);
        }
    }
    if (now < g->watched_ns + WATCH_MS * MS)
        return;
    g->watched_ns = now;
    for (uint32_t i = first; i < last && !g->lost; i++)
        watch_peer(g, i, now);
}

// ---- the thread

static uint64_t sleep_ns(const struct ranks *g, uint64_t idle_ns)
{
    uint64_t ns = idle_ns / SLEEP_SHARE;

    if (is_sending(g) || g->receiving || ns < SLEEP_NS)
        return SLEEP_NS;
    return ns < LONG_SLEEP_NS ? ns : LONG_SLEEP_NS;
}

static void rest(struct ranks *g)
{
    uint64_t now = clock_ns(), idle_ns = now > g->moved_ns ? now - g->moved_ns : 0;
    struct timespec until;

    if (idle_ns < SPIN_NS) {
        pthread_mutex_unlock(&g->lock);
        sched_yield();
        pthread_mutex_lock(&g->lock);
        return;
    }
    clock_gettime(RANK_CLOCK, &until);
    until.tv_nsec += (long)sleep_ns(g, idle_ns);
    if (until.tv_nsec >= (long)SECOND) {
        until.tv_nsec -= (long)SECOND;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&g->wake, &g->lock, &until);
}

static void introduce(struct ranks *g, uint64_t now)
{
    uint32_t first = g->rank == 0 ? 1 : 0, last = g->rank == 0 ? g->n : 1;

    memcpy(g->peers[g->rank].host, g->card.host, sizeof g->card.host);
    for (uint32_t i = 0; i < g->n; i++)
        g->peers[i].heard_ns = g->peers[i].sent_ns = now;
    for (uint32_t i = first; i < last && g->n > 1; i++) {
        struct rank_message *m = ranks_room_locked(g, RANK_NAME, sizeof g->card);
        if (!m)
            return;
        memcpy(m->body, &g->card, sizeof g->card);
        ranks_post_locked(g, i, m);
    }
}

static bool begin(struct ranks *g)
{
    int rank = 0, n = 0;
    bool ok = g->mpi->start(&rank, &n) == 0 && n >= 1 && n <= MAX_RANKS && rank >= 0 && rank < n;

    pthread_mutex_lock(&g->lock);
    g->rank = ok ? (uint32_t)rank : 0;
    g->n = ok ? (uint32_t)n : 0;
    g->started = true;
    introduce(g, clock_ns());
    pthread_cond_broadcast(&g->news);
    return ok;
}

// When the group is lost, rank 0 leaves first: mpirun ends all as soon as one does, and rank 0 has answers to
// write.
static bool is_over(const struct ranks *g, uint64_t stopped_ns, uint64_t now)
{
    const struct rank_peer *first = &g->peers[0];

    if (!g->stopping)
        return false;
    if (!g->lost)
        return !is_sending(g);
    if (g->rank == 0)
        return !is_sending(g) || now > stopped_ns + FLUSH_MS * MS;
    return now > first->heard_ns + LOST_S * SECOND ||
           (first->pid && kill(first->pid, 0) != 0 && errno == ESRCH);
}

static void drop_sends(struct ranks *g)
{
    for (uint32_t i = 0; i < MPI_PLUGIN_SLOTS; i++)
        if (g->sending[i])
            ranks_put(&g->outbox, g->sending[i]);
    if (g->receiving)
        ranks_put(&g->outbox, g->receiving);
}

void *ranks_run(void *arg)
{
    struct ranks *g = arg;
    uint64_t stopped_ns = 0;
    thread_name("ingot ranks");
    bool ok = begin(g), over = false;

    while (ok && !over) {
        uint64_t now = clock_ns();
        stopped_ns = g->stopping && !stopped_ns ? now : stopped_ns;
        end_sends(g);
        begin_sends(g, now);
        receive_some(g, now);
        watch(g, now);
        over = is_over(g, stopped_ns, now);
        if (!over)
            rest(g);
    }
    bool lost = g->lost;
    drop_sends(g);
    pthread_mutex_unlock(&g->lock);
    if (ok && !lost)
        g->mpi->stop();
    return NULL;
}
