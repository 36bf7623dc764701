// detokenizer.c - see detokenizer.h.
#include "engine/detokenizer.h"
#include "base/mem.h"

enum { REPLACEMENT_BYTES = 3 }; // a byte that is not part of a character becomes U+FFFD

bool detokenizer_create(struct detokenizer *d, const struct detokenizer_options *o, struct err *err)
{
    size_t token = (size_t)o->longest_token * REPLACEMENT_BYTES;

    *d = (struct detokenizer){ 0 };
    if (!stop_match_create(&d->stops, o->stops, o->n_stops, err))
        return false;
    d->capacity = ((size_t)o->max_tokens + 2) * (token + 2) + d->stops.longest;
    d->text = mem_alloc(d->capacity);
    if (!d->text || !buf_reserve(&d->held, d->stops.longest + token + 16)) {
        detokenizer_release(d);
        return err_memory(err, "the answer's text");
    }
    return true;
}

void detokenizer_release(struct detokenizer *d)
{
    stop_match_release(&d->stops);
    mem_free(d->text);
    buf_free(&d->held);
    *d = (struct detokenizer){ 0 };
}

static struct str release(struct detokenizer *d, size_t n)
{
    struct str piece = { d->text + d->n_text, n };

    CHECK(n < d->capacity - d->n_text);
    if (n) {
        memcpy(d->text + d->n_text, d->held.at, n);
        memmove(d->held.at, d->held.at + n, d->held.n - n);
        d->held.n -= n;
    }
    d->text[d->n_text + n] = 0;
    d->n_text += n + 1;
    return piece;
}

static struct str release_certain(struct detokenizer *d, bool at_end)
{
    struct str held = buf_as_str(&d->held);
    size_t stop = stop_match_find(&d->stops, held, &d->stopped_by);

    if (stop == SIZE_MAX)
        return release(d, at_end ? held.n : held.n - stop_match_tail(&d->stops, held));
    d->stopped = true;
    struct str piece = release(d, stop);
    d->held.n = 0;
    return piece;
}

struct str detokenizer_push(struct detokenizer *d, struct str bytes)
{
    utf8_stream_push(&d->stream, bytes, &d->held);
    return release_certain(d, false);
}

struct str detokenizer_finish(struct detokenizer *d)
{
    if (d->stopped)
        return release(d, 0);
    utf8_stream_finish(&d->stream, &d->held);
    return release_certain(d, true);
}
