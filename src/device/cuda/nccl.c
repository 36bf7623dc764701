// nccl.c - ranks on several GPUs exchange by NCCL; see nccl.h.
//
// A thread for each rank calls for its own communicator; once set up, a call only puts work into the rank's
// stream. That work spins on the GPU until all ranks have theirs, so a rank that fails before its call, or a
// GPU that fails under it, would hold the others for ever. Whoever sees a failure stops the exchange: the
// communicators are aborted and the others' work ends. A rank that fails in a call does so itself; a thread
// looks at the streams of all ranks twenty times a second for the rest.
//
// NCCL waits for ever for a rank that does not come: ranks are joined by a thread of their own, which is left
// to itself when it takes too long.
//
// NCCL sets up connections at the first call of a kind, and loads its kernels then. nccl_open makes these
// calls, so that no step waits for it.
#include "device/cuda/nccl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "device/cuda/cuda_internal.h"

enum { LOOK_MS = 50, LEAVE_MS = 250, TRY_MS = 20000, TRY_NUMBERS = 1 << 20 };

struct nccl_rank {
    struct cuda *c;
    nccl_comm comm;     // NULL: not joined, or aborted
    atomic_bool inside; // its thread is in a call
    uint32_t first;     // column of what is gathered
};

enum nccl_joining { JOINING, JOINED, LEFT_TO_ITSELF };

struct nccl {
    struct communicator shared; // first
    const struct nccl_library *library;
    struct communicator_shape shape; // of the ranks of this process
    struct nccl_rank ranks[EXCHANGE_RANKS];
    uint32_t all_cols;
    struct communicator_place place; // of the first rank of this process
    atomic_int joining;              // enum nccl_joining
    struct buffer parts;             // on the first rank: the others' parts, one behind the other
    struct err failure; // of joining; then what the looking thread saw, written before `stopped` is set
    atomic_bool stopped, closing;
    pthread_mutex_t lock; // of the communicators' end
    bool looks;
    pthread_t looking;
};

static bool check(const struct nccl *x, uint32_t rank, nccl_result result, const char *what, struct err *err)
{
    if (result == 0)
        return true;
    const char *text = x->library->error_text(result), *more = x->library->last_error(NULL);
    return err_set(err, ERR_DEVICE, "%s: %s by %s failed: %s%s%.200s", x->ranks[rank].c->device.name, what,
                   x->shared.name, text ? text : "unknown error", more && *more ? ": " : "",
                   more ? more : "");
}

static bool use(const struct nccl *x, uint32_t rank, struct err *err)
{
    return cuda_use(x->ranks[rank].c, err);
}

// ---- the end of an exchange -------------------------------------------------------------------------------

static bool any_inside(const struct nccl *x)
{
    for (uint32_t i = 0; i < x->shape.n; i++)
        if (atomic_load(&x->ranks[i].inside))
            return true;
    return false;
}

// Threads leave their calls at once, since these only queue work. One that does not is blocked in NCCL, which
// an abort ends.
static void wait_for_leaving(const struct nccl *x)
{
    uint64_t until = clock_ns() + LEAVE_MS * 1000000ull;

    while (any_inside(x) && clock_ns() < until)
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
}

// `lock` is held.
static void abort_all(struct nccl *x)
{
    if (atomic_exchange(&x->stopped, true))
        return;
    wait_for_leaving(x);
    for (uint32_t i = 0; i < x->shape.n; i++) {
        nccl_comm comm = x->ranks[i].comm;
        x->ranks[i].comm = NULL;
        if (comm && use(x, i, NULL))
            x->library->abort(comm);
    }
}

static void nccl_stop(struct communicator *communicator)
{
    struct nccl *x = (struct nccl *)communicator;

    pthread_mutex_lock(&x->lock);
    abort_all(x);
    pthread_mutex_unlock(&x->lock);
}

static bool nccl_has_not_failed(struct communicator *communicator, struct err *err)
{
    struct nccl *x = (struct nccl *)communicator;

    if (!atomic_load(&x->stopped))
        return true;
    if (x->failure.code == ERR_NONE)
        return err_set(err, ERR_DEVICE, "a rank has failed, and %s was stopped", x->shared.name);
    if (err)
        *err = x->failure;
    return false;
}

