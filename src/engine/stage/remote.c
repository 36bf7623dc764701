// remote.c - see remote.h. A failure of this rank, or a message that is wrong, ends the group.
#include "engine/stage/remote.h"
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "device/communicator.h"
#include "device/cpu/cpu_stop.h"

static bool is_wanted, was_open; // of the process; set once, in its first thread

// Of the process, for the end of the group, which any thread finds.
static pthread_mutex_t communicator_lock = PTHREAD_MUTEX_INITIALIZER;
static struct communicator *communicator_open;

void remote_want(void)
{
    is_wanted = true;
}

bool remote_is_wanted(void)
{
    return is_wanted;
}

bool remote_was_open(void)
{
    return was_open;
}

static void stop_communicator(void)
{
    pthread_mutex_lock(&communicator_lock);
    if (communicator_open)
        communicator_open->ops->stop(communicator_open);
    pthread_mutex_unlock(&communicator_lock);
}

static void *stop_apart(void *arg)
{
    stop_communicator();
    return arg;
}

// Threads that wait for a device, which waits for another rank's, come back. Not by this thread: it has
// errors to tell, and stopping may take a while.
static void end_waiting(void)
{
    pthread_t thread;

    cpu_stop();
    if (pthread_create(&thread, NULL, stop_apart, NULL) == 0)
        pthread_detach(thread);
}

static void set_communicator(struct remote *r, struct communicator *x)
{
    pthread_mutex_lock(&communicator_lock);
    r->communicator = communicator_open = x;
    r->limits.blocks_apart = x != NULL;
    pthread_mutex_unlock(&communicator_lock);
}

static void close_communicator(struct remote *r)
{
    struct communicator *x = r->communicator;

    if (!x)
        return;
    if (ranks_is_lost(r->ranks, NULL))
        stop_communicator();
    set_communicator(r, NULL);
    x->ops->close(x);
}

struct remote *remote_open(struct err *err)
{
    struct remote *r = mem_alloc(sizeof *r);

    if (!r) {
        err_memory(err, "a group of ranks");
        return NULL;
    }
    r->ranks = ranks_open(end_waiting, err);
    if (r->ranks) {
        was_open = true;
        pthread_mutex_init(&r->telling, NULL);
        return r;
    }
    mem_free(r);
    return NULL;
}

static uint32_t next_rank(const struct remote *r)
{
    return (ranks_rank(r->ranks) + 1) % ranks_n(r->ranks);
}

// Round the ring behind the last step, so that nobody leaves with a step under way.
static void close_ring(struct remote *r)
{
    struct err err = { 0 };
    struct rank_message *m = ranks_room(r->ranks, RANK_CLOSE, 0, &err);

    if (!m)
        return;
    ranks_post(r->ranks, next_rank(r), m);
    while ((m = ranks_take(r->ranks, RANK_BIT(RANK_RESULT) | RANK_BIT(RANK_CLOSE), &err))) {
        bool closed = m->kind == RANK_CLOSE;
        ranks_free(r->ranks, m);
        if (closed)
            return;
    }
}

void remote_close(struct remote *r)
{
    if (!r)
        return;
    ranks_free(r->ranks, r->result);
    if (r->is_running)
        close_ring(r);
    close_communicator(r);
    ranks_close(r->ranks);
    step_news_free(&r->news);
    step_news_free(&r->sending);
    pthread_mutex_destroy(&r->telling);
    mem_free(r);
}

bool remote_is_first(const struct remote *r)
{
    return ranks_rank(r->ranks) == 0;
}

struct layer_range remote_layers(const struct remote *r)
{
    return r->placement.layers[ranks_rank(r->ranks)];
}

void remote_limits(struct remote *r, const struct step_limits *limits)
{
    size_t step = step_message_most(limits), result = step_result_most(limits);

    r->limits = *limits;
    ranks_limit(r->ranks, remote_is_first(r) ? result : step);
}

