// test_pages_move.c - pages of a prompt that one engine has read, taken by another: the same bits as without,
// and nothing is taken that is cut, changed, or another prompt's or model's. Also requests that wait for
// ingot_start.
#include <pthread.h>
#include <stdatomic.h>
#include "base/mem.h"
#include "base/str.h"
#include "engine/api.h"
#include "open_engine.h"

enum { MOST = 224, N_NEW = 5, N_COMPARED = 96, PAGE = 16, GRID = 64 };

struct moved_model {
    const char *name;
    bool has_states;
};
// Grouped heads, latent pages without V, sinks and windows, states.
static const struct moved_model models[] = {
    { "llama3/model.gguf", false }, { "llama3", false },         { "deepseek3/model.gguf", false },
    { "gptoss/model.gguf", false }, { "lfm2/model.gguf", true }, { "qwen35/model.gguf", true }
};
enum { N_MODELS = sizeof models / sizeof *models };

static struct ingot_engine_options options_of(const char *model)
{
    static char path[512];
    struct ingot_engine_options o = ingot_engine_defaults();

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s", model);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 256;
    o.n_sequences = 2;
    o.speculate = INGOT_SPECULATE_OFF;
    return o;
}

struct moved_answer {
    uint32_t tokens[N_NEW], n, n_reused;
    float logits[N_NEW][N_COMPARED];
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct moved_answer *a = arg;

    if (e->logits && a->n < N_NEW)
        memcpy(a->logits[a->n], e->logits, sizeof a->logits[0]);
    if (e->token != UINT32_MAX) {
        assert_true(a->n < N_NEW);
        a->tokens[a->n++] = e->token;
    }
    if (e->done)
        a->n_reused = e->result->n_reused;
    return true;
}

static struct ingot_request_options request_of(const uint32_t *tokens, uint32_t n)
{
    struct ingot_request_options o = greedy_request(tokens, n, N_NEW);

    o.n_logits = 1;
    o.cache_salt = "salt";
    return o;
}

static struct moved_answer ask(struct ingot_engine *engine, const uint32_t *tokens, uint32_t n)
{
    struct ingot_request_options o = request_of(tokens, n);
    struct moved_answer a = { .n = 0 };
    struct ingot_error error = { 0 };

    if (!ingot_generate(engine, &o, keep, &a, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(a.n, N_NEW);
    return a;
}

static void assert_same(const struct moved_answer *a, const struct moved_answer *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (i * 104729 + seed * 7919 + 11) % 131;
}

// Has the prompt read, and returns the bytes of its pages behind n_known tokens; free with buf_free.
static struct buf pages_of(struct ingot_engine *engine, const uint32_t *tokens, uint32_t n, uint32_t n_known)
{
    struct ingot_error error = { 0 };
    struct buf all = { 0 };
    size_t n_bytes;

    ask(engine, tokens, n);
    struct ingot_pages *p = ingot_pages_offer(engine, tokens, n, n_known, "salt", &error);
    if (!p)
        fail_msg("%s", error.message);
    for (const void *at; (at = ingot_pages_give(p, &n_bytes));)
        assert_true(buf_append(&all, at, n_bytes));
    ingot_pages_close(p);
    return all;
}

// Takes the bytes in pieces. Returns the tokens whose pages are there; *error: what was wrong, if anything.
static uint32_t take(struct ingot_engine *engine, const uint32_t *tokens, uint32_t n, struct str bytes,
                     size_t piece, struct ingot_error *error)
{
    struct ingot_pages *p = ingot_pages_expect(engine, tokens, n, "salt", error);
    bool ok = true;

    *error = (struct ingot_error){ 0 };
    assert_non_null(p);
    for (size_t at = 0; ok && at < bytes.n; at += piece)
        ok = ingot_pages_take(p, bytes.at + at, bytes.n - at < piece ? bytes.n - at : piece, error);
    ok = ok && ingot_pages_finish(p, error);
    assert_true(ok == (error->message[0] == 0));
    uint32_t n_taken = (uint32_t)ingot_pages_n_tokens(p);
    ingot_pages_close(p);
    return n_taken;
}

static void the_same_bits_come_as_without(void **state)
{
    static const uint32_t lengths[] = { 17, 64, 65, 200 };
    static const size_t pieces[] = { 1 << 20, 4096, 333, 1 << 20 };
    uint32_t tokens[MOST];
    struct ingot_error error;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m].name);
        struct ingot_engine *alone = open_or_fail(&o), *decode = open_or_fail(&o);
        o.n_threads = 3; // what changes no bit may differ
        o.n_batch = 48;
        struct ingot_engine *prefill = open_or_fail(&o);
        for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            uint32_t n = lengths[i], grid = models[m].has_states ? GRID : PAGE;
            fill(tokens, n, i);
            struct buf bytes = pages_of(prefill, tokens, n, 0);
            assert_int_equal(take(decode, tokens, n, buf_as_str(&bytes), pieces[i], &error),
                             (n - 1) / grid * grid);
            assert_string_equal(error.message, "");
            struct moved_answer got = ask(decode, tokens, n), wanted = ask(alone, tokens, n);
            assert_int_equal(got.n_reused, (n - 1) / grid * grid);
            assert_int_equal(wanted.n_reused, 0);
            assert_same(&got, &wanted);
            buf_free(&bytes);
        }
        ingot_engine_close(prefill);
        ingot_engine_close(decode);
        ingot_engine_close(alone);
    }
}

