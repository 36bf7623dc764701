// line_edit.c - see line_edit.h.
//
// A terminal in bracketed paste mode puts ESC [200~ and ESC [201~ around what is pasted. libedit gets a
// function for the first, which takes all up to the second into the line, newlines too.
#include "main/chat/line_edit.h"
#include <locale.h>
#include <unistd.h>
#include <wchar.h>
#include "base/mem.h"
#include "base/options.h"
#include "main/terminal/fail.h"
#include "main/terminal/signals.h"
#include "main/terminal/terminal.h"
#ifdef INGOT_LIBEDIT
#include <histedit.h>
#endif

enum { LINE_MAX_BYTES = 1 << 24, HISTORY_LINES = 1000 };

struct line_editor {
    struct buf text;
    line_candidates *candidates;
    void *arg;
    bool shown, more; // more: a line of the same message came before
    bool cut;         // the last key was Ctrl-C
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

// Makes room for one more character. False: the limit is reached, and only the last characters stay, so that
// the end mark is still found.
static bool paste_grow(wchar_t **text, size_t *n, size_t *capacity)
{
    if (*n + 1 < *capacity)
        return true;
    size_t wanted = *capacity ? 2 * *capacity : 1024;
    wchar_t *grown = wanted < LINE_MAX_BYTES ? mem_realloc(*text, wanted * sizeof **text) : NULL;
    if (grown) {
        *text = grown;
        *capacity = wanted;
        return true;
    }
    if (*text)
        wmemmove(*text, *text + *n - 8, 8);
    *n = 8;
    return false;
}

static unsigned char edit_paste(EditLine *edit, int key)
{
    static const wchar_t end[] = L"\033[201~";
    enum { END = sizeof end / sizeof *end - 1 };
    wchar_t *text = NULL;
    size_t n = 0, capacity = 0;
    bool whole = true, ended = false;
    (void)key;

    while (!ended) {
        whole = paste_grow(&text, &n, &capacity) && whole;
        if (!text || el_wgetc(edit, &text[n]) != 1)
            break;
        text[n] = text[n] == L'\r' ? L'\n' : text[n];
        n++;
        ended = n >= END && wmemcmp(text + n - END, end, END) == 0;
    }
    whole = whole && ended;
    if (whole) {
        text[n - END] = 0;
        whole = n == END || el_winsertstr(edit, text) == 0;
    }
    mem_free(text);
    return whole ? CC_REFRESH : CC_ERROR;
}

// The text before the cursor, as bytes.
static struct str before_cursor(EditLine *edit)
{
    const LineInfo *line = el_line(edit);
    return (struct str){ line->buffer, (size_t)(line->cursor - line->buffer) };
}

// The next of the candidates that begins with `word`; empty after the last.
static struct str next_match(const char **candidates, struct str word)
{
    struct str one = { *candidates, 0 };

