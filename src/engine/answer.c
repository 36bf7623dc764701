// answer.c - see answer.h.
#include "engine/answer.h"
#include "base/mem.h"

enum { LONGEST_CHARACTER = 3 }; // one byte that is no character becomes the three of U+FFFD

bool answer_create(struct answer *a, const struct answer_limits *limits, struct err *err)
{
    size_t longest_stop = 0, token = (size_t)limits->longest_token * LONGEST_CHARACTER;

    *a = (struct answer){ .n_stops = limits->n_stops };
    a->stops = limits->n_stops ? mem_alloc_array(limits->n_stops, sizeof *a->stops) : NULL;
    if (limits->n_stops && !a->stops)
        return err_memory(err, "stop strings");
    for (size_t i = 0; i < limits->n_stops; i++) {
        struct str s = str_from(limits->stops[i]);
        char *copy = mem_alloc(s.n + 1);
        if (!copy || s.n == 0) {
            mem_free(copy);
            answer_release(a);
            return s.n == 0 ? err_set(err, ERR_INPUT, "stop string %zu is empty; leave it out", i)
                            : err_memory(err, "stop strings");
        }
        memcpy(copy, s.at, s.n);
        a->stops[i] = (struct str){ copy, s.n };
        longest_stop = s.n > longest_stop ? s.n : longest_stop;
    }
    a->capacity = ((size_t)limits->max_tokens + 2) * (token + 2) + longest_stop;
    a->text = mem_alloc(a->capacity);
    if (!a->text || !buf_reserve(&a->held, longest_stop + token + 16)) {
        answer_release(a);
        return err_memory(err, "the answer's text");
    }
    return true;
}

void answer_release(struct answer *a)
{
    for (size_t i = 0; a->stops && i < a->n_stops; i++)
        mem_free((void *)(uintptr_t)a->stops[i].at);
    mem_free(a->stops);
    mem_free(a->text);
    buf_free(&a->held);
    *a = (struct answer){ 0 };
}

// Where the first stop string begins, or SIZE_MAX.
static size_t find_stop(const struct answer *a, size_t *which)
{
    size_t first = SIZE_MAX;

    for (size_t i = 0; i < a->n_stops; i++) {
        size_t at = str_find(buf_as_str(&a->held), a->stops[i]);
        if (at < first) {
            first = at;
            *which = i;
        }
    }
    return first;
}

// How many bytes at the end might be the beginning of a stop string.
static size_t held_tail(const struct answer *a)
{
    size_t longest = 0;

    for (size_t i = 0; i < a->n_stops; i++) {
        size_t n = a->stops[i].n - 1 < a->held.n ? a->stops[i].n - 1 : a->held.n;
        while (n > longest && memcmp(a->held.at + a->held.n - n, a->stops[i].at, n) != 0)
            n--;
        longest = n > longest ? n : longest;
    }
    return longest;
}

static struct str release(struct answer *a, size_t n)
{
    struct str piece = { a->text + a->n_text, n };

    CHECK(n < a->capacity - a->n_text);
    if (n) {
        memcpy(a->text + a->n_text, a->held.at, n);
        memmove(a->held.at, a->held.at + n, a->held.n - n);
        a->held.n -= n;
    }
    a->text[a->n_text + n] = 0;
    a->n_text += n + 1;
    return piece;
}

static struct str release_certain(struct answer *a, bool at_end)
{
    size_t stop = find_stop(a, &a->stopped_by);

    if (stop == SIZE_MAX)
        return release(a, at_end ? a->held.n : a->held.n - held_tail(a));
    a->stopped = true;
    struct str piece = release(a, stop);
    a->held.n = 0;
    return piece;
}

struct str answer_push(struct answer *a, struct str bytes)
{
    utf8_stream_push(&a->stream, bytes, &a->held);
    return release_certain(a, false);
}

struct str answer_finish(struct answer *a)
{
    if (a->stopped)
        return release(a, 0);
    utf8_stream_finish(&a->stream, &a->held);
    return release_certain(a, true);
}