// More files than are summed up at once, in one piece and in small ones; one that is damaged behind these.
static void many_pages_move(void **state)
{
    enum { N = 3001, N_PAGES = N / PAGE };
    static uint32_t tokens[N];
    static const size_t pieces[] = { SIZE_MAX / 2, 70000 };
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_error error;
    (void)state;

    o.n_context = 3008;
    fill(tokens, N, 9);
    struct ingot_engine *prefill = open_or_fail(&o);
    struct buf bytes = pages_of(prefill, tokens, N, 0);
    struct moved_answer wanted = ask(prefill, tokens, N);
    assert_int_equal(bytes.n % N_PAGES, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct ingot_engine *decode = open_or_fail(&o);
        assert_int_equal(take(decode, tokens, N, buf_as_str(&bytes), pieces[i], &error), N_PAGES * PAGE);
        assert_string_equal(error.message, "");
        struct moved_answer got = ask(decode, tokens, N);
        assert_int_equal(got.n_reused, N_PAGES * PAGE);
        assert_memory_equal(got.tokens, wanted.tokens, sizeof got.tokens);
        ingot_engine_close(decode);
    }
    bytes.at[bytes.n / N_PAGES * 180 + 500] ^= 1;
    struct ingot_engine *decode = open_or_fail(&o);
    assert_true(take(decode, tokens, N, buf_as_str(&bytes), SIZE_MAX / 2, &error) <= 180 * PAGE);
    assert_non_null(strstr(error.message, "page 180 is damaged"));
    ingot_engine_close(decode);
    buf_free(&bytes);
    ingot_engine_close(prefill);
}

static void every_cache_type_moves(void **state)
{
    static const enum ingot_kv types[][2] = { { INGOT_KV_F32, INGOT_KV_F32 },
                                              { INGOT_KV_F16, INGOT_KV_Q8_0 },
                                              { INGOT_KV_BF16, INGOT_KV_F16 } };
    uint32_t tokens[MOST];
    struct ingot_error error;

    (void)state;
    fill(tokens, 100, 3);
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct ingot_engine_options o = options_of("");
        o.model = INGOT_BUILTIN; // q8_0 wants heads of a multiple of 32
        o.cache_type_k = types[i][0];
        o.cache_type_v = types[i][1];
        struct ingot_engine *prefill = open_or_fail(&o), *decode = open_or_fail(&o),
                            *alone = open_or_fail(&o);
        struct buf bytes = pages_of(prefill, tokens, 100, 0);
        assert_int_equal(take(decode, tokens, 100, buf_as_str(&bytes), 1000, &error), 96);
        struct moved_answer got = ask(decode, tokens, 100), wanted = ask(alone, tokens, 100);
        assert_int_equal(got.n_reused, 96);
        assert_same(&got, &wanted);
        buf_free(&bytes);
        ingot_engine_close(prefill);
        ingot_engine_close(decode);
        ingot_engine_close(alone);
    }
}