static bool is_well(const struct nccl *x, uint32_t rank, struct err *err)
{
    const struct nccl_rank *r = &x->ranks[rank];
    nccl_result result = 0;

    if (!use(x, rank, err))
        return false;
    cu_result state = r->c->cu->stream_query(r->c->stream);
    return cuda_check(r->c, state == CU_NOT_READY ? 0 : state, "a step", err) &&
           check(x, rank, x->library->async_error(r->comm, &result), "looking for errors", err) &&
           check(x, rank, result, "an exchange", err);
}

static void look(struct nccl *x)
{
    struct err err = { 0 };

    for (uint32_t i = 0; i < x->shape.n && !atomic_load(&x->stopped); i++)
        if (!is_well(x, i, &err)) {
            x->failure = err;
            log_line(LOG_WARN, "ranks", "%s", err.message);
            abort_all(x);
        }
}

static void *look_on(void *arg)
{
    struct nccl *x = arg;

    thread_name("ingot-nccl");
    while (!atomic_load(&x->closing)) {
        nanosleep(&(struct timespec){ 0, LOOK_MS * 1000000l }, NULL);
        pthread_mutex_lock(&x->lock);
        look(x);
        pthread_mutex_unlock(&x->lock);
    }
    return NULL;
}

static void nccl_free(struct nccl *x)
{
    pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

static void nccl_close(struct communicator *communicator)
{
    struct nccl *x = (struct nccl *)communicator;

    atomic_store(&x->closing, true);
    if (x->looks)
        pthread_join(x->looking, NULL);
    for (uint32_t i = 0; i < x->shape.n; i++)
        if (x->ranks[i].comm && use(x, i, NULL))
            x->ranks[i].c->cu->stream_wait(x->ranks[i].c->stream);
    for (uint32_t i = 0; i < x->shape.n; i++)
        if (x->ranks[i].comm && use(x, i, NULL))
            x->library->destroy(x->ranks[i].comm);
    buffer_release(&x->parts);
    nccl_free(x);
}

// ---- exchanging -------------------------------------------------------------------------------------------

// False: the exchange has ended.
static bool enter(struct nccl *x, uint32_t rank, struct err *err)
{
    atomic_store(&x->ranks[rank].inside, true);
    if (!atomic_load(&x->stopped) && use(x, rank, err))
        return true;
    atomic_store(&x->ranks[rank].inside, false);
    if (err && atomic_load(&x->stopped) && x->failure.code != ERR_NONE)
        *err = x->failure;
    return false;
}

// A call that an abort has ended is no error of this rank's.
static bool leave(struct nccl *x, uint32_t rank, bool ok, struct err *err)
{
    if (!ok && err && atomic_load(&x->stopped))
        *err = x->failure;
    atomic_store(&x->ranks[rank].inside, false);
    return ok;
}

static bool queue_sum(struct nccl *x, uint32_t rank, struct buffer *b, uint64_t n, struct err *err)
{
    struct nccl_rank *r = &x->ranks[rank];

    r->c->device.counters.sent_bytes += n * sizeof(float);
    return check(x, rank,
                 x->library->all_reduce(b->native, b->native, n, NCCL_F32, NCCL_SUM, r->comm, r->c->stream),
                 "a sum", err);
}

static bool nccl_all_reduce(struct communicator *communicator, uint32_t rank, struct buffer *b, uint64_t n,
                            struct err *err)
{
    struct nccl *x = (struct nccl *)communicator;

    return n == 0 || (enter(x, rank, err) && leave(x, rank, queue_sum(x, rank, b, n, err), err));
}

static bool queue_send(struct nccl *x, uint32_t rank, const struct communicator_gather *at, struct err *err)
{
    struct nccl_rank *r = &x->ranks[rank];
    size_t n = (size_t)at->n_rows * x->shape.part_cols[rank];

    r->c->device.counters.sent_bytes += n * sizeof(float);
    return check(x, rank, x->library->send(at->part->native, n, NCCL_F32, 0, r->comm, r->c->stream),
                 "sending a part", err);
}

// The rank of this process is the first of x->ranks, whatever its number is among processes.
static bool nccl_send(struct communicator *communicator, const struct buffer *b, uint64_t n, uint32_t to,
                      struct err *err)
{
    struct nccl *x = (struct nccl *)communicator;
    struct nccl_rank *r = &x->ranks[0];

    r->c->device.counters.sent_bytes += n * sizeof(float);
    return enter(x, 0, err) &&
           leave(x, 0,
                 check(x, 0, x->library->send(b->native, n, NCCL_F32, (int)to, r->comm, r->c->stream),
                       "sending to another process", err),
                 err);
}

static bool nccl_receive(struct communicator *communicator, struct buffer *b, uint64_t n, uint32_t from,
                         struct err *err)
{
    struct nccl *x = (struct nccl *)communicator;
    struct nccl_rank *r = &x->ranks[0];

    return enter(x, 0, err) &&
           leave(x, 0,
                 check(x, 0, x->library->receive(b->native, n, NCCL_F32, (int)from, r->comm, r->c->stream),
                       "receiving from another process", err),
                 err);
}

static cu_address part_at(const struct nccl *x, const struct communicator_gather *at, uint32_t rank)
{
    uint64_t before = (uint64_t)(x->ranks[rank].first - x->shape.part_cols[0]) * at->n_rows;

    return rank == 0 ? (cu_address)(uintptr_t)at->part->native
                     : (cu_address)(uintptr_t)x->parts.native + before * sizeof(float);
}

static bool queue_receives(struct nccl *x, const struct communicator_gather *at, struct err *err)
{
    struct nccl_rank *r = &x->ranks[0];
    bool ok = check(x, 0, x->library->group_start(), "receiving parts", err);

    if (!ok)
        return false;
    for (uint32_t i = 1; i < x->shape.n && ok; i++)
        ok = check(x, 0,
                   x->library->receive((void *)(uintptr_t)part_at(x, at, i),
                                       (size_t)at->n_rows * x->shape.part_cols[i], NCCL_F32, (int)i, r->comm,
                                       r->c->stream),
                   "receiving a part", err);
    return check(x, 0, x->library->group_end(), "receiving parts", ok ? err : NULL) && ok;
}

// The rank's columns of every row.
static bool put_columns(struct nccl *x, const struct communicator_gather *at, uint32_t rank, struct err *err)
{
    struct cuda *c = x->ranks[0].c;
    size_t row_bytes = x->shape.part_cols[rank] * sizeof(float);
    cu_address to = (cu_address)(uintptr_t)at->whole->native + x->ranks[rank].first * sizeof(float);
    struct cu_copy_rows copy = {
        .from = { .kind = CU_MEMORY_DEVICE, .at = part_at(x, at, rank), .pitch = row_bytes },
        .to = { .kind = CU_MEMORY_DEVICE, .at = to, .pitch = x->all_cols * sizeof(float) },
        .row_bytes = row_bytes,
        .n_rows = at->n_rows,
    };

    return cuda_check(c, c->cu->copy_rows(&copy, c->stream), "a copy of columns", err);
}

static bool queue_gather(struct nccl *x, const struct communicator_gather *at, struct err *err)
{
    bool ok = queue_receives(x, at, err);

    for (uint32_t i = 0; i < x->shape.n && ok; i++)
        ok = put_columns(x, at, i, err);
    return ok;
}

static bool nccl_gather(struct communicator *communicator, uint32_t rank,
                        const struct communicator_gather *at, struct err *err)
{
    struct nccl *x = (struct nccl *)communicator;

    if (at->n_rows == 0)
        return true;
    return enter(x, rank, err) &&
           leave(x, rank, rank == 0 ? queue_gather(x, at, err) : queue_send(x, rank, at, err), err);
}

// ---- opening ----------------------------------------------------------------------------------------------

static bool are_different(struct device *const *ranks, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (((struct cuda *)ranks[i])->ordinal == ((struct cuda *)ranks[k])->ordinal)
                return err_set(err, ERR_UNSUPPORTED, "two ranks are on %s; NCCL wants a GPU for each",
                               ranks[i]->name);
    return true;
}

static bool join_one(struct nccl *x, uint32_t i, struct err *err)
{
    struct nccl_id id;

    memcpy(&id, x->place.id, sizeof id);
    return use(x, i, err) &&
           check(x, i, x->library->join(&x->ranks[i].comm, (int)x->place.n, id, (int)(x->place.rank + i)),
                 "joining", err);
}

// All ranks of this process, by one thread.
static bool join_all(struct nccl *x, struct err *err)
{
    if (x->shape.n == 1)
        return join_one(x, 0, err);
    bool ok = check(x, 0, x->library->group_start(), "joining the ranks", err);
    if (!ok)
        return false;
    for (uint32_t i = 0; i < x->shape.n && ok; i++)
        ok = join_one(x, i, err);
    return check(x, 0, x->library->group_end(), "joining the ranks", ok ? err : NULL) && ok;
}

// The devices may be closed by now; NCCL chooses them by itself.
static void drop_late(struct nccl *x)
{
    for (uint32_t i = 0; i < x->shape.n; i++)
        if (x->ranks[i].comm)
            x->library->abort(x->ranks[i].comm);
    nccl_free(x);
}

static void *join_on(void *arg)
{
    struct nccl *x = arg;

    thread_name("ingot-nccl");
    join_all(x, &x->failure);
    if (atomic_exchange(&x->joining, JOINED) == LEFT_TO_ITSELF)
        drop_late(x);
    return NULL;
}

uint32_t nccl_join_ms = 15000;

// *x is NULL when its thread is left to itself, which then frees it.
static bool join_in_time(struct nccl **x, struct err *err)
{
    struct nccl *own = *x;
    uint64_t until = clock_ns() + nccl_join_ms * 1000000ull;
    int joining = JOINING;
    pthread_t thread;
    char by[sizeof own->shared.name];

    snprintf(by, sizeof by, "%s", own->shared.name);
    if (pthread_create(&thread, NULL, join_on, own) != 0)
        return err_memory(err, "a thread that joins the ranks");
    while (atomic_load(&own->joining) == JOINING && clock_ns() < until)
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    if (atomic_compare_exchange_strong(&own->joining, &joining, LEFT_TO_ITSELF)) {
        pthread_detach(thread);
        *x = NULL;
        return err_set(err, ERR_DEVICE, "joining the ranks by %s takes longer than %g s", by,
                       nccl_join_ms / 1e3);
    }
    pthread_join(thread, NULL);
    bool ok = own->failure.code == ERR_NONE;
    if (!ok && err)
        *err = own->failure;
    return ok;
}

// Small whole numbers: their sum is exact in any order.
static float try_number(uint32_t rank, uint64_t i)
{
    return (float)((i * 7 + rank * 13) % 1021);
}

static bool fill_all(struct nccl *x, struct buffer *b, float *room, struct err *err)
{
    for (uint32_t r = 0; r < x->shape.n; r++) {
        for (uint64_t i = 0; i < TRY_NUMBERS; i++)
            room[i] = try_number(r, i);
        if (!buffer_write(&b[r], 0, room, TRY_NUMBERS * sizeof *room, err))
            return false;
    }
    return true;
}

// Waits for all ranks' streams, but not for ever.
static bool await(struct nccl *x, struct err *err)
{
    uint64_t until = clock_ns() + TRY_MS * 1000000ull;

    for (uint32_t i = 0; i < x->shape.n; i++) {
        struct cuda *c = x->ranks[i].c;
        cu_result state;
        if (!use(x, i, err))
            return false;
        while ((state = c->cu->stream_query(c->stream)) == CU_NOT_READY && clock_ns() < until)
            nanosleep(&(struct timespec){ 0, 100000 }, NULL);
        if (state == CU_NOT_READY)
            return err_set(err, ERR_DEVICE, "%s: a first exchange by %s takes longer than %d s",
                           c->device.name, x->shared.name, TRY_MS / 1000);
        if (!cuda_check(c, state, "a first exchange", err))
            return false;
    }
    return true;
}

// By one thread: the calls of all ranks in a group.
static bool queue_sums(struct nccl *x, struct buffer *b, uint64_t n, struct err *err)
{
    bool ok = check(x, 0, x->library->group_start(), "a first sum", err);

    if (!ok)
        return false;
    for (uint32_t i = 0; i < x->shape.n && ok; i++)
        ok = use(x, i, err) && queue_sum(x, i, &b[i], n, err);
    return check(x, 0, x->library->group_end(), "a first sum", ok ? err : NULL) && ok && await(x, err);
}

static bool is_right(const struct nccl *x, uint32_t rank, float got, float wanted, struct err *err)
{
    return got == wanted ||
           err_set(err, ERR_DEVICE, "%s: %s computes wrong: %g where %g was expected",
                   x->ranks[rank].c->device.name, x->shared.name, (double)got, (double)wanted);
}

static bool sums_are_right(struct nccl *x, struct buffer *b, uint64_t n, float *room, struct err *err)
{
    for (uint32_t k = 0; k < x->shape.n; k++) {
        if (!buffer_read(&b[k], 0, room, n * sizeof *room, err))
            return false;
        for (uint64_t i = 0; i < n; i++) {
            float sum = 0;
            for (uint32_t r = 0; r < x->shape.n; r++)
                sum += try_number(r, i);
            if (!is_right(x, k, room[i], sum, err))
                return false;
        }
    }
    return true;
}

// A short sum and a long one, which NCCL sends in unlike ways.
static bool try_sums(struct nccl *x, struct buffer *b, float *room, struct err *err)
{
    static const uint64_t lengths[] = { 1024, TRY_NUMBERS };
    bool ok = true;

    for (size_t k = 0; k < 2 && ok; k++)
        ok = fill_all(x, b, room, err) && queue_sums(x, b, lengths[k], err) &&
             sums_are_right(x, b, lengths[k], room, err);
    return ok;
}

static bool queue_one_row(struct nccl *x, struct buffer *b, struct buffer *whole, struct err *err)
{
    bool ok = check(x, 0, x->library->group_start(), "a first gather", err);
    struct communicator_gather first = { &b[0], whole, 1 };

    if (!ok)
        return false;
    for (uint32_t i = 1; i < x->shape.n && ok; i++)
        ok = use(x, i, err) && queue_send(x, i, &(struct communicator_gather){ &b[i], NULL, 1 }, err);
    ok = ok && use(x, 0, err) && queue_receives(x, &first, err);
    ok = check(x, 0, x->library->group_end(), "a first gather", ok ? err : NULL) && ok && use(x, 0, err);
    for (uint32_t i = 0; i < x->shape.n && ok; i++)
        ok = put_columns(x, &first, i, err);
    return ok && await(x, err);
}

static bool row_is_right(struct nccl *x, const struct buffer *whole, float *room, struct err *err)
{
    if (!buffer_read(whole, 0, room, x->all_cols * sizeof *room, err))
        return false;
    for (uint32_t r = 0; r < x->shape.n; r++)
        for (uint32_t i = 0; i < x->shape.part_cols[r]; i++)
            if (!is_right(x, 0, room[x->ranks[r].first + i], try_number(r, i), err))
                return false;
    return true;
}

static bool try_gather(struct nccl *x, struct buffer *b, float *room, struct err *err)
{
    struct buffer whole = { 0 };
    bool ok =
        x->all_cols > TRY_NUMBERS || // more tokens than any model has
        (buffer_alloc(&x->ranks[0].c->device, x->all_cols * sizeof *room, &whole, err) &&
         fill_all(x, b, room, err) && queue_one_row(x, b, &whole, err) && row_is_right(x, &whole, room, err));

    buffer_release(&whole);
    return ok;
}

static bool make_parts(struct nccl *x, struct err *err)
{
    uint64_t others = x->all_cols - x->shape.part_cols[0];

    return buffer_alloc(&x->ranks[0].c->device, others * x->shape.max_rows * sizeof(float), &x->parts, err);
}

static bool try_all(struct nccl *x, struct err *err)
{
    struct buffer b[EXCHANGE_RANKS] = { { .bytes = 0 } };
    float *room = mem_alloc_array(TRY_NUMBERS, sizeof *room);
    bool ok = room || err_memory(err, "a first exchange of ranks");

    for (uint32_t i = 0; i < x->shape.n && ok; i++)
        ok = buffer_alloc(&x->ranks[i].c->device, TRY_NUMBERS * sizeof *room, &b[i], err);
    ok = ok && try_sums(x, b, room, err) && try_gather(x, b, room, err);
    if (!ok)
        nccl_stop(&x->shared); // giving memory back waits for the streams
    mem_free(room);
    for (uint32_t i = 0; i < x->shape.n; i++)
        buffer_release(&b[i]);
    return ok;
}

static bool begin_looking(struct nccl *x, struct err *err)
{
    x->looks = pthread_create(&x->looking, NULL, look_on, x) == 0;
    return x->looks || err_memory(err, "a thread that looks at the ranks' exchange");
}

static struct nccl *create(struct device *const *ranks, const struct communicator_shape *shape,
                           const struct nccl_library *library)
{
    static const struct communicator_ops ops = { nccl_all_reduce, nccl_gather, nccl_send,
                                                 nccl_receive,    nccl_stop,   nccl_has_not_failed,
                                                 nccl_close };
    struct nccl *x = mem_alloc(sizeof *x);

    if (!x)
        return NULL;
    x->shared.ops = &ops;
    x->library = library;
    x->shape = *shape;
    nccl_library_name(library, x->shared.name, sizeof x->shared.name);
    for (uint32_t i = 0; i < shape->n; i++) {
        x->ranks[i].c = (struct cuda *)ranks[i];
        x->ranks[i].first = x->all_cols;
        x->all_cols += shape->part_cols[i];
    }
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

// All of them are in this process.
static bool number_ranks(struct nccl *x, struct err *err)
{
    struct nccl_id id;

    if (!use(x, 0, err) || !check(x, 0, x->library->unique_id(&id), "a number for the ranks", err))
        return false;
    x->place.n = x->shape.n;
    memcpy(x->place.id, &id, sizeof id);
    return true;
}

static void give_up(struct nccl *x)
{
    if (!x)
        return;
    nccl_stop(&x->shared);
    nccl_close(&x->shared);
}

struct communicator *nccl_open(struct device *const *ranks, const struct communicator_shape *shape,
                               struct err *err)
{
    const struct nccl_library *library = are_different(ranks, shape->n, err) ? nccl_load(err) : NULL;
    struct nccl *x = library ? create(ranks, shape, library) : NULL;

    CHECK(shape->n <= EXCHANGE_RANKS);
    if (!x) {
        if (library)
            err_memory(err, "what ranks exchange by");
        return NULL;
    }
    if (number_ranks(x, err) && join_in_time(&x, err) && make_parts(x, err) && try_all(x, err) &&
        begin_looking(x, err))
        return &x->shared;
    give_up(x);
    return NULL;
}

bool nccl_meeting(struct device *d, struct communicator_place *place, struct err *err)
{
    const struct nccl_library *library = nccl_load(err);
    struct cuda *c = (struct cuda *)d;
    struct nccl_id id;

    STATIC_ASSERT(sizeof place->id == sizeof id);
    if (!library || !cuda_use(c, err))
        return false;
    nccl_result result = library->unique_id(&id);
    memcpy(place->id, &id, sizeof id);
    return result == 0 ||
           err_set(err, ERR_DEVICE, "a number for the ranks by NCCL failed: %s", library->error_text(result));
}

struct communicator *nccl_join(struct device *d, const struct communicator_place *place, struct err *err)
{
    const struct nccl_library *library = nccl_load(err);
    struct communicator_shape shape = { .n = 1 };
    struct nccl *x = library ? create(&d, &shape, library) : NULL;

    if (!x) {
        if (library)
            err_memory(err, "what ranks exchange by");
        return NULL;
    }
    x->place = *place;
    if (join_in_time(&x, err) && begin_looking(x, err))
        return &x->shared;
    give_up(x);
    return NULL;
}
