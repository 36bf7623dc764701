// terminal.c - see terminal.h.
#include "main/terminal/terminal.h"
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/options.h"

// C0 without newline and tab, DEL, and C1 (which is C2 80 .. C2 9F in UTF-8).
size_t terminal_control_bytes(const char *at, size_t n)
{
    unsigned char c = (unsigned char)at[0];

    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        return 1;
    return c == 0xc2 && n > 1 && (unsigned char)at[1] < 0xa0 ? 2 : 0;
}

const char *terminal_clean(char *text)
{
    size_t n = strlen(text), to = 0;

    for (size_t i = 0; i < n;) {
        size_t control = text[i] == '\n' || text[i] == '\t' ? 1 : terminal_control_bytes(text + i, n - i);
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

size_t terminal_rows(int fd)
{
    return terminal_size(fd).ws_row;
}

// ---- what a chat changes

static volatile sig_atomic_t paste_is_marked, echo_is_off;
static struct termios usual; // while echo_is_off

void terminal_restore(void)
{
    if (echo_is_off && paste_is_marked)
        (void)!write(STDERR_FILENO, "\033[0m", 4); // reasoning, which is dimmed, may be on the screen
    terminal_echo(true);
    terminal_paste_in_brackets(false);
}

void terminal_paste_in_brackets(bool on)
{
    static const char sequences[2][9] = { "\033[?2004l", "\033[?2004h" };

    if (on != (bool)paste_is_marked)
        (void)!write(STDERR_FILENO, sequences[on], 8);
    paste_is_marked = on;
}

void terminal_echo(bool on)
{
    struct termios silent;

    if (on && echo_is_off)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &usual);
    if (!on && !echo_is_off) {
        if (tcgetattr(STDIN_FILENO, &usual) != 0)
            return;
        silent = usual;
        silent.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &silent);
    }
    echo_is_off = !on;
}

const char *terminal_dim(int fd)
{
    return isatty(fd) && options_terminal_has_style() ? "\033[2m" : "";
}

const char *terminal_plain(int fd)
{
    return isatty(fd) && options_terminal_has_style() ? "\033[0m" : "";
}