static void only_what_is_missing_moves(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *prefill = open_or_fail(&o), *decode = open_or_fail(&o), *alone = open_or_fail(&o);
    struct ingot_error error;

    (void)state;
    fill(tokens, 150, 5);
    ask(decode, tokens, 60); // three whole pages
    struct ingot_pages *p = ingot_pages_expect(decode, tokens, 150, "salt", &error);
    assert_int_equal(ingot_pages_n_tokens(p), 48); // what follows is its answer
    assert_int_equal(ingot_pages_most_tokens(p), 144);
    ingot_pages_close(p);
    struct buf all = pages_of(prefill, tokens, 150, 0), rest = pages_of(prefill, tokens, 150, 48);
    assert_true(rest.n * 9 == all.n * 6);
    assert_int_equal(take(decode, tokens, 150, buf_as_str(&all), 1 << 20, &error),
                     48); // those it has come again
    assert_non_null(strstr(error.message, "page 3"));
    assert_int_equal(take(decode, tokens, 150, buf_as_str(&rest), 1 << 20, &error), 144);
    struct moved_answer got = ask(decode, tokens, 150), wanted = ask(alone, tokens, 150);
    assert_int_equal(got.n_reused, 144);
    assert_same(&got, &wanted);
    buf_free(&all);
    buf_free(&rest);
    ingot_engine_close(prefill);
    ingot_engine_close(decode);
    ingot_engine_close(alone);
}

// ---- hostile bodies

// The answer is the same as without these bytes.
static void check_refused(const char *model, const uint32_t *tokens, struct str bytes, const char *why)
{
    struct ingot_engine_options o = options_of(model);
    struct ingot_engine *engine = open_or_fail(&o), *alone = open_or_fail(&o);
    struct ingot_error error;

    take(engine, tokens, 200, bytes, 1 << 20, &error);
    if (!strstr(error.message, why))
        fail_msg("want \"%s\", got \"%s\"", why, error.message);
    struct moved_answer got = ask(engine, tokens, 200), wanted = ask(alone, tokens, 200);
    assert_same(&got, &wanted);
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

static void what_is_cut_or_changed_is_refused(void **state)
{
    uint32_t tokens[MOST];
    uint64_t seed = 5;

    (void)state;
    fill(tokens, 200, 7);
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m].name);
        struct ingot_engine *engine = open_or_fail(&o);
        struct buf bytes = pages_of(engine, tokens, 200, 0);
        struct str all = buf_as_str(&bytes);
        check_refused(models[m].name, tokens, str_from_to(all, 0, all.n - 1), "end within a file");
        check_refused(models[m].name, tokens, str_from_to(all, 0, 100), "end within a file");
        check_refused(models[m].name, tokens, str_from_to(all, 1, all.n), "no file");
        for (uint32_t i = 0; i < 6; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(seed >> 33) % all.n;
            bytes.at[at] = (char)(bytes.at[at] ^ 0x10);
            check_refused(models[m].name, tokens, all, "");
            struct ingot_error error;
            assert_true(take(engine, tokens, 200, all, 1 << 20, &error) > 0); // it has them, and wants none
            assert_true(error.message[0] != 0);
            bytes.at[at] = (char)(bytes.at[at] ^ 0x10);
        }
        assert_true(buf_reserve(&bytes, bytes.n) && buf_append(&bytes, bytes.at, bytes.n)); // all of it twice
        check_refused(models[m].name, tokens, buf_as_str(&bytes), "no file");
        buf_free(&bytes);
        ingot_engine_close(engine);
    }
}

static void what_belongs_elsewhere_is_refused(void **state)
{
    uint32_t tokens[MOST], others[MOST];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *engine = open_or_fail(&o);

    (void)state;
    fill(tokens, 200, 8);
    fill(others, 200, 9);
    struct buf bytes = pages_of(engine, others, 200, 0); // another prompt
    check_refused("llama3/model.gguf", tokens, buf_as_str(&bytes), "page 0 is damaged, or another prompt's");
    buf_free(&bytes);
    bytes = pages_of(engine, tokens, 200, 0); // another model of the same settings
    check_refused("smollm2/model.gguf", tokens, buf_as_str(&bytes), "no file");
    buf_free(&bytes);
    ingot_engine_close(engine);
    o.exact = true; // other settings
    engine = open_or_fail(&o);
    bytes = pages_of(engine, tokens, 200, 0);
    check_refused("llama3/model.gguf", tokens, buf_as_str(&bytes), "no file");
    buf_free(&bytes);
    ingot_engine_close(engine);
}

// A state's file again and again would be bytes without an end.
static void a_state_comes_once(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of("lfm2/model.gguf");
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_pages_info info;
    struct ingot_error error;

    (void)state;
    fill(tokens, 200, 10);
    struct buf bytes = pages_of(engine, tokens, 200, 0);
    assert_true(ingot_pages_info(engine, &info, &error));
    size_t file = info.state_bytes + 208 + 32; // the last one
    assert_true(bytes.n > file);
    assert_true(buf_reserve(&bytes, file) && buf_append(&bytes, bytes.at + bytes.n - file, file));
    check_refused("lfm2/model.gguf", tokens, buf_as_str(&bytes), "no file");
    buf_free(&bytes);
    ingot_engine_close(engine);
}

