// terminal.c - see terminal.h.
#include "main/terminal.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "main/settings.h"

static enum out_state state;
static int out_errno;
static char buffer[32768];
static size_t n_buffered;
static volatile sig_atomic_t n_interrupts, held;
static char bus_message[512] = "ingot: a mapped file was cut short while it was in use\n";

// ---- stdout -----------------------------------------------------------------------------------------------

static void write_all(const char *bytes, size_t n)
{
    while (n && state == OUT_OPEN) {
        ssize_t done = write(STDOUT_FILENO, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            out_errno = errno;
            state = errno == EPIPE ? OUT_CLOSED : OUT_FAILED;
            return;
        }
        bytes += done;
        n -= (size_t)done;
    }
}

void out_flush(void)
{
    write_all(buffer, n_buffered);
    n_buffered = 0;
}

void out_write(const char *bytes, size_t n)
{
    if (n > sizeof buffer - n_buffered)
        out_flush();
    if (n > sizeof buffer) {
        write_all(bytes, n);
        return;
    }
    if (n)
        memcpy(buffer + n_buffered, bytes, n);
    n_buffered += n;
}

void out_text(const char *text)
{
    out_write(text, strlen(text));
}

void out_printf(const char *format, ...)
{
    struct buf b = { 0 };
    char line[1024];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0 && (size_t)n >= sizeof line && buf_reserve(&b, (size_t)n)) {
        va_start(args, format);
        vsnprintf(b.at, (size_t)n + 1, format, args);
        va_end(args);
    }
    if (n > 0)
        out_write(b.at ? b.at : line, b.at || (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    buf_free(&b);
}

// C0 without newline and tab, DEL, and C1 (which is C2 80 .. C2 9F in UTF-8).
static size_t control_bytes(const char *at, size_t n)
{
    unsigned char c = (unsigned char)at[0];

    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        return 1;
    return c == 0xc2 && n > 1 && (unsigned char)at[1] < 0xa0 ? 2 : 0;
}

void out_model_text(const char *bytes, size_t n)
{
    size_t from = 0;

    if (!isatty(STDOUT_FILENO)) {
        out_write(bytes, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t control = control_bytes(bytes + i, n - i);
        if (control) {
            out_write(bytes + from, i - from);
            from = i + control;
        }
        i += control ? control : 1;
    }
    out_write(bytes + from, n - from);
}

const char *terminal_clean(char *text)
{
    size_t n = strlen(text), to = 0;

    for (size_t i = 0; i < n;) {
        size_t control = text[i] == '\n' || text[i] == '\t' ? 1 : control_bytes(text + i, n - i);
        if (!control)
            text[to++] = text[i];
        i += control ? control : 1;
    }
    text[to] = 0;
    return text;
}

static struct winsize terminal_size(int fd)
{
    struct winsize size = { 0 };

    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
    return size;
}

size_t terminal_columns(int fd)
{
    return terminal_size(fd).ws_col;
}

static bool fits(struct str text)
{
    size_t n_lines = 1;

    for (size_t i = 0; i < text.n; i++)
        n_lines += text.at[i] == '\n';
    return n_lines <= terminal_size(STDOUT_FILENO).ws_row;
}

void out_page(const char *program, struct str text)
{
    bool shown = false;

    out_flush();
    if (isatty(STDOUT_FILENO) && !options_terminal_is_dumb() && !fits(text)) {
        FILE *pipe = popen(program, "w");
        if (pipe)
            (void)!fwrite(text.at, 1, text.n, pipe); // it may be left before the end
        shown = pipe && pclose(pipe) == 0;
    }
    if (!shown)
        out_write(text.at, text.n);
}

enum out_state out_state(void)
{
    return state;
}

int out_finish(void)
{
    out_flush();
    if (state != OUT_FAILED)
        return STATUS_OK;
    fprintf(stderr, "ingot: cannot write to stdout: %s\n", strerror(out_errno));
    return STATUS_ERROR;
}

// ---- stderr -----------------------------------------------------------------------------------------------

int fail(const char *message)
{
    out_flush();
    fprintf(stderr, "ingot: %s\n", message);
    return STATUS_ERROR;
}

int fail_status(int status, const char *format, ...)
{
    va_list args;

    out_flush();
    fputs("ingot: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

const char *bytes_text(uint64_t bytes, char text[16])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1023.95 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

static void progress_draw(struct progress *p, uint64_t done, uint64_t total)
{
    enum { WIDTH = 32 };
    uint64_t now = clock_ns();

    if (!isatty(STDERR_FILENO) || options_terminal_is_dumb() || total == 0 ||
        (p->drawn && now - p->last_ns < 100000000u))
        return;
    if (!p->drawn && p->last_ns == 0) {
        p->last_ns = now; // what is over within a moment needs no bar
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
    return interrupts() == 0;
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    *p = (struct progress){ .what = p->what };
}

// ---- the terminal of a chat -------------------------------------------------------------------------------

static volatile sig_atomic_t in_brackets, is_quiet;
static struct termios usual; // when is_quiet

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

// By a signal's handler too: nothing here but system calls.
static void put_back(void)
{
    if (is_quiet && in_brackets)
        (void)!write(STDERR_FILENO, "\033[0m", 4); // an answer may be in the middle of its thinking
    terminal_echo(true);
    terminal_paste_in_brackets(false);
}

static void on_end(int signal)
{
    put_back();
    handle(signal, SIG_DFL);
    raise(signal); // when this handler has returned
}

static void guard(void)
{
    handle(SIGTERM, on_end);
    handle(SIGHUP, on_end);
}

void terminal_paste_in_brackets(bool on)
{
    static const char sequences[2][9] = { "\033[?2004l", "\033[?2004h" };

    if (on != (bool)in_brackets)
        (void)!write(STDERR_FILENO, sequences[on], 8);
    if (on)
        guard();
    in_brackets = on;
}

void terminal_echo(bool on)
{
    struct termios silent;

    if (on && is_quiet)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &usual);
    if (!on && !is_quiet) {
        if (tcgetattr(STDIN_FILENO, &usual) != 0)
            return;
        guard();
        silent = usual;
        silent.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &silent);
    }
    is_quiet = !on;
}

const char *terminal_dim(int fd)
{
    return isatty(fd) && options_terminal_has_style() ? "\033[2m" : "";
}

const char *terminal_plain(int fd)
{
    return isatty(fd) && options_terminal_has_style() ? "\033[0m" : "";
}

// ---- signals ----------------------------------------------------------------------------------------------

static void on_interrupt(int signal)
{
    (void)signal;
    if (++n_interrupts < 2 || held)
        return;
    (void)!write(STDERR_FILENO, "\n", 1);
    put_back();
    _exit(STATUS_INTERRUPTED);
}

// A page of a mapped file that is not there any more: nothing can go on, but the user hears why.
static void on_bus_error(int signal)
{
    (void)signal;
    (void)!write(STDERR_FILENO, bus_message, strlen(bus_message));
    put_back();
    _exit(STATUS_ERROR);
}

void signals_install(void)
{
    handle(SIGINT, on_interrupt);
    handle(SIGPIPE, SIG_IGN);
    handle(SIGBUS, on_bus_error);
}

void signals_name_file(const char *path)
{
    snprintf(bus_message, sizeof bus_message,
             "ingot: %.400s was cut short while it was in use; is it being written?\n",
             path ? path : "a mapped file");
}

unsigned interrupts(void)
{
    return (unsigned)n_interrupts;
}

void interrupts_clear(void)
{
    n_interrupts = 0;
}

void interrupts_hold(bool hold)
{
    held = hold;
}

void interrupts_end_work(void)
{
    interrupts_hold(true);
    handle(SIGTERM, on_interrupt);
}
