// transfer.c - see transfer.h.
//
// The rate forgets with a time constant of some seconds: steady enough to be read, quick enough to show a line that stalls.
#include "main/transfer.h"
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "main/terminal.h"

enum { BAR = 20, NAME = 28, DRAW_NS = 100000000, RATE_NS = 500000000 };
static const double MEMORY_S = 4;

static void measure(struct transfer *t, uint64_t now, uint64_t done)
{
    double seconds = (double)(now - t->rate_ns) * 1e-9;

    if (t->rate_ns == 0 || done < t->last) { // begun, or begun anew
        t->rate_ns = now;
        t->last = done;
        return;
    }
    if (now - t->rate_ns < RATE_NS)
        return;
    double rate = (double)(done - t->last) / seconds, share = t->rate > 0 ? seconds / (seconds + MEMORY_S) : 1;
    t->rate += share * (rate - t->rate);
    t->rate_ns = now;
    t->last = done;
}

static const char *time_left(const struct transfer *t, uint64_t bytes, char text[32])
{
    double seconds = t->rate > 0 ? (double)bytes / t->rate : 0;
    unsigned s = seconds < 1e9 ? (unsigned)seconds : 0;

    text[0] = 0;
    if (s >= 3600)
        snprintf(text, 32, "%u:%02u:%02u left", s / 3600, s / 60 % 60, s % 60);
    else if (t->rate > 0 && seconds < 1e9)
        snprintf(text, 32, "%u:%02u left", s / 60, s % 60);
    return text;
}

static unsigned columns(void)
{
    struct winsize size = { 0 };
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void transfer_show(struct transfer *t, const char *what, uint64_t done, uint64_t total)
{
    char line[256], have[16], all[16], rate[16], left[32];
    uint64_t now = clock_ns();
    int n = (int)strlen(what), cut = n > NAME ? n - NAME : 0; // the end of a name tells more

    if (!isatty(STDERR_FILENO) || options_terminal_is_dumb() || now - t->drawn_ns < DRAW_NS)
        return;
    measure(t, now, done);
    t->drawn_ns = now;
    t->drawn = true;
    if (total == 0) {
        fprintf(stderr, "\r%.*s\033[K", (int)columns() - 1, what);
        return;
    }
    double share = done < total ? (double)done / (double)total : 1;
    snprintf(line, sizeof line, "%s [%.*s%*s] %3.0f %%  %s of %s  %s/s  %s", what + cut, (int)(share * BAR),
             "####################", BAR - (int)(share * BAR), "", share * 100, bytes_text(done, have), bytes_text(total, all),
             bytes_text((uint64_t)t->rate, rate), time_left(t, total - (done < total ? done : total), left));
    fprintf(stderr, "\r%.*s\033[K", (int)columns() - 1, line);
    fflush(stderr);
}

void transfer_end(struct transfer *t)
{
    if (t->drawn)
        fputs("\r\033[K", stderr);
    *t = (struct transfer){ 0 };
}