static void without_room_less_is_taken(void **state)
{
    uint32_t tokens[MOST], others[MOST];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *prefill = open_or_fail(&o), *alone = open_or_fail(&o);
    struct ingot_error error = { 0 };

    (void)state;
    fill(tokens, 200, 11);
    fill(others, 200, 12);
    o.n_kv_tokens = 256;
    struct ingot_engine *decode = open_or_fail(&o);
    struct buf first = pages_of(prefill, tokens, 200, 0), second = pages_of(prefill, others, 200, 0);
    struct ingot_pages *p = ingot_pages_expect(decode, tokens, 200, "salt", &error);
    assert_true(ingot_pages_take(p, first.at, first.n, &error) && ingot_pages_finish(p, &error));
    // Those are held: four pages are left.
    assert_int_equal(take(decode, others, 200, buf_as_str(&second), 1 << 20, &error), 64);
    assert_int_equal(error.code, INGOT_LIMIT);
    ingot_pages_close(p);
    for (uint32_t i = 0; i < 2; i++) {
        struct moved_answer got = ask(decode, i ? others : tokens, 200),
                            wanted = ask(alone, i ? others : tokens, 200);
        assert_same(&got, &wanted);
    }
    buf_free(&first);
    buf_free(&second);
    ingot_engine_close(prefill);
    ingot_engine_close(decode);
    ingot_engine_close(alone);
}

// ---- the two sides

static void engines_say_what_differs(void **state)
{
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_pages_info a, b;
    struct ingot_error error;

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    assert_true(ingot_pages_info(engine, &a, &error));
    ingot_engine_close(engine);
    o.exact = true;
    engine = open_or_fail(&o);
    assert_true(ingot_pages_info(engine, &b, &error));
    ingot_engine_close(engine);
    assert_string_equal(a.version, ingot_version());
    assert_string_equal(a.weights, b.weights);
    assert_int_equal(strlen(a.weights), 64);
    assert_string_not_equal(a.devices, b.devices);
    assert_string_not_equal(a.identity, b.identity);
    o.no_prefix_cache = true;
    engine = open_or_fail(&o);
    uint32_t tokens[MOST];
    fill(tokens, 20, 1);
    assert_false(ingot_pages_info(engine, &b, &error));
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    assert_null(ingot_pages_offer(engine, tokens, 20, 0, NULL, &error));
    assert_null(ingot_pages_expect(engine, tokens, 20, NULL, &error));
    ingot_engine_close(engine);
}

static struct ingot_pages_info said_on(struct ingot_engine *engine, const char *name)
{
    struct device *d = engine->inner.loaded->devices.at[0];
    struct ingot_pages_info info;
    struct ingot_error error;

    engine->inner.identity_at = 0; // of the name before
    snprintf(d->name, sizeof d->name, "%s", name);
    assert_true(ingot_pages_info(engine, &info, &error));
    return info;
}

// The second GPU of a machine computes as the first of the same model does. Here the names are made up.
static void a_gpu_s_place_makes_no_difference(void **state)
{
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *engine = open_or_fail(&o);
    (void)state;

    struct ingot_pages_info first = said_on(engine, "cuda:0"), second = said_on(engine, "cuda:1"),
                            metal = said_on(engine, "metal:0"), cpu = said_on(engine, "cpu");
    assert_string_equal(first.devices, second.devices);
    assert_string_equal(first.identity, second.identity);
    assert_string_not_equal(first.devices, metal.devices);
    assert_string_not_equal(first.identity, metal.identity);
    assert_string_not_equal(first.identity, cpu.identity);
    assert_true(strncmp(first.devices, "cuda (", 6) == 0 &&
                strncmp(cpu.devices, "cpu from layer 0", 16) == 0);
    ingot_engine_close(engine);
}

