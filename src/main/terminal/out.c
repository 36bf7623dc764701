// out.c - see out.h.
#include "main/terminal/out.h"
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>
#include "base/options.h"
#include "main/settings.h"
#include "main/terminal/terminal.h"

static enum out_state state;
static int write_errno;
static char buffer[32768];
static size_t n_buffered;

static void write_all(const char *bytes, size_t n)
{
    while (n && state == OUT_OPEN) {
        ssize_t done = write(STDOUT_FILENO, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            write_errno = errno;
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

void out_model_text(const char *bytes, size_t n)
{
    size_t from = 0;

    if (!isatty(STDOUT_FILENO)) {
        out_write(bytes, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t control = terminal_control_bytes(bytes + i, n - i);
        if (control) {
            out_write(bytes + from, i - from);
            from = i + control;
        }
        i += control ? control : 1;
    }
    out_write(bytes + from, n - from);
}

static bool fits(struct str text)
{
    size_t n_lines = 1;

    for (size_t i = 0; i < text.n; i++)
        n_lines += text.at[i] == '\n';
    return n_lines <= terminal_rows(STDOUT_FILENO);
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
    fprintf(stderr, "ingot: cannot write to stdout: %s\n", strerror(write_errno));
    return STATUS_ERROR;
}