// ---- whether the devices of all ranks send activations to each other
//
// The number that they join by goes round the ring, and with it whether all of them can; a second round tells
// all. Then a pattern goes down the chain of ranks, and two more rounds tell whether it arrived everywhere.
// Where anything fails, messages carry the activations, on all ranks.

enum { PATTERN_NUMBERS = 4096 };

struct remote_joining { // body of RANK_JOIN
    uint32_t can;       // all ranks so far
    struct communicator_place place;
};

// Rank 0 sends it off and takes it back; the others add what they can.
static bool go_round(struct remote *r, struct remote_joining *j, struct err *err)
{
    uint32_t rank = ranks_rank(r->ranks), n = ranks_n(r->ranks);
    struct rank_message *m = rank == 0 ? ranks_room(r->ranks, RANK_JOIN, sizeof *j, err) : NULL;
    struct remote_joining got;

    if (rank == 0 && !m)
        return false;
    if (m) {
        memcpy(m->body, j, sizeof *j);
        ranks_post(r->ranks, 1 % n, m);
    }
    m = ranks_take(r->ranks, RANK_BIT(RANK_JOIN), err);
    if (!m || m->n_bytes != sizeof got) {
        ranks_free(r->ranks, m);
        return m ? err_set(err, ERR_DEVICE, "a message of ranks that join is of %zu bytes; want %zu",
                           m->n_bytes, sizeof got)
                 : false;
    }
    memcpy(&got, m->body, sizeof got);
    got.can &= j->can;
    *j = got;
    if (rank == 0) {
        ranks_free(r->ranks, m);
    } else {
        memcpy(m->body, &got, sizeof got);
        ranks_post(r->ranks, (rank + 1) % n, m);
    }
    return true;
}

static bool ask_all(struct remote *r, struct remote_joining *j, struct err *err)
{
    return go_round(r, j, err) && go_round(r, j, err);
}

static float pattern_number(uint32_t i)
{
    return (float)(i * 7 % 1021 + 1);
}

static bool write_pattern(struct buffer *b, uint64_t n, float *room, struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        room[i] = pattern_number(i);
    return buffer_write(b, 0, room, n * sizeof *room, err);
}

static bool check_pattern(const struct buffer *b, uint64_t n, float *room, struct err *err)
{
    if (!buffer_read(b, 0, room, n * sizeof *room, err))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (room[i] != pattern_number(i))
            return err_set(err, ERR_DEVICE, "numbers arrive changed: %g where %g was sent", (double)room[i],
                           (double)pattern_number(i));
    return true;
}

// A rank to which it came changed sends a right one on, so that nobody waits for ever.
static bool try_chain(struct remote *r, struct communicator *x, struct stage *s, struct err *err)
{
    uint32_t rank = ranks_rank(r->ranks), n = ranks_n(r->ranks);
    uint64_t all = s->block.bytes / sizeof(float), count = all < PATTERN_NUMBERS ? all : PATTERN_NUMBERS;
    float *room = mem_alloc_array(PATTERN_NUMBERS, sizeof *room);
    bool ok = room || err_memory(err, "a pattern");

    if (ok && rank > 0)
        ok =
            x->ops->receive(x, &s->block, count, rank - 1, err) && check_pattern(&s->block, count, room, err);
    if (room && rank + 1 < n)
        ok = write_pattern(&s->block, count, room, ok ? err : NULL) &&
             x->ops->send(x, &s->block, count, rank + 1, ok ? err : NULL) &&
             s->device->ops->wait(s->device, ok ? err : NULL) && ok;
    mem_free(room);
    return ok;
}

static struct communicator *join(struct remote *r, struct stage *s, struct remote_joining *j, struct err *err)
{
    j->place.n = ranks_n(r->ranks);
    j->place.rank = ranks_rank(r->ranks);
    struct communicator *x = s->device->queue->join(s->device, &j->place, err);
    j->can = x && try_chain(r, x, s, err);
    return x;
}