static void bad_prompts_and_no_memory_are_errors(void **state)
{
    uint32_t tokens[300];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_error error;
    struct ingot_pages *p = NULL;

    (void)state;
    fill(tokens, 300, 1);
    assert_null(ingot_pages_expect(engine, tokens, 300, NULL, &error));
    assert_int_equal(error.code, INGOT_LIMIT);
    p = ingot_pages_expect(engine, tokens, 0, NULL, &error);
    assert_int_equal(ingot_pages_most_tokens(p), 0);
    ingot_pages_close(p);
    for (uint64_t i = 1; (mem_fail_at(i, 0), !(p = ingot_pages_expect(engine, tokens, 100, NULL, &error)));
         i++)
        assert_int_equal(error.code, INGOT_MEMORY);
    mem_fail_at(0, 0);
    ingot_pages_close(p);
    tokens[50] = UINT32_MAX; // a picture's place
    assert_null(ingot_pages_offer(engine, tokens, 100, 0, NULL, &error));
    assert_int_equal(error.code, INGOT_INPUT);
    p = ingot_pages_expect(engine, tokens, 40, NULL, &error);
    ingot_engine_close(engine); // freed in any order
    assert_false(ingot_pages_take(p, tokens, sizeof tokens, &error) && ingot_pages_finish(p, &error));
    ingot_pages_close(p);
}

static atomic_bool stops;

static void *step_always(void *engine)
{
    bool busy;

    while (!atomic_load(&stops))
        assert_true(ingot_step(engine, &busy, NULL));
    return NULL;
}

// Who steps without a pause lets others have their turn.
static void pages_move_while_another_thread_steps(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *prefill = open_or_fail(&o), *decode = open_or_fail(&o);
    struct ingot_error error;
    pthread_t thread;

    (void)state;
    fill(tokens, 200, 13);
    struct buf bytes = pages_of(prefill, tokens, 200, 0);
    atomic_store(&stops, false);
    assert_int_equal(pthread_create(&thread, NULL, step_always, decode), 0);
    assert_int_equal(take(decode, tokens, 200, buf_as_str(&bytes), 5000, &error), 192);
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    assert_int_equal(ask(decode, tokens, 200).n_reused, 192);
    buf_free(&bytes);
    ingot_engine_close(prefill);
    ingot_engine_close(decode);
}

// ---- requests that wait for ingot_start

static void a_deferred_request_holds_nothing_up(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of("llama3/model.gguf");
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_request_options r = request_of(tokens, 40);
    struct ingot_error error;
    struct ingot_event event;
    bool busy = true, done;

    (void)state;
    o.n_sequences = 1;
    fill(tokens, 40, 14);
    r.deferred = true;
    struct ingot_request *request = ingot_submit(engine, &r, &error),
                         *dropped = ingot_submit(engine, &r, &error);
    assert_true(ingot_step(engine, &busy, NULL));
    assert_false(busy);
    assert_false(ingot_wait(engine, request, 1));
    struct moved_answer other = ask(engine, tokens, 40); // with the only place
    ingot_cancel(dropped);
    assert_true(ingot_step(engine, &busy, NULL));
    assert_false(busy);
    assert_int_equal(ingot_request_n_events(dropped, &done), 1);
    assert_true(done);
    ingot_start(request);
    struct moved_answer own = { .n = 0 };
    do {
        assert_true(ingot_wait(engine, request, UINT32_MAX));
        while (ingot_poll(request, &event))
            keep(&own, &event);
        ingot_request_n_events(request, &done);
    } while (!done);
    assert_same(&own, &other);
    ingot_request_free(request);
    ingot_request_free(dropped);
    own = (struct moved_answer){ .n = 0 }; // ingot_generate waits for nobody
    struct ingot_result result;
    assert_true(ingot_generate(engine, &r, keep, &own, &result, &error));
    assert_true(ingot_generate_batch(engine, &r, 1, &result, NULL, &error));
    assert_int_equal(result.finish, INGOT_FINISH_LENGTH);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_come_as_without),
        cmocka_unit_test(many_pages_move),
        cmocka_unit_test(every_cache_type_moves),
        cmocka_unit_test(only_what_is_missing_moves),
        cmocka_unit_test(what_is_cut_or_changed_is_refused),
        cmocka_unit_test(what_belongs_elsewhere_is_refused),
        cmocka_unit_test(a_state_comes_once),
        cmocka_unit_test(without_room_less_is_taken),
        cmocka_unit_test(engines_say_what_differs),
        cmocka_unit_test(a_gpu_s_place_makes_no_difference),
        cmocka_unit_test(bad_prompts_and_no_memory_are_errors),
        cmocka_unit_test(pages_move_while_another_thread_steps),
        cmocka_unit_test(a_deferred_request_holds_nothing_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
