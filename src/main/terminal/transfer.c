// transfer.c - see transfer.h.
//
// The rate is smoothed with a time constant of some seconds: steady enough to read, quick enough to show a
// stalled connection.
#include "main/terminal/transfer.h"
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "main/terminal/terminal.h"
#include "main/terminal/units.h"

enum { BAR = 24, NAME = 20, DRAW_NS = 100000000, RATE_NS = 500000000 };
static const double MEMORY_S = 4;

static void measure(struct transfer *t, uint64_t now, uint64_t received)
{
    double seconds = (double)(now - t->rate_ns) * 1e-9;

    if (t->rate_ns && now - t->rate_ns < RATE_NS)
        return;
    double rate = (double)(received - t->received) / seconds,
           share = t->rate > 0 ? seconds / (seconds + MEMORY_S) : 1;
    t->rate += t->rate_ns ? share * (rate - t->rate) : 0;
    t->rate_ns = now;
    t->received = received;
}

// "  45.3 MiB/s  1:12 left"; nothing before the rate is known.
static const char *pace_text(const struct transfer *t, uint64_t bytes, char text[64])
{
    double seconds = t->rate > 0 ? (double)bytes / t->rate : 0;
    unsigned s = seconds < 1e9 ? (unsigned)seconds : 0;
    char rate[16], hours[16] = "";

    text[0] = 0;
    if (s >= 3600)
        snprintf(hours, sizeof hours, "%u:", s / 3600);
    if (t->rate > 0 && seconds < 1e9)
        snprintf(text, 64, s >= 3600 ? "  %s/s  %s%02u:%02u left" : "  %s/s  %s%u:%02u left",
                 units_bytes((uint64_t)t->rate, rate), hours, s / 60 % 60, s % 60);
    return text;
}

// The bar takes the room that the words leave.
static void draw(const struct transfer *t, const struct hub_progress *p)
{
    char words[128], have[16], all[16], pace[64];
    uint64_t left = p->done < p->total ? p->total - p->done : 0;
    double share = 1 - (double)left / (double)p->total;
    int name_n = (int)strlen(p->what),
        cut = name_n > NAME ? name_n - NAME : 0; // the end of a name tells more
    int words_n = snprintf(words, sizeof words, "%3.0f %%  %s of %s%s", share * 100,
                           units_bytes(p->done, have), units_bytes(p->total, all), pace_text(t, left, pace));
    int room = (int)terminal_columns(STDERR_FILENO) - (name_n - cut) - words_n - 5;

    room = room < 0 ? 0 : room < BAR ? room : BAR;
    int full = (int)(share * room);
    fprintf(stderr, "\r%s [%.*s%*s] %s\033[K", p->what + cut, full, "########################", room - full,
            "", words);
}

void transfer_show(struct transfer *t, const struct hub_progress *p)
{
    uint64_t now = clock_ns();

    if (!isatty(STDERR_FILENO) || options_terminal_is_dumb() || now - t->drawn_ns < DRAW_NS)
        return;
    measure(t, now, p->received);
    t->drawn_ns = now;
    t->drawn = true;
    if (p->total)
        draw(t, p);
    else
        fprintf(stderr, "\r%.*s\033[K", (int)terminal_columns(STDERR_FILENO) - 1, p->what);
    fflush(stderr);
}

void transfer_end(struct transfer *t)
{
    if (t->drawn)
        fputs("\r\033[K", stderr);
    *t = (struct transfer){ 0 };
}