    do {
        one.at += one.n + strspn(one.at + one.n, " ");
        one.n = strcspn(one.at, " ");
    } while (one.n && !str_starts(one, word));
    *candidates = one.at + one.n;
    return one;
}

static unsigned char list_matches(struct str word, const char *candidates)
{
    struct str one = next_match(&candidates, word);

    if (one.n == 0)
        return CC_REFRESH_BEEP;
    for (fputs("\n", stderr); one.n; one = next_match(&candidates, word))
        fprintf(stderr, "%.*s  ", STR_ARG(one));
    fputs("\n", stderr);
    return CC_REDISPLAY;
}

// Inserts the common continuation of all candidates that begin with `word`, and a blank after a single one;
// lists them when there is none.
static unsigned char complete_word(EditLine *edit, struct str word, const char *candidates)
{
    const char *rest = candidates;
    struct str common = next_match(&rest, word), one = next_match(&rest, word);
    bool single = one.n == 0;
    char text[64];

    for (; one.n; one = next_match(&rest, word)) {
        while (!str_starts(one, common))
            common.n--;
    }
    if (common.n <= word.n && !(single && common.n))
        return list_matches(word, candidates);
    snprintf(text, sizeof text, "%.*s%s", (int)(common.n - word.n), common.at + word.n, single ? " " : "");
    return el_insertstr(edit, text) == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char edit_complete(EditLine *edit, int key)
{
    struct line_editor *e = NULL;
    struct str before = before_cursor(edit);
    size_t from = before.n;

    el_get(edit, EL_CLIENTDATA, &e);
    const char *candidates = e->candidates(e->arg, before);
    if (!candidates)
        return _el_fn_complete(edit, key);
    while (from && before.at[from - 1] != ' ')
        from--;
    return complete_word(edit, str_from_to(before, from, before.n), candidates);
}

static void edit_bind(struct line_editor *e)
{
    el_wset(e->edit, EL_ADDFN, L"paste", L"Take a pasted text",
            edit_paste); // el_set would copy the names and lose them
    el_wset(e->edit, EL_ADDFN, L"complete", L"Complete a command or a name", edit_complete);
    el_source(e->edit, NULL);
    el_set(e->edit, EL_BIND, "\033[200~", "paste", NULL);
    el_set(e->edit, EL_BIND, "^I", "complete", NULL);
    terminal_paste_in_brackets(true);
}

static void edit_open(struct line_editor *e)
{
    HistEvent event;

    // libedit reads characters by locale; without one it would split typed UTF-8.
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
    edit_bind(e);
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
    terminal_paste_in_brackets(false);
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

struct line_editor *line_open(line_candidates *candidates, void *arg)
{
    struct line_editor *e = mem_alloc(sizeof *e);

    if (!e) {
        fail("out of memory for the line editor");
        return NULL;
    }
    e->candidates = candidates;
    e->arg = arg;
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

static bool is_typed(const struct line_editor *e)
{
    (void)e;
#ifdef INGOT_LIBEDIT
    if (e->edit && e->history && e->shown)
        return el_line(e->edit)->lastchar > el_line(e->edit)->buffer;
#endif
    return false;
}

// Ctrl-C discards the typed text. A second one, with nothing typed in between, leaves.
static enum line_end line_cut(struct line_editor *e)
{
    unsigned n = signals_interrupts();

    if (n == 0)
        return LINE_CLOSED;
    if (n > 1 || (e->cut && !is_typed(e)))
        return LINE_INTERRUPTED;
    fputs("\n(Ctrl-C again leaves)\n", stderr);
    signals_clear_interrupts();
    e->text.n = 0;
    e->more = false;
    e->cut = true;
    return LINE_READ;
}

// Adds a piece that begins at `from`. True: the message continues. A backslash at the end is replaced by a
// newline; """ at the beginning and the end are taken off.
static bool line_goes_on(struct line_editor *e, size_t from, bool *block)
{
    struct buf *b = &e->text;

    b->n -= b->n > from && b->at[b->n - 1] == '\n';
    if (from == 0 && b->n >= 3 && !memcmp(b->at, "\"\"\"", 3)) {
        b->n -= 3;
        memmove(b->at, b->at + 3, b->n);
        *block = true;
    }
    struct str piece = str_from_to(buf_as_str(b), from, b->n);
    if (*block && str_ends(piece, STR("\"\"\""))) {
        b->n -= 3;
        return false;
    }
    if (!*block && !str_ends(piece, STR("\\")))
        return false;
    b->n -= !*block;
    return buf_text(b, "\n");
}

static enum line_end read_message(struct line_editor *e)
{
    bool block = false, done = false;
    enum line_end end = LINE_READ;

    e->text.n = 0;
    e->more = false;
    while (!done && end == LINE_READ) {
        size_t from = e->text.n;
        if (!read_piece(e)) {
            end = line_cut(e);
            block = false;
            continue;
        }
        e->cut = false;
        e->more = line_goes_on(e, from, &block);
        done = !e->more;
    }
    return end;
}

enum line_end line_read(struct line_editor *e, struct str *line)
{
    signals_clear_interrupts();
    signals_hold_interrupts(true);
    enum line_end end = read_message(e);
    signals_hold_interrupts(false);
    signals_clear_interrupts();
    if (e->text.failed || !buf_reserve(&e->text, 1))
        end = LINE_CLOSED;
    else
        e->text.at[e->text.n] = 0;
    *line = buf_as_str(&e->text);
    if (end != LINE_READ && e->shown)
        fputs("\n", stderr);
    return end;
}
