// progress.c - see progress.h.
#include "main/terminal/progress.h"
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "main/terminal/signals.h"

static void progress_draw(struct progress *p, uint64_t done, uint64_t total)
{
    enum { WIDTH = 32 };
    uint64_t now = clock_ns();

    if (!isatty(STDERR_FILENO) || options_terminal_is_dumb() || total == 0 ||
        (p->drawn && now - p->last_ns < 100000000u))
        return;
    if (!p->drawn && p->last_ns == 0) {
        p->last_ns = now; // short work needs no bar
        return;
    }
    if (!p->drawn && now - p->last_ns < 300000000u)
        return;
    done = done > total ? total : done;
    unsigned filled = (unsigned)(WIDTH * (double)done / (double)total);
    fprintf(stderr, "\r%s [%.*s%*s] %3u %%", p->what, (int)filled, "################################",
            (int)(WIDTH - filled), "", (unsigned)(100.0 * (double)done / (double)total));
    fflush(stderr);
    p->drawn = true;
    p->last_ns = now;
}

bool progress_callback(void *arg, uint64_t done, uint64_t total)
{
    progress_draw(arg, done, total);
    return signals_interrupts() == 0;
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    *p = (struct progress){ .what = p->what };
}
