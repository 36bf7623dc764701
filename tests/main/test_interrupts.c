// test_interrupts.c - Ctrl-C or SIGTERM while a prompt is read, which takes minutes here: each verb ends.
// Ctrl-C in a chat ends the answer alone.
#include "program.h"

enum { PROMPT_BYTES = 70000 };
#define SLOW "-c 100000 -b 64 -dev cpu:plain --no-repack"

static char prompt_path[128];

static int make_prompt(void **state)
{
    struct buf text = { 0 };

    make_home(state);
    snprintf(prompt_path, sizeof prompt_path, "%s/prompt", home);
    while (text.n < PROMPT_BYTES)
        buf_text(&text, "The fox and the owl went to the old oak, and there they dug. ");
    write_file(prompt_path, text.at);
    buf_free(&text);
    return 0;
}

// Waits for text on the program's stderr.
static void await_words(const struct running *r, const char *part)
{
    struct pollfd fd = { r->err, POLLIN, 0 };
    struct buf seen = { 0 };
    char piece[256];

    while (!seen.at || !strstr(seen.at, part)) {
        if (poll(&fd, 1, 20000) <= 0)
            fail_msg("'%s' did not come; seen: %s", part, seen.at ? seen.at : "");
        ssize_t n = read(r->err, piece, sizeof piece);
        assert_true(n > 0);
        buf_append(&seen, piece, (size_t)n);
    }
    buf_free(&seen);
}

// words: one %s is the prompt's file. The engine's warning says that the model is loaded, all but.
static struct running start_reading(const char *words, struct streams with)
{
    char line[512];

    snprintf(line, sizeof line, words, prompt_path);
    struct running r = start(line, with);
    await_words(&r, "the model was made for");
    usleep(1000000);
    return r;
}

static void every_verb_ends(void **state)
{
    static const struct {
        const char *words, *out, *err;
        int status;
    } verbs[] = {
        { "run -m @ --no-chat -f %s --json " SLOW, "\"finish\":\"cancelled\"", "stopped", 0 },
        { "run -m @ --no-chat -f %s -c 100000 -b 64 -dev cpu:plain,cpu:plain -t 1 --no-repack", "",
          "stopped before", 0 },
        { "run -m @ --no-chat -f %s -c 100000 -b 64 -dev cpu:plain --tensor-parallel 2", "", "stopped before",
          0 },
        { "embed -m @ --whole -f %s " SLOW, "", "", 130 },
        { "eval -m @ -f %s -c 70000 -b 64 -dev cpu:plain --no-repack", "", "stopped", 130 },
        { "imatrix -m @ -f %s -o interrupted.gguf -c 70000 -dev cpu:plain", "", "stopped", 130 },
        { "bench -m @ -p 70000 -n 0 -r 1 -b 64 -dev cpu:plain", "", "stopped", 130 },
        { "bench -m @ -p 1 -n 0 -d 70000 -r 1 -b 64 -dev cpu:plain", "", "stopped", 130 },
    };
    (void)state;

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct running r = start_reading(verbs[i].words, (struct streams){ -1, -1, -1 });
        struct outcome o = { 0 };
        kill(r.pid, SIGINT);
        collect(&r, &o);
        if (o.status != verbs[i].status || !strstr(o.out.at, verbs[i].out) || !strstr(o.err.at, verbs[i].err))
            fail_msg("%s: status %d, stdout %s, stderr %s", verbs[i].words, o.status, o.out.at, o.err.at);
        outcome_free(&o);
    }
}

static void sigterm_leaves_at_once(void **state)
{
    static const char *const verbs[] = { "run -m @ --no-chat -f %s " SLOW,
                                         "bench -m @ -p 70000 -n 0 -r 1 -b 64 -dev cpu:plain" };
    (void)state;

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct running r = start_reading(verbs[i], (struct streams){ -1, -1, -1 });
        struct outcome o = { 0 };
        kill(r.pid, SIGTERM);
        collect(&r, &o);
        assert_int_equal(o.status, 130);
        outcome_free(&o);
    }
}

// The message without an answer is forgotten; the next one is answered.
static void a_chat_goes_on(void **state)
{
    struct running r =
        start_reading("run -m @ -cnv -f %s -n 4 --ignore-eos " SLOW, (struct streams){ -1, -1, -1 });
    struct outcome o = { 0 };
    (void)state;

    kill(r.pid, SIGINT);
    await_words(&r, "stopped before");
    assert_int_equal(write(r.in, "hello\n", 6), 6);
    await_words(&r, "answer 4 tokens");
    close(r.in);
    r.in = -1;
    collect(&r, &o);
    assert_int_equal(o.status, 0);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verb_ends),
        cmocka_unit_test(sigterm_leaves_at_once),
        cmocka_unit_test(a_chat_goes_on),
    };
    return cmocka_run_group_tests(tests, make_prompt, remove_home);
}
