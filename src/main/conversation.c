// conversation.c - see conversation.h.
//
// The whole conversation goes to the engine each time; its session knows the part that it has seen already. What the user types is
// edited on stderr, so that stdout carries answers only. A line that ends in a backslash goes on in the next one.
#include "main/conversation.h"
#include "base/mem.h"
#include "main/line.h"
#include "main/terminal.h"

enum { MAX_MESSAGES = 4096, CHAT_BYTES = 1 << 28 };

struct conversation {
    struct arena *arena;
    struct ingot_message *at; // [MAX_MESSAGES]
    size_t n;
};

static const char help_text[] = "/clear  forget the conversation\n"
                                "/exit   leave (or Ctrl-D)\n"
                                "/help   this list\n"
                                "Ctrl-C stops an answer; twice leaves. A line that ends in \\ goes on in the next one.\n";

static bool conversation_begin(struct conversation *c, const char *system)
{
    arena_destroy(c->arena);
    c->n = 0;
    c->arena = arena_create(CHAT_BYTES);
    c->at = c->arena ? arena_alloc_array(c->arena, MAX_MESSAGES, sizeof *c->at) : NULL;
    if (!c->at) {
        fail("out of memory for the conversation");
        return false;
    }
    if (system)
        c->at[c->n++] = (struct ingot_message){ "system", system };
    return true;
}

static bool conversation_add(struct conversation *c, const char *role, struct str content)
{
    struct str copy = c->n < MAX_MESSAGES ? arena_str(c->arena, content) : (struct str){ NULL, 0 };

    if (!copy.at) {
        fail("the conversation is too long; /clear begins a new one");
        return false;
    }
    c->at[c->n++] = (struct ingot_message){ role, copy.at };
    return true;
}

// A question that could not be answered is taken back, so that the next one can.
static void ask(struct reply *r, struct conversation *c, struct str line)
{
    if (!conversation_add(c, "user", line))
        return;
    if (reply_print(r, c->at, c->n, NULL) != STATUS_OK || r->result.n_generated == 0)
        c->n--;
    else if (!conversation_add(c, "assistant", buf_as_str(&r->text)))
        c->n--;
}

enum word { WORD_NONE, WORD_DONE, WORD_CLEAR, WORD_EXIT };

static enum word command(struct str line)
{
    if (str_is(line, "/exit") || str_is(line, "/quit") || str_is(line, "/bye"))
        return WORD_EXIT;
    if (str_is(line, "/clear"))
        return WORD_CLEAR;
    if (str_is(line, "/help") || str_is(line, "/?")) {
        fputs(help_text, stderr);
        return WORD_DONE;
    }
    // A slash and one word: most likely a mistyped command; anything longer is a message.
    if (line.n > 1 && line.at[0] == '/' && !memchr(line.at, ' ', line.n) && !memchr(line.at + 1, '/', line.n - 1)) {
        fprintf(stderr, "'%.*s' is not a command; /help lists them\n", STR_ARG(line));
        return WORD_DONE;
    }
    return WORD_NONE;
}

static int converse(struct reply *r, struct conversation *c, struct line_editor *editor)
{
    for (;;) {
        struct str line;
        enum line_end end = line_read(editor, &line);
        if (end == LINE_INTERRUPTED)
            return STATUS_INTERRUPTED;
        if (end == LINE_CLOSED)
            return STATUS_OK;
        if (line.n == 0)
            continue;
        enum word word = command(line);
        if (word == WORD_EXIT)
            return STATUS_OK;
        if (word == WORD_CLEAR && !conversation_begin(c, r->settings->system))
            return STATUS_ERROR;
        if (word == WORD_NONE)
            ask(r, c, line);
        if (out_state() != OUT_OPEN || (word == WORD_NONE && r->settings->one_turn))
            return out_finish();
    }
}

int talk(struct reply *r, const char *first)
{
    struct conversation c = { 0 };
    struct ingot_error error;
    int status = STATUS_ERROR;

    if (r->settings->no_chat)
        return fail_usage("--no-chat needs a text: give one with -p, -f or a pipe");
    r->session = ingot_session_create(r->engine, &error);
    if (!r->session)
        return fail(error.message);
    struct line_editor *editor = line_open();
    if (editor && conversation_begin(&c, r->settings->system)) {
        if (line_is_shown(editor))
            fputs("/help lists the commands.\n", stderr);
        if (first)
            ask(r, &c, str_from(first));
        status = first && r->settings->one_turn ? out_finish() : converse(r, &c, editor);
    }
    line_close(editor);
    arena_destroy(c.arena);
    ingot_session_free(r->session);
    return status;
}
