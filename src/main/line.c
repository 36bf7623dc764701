// line.c - see line.h.
#include "main/line.h"
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/options.h"
#include "main/terminal.h"
#ifdef INGOT_LIBEDIT
#include <histedit.h>
#endif

enum { LINE_MAX_BYTES = 1 << 24, HISTORY_LINES = 1000 };

struct line_editor {
    struct buf text;
    bool shown, more; // more: the line before ended in a backslash
#ifdef INGOT_LIBEDIT
    EditLine *edit;
    History *history;
    char path[4096]; // empty: no history file
#endif
};

static const char *prompt_text(const struct line_editor *e)
{
    return !e->shown ? "" : e->more ? ". " : "> ";
}

#ifdef INGOT_LIBEDIT
static char *edit_prompt(EditLine *edit)
{
    static char text[4];
    struct line_editor *e = NULL;

    el_get(edit, EL_CLIENTDATA, &e);
    snprintf(text, sizeof text, "%s", prompt_text(e));
    return text;
}

static void edit_open(struct line_editor *e)
{
    HistEvent event;

    // libedit reads characters by locale; without one, typed UTF-8 would be torn apart.
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    e->edit = el_init("ingot", stdin, stderr, stderr);
    e->history = history_init();
    if (!e->edit || !e->history)
        return;
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, edit_prompt);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_source(e->edit, NULL);
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    if (options_state_path("history", e->path, sizeof e->path))
        history(e->history, &event, H_LOAD, e->path);
    else
        e->path[0] = 0;
}

static void edit_close(struct line_editor *e)
{
    HistEvent event;

    if (e->history && e->path[0])
        history(e->history, &event, H_SAVE, e->path);
    if (e->history)
        history_end(e->history);
    if (e->edit)
        el_end(e->edit);
}

static bool edit_read(struct line_editor *e)
{
    int n = 0;
    const char *line = el_gets(e->edit, &n);
    HistEvent event;

    if (!line || n <= 0)
        return false;
    if (n > 1)
        history(e->history, &event, H_ENTER, line);
    buf_append(&e->text, line, (size_t)n);
    return true;
}
#endif

static bool plain_read(struct line_editor *e)
{
    char c;
    ssize_t n;

    fputs(prompt_text(e), stderr);
    while ((n = read(STDIN_FILENO, &c, 1)) == 1 && e->text.n < LINE_MAX_BYTES) {
        buf_append(&e->text, &c, 1);
        if (c == '\n')
            break;
    }
    return e->text.n > 0 && n >= 0;
}

static bool read_piece(struct line_editor *e)
{
#ifdef INGOT_LIBEDIT
    if (e->edit && e->history && e->shown)
        return edit_read(e);
#endif
    return plain_read(e);
}

struct line_editor *line_open(void)
{
    struct line_editor *e = mem_alloc(sizeof *e);

    if (!e) {
        fail("out of memory for the line editor");
        return NULL;
    }
    e->shown = isatty(STDERR_FILENO) && isatty(STDIN_FILENO);
#ifdef INGOT_LIBEDIT
    if (e->shown && !options_terminal_is_dumb())
        edit_open(e);
#endif
    return e;
}

void line_close(struct line_editor *e)
{
    if (!e)
        return;
#ifdef INGOT_LIBEDIT
    edit_close(e);
#endif
    buf_free(&e->text);
    mem_free(e);
}

bool line_is_shown(const struct line_editor *e)
{
    return e->shown;
}

// Strips the newline; true when the line ends in a backslash, which is stripped too and replaced by a newline.
static bool line_goes_on(struct line_editor *e)
{
    if (e->text.n && e->text.at[e->text.n - 1] == '\n')
        e->text.n--;
    if (e->text.n == 0 || e->text.at[e->text.n - 1] != '\\')
        return false;
    e->text.at[e->text.n - 1] = '\n';
    return true;
}

// The first Ctrl-C throws the line away, the second one leaves.
static enum line_end line_cut(struct line_editor *e)
{
    if (interrupts() == 0)
        return LINE_CLOSED;
    if (interrupts() > 1)
        return LINE_INTERRUPTED;
    fputs("\n(Ctrl-C again leaves)\n", stderr);
    e->text.n = 0;
    e->more = false;
    return LINE_READ;
}

enum line_end line_read(struct line_editor *e, struct str *line)
{
    enum line_end end = LINE_READ;
    bool done = false;

    interrupts_clear();
    interrupts_hold(true);
    e->text.n = 0;
    e->more = false;
    while (!done && end == LINE_READ) {
        if (!read_piece(e))
            end = line_cut(e);
        else if (line_goes_on(e))
            e->more = true;
        else
            done = true;
    }
    interrupts_hold(false);
    interrupts_clear();
    if (e->text.failed)
        end = LINE_CLOSED;
    *line = buf_as_str(&e->text);
    if (end != LINE_READ && e->shown)
        fputs("\n", stderr);
    return end;
}
