// stop_match.c - see stop_match.h.
#include "engine/stop_match.h"
#include "base/mem.h"

bool stop_match_create(struct stop_match *m, const char *const *stops, size_t n_stops, struct err *err)
{
    *m = (struct stop_match){ .n_stops = n_stops,
                              .stops = n_stops ? mem_alloc_array(n_stops, sizeof *m->stops) : NULL };
    if (n_stops && !m->stops)
        return err_memory(err, "stop strings");
    for (size_t i = 0; i < n_stops; i++) {
        struct str s = str_from(stops[i]);
        char *copy = mem_alloc(s.n + 1);
        if (!copy || s.n == 0) {
            mem_free(copy);
            stop_match_release(m);
            return s.n == 0 ? err_set(err, ERR_INPUT, "stop string %zu is empty; leave it out", i)
                            : err_memory(err, "stop strings");
        }
        memcpy(copy, s.at, s.n);
        m->stops[i] = (struct str){ copy, s.n };
        m->longest = s.n > m->longest ? s.n : m->longest;
    }
    return true;
}

void stop_match_release(struct stop_match *m)
{
    for (size_t i = 0; m->stops && i < m->n_stops; i++)
        mem_free((void *)(uintptr_t)m->stops[i].at);
    mem_free(m->stops);
    *m = (struct stop_match){ 0 };
}

size_t stop_match_find(const struct stop_match *m, struct str text, size_t *which)
{
    size_t first = SIZE_MAX;

    for (size_t i = 0; i < m->n_stops; i++) {
        size_t at = str_find(text, m->stops[i]);
        if (at < first) {
            first = at;
            *which = i;
        }
    }
    return first;
}

size_t stop_match_tail(const struct stop_match *m, struct str text)
{
    size_t longest = 0;

    for (size_t i = 0; i < m->n_stops; i++) {
        size_t n = m->stops[i].n - 1 < text.n ? m->stops[i].n - 1 : text.n;
        while (n > longest && memcmp(text.at + text.n - n, m->stops[i].at, n) != 0)
            n--;
        longest = n > longest ? n : longest;
    }
    return longest;
}