bool remote_join(struct remote *r, struct stage *stage, struct err *err)
{
    const struct device_queue *queue = stage->device->queue;
    struct remote_joining j = { .can = queue && queue->join };
    struct communicator *x = NULL;
    struct err why = { 0 };

    // rank 0's number is the one that goes round; that the others make one says that they have the library
    j.can = j.can && queue->meeting(stage->device, &j.place, &why);
    bool ok = ask_all(r, &j, err);
    if (ok && j.can) {
        x = join(r, stage, &j, &why);
        ok = ask_all(r, &j, err);
    }
    if (ok && j.can) {
        set_communicator(r, x);
        log_line(LOG_INFO, "ranks", "activations go from GPU to GPU by %s", x->name);
        return true;
    }
    if (x) {
        x->ops->stop(x);
        x->ops->close(x);
    }
    if (why.code != ERR_NONE)
        log_line(LOG_INFO, "ranks", "activations go through the host: %s", why.message);
    return ok;
}

// ---- rank 0

static void tell(struct remote *r, const uint32_t head[4], const uint32_t *words)
{
    pthread_mutex_lock(&r->telling);
    step_news_add(&r->news, head, words);
    pthread_mutex_unlock(&r->telling);
}

static void tell_entries(struct remote *r, const uint32_t head[2], struct layer_range entries,
                         const uint32_t *row)
{
    if (entries.first < entries.last)
        tell(r, (uint32_t[4]){ head[0], head[1], entries.first, entries.last - entries.first },
             row + entries.first);
}

void remote_table_write(struct remote *r, const struct kv *kv, uint32_t slot, uint32_t from,
                        uint32_t window_from)
{
    uint64_t row = (uint64_t)slot * kv->max_pages;

    tell_entries(r, (uint32_t[2]){ STEP_NEWS_TABLE, slot }, (struct layer_range){ from, kv->n_taken[slot] },
                 kv->table + row);
    if (kv->window)
        tell_entries(r, (uint32_t[2]){ STEP_NEWS_WINDOWS, slot }, stage_held_windows(kv, slot, window_from),
                     kv->window_table + row);
}

void remote_history_write(struct remote *r, uint32_t slot, const uint32_t *tokens, uint32_t n)
{
    if (n > 0)
        tell(r, (uint32_t[4]){ STEP_NEWS_HISTORY, slot, 0, n }, tokens);
}

// What was told so far goes with this step.
static void take_news(struct remote *r)
{
    struct step_news room = r->sending;

    pthread_mutex_lock(&r->telling);
    r->sending = r->news;
    r->news = room;
    r->news.n = 0;
    pthread_mutex_unlock(&r->telling);
}

static bool send_block(struct remote *r, const struct stage *from, uint64_t bytes, struct err *err)
{
    return r->communicator->ops->send(r->communicator, &from->block, bytes / sizeof(float), next_rank(r),
                                      err);
}

bool remote_send(struct remote *r, struct batch *b, const struct stage *from,
                 step_constraint_of *constraint_of, struct err *err)
{
    uint64_t bytes = (uint64_t)b->n_rows * r->limits.n_cols * sizeof(float);

    take_news(r);
    if (r->sending.failed)
        return err_memory(err, "news of a step");
    b->sequence = ++r->sequence;
    size_t n = step_message_bytes(b, &r->sending, constraint_of, &r->limits);
    struct rank_message *m = ranks_room(r->ranks, RANK_STEP, n, err);
    if (!m)
        return false;
    size_t at = step_message_write(m->body, b, &r->sending, constraint_of, &r->limits);
    bool ok = r->communicator || (from->device->ops->wait(from->device, err) &&
                                  buffer_read(&from->block, 0, m->body + at, bytes, err));
    if (ok)
        ranks_post(r->ranks, next_rank(r), m);
    else
        ranks_free(r->ranks, m);
    return ok && (!r->communicator || send_block(r, from, bytes, err));
}

