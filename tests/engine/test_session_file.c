// test_session_file.c - sessions in files: the same answer from the same numbers in another engine, and every
// damage is an error.
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "open_engine.h"

enum { N_PROMPT = 37, N_NEW = 9, MANY = 64 };

static char folder[] = "/tmp/ingot-session-XXXXXX", path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/session", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct ingot_engine *open_with(uint32_t n_context, enum ingot_kv type)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.n_threads = 1;
    o.n_context = n_context;
    o.cache_type_k = o.cache_type_v = type;
    return open_or_fail(&o);
}

struct tokens_said {
    uint32_t tokens[MANY], n, n_reused;
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct tokens_said *to = arg;

    if (e->token != UINT32_MAX)
        to->tokens[to->n++] = e->token;
    if (e->done)
        to->n_reused = e->result->n_reused;
    return true;
}

static struct tokens_said ask(struct ingot_engine *engine, struct ingot_session *session,
                              const uint32_t *tokens, uint32_t n)
{
    struct ingot_request_options o = greedy_request(tokens, n, N_NEW);
    struct tokens_said got = { .n = 0 };
    struct ingot_error error = { 0 };

    o.session = session;
    o.cache_salt = "mine";
    if (!ingot_generate(engine, &o, keep, &got, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(got.n, N_NEW);
    return got;
}

static void make_prompt(uint32_t tokens[N_PROMPT])
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = (i * 37 + 11) % 500 + 300;
}

// Saves a session of N_PROMPT tokens and more. `next` becomes a prompt that goes on from it, of *n tokens.
static struct tokens_said save_one(struct ingot_engine *engine, uint32_t next[MANY], uint32_t *n)
{
    uint32_t prompt[N_PROMPT];
    struct ingot_error error = { 0 };
    struct ingot_session *session = ingot_session_create(engine, &error);

    make_prompt(prompt);
    ask(engine, session, prompt, N_PROMPT);
    *n = ingot_session_tokens(session, next, MANY);
    assert_int_equal(*n, ingot_session_n_tokens(session));
    assert_true(*n >= N_PROMPT && *n < MANY);
    assert_memory_equal(next, prompt, sizeof prompt);
    if (!ingot_session_save(session, path, &error))
        fail_msg("%s", error.message);
    next[(*n)++] = 321;
    struct tokens_said said = ask(engine, session, next, *n);
    assert_int_equal(said.n_reused, *n - 1);
    ingot_session_free(session);
    return said;
}

static void an_answer_goes_on_in_another_engine(void **state)
{
    uint32_t next[MANY], held[MANY], n;
    struct ingot_engine *engine = open_with(256, INGOT_KV_F32);
    struct tokens_said first = save_one(engine, next, &n);
    struct ingot_error error = { 0 };

    (void)state;
    ingot_engine_close(engine);
    engine = open_with(128, INGOT_KV_F32);
    struct ingot_session *session = ingot_session_load(engine, path, &error);
    if (!session)
        fail_msg("%s", error.message);
    assert_int_equal(ingot_session_tokens(session, held, MANY), n - 1);
    assert_memory_equal(held, next, (n - 1) * sizeof *next);
    struct tokens_said again = ask(engine, session, next, n);
    assert_int_equal(again.n_reused, n - 1); // nothing is computed twice
    assert_memory_equal(again.tokens, first.tokens, sizeof again.tokens[0] * N_NEW);
    assert_fails(ingot_session_load(engine, path, &error), &error, "sequences in use: all 1");
    assert_int_equal(error.code, INGOT_LIMIT);
    ingot_session_free(session);
    struct tokens_said fresh = ask(engine, NULL, next, n);
    assert_memory_equal(fresh.tokens, first.tokens, sizeof fresh.tokens[0] * N_NEW);
    ingot_engine_close(engine);
}

static void another_engine_refuses_it(void **state)
{
    uint32_t next[MANY], n;
    struct ingot_engine *engine = open_with(256, INGOT_KV_F32);
    struct ingot_error error = { 0 };

    (void)state;
    save_one(engine, next, &n);
    ingot_engine_close(engine);
    engine = open_with(256, INGOT_KV_F16);
    assert_fails(ingot_session_load(engine, path, &error), &error,
                 "a session of another model, device, version or cache type");
    ingot_engine_close(engine);
    engine = open_with(32, INGOT_KV_F32);
    assert_fails(ingot_session_load(engine, path, &error), &error,
                 "and the context holds 32; raise n_context");
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_fails(ingot_session_load(engine, folder, &error), &error, folder);
    assert_fails(ingot_session_load(engine, "/nowhere/at/all", &error), &error, "/nowhere/at/all");
    ingot_engine_close(engine);
}

static void put(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static void every_damage_is_an_error(void **state)
{
    uint32_t next[MANY], n;
    struct ingot_engine *engine = open_with(256, INGOT_KV_F32);
    struct ingot_error error = { 0 };
    struct buf file = { 0 };
    struct err err = { 0 };

    (void)state;
    save_one(engine, next, &n);
    assert_ok(file_read(&file, path, 1 << 28, &err), &err);
    size_t step = file.n > 4000 ? file.n / 4000 : 1;
    for (size_t i = 0; i < file.n;
         i += i < 400 ? 1 : step * 97) { // the head and the tokens, and some of the pages
        file.at[i] ^= 0x41;
        put(file.at, file.n);
        assert_null(ingot_session_load(engine, path, &error));
        assert_non_null(strstr(error.message, path));
        file.at[i] ^= 0x41;
    }
    for (size_t i = 0; i < file.n; i += i < 400 ? 7 : step * 331) {
        put(file.at, i);
        assert_null(ingot_session_load(engine, path, &error));
    }
    buf_append(&file, "", 1);
    put(file.at, file.n);
    assert_fails(ingot_session_load(engine, path, &error), &error, "save it again");
    put(file.at, file.n - 1);
    struct ingot_session *session = ingot_session_load(engine, path, &error);
    if (!session)
        fail_msg("%s", error.message);
    ingot_session_free(session);
    buf_free(&file);
    ingot_engine_close(engine);
}

static void what_cannot_be_saved_says_so(void **state)
{
    uint32_t prompt[N_PROMPT];
    struct ingot_engine *engine = open_with(256, INGOT_KV_F32);
    struct ingot_error error = { 0 };
    struct ingot_session *session = ingot_session_create(engine, &error);
    struct ingot_request_options o = ingot_request_defaults();
    bool busy;

    (void)state;
    make_prompt(prompt);
    o.session = session;
    o.tokens = prompt;
    o.n_tokens = N_PROMPT;
    assert_fails(ingot_session_save(session, "/nowhere/at/all", &error), &error, "/nowhere/at/all");
    struct ingot_request *request = ingot_submit(engine, &o, &error);
    assert_true(ingot_step(engine, &busy, &error));
    assert_fails(ingot_session_save(session, path, &error), &error, "a request runs on the session");
    ingot_request_free(request);
    assert_true(ingot_session_save(session, path, &error));
    ingot_session_free(session);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_goes_on_in_another_engine),
        cmocka_unit_test(another_engine_refuses_it),
        cmocka_unit_test(every_damage_is_an_error),
        cmocka_unit_test(what_cannot_be_saved_says_so),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
