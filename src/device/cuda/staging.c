// staging.c - writes to a GPU through a ring of pinned memory: pieces are sent in order while later ones are
// still being copied there. Several threads copy what is large, since one is slower than PCIe. They take
// shares in turn and wait for each other nowhere: a barrier a piece took longer than the copies. They store
// past their caches: a GPU reads what lies changed in a CPU's cache half as fast. Both:
// bench/results/2026-11-28-encoder.md.
#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif
#include "base/divide.h"
#include "device/cuda/cuda_internal.h"

enum {
    COPIERS = 8,
    PIECE = 1 << 20,
    SHARE = PIECE / 16,
    LEAST_SHARED_BYTES = 4 << 20, // for which threads are made
    LINE = 64,                    // of a cache
};

struct staged_write {
    struct cuda *c;
    cu_address to;
    unsigned char *staging;
    const unsigned char *from;
    uint64_t bytes, sent;
    atomic_uint next;                            // share that no thread has taken
    atomic_uint n_copied[STAGING_BYTES / PIECE]; // shares of each piece
    struct err *err;
    bool failed;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Sends the pieces that are there. By the caller's thread.
static void send_copied(struct staged_write *w)
{
    while (!w->failed && w->sent < w->bytes) {
        uint64_t n = least(PIECE, w->bytes - w->sent);
        if (atomic_load(&w->n_copied[w->sent / PIECE]) < divide_up(n, SHARE))
            return;
        w->failed = !cuda_check(w->c, w->c->cu->write(w->to + w->sent, w->staging + w->sent, n, w->c->stream),
                                "a copy to the device", w->err);
        w->sent += n;
    }
}

static void copy_share(unsigned char *to, const unsigned char *from, uint64_t n)
{
#ifdef __x86_64__
    if (n == SHARE) {
        for (uint64_t i = 0; i < SHARE; i += LINE) { // a line's stores next to each other
            __m128i words[LINE / 16];
            for (int k = 0; k < LINE / 16; k++)
                words[k] = _mm_loadu_si128((const __m128i *)(from + i) + k);
            for (int k = 0; k < LINE / 16; k++)
                _mm_stream_si128((__m128i *)(to + i) + k, words[k]);
        }
        _mm_sfence(); // before the share counts as copied
        return;
    }
#endif
    memcpy(to, from, n);
}

static void copy_shares(void *arg, unsigned thread)
{
    struct staged_write *w = arg;

    for (;;) {
        uint64_t share = atomic_fetch_add(&w->next, 1), at = share * SHARE;
        if (at >= w->bytes)
            return;
        copy_share(w->staging + at, w->from + at, least(SHARE, w->bytes - at));
        atomic_fetch_add(&w->n_copied[at / PIECE], 1);
        if (thread == 0)
            send_copied(w);
    }
}

static void want_copiers(struct cuda *c, uint64_t bytes)
{
    uint32_t n = thread_count_available();

    if (!c->copiers && bytes >= LEAST_SHARED_BYTES && n > 1)
        c->copiers = thread_pool_create(n < COPIERS ? n : COPIERS);
}

bool cuda_staging_write(struct cuda *c, cu_address to, const void *from, uint64_t bytes, struct err *err)
{
    if (c->staging_used + bytes > STAGING_BYTES) { // around, behind the copies in flight
        if (!cuda_check(c, c->cu->stream_wait(c->stream), "waiting", err))
            return false;
        c->staging_used = 0;
    }
    struct staged_write w = {
        .c = c, .to = to, .staging = c->staging + c->staging_used, .from = from, .bytes = bytes, .err = err
    };
    c->staging_used += (bytes + 63) / 64 * 64;
    want_copiers(c, bytes);
    if (c->copiers && bytes > PIECE)
        thread_pool_run(c->copiers, copy_shares, &w);
    else
        copy_shares(&w, 0);
    send_copied(&w);
    return !w.failed;
}
