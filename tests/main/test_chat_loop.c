// test_chat_loop.c - the chat as somebody at a terminal meets it: messages, commands, Ctrl-C, a full context,
// thinking.
#include "program.h"
#include <termios.h>

struct typed_chat {
    struct running program;
    struct buf seen;
    int terminal, theirs; // both ends; a pipe is its stdout unless `whole`
};

static struct typed_chat chat_start(const char *words, bool whole)
{
    struct typed_chat c = { .terminal = posix_openpt(O_RDWR | O_NOCTTY) };

    assert_true(c.terminal >= 0 && grantpt(c.terminal) == 0 && unlockpt(c.terminal) == 0);
    fcntl(c.terminal, F_SETFD, FD_CLOEXEC);
    c.theirs = open(ptsname(c.terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(c.theirs >= 0);
    setenv("TERM", "xterm", 1);
    c.program = start(words, (struct streams){ c.theirs, whole ? c.theirs : -1, c.theirs });
    return c;
}

// Reads from the terminal until `part` was seen; what came up to then is forgotten.
static void await(struct typed_chat *c, const char *part)
{
    struct pollfd fd = { c->terminal, POLLIN, 0 };
    char piece[1024];

    while (!c->seen.at || !strstr(c->seen.at, part)) {
        if (poll(&fd, 1, 20000) <= 0)
            fail_msg("'%s' did not come; seen: %s", part, c->seen.at ? c->seen.at : "");
        ssize_t n = read(c->terminal, piece, sizeof piece);
        assert_true(n > 0);
        buf_append(&c->seen, piece, (size_t)n);
    }
    size_t end = (size_t)(strstr(c->seen.at, part) - c->seen.at) + strlen(part);
    c->seen.n -= end;
    memmove(c->seen.at, c->seen.at + end, c->seen.n + 1);
}

static void type_text(struct typed_chat *c, const char *text)
{
    assert_int_equal(write(c->terminal, text, strlen(text)), (ssize_t)strlen(text));
}

// A line, and what it brings.
static void say(struct typed_chat *c, const char *text, const char *part)
{
    type_text(c, text);
    type_text(c, "\n");
    await(c, part);
    await(c, "> ");
}

static void chat_end(struct typed_chat *c, int status)
{
    struct outcome o = { 0 };

    close(c->theirs);
    collect(&c->program, &o);
    if (o.status != status)
        fail_msg("status %d, expected %d", o.status, status);
    outcome_free(&o);
    buf_free(&c->seen);
    close(c->terminal);
}

static void chat_leave(struct typed_chat *c)
{
    type_text(c, "/exit\n");
    chat_end(c, 0);
}

#define CHAT "run -m @ -n 4 --ignore-eos -s 1"

static void a_terminal_chats(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    (void)state;

    await(&c, "seed 1");
    await(&c, "> ");
    say(&c, "/help", "/clear");
    say(&c, "hello", "answer 4 tokens");
    say(&c, "more", "reused)");
    say(&c, "/nope", "'/nope' is not a command");
    say(&c, "/stats", "answered     2 times, 8 tokens");
    say(&c, "/undo", "are taken back");
    say(&c, "/stats", " 2 messages");
    say(&c, "/clear", "a new conversation");
    say(&c, "/undo", "nothing to take back");
    say(&c, "/undo now", "/undo: expected nothing after it");
    say(&c, "/usr/bin is a path", "answer 4 tokens");
    chat_leave(&c);
}

static void a_message_may_have_many_lines(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    (void)state;

    await(&c, "\033[?2004h");
    await(&c, "> ");
    say(&c, "\033[200~one\rtwo \303\251\nthree\033[201~", "answer 4 tokens");
    type_text(&c, "\"\"\"four\n");
    await(&c, ". ");
    type_text(&c, "five\n");
    await(&c, ". ");
    say(&c, "six\"\"\"", "answer 4 tokens");
    type_text(&c, "seven\\\n");
    await(&c, ". ");
    say(&c, "eight", "answer 4 tokens");
    char words[256], path[128];
    snprintf(path, sizeof path, "%s/lines.json", home);
    snprintf(words, sizeof words, "/save %s", path);
    say(&c, words, "6 messages are in ");
    chat_leave(&c);
    shell("grep -q 'one.ntwo \303\251.nthree' %s && grep -q 'four.nfive.nsix\"' %s && grep -q "
          "'seven.neight\"' %s",
          path, path, path);
    unlink(path);
}

static void ctrl_c_twice_in_a_row_leaves(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    (void)state;

    await(&c, "> ");
    type_text(&c, "w");
    await(&c, "w");
    usleep(200000); // it has to wait for the next key, or the signal comes too early to end a read
    kill(c.program.pid, SIGINT);
    await(&c, "Ctrl-C again leaves");
    await(&c, "> ");
    type_text(&c, "x");
    await(&c, "x");
    usleep(200000);
    kill(c.program.pid, SIGINT); // something was typed in between
    await(&c, "Ctrl-C again leaves");
    await(&c, "> ");
    say(&c, "hello", "answer 4 tokens");
    usleep(200000);
    kill(c.program.pid, SIGINT);
    await(&c, "Ctrl-C again leaves");
    usleep(200000);
    kill(c.program.pid, SIGINT);
    chat_end(&c, 130);
}

static bool echoes(const struct typed_chat *c)
{
    struct termios t;

    assert_int_equal(tcgetattr(c->theirs, &t), 0);
    return t.c_lflag & ECHO;
}

// An answer that does not end; returns when it has begun.
static struct typed_chat chat_endless(void)
{
    struct typed_chat c =
        chat_start("run -m @ --ignore-eos -c 100000 -dev cpu:plain --no-repack --log error", false);
    char piece;

    await(&c, "> ");
    type_text(&c, "hello\n");
    assert_int_equal(read(c.program.out, &piece, 1), 1);
    return c;
}

static void what_is_typed_during_an_answer_is_not_shown(void **state)
{
    struct typed_chat c = chat_endless();
    (void)state;

    assert_false(echoes(&c));
    kill(c.program.pid, SIGINT);
    await(&c, "; stopped");
    await(&c, "> ");
    chat_leave(&c);
    c = chat_endless();
    kill(c.program.pid, SIGTERM);
    await(&c, "\033[?2004l");
    for (int i = 0; i < 500 && !echoes(&c); i++)
        usleep(10000);
    assert_true(echoes(&c));
    chat_end(&c, 130);
}

static void the_oldest_turns_go_when_the_context_is_full(void **state)
{
    struct typed_chat c = chat_start(CHAT " -c 320 -sys System", false);
    (void)state;

    await(&c, "> ");
    say(&c, "The first of many messages that are not short.", "answer 4 tokens");
    say(&c, "The second of many messages that are not short.", "answer 4 tokens");
    say(&c, "The third of many messages that are not short.", "answer 4 tokens");
    say(&c, "The fourth of many messages that are not short.", "the oldest turns are forgotten");
    say(&c, "/system", "System");
    say(&c, "/stats", " turns forgotten");
    chat_leave(&c);
}

static void no_shift_refuses_when_the_context_is_full(void **state)
{
    struct typed_chat c = chat_start(CHAT " -c 128 --no-shift", false);
    (void)state;

    await(&c, "> ");
    say(&c, "The first of many messages that are not short.", "answer 4 tokens");
    say(&c, "The second of many messages that are not short.", "the context is full");
    say(&c, "/stats", " 2 messages"); // the question was taken back
    say(&c, "/set no-shift false", "no-shift is set");
    say(&c, "The second of many messages that are not short.", "the oldest turns are forgotten");
    say(&c,
        "A message that is longer than the context, however many turns are left out, since it has more than "
        "one hundred and "
        "twenty-eight bytes of text.",
        "the message takes ");
    chat_leave(&c);
}

static void a_chat_is_saved_and_loaded(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    char words[256];
    (void)state;

    await(&c, "> ");
    say(&c, "/system Be kind.", "the system prompt is set");
    say(&c, "hello", "answer 4 tokens");
    snprintf(words, sizeof words, "/save %s/chat.json", home);
    say(&c, words, "3 messages are in ");
    say(&c, words, "3 messages are in "); // over a saved chat
    snprintf(words, sizeof words, "/save %s/config.json", model);
    say(&c, words, "is there and is no saved chat");
    say(&c, "/system -", "taken away");
    say(&c, "/clear", "a new conversation");
    snprintf(words, sizeof words, "/load %s/config.json", model);
    say(&c, words, "this is no saved chat");
    snprintf(words, sizeof words, "/load %s/chat.json", home);
    say(&c, words, "3 messages from ");
    say(&c, "/system", "Be kind.");
    say(&c, "/load", "/load: expected PATH");
    snprintf(words, sizeof words, "%s/note.txt", home);
    write_file(words, "Two words");
    snprintf(words, sizeof words, "/file %s/note.txt", home);
    say(&c, words, "note.txt, 9 B, goes with the next message");
    say(&c, "what is in it?", "answer 4 tokens");
    say(&c, "/file /nowhere", "/nowhere");
    snprintf(words, sizeof words, "/save %s/chat.json", home);
    say(&c, words, "5 messages are in ");
    chat_leave(&c);
    shell("grep -q Two %s/chat.json && rm %s/chat.json %s/note.txt", home, home, home);
}

#define CHAT_WITH_EYES "run -m " SOURCE_DIR "/tests/golden/smolvlm -n 4 --ignore-eos -s 1 --image-no-split -v"

static void a_picture_goes_with_the_next_message(void **state)
{
    struct typed_chat c = chat_start(CHAT_WITH_EYES, false);
    char words[256];
    (void)state;

    await(&c, "> ");
    snprintf(words, sizeof words, "/image %s/pixel.png", home);
    say(&c, words, "pixel.png, 1 x 1 pixels, goes with the next message");
    say(&c, "/image /nowhere.png", "/nowhere.png: cannot open");
    say(&c, "x", "pictures 1, 1 tile (0 kept)");
    say(&c, "y", "encoder 0.0 ms"); // the first message still has it, and the session knows it
    snprintf(words, sizeof words, "%s/a\\ picture.PNG", home);
    say(&c, words, "a picture.PNG, 1 x 1 pixels, goes with the next message");
    snprintf(words, sizeof words, "'%s/a picture.PNG' z", home);
    say(&c, words, "pictures 3, ");
    snprintf(words, sizeof words, "/save %s/seen.json", home);
    say(&c, words, "6 messages are in ");
    say(&c, "/undo", "are taken back");
    say(&c, "/regen", "pictures 1, ");
    say(&c, "/clear", "a new conversation");
    say(&c, "x", "answer 4 tokens");
    snprintf(words, sizeof words, "/load %s/seen.json", home);
    say(&c, words, "6 messages from ");
    say(&c, "z", "pictures 3, ");
    shell("mv '%s/a picture.PNG' %s/away.png", home, home);
    say(&c, words, "a picture.PNG: cannot open");
    say(&c, "/stats", "8 messages"); // as it was
    chat_leave(&c);
}

static void pictures_of_the_command_line_begin_a_chat(void **state)
{
    char words[512];
    (void)state;

    snprintf(words, sizeof words, CHAT_WITH_EYES " --image %s/pixel.png", home);
    struct typed_chat c = chat_start(words, false);
    await(&c, "> ");
    say(&c, "x", "pictures 1, 1 tile (0 kept)");
    say(&c, "/clear", "a new conversation");
    say(&c, "x", "answer 4 tokens");
    chat_leave(&c);
}

static void a_model_without_eyes_takes_no_picture(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    char words[256];
    (void)state;

    await(&c, "> ");
    snprintf(words, sizeof words, "/image %s/pixel.png", home);
    say(&c, words, "this model has no eyes: it cannot take a picture");
    snprintf(words, sizeof words, "%s/pixel.png", home);
    say(&c, words, "answer 4 tokens"); // a text like any other
    chat_leave(&c);
}

static void settings_change_in_a_chat(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    (void)state;

    await(&c, "> ");
    say(&c, "/regen", "no message to answer again");
    say(&c, "hello", "answer 4 tokens");
    say(&c, "/set n 2", "'n' is no setting");
    say(&c, "/set predict 2", "predict is set");
    say(&c, "/regen", "answer 2 tokens");
    say(&c, "/set", "top-k              40");
    say(&c, "/set top-k x", "top-k: found 'x', expected a whole number");
    say(&c, "/set seed 5", "seed is set");
    say(&c, "/stats", "seed         5");
    chat_leave(&c);
}

static void tab_completes(void **state)
{
    struct typed_chat c = chat_start(CHAT, false);
    char words[256];
    (void)state;

    await(&c, "> ");
    type_text(&c, "/und\t\n");
    await(&c, "nothing to take back");
    await(&c, "> ");
    type_text(&c, "/set top-\t");
    await(&c, "top-k  top-p  ");
    type_text(&c, "k 7\n");
    await(&c, "top-k is set");
    await(&c, "> ");
    snprintf(words, sizeof words, "/file %s/conf\t", model);
    type_text(&c, words);
    say(&c, "", "config.json, ");
    chat_leave(&c);
}

static void thinking_is_dim(void **state)
{
    struct typed_chat c = chat_start("run -m @ --grammar root::=\"<think>hm</think>yes\"", true);
    (void)state;

    await(&c, "> ");
    type_text(&c, "hello\n");
    await(&c, "\033[2mhm");
    await(&c, "\033[0myes");
    await(&c, "\033[2mprompt ");
    await(&c, "> ");
    say(&c, "/set think hide", "think is set");
    type_text(&c, "hello\n");
    await(&c, "hello");
    await(&c, "yes");
    chat_leave(&c);
}

static void a_prompt_may_begin_a_chat(void **state)
{
    struct typed_chat c = chat_start(CHAT " -cnv -p hello", false);
    (void)state;

    await(&c, "answer 4 tokens");
    await(&c, "> ");
    say(&c, "more", "reused)");
    chat_leave(&c);
    struct outcome piped = run_with(CHAT " -cnv -p hello", "more\n/exit\n");
    assert_non_null(strstr(piped.err.at, "reused)"));
    outcome_free(&piped);
    c = chat_start(CHAT " -st", false);
    await(&c, "> ");
    type_text(&c, "hello\n");
    await(&c, "answer 4 tokens");
    chat_end(&c, 0);
}

static int make_home_with_pictures(void **state)
{
    int status = make_home(state);

    make_picture("pixel.png");
    make_picture("a picture.PNG");
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_chats),
        cmocka_unit_test(a_message_may_have_many_lines),
        cmocka_unit_test(ctrl_c_twice_in_a_row_leaves),
        cmocka_unit_test(what_is_typed_during_an_answer_is_not_shown),
        cmocka_unit_test(the_oldest_turns_go_when_the_context_is_full),
        cmocka_unit_test(no_shift_refuses_when_the_context_is_full),
        cmocka_unit_test(a_chat_is_saved_and_loaded),
        cmocka_unit_test(a_picture_goes_with_the_next_message),
        cmocka_unit_test(pictures_of_the_command_line_begin_a_chat),
        cmocka_unit_test(a_model_without_eyes_takes_no_picture),
        cmocka_unit_test(settings_change_in_a_chat),
        cmocka_unit_test(tab_completes),
        cmocka_unit_test(thinking_is_dim),
        cmocka_unit_test(a_prompt_may_begin_a_chat),
    };
    return cmocka_run_group_tests(tests, make_home_with_pictures, remove_home);
}