static uint32_t n_wanted(const struct batch *b, uint32_t n_outputs)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_outputs; i++)
        n += b->outputs[i].wants_logits;
    return n;
}

bool remote_collect(struct remote *r, struct batch *b, struct err *err)
{
    ranks_free(r->ranks, r->result);
    r->result = ranks_take(r->ranks, RANK_BIT(RANK_RESULT), err);
    bool ok = r->result && step_result_read(r->result->body, r->result->n_bytes, &r->limits, &r->view, err);
    if (ok && (r->view.sequence != b->sequence || r->view.n_outputs != b->n_outputs ||
               r->view.n_logits != n_wanted(b, b->n_outputs)))
        ok = err_set(err, ERR_DEVICE, "the last rank sent results of step %llu; want those of step %llu",
                     (unsigned long long)r->view.sequence, (unsigned long long)b->sequence);
    if (ok)
        memcpy(b->results, r->view.ids, b->n_outputs * sizeof *b->results);
    else if (r->result)
        ranks_fail(r->ranks, err);
    return ok;
}

const float *remote_logits(const struct remote *r, const struct batch *b, uint32_t output)
{
    uint32_t n = n_wanted(b, output);

    return b->outputs[output].wants_logits && n < r->view.n_logits
               ? r->view.logits + (size_t)n * r->limits.n_vocab
               : NULL;
}

// A request that is gone since has no row to read; the others' come in the order of the rows.
const float *remote_hidden(const struct remote *r, const struct batch *b, uint32_t row)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < row; i++)
        n += b->rows[i].pooled_by != NULL;
    return n < r->view.n_hidden ? r->view.hidden + (size_t)n * r->limits.n_cols : NULL;
}

// ---- the other ranks

static bool write_news(struct remote_player *p, const struct step_view *v, struct err *err)
{
    for (size_t at = 0; at < v->n_news; at += 4 + v->news[at + 3]) {
        const uint32_t *head = v->news + at, slot = head[1], from = head[2], n = head[3];
        bool ok;
        struct layer_range entries = { from, from + n };
        if (head[0] == STEP_NEWS_TABLE)
            ok = stage_pages_write(p->stage, slot, entries, head + 4, err);
        else if (head[0] == STEP_NEWS_WINDOWS)
            ok = stage_window_pages_write(p->stage, slot, entries, head + 4, err);
        else
            ok = stage_history_write(p->stage, slot, head + 4, n, err);
        if (!ok)
            return false;
    }
    return true;
}

static bool is_last(const struct remote *r)
{
    return ranks_rank(r->ranks) + 1 == ranks_n(r->ranks);
}

static bool write_constraints(struct remote *r, struct remote_player *p, const struct step_view *v,
                              struct err *err)
{
    size_t at = 0;

    for (uint32_t i = 0; i < v->n_outputs && is_last(r); i++) {
        struct step_constraint c = step_view_constraint(v, i, &at, &r->limits);
        struct stage_constraint own = { c.mask, (const struct sample_bias *)(const void *)c.biases,
                                        c.n_biases };
        if (!stage_constraint_write(p->stage, i, &own, err))
            return false;
    }
    return true;
}

static bool take_block(struct remote *r, struct stage *s, const struct step_view *v,
                       const unsigned char *body, struct err *err)
{
    struct communicator *x = r->communicator;

    return x ? x->ops->receive(x, &s->block, v->block_bytes / sizeof(float), ranks_rank(r->ranks) - 1, err)
             : buffer_write(&s->block, 0, body + v->block_at, v->block_bytes, err);
}

static bool play(struct remote *r, struct remote_player *p, const struct step_view *v, unsigned char *body,
                 struct err *err)
{
    struct stage *s = p->stage;

