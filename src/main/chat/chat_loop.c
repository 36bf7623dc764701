// chat_loop.c - see chat_loop.h. The commands are in chat_command.c.
#include "main/chat/chat_loop.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/terminal.h"

// The oldest turns are dropped when less than an eighth of the context is left for the answer, until three
// eighths are: after each drop the rest is prefilled again.
static bool make_room(struct chat_loop *loop)
{
    struct conversation *c = &loop->conversation;
    struct ingot_engine_info info;
    uint32_t n_before = c->n_dropped, n_tokens;
    struct err err;

    ingot_engine_info(loop->reply->engine, &info);
    const struct conversation_room room = { info.n_context / 8, info.n_context / 8 * 3,
                                            loop->settings->no_shift, loop->settings->no_split };
    if (!conversation_fit(c, loop->reply->engine, room, &n_tokens, &err)) {
        fail(err.message);
        return false;
    }
    if (c->n_dropped > n_before)
        fprintf(stderr,
                "(the context of %u tokens is full: the oldest turns are forgotten, %u of them; %u tokens "
                "are kept)\n",
                info.n_context, c->n_dropped - n_before, n_tokens);
    return true;
}

static void count_answer(struct chat_loop *loop)
{
    const struct ingot_result *result = &loop->reply->result;

    loop->n_answers++;
    loop->n_context_used = result->n_prompt + result->n_generated;
    loop->n_read += result->n_prompt - result->n_reused;
    loop->n_generated += result->n_generated;
    loop->prefill_ms += result->prefill_ms;
    loop->decode_ms += result->decode_ms;
}

static bool print_answer(struct chat_loop *loop)
{
    struct reply *r = loop->reply;
    struct conversation_prompt said;
    struct err err;

    if (!conversation_prompt(&said, &loop->conversation, 0, 0, &err)) {
        fail(err.message);
        return false;
    }
    r->pictures = said.pictures;
    r->n_pictures = said.n_pictures;
    terminal_echo(false);
    bool ok = reply_print(r, said.messages, said.n_messages, NULL) == STATUS_OK && r->result.n_generated > 0;
    terminal_echo(true);
    conversation_prompt_free(&said);
    return ok;
}

// Answers the conversation, which ends with a message of the user. A message that could not be answered is
// removed.
static void ask(struct chat_loop *loop)
{
    struct conversation *c = &loop->conversation;
    const struct buf *text = &loop->reply->text;
    size_t question = conversation_last_user(c);
    bool ok = make_room(loop);

    if (ok) {
        question = conversation_last_user(c);
        ok = print_answer(loop);
    }
    if (ok) {
        count_answer(loop);
        ok = conversation_add(c, "assistant", text->at ? text->at : "");
    }
    if (!ok)
        conversation_cut(c, question);
}

// Takes pictures off the beginning of a message, where somebody pasted their paths, if the model can see.
static bool take_pasted(struct chat_loop *loop, struct str *line)
{
    char path[PICTURE_PATH_BYTES];
    struct ingot_engine_info info;

    ingot_engine_info(loop->reply->engine, &info);
    for (size_t n; info.takes_pictures && (n = chat_pictures_pasted(*line, path)) > 0;) {
        if (!chat_attach_picture(loop, path))
            return false;
        for (*line = str_from_to(*line, n, line->n); line->n && (*line->at == ' ' || *line->at == '\n');)
            *line = str_from_to(*line, 1, line->n);
    }
    return true;
}

// Attached texts and pictures come before the message.
static void ask_message(struct chat_loop *loop, struct str line)
{
    struct buf message = { 0 };

    if (!take_pasted(loop, &line) || !line.n)
        return;
    buf_str(&message, buf_as_str(&loop->attached));
    buf_str(&message, line);
    if (message.failed)
        fail("out of memory for the message");
    else if (conversation_add_seen(&loop->conversation, message.at, &loop->pictures))
        ask(loop);
    loop->attached.n = 0;
    buf_free(&message);
}

// False: the chat is over.
static bool take_line(struct chat_loop *loop, struct str line)
{
    enum chat_next next = line.n && line.at[0] == '/' ? chat_command(loop, line) : CHAT_MESSAGE;

    if (next == CHAT_ASK)
        ask(loop);
    else if (next == CHAT_MESSAGE && line.n)
        ask_message(loop, line);
    bool answered = next == CHAT_ASK || (next == CHAT_MESSAGE && line.n);
    return next != CHAT_LEAVE && out_state() == OUT_OPEN && !(answered && loop->settings->one_turn);
}

static int converse(struct chat_loop *loop, const char *first)
{
    enum line_end end = LINE_READ;
    struct str line;

    if (first)
        ask_message(loop, str_from(first));
    if (out_state() != OUT_OPEN || (first && loop->settings->one_turn))
        return out_finish();
    do
        end = line_read(loop->editor, &line);
    while (end == LINE_READ && take_line(loop, line));
    return end == LINE_INTERRUPTED ? STATUS_INTERRUPTED : out_finish();
}

int chat_loop_run(struct chat_loop *loop, const char *first)
{
    struct reply *r = loop->reply;
    struct ingot_error error;
    int status = STATUS_ERROR;

    if (loop->settings->no_chat)
        return fail_usage("--no-chat needs a text: give one with -p, -f or a pipe");
    r->session = ingot_session_create(r->engine, &error);
    if (!r->session)
        return fail(error.message);
    loop->editor = line_open(chat_command_candidates, loop);
    if (loop->editor && conversation_set_system(&loop->conversation, loop->settings->system)) {
        if (line_is_shown(loop->editor))
            fputs("/help lists the commands.\n", stderr);
        status = converse(loop, first);
    }
    line_close(loop->editor);
    conversation_free(&loop->conversation);
    buf_free(&loop->attached);
    chat_pictures_free(&loop->pictures);
    ingot_session_free(r->session);
    return status;
}