    step_view_fill(v, p->batch);
    const struct bucket *bucket = &s->buckets[stage_bucket_index(s, v->n_rows, v->n_outputs)];
    const struct step *step = batch_layout(p->batch, bucket->max_rows, bucket->max_outputs);
    return write_news(p, v, err) && write_constraints(r, p, v, err) && take_block(r, s, v, body, err) &&
           stage_play(s, step, err) && (r->communicator || s->device->ops->wait(s->device, err));
}

static bool read_results(struct remote *r, struct remote_player *p, const struct step_view *v,
                         struct rank_message *m, struct err *err)
{
    uint64_t logits = r->limits.n_vocab * sizeof(float), row = r->limits.n_cols * sizeof(float);
    unsigned char *at = m->body + step_result_bytes(&(struct step_result){ 0 }, &r->limits);
    uint64_t ids = v->n_outputs * sizeof *v->outputs;
    bool ok = ids == 0 || buffer_read(&p->stage->results, 0, at, ids, err);

    at += ids;
    for (uint32_t i = 0; i < v->n_outputs && ok; i++) {
        if (!step_view_wants_logits(v, i))
            continue;
        ok = buffer_read(&p->stage->logits, i * logits, at, logits, err);
        at += logits;
    }
    for (uint32_t i = 0; i < v->n_rows && ok; i++) {
        if (!step_view_wants_hidden(v, i))
            continue;
        ok = buffer_read(&p->stage->block, i * row, at, row, err);
        at += row;
    }
    return ok;
}

static bool answer(struct remote *r, struct remote_player *p, const struct step_view *v, struct err *err)
{
    struct step_result result = { .sequence = v->sequence, .n_outputs = v->n_outputs };

    for (uint32_t i = 0; i < v->n_outputs; i++)
        result.n_logits += step_view_wants_logits(v, i);
    for (uint32_t i = 0; i < v->n_rows; i++)
        result.n_hidden += step_view_wants_hidden(v, i);
    struct rank_message *m = ranks_room(r->ranks, RANK_RESULT, step_result_bytes(&result, &r->limits), err);
    if (!m)
        return false;
    step_result_write(m->body, &result);
    if (!read_results(r, p, v, m, err)) {
        ranks_free(r->ranks, m);
        return false;
    }
    ranks_post(r->ranks, 0, m);
    return true;
}

// Takes the message over.
static bool pass_on(struct remote *r, struct remote_player *p, struct rank_message *m, struct err *err)
{
    struct step_view v;
    bool ok = step_message_read(m->body, m->n_bytes, &r->limits, &v, err) && play(r, p, &v, m->body, err);

    if (ok && !is_last(r) &&
        (r->communicator || buffer_read(&p->stage->block, 0, m->body + v.block_at, v.block_bytes, err))) {
        ranks_post(r->ranks, next_rank(r), m);
        return !r->communicator || send_block(r, p->stage, v.block_bytes, err);
    }
    ok = ok && is_last(r) && answer(r, p, &v, err);
    ranks_free(r->ranks, m);
    return ok;
}

bool remote_play(struct remote *r, struct remote_player *player, struct err *err)
{
    for (;;) {
        struct rank_message *m = ranks_take(r->ranks, RANK_BIT(RANK_STEP) | RANK_BIT(RANK_CLOSE), err);
        if (!m)
            return false;
        if (m->kind == RANK_CLOSE) {
            ranks_post(r->ranks, next_rank(r), m);
            return true;
        }
        if (!pass_on(r, player, m, err)) {
            ranks_fail(r->ranks, err);
            return false;
        }
    }
}

void remote_describe(struct remote *r, const char *device, char *to, size_t n)
{
    size_t at = 0;

    for (uint32_t i = 0; i < r->placement.n && at < n; i++) {
        char name[RANK_NAME_BYTES];
        ranks_name(r->ranks, i, name);
        at += (size_t)snprintf(to + at, n - at, "%s%s for layers %u to %u", i ? ", " : "",
                               i == ranks_rank(r->ranks) ? device : name, r->placement.layers[i].first,
                               r->placement.layers[i].last - 1);
    }
}
