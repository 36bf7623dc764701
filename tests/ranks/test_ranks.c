// test_ranks.c - one model on several ranks: what one process computes, two and three do to the bit.
//
// The test starts mpirun with itself: `test_ranks CASE FILE`. There rank 0 does the case's work and writes
// what came out into the file, the others follow. The same work in the test's own process is the reference.
#include <sys/stat.h>
#include <unistd.h>
#include "engine/api/follow.h"
#include "engine/api.h"
#include "engine/ranks/plugin.h"
#include "engine/ranks/ranks_internal.h"
#include "engine/stage/remote.h"
#include "models/golden.h"

#define SHIPPED SOURCE_DIR "/models/ingot-7m-q8_0.gguf"

struct rank_work {
    const char *name, *model;
    const char *stages; // on ranks
    uint32_t n_ranks, n_batch, n_sequences, n_context;
    void (*run)(const struct ingot_engine_options *o, const char *model, FILE *out);
};

// ---- what is computed

static void write_logits(const struct ingot_engine_options *o, const char *model, FILE *out)
{
    struct golden g;

    golden_open(&g, model);
    float *logits = run_logits(o, &g);
    fwrite(logits, sizeof *logits, (size_t)g.n * g.n_vocab, out);
    free(logits);
    model_file_close(g.file);
}

static bool write_event(void *arg, const struct ingot_event *e)
{
    FILE *out = arg;

    fprintf(out, "%u:%.*s", e->token, (int)e->n_bytes, e->text);
    for (uint32_t i = 0; i < e->n_logprobs; i++)
        fprintf(out, " %u %.9g", e->logprobs[i].token, e->logprobs[i].logprob);
    fputc('\n', out);
    return true;
}

enum { N_TOGETHER = 6 };

// Rows of 1, 5, 40 and more that share steps, with everything that the last rank has to know of a request.
static void write_together(const struct ingot_engine_options *o, const char *model, FILE *out)
{
    static const uint32_t lengths[N_TOGETHER] = { 1, 5, 40, 100, 17, 60 };
    static uint32_t tokens[N_TOGETHER][100];
    static const struct ingot_bias bias = { 100, 3 };
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_request *requests[N_TOGETHER];
    struct ingot_error error = { 0 };
    struct ingot_event event;
    (void)model;

    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        struct ingot_request_options r = ingot_request_defaults();
        for (uint32_t k = 0; k < lengths[i]; k++)
            tokens[i][k] = 20 + (k * 37 + i * 11) % 500;
        r.tokens = tokens[i];
        r.n_tokens = lengths[i];
        r.max_tokens = 24;
        r.ignore_eos = i != 2; // a grammar says where it ends
        r.sampling.temperature = i % 2 ? 0.9f : 0;
        r.sampling.repeat_penalty = i == 3 ? 1.3f : 1;
        r.sampling.seed = 7 + i;
        r.grammar = i == 2 ? "root ::= [a-z ]+" : NULL;
        r.bias = i == 4 ? &bias : NULL;
        r.n_bias = i == 4;
        r.n_logprobs = i == 5 ? 2 : 0;
        r.n_top_logprobs = 3;
        requests[i] = ingot_submit(engine, &r, &error);
        if (!requests[i])
            fail_msg("%s", error.message);
    }
    uint32_t n_taken = 0;
    while (n_taken < 3 &&
           ingot_wait(engine, requests[1], UINT32_MAX)) // then it is cancelled, with rows on their way
        n_taken += ingot_poll(requests[1], &event);
    ingot_cancel(requests[1]);
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        bool done = i == 1;
        while (!done && ingot_wait(engine, requests[i], UINT32_MAX))
            while (!done && ingot_poll(requests[i], &event)) {
                write_event(out, &event);
                done = event.done;
            }
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
}

// A prompt whose beginning is kept, an embedding, and a turn of a session.
static void write_kept(const struct ingot_engine_options *o, const char *model, FILE *out)
{
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_error error = { 0 };
    struct ingot_result result;
    (void)model;

    for (int i = 0; i < 2; i++) {
        struct ingot_request_options r = ingot_request_defaults();
        r.text = i ? "Once upon a time there was a little fox who lived in the green wood with a bear"
                   : "Once upon a time there was a little fox who lived in the green wood with a mouse";
        r.max_tokens = 20;
        r.sampling.temperature = 0;
        r.sampling.repeat_penalty = 1.2f; // reads what was not computed again
        if (!ingot_generate(engine, &r, write_event, out, &result, &error))
            fail_msg("%s", error.message);
        fprintf(out, "reused %u\n", result.n_reused);
    }
    struct ingot_request_options r = ingot_request_defaults();
    r.text = "A fox in a wood.";
    r.embed = INGOT_EMBED_MEAN;
    struct ingot_request *request = ingot_submit(engine, &r, &error);
    struct ingot_event event = { 0 };
    struct ingot_engine_info info;
    ingot_engine_info(engine, &info);
    while (request && !event.done && ingot_wait(engine, request, UINT32_MAX))
        ingot_poll(request, &event);
    assert_non_null(event.embedding);
    fwrite(event.embedding, sizeof(float), info.n_embedding, out);
    ingot_request_free(request);
    ingot_engine_close(engine);
}

// What went over the links: one message a step, and its bytes. Without ranks: what should.
static void write_traffic(const struct ingot_engine_options *o, const char *model, FILE *out)
{
    enum {
        N_PROMPT = 40,
        N_NEW = 8,
        HEAD = 16 + 8 * 4,
        ROW = 6 * 4,
        OUTPUT = 2 * 4 + 48,
        NEWS = (4 + 3) * 4
    };
    uint32_t tokens[N_PROMPT];
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_request_options r = greedy_request(tokens, N_PROMPT, N_NEW);
    struct ingot_error error = { 0 };
    const struct engine_loaded *l = engine->inner.loaded;
    uint64_t row = ROW + l->model.config.n_cols * 4ull;
    struct rank_traffic t = { .n_sent = N_NEW,
                              .sent_bytes = N_NEW * (uint64_t)(HEAD + OUTPUT) + (N_PROMPT + N_NEW - 1) * row +
                                            NEWS, // three pages at once
                              .n_received = N_NEW,
                              .received_bytes = N_NEW * (HEAD + 4ull),
                              .most_unsent = 1 };
    (void)model;

    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 20 + i;
    if (!ingot_generate(engine, &r, NULL, NULL, NULL, &error))
        fail_msg("%s", error.message);
    if (l->remote) {
        uint32_t n = ranks_n(l->remote->ranks);
        t = ranks_traffic(l->remote->ranks, 1);
        t.n_received = ranks_traffic(l->remote->ranks, n - 1).n_received;
        t.received_bytes = ranks_traffic(l->remote->ranks, n - 1).received_bytes;
    }
    assert_int_equal(engine->inner.n_steps, N_NEW);
    fprintf(out, "sent %llu steps, %llu bytes, %u at once; received %llu, %llu\n",
            (unsigned long long)t.n_sent, (unsigned long long)t.sent_bytes, t.most_unsent,
            (unsigned long long)t.n_received, (unsigned long long)t.received_bytes);
    ingot_engine_close(engine);
}

// Prompts of several windows that share steps, and one of them again: pages behind a window are let go and
// given to others on the way, and a kept beginning has its own.
static void write_windows(const struct ingot_engine_options *o, const char *model, FILE *out)
{
    enum { N_PROMPT = 120, N_ASKED = 5 };
    static uint32_t tokens[N_ASKED][N_PROMPT];
    struct ingot_engine *engine = open_or_fail(o);
    const struct kv *kv = &engine->inner.kv;
    struct ingot_request *requests[N_ASKED];
    struct ingot_error error = { 0 };
    (void)model;

    assert_true(kv->n_windows > 0 && kv->n_windows < kv->n_pages / 2);
    for (uint32_t i = 0; i < N_ASKED; i++) {
        struct ingot_request_options r = ingot_request_defaults();
        for (uint32_t k = 0; k < N_PROMPT; k++)
            tokens[i][k] = 1 + (k * (7 + i % 4) + i % 4 * 13) % 95;
        r.tokens = tokens[i];
        r.n_tokens = N_PROMPT - i % 4 * 9;
        r.max_tokens = 60;
        r.ignore_eos = true;
        r.sampling.temperature = i % 2 ? 0.9f : 0;
        r.sampling.seed = 7 + i;
        r.n_logprobs = 2;
        r.n_top_logprobs = 3;
        requests[i] = ingot_submit(engine, &r, &error);
        if (!requests[i])
            fail_msg("%s", error.message);
    }
    for (uint32_t i = 0; i < N_ASKED; i++) {
        struct ingot_event event = { 0 };
        while (!event.done && ingot_wait(engine, requests[i], UINT32_MAX))
            while (!event.done && ingot_poll(requests[i], &event))
                write_event(out, &event);
        assert_int_equal(event.result->finish, INGOT_FINISH_LENGTH);
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
}

static const struct rank_work works[] = {
    { "first-border", SHIPPED, "1", 2, 33, 1, 0, write_logits },
    { "last-border", SHIPPED, "7", 2, 33, 1, 0, write_logits },
    { "by-bytes", SHIPPED, NULL, 2, 33, 1, 0, write_logits },
    { "three", SHIPPED, "3,4", 3, 33, 1, 0, write_logits },
    { "states", SOURCE_DIR "/tests/golden/lfm2/model.gguf", NULL, 2, 7, 1, 0, write_logits },
    { "experts", SOURCE_DIR "/tests/golden/mixtral", "1", 2, 7, 1, 0, write_logits },
    { "latent", SOURCE_DIR "/tests/golden/deepseek3/model.gguf", "2", 2, 7, 1, 0, write_logits },
    { "together", SHIPPED, NULL, 2, 16, 4, 256, write_together },
    { "together-three", SHIPPED, NULL, 3, 40, 6, 256, write_together },
    { "kept", SHIPPED, NULL, 2, 16, 2, 256, write_kept },
    { "windows", SOURCE_DIR "/tests/golden/gemma3/model.gguf", NULL, 2, 16, 4, 256, write_windows },
    { "windows-three", SOURCE_DIR "/tests/golden/gemma3/model.gguf", "1,3", 3, 40, 2, 256, write_windows },
    { "windows-experts", SOURCE_DIR "/tests/golden/gptoss/model.gguf", NULL, 2, 16, 4, 256, write_windows },
    { "traffic", SHIPPED, NULL, 2, 64, 1, 256, write_traffic },
    { "traffic-three", SHIPPED, NULL, 3, 64, 1, 256, write_traffic },
};

static const char *golden_of(const struct rank_work *w)
{
    return !strcmp(w->name, "states")    ? "lfm2"
           : !strcmp(w->name, "experts") ? "mixtral"
           : !strcmp(w->name, "latent")  ? "deepseek3"
                                         : "ingot-7m";
}

static struct ingot_engine_options options_of(const struct rank_work *w, bool on_ranks)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = w->model;
    o.device = "cpu";
    o.stages = on_ranks ? w->stages : NULL;
    o.n_threads = 1;
    o.n_batch = w->n_batch;
    o.n_sequences = w->n_sequences;
    o.n_context = w->n_context;
    o.speculate = !strcmp(w->name, "kept") ? INGOT_SPECULATE_ALWAYS : INGOT_SPECULATE_OFF;
    return o;
}

static void run_work(const struct rank_work *w, bool on_ranks, const char *path)
{
    struct ingot_engine_options o = options_of(w, on_ranks);
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    w->run(&o, golden_of(w), out);
    fclose(out);
}

// ---- the test

static char self[4096];

static const char *no_mpi(void)
{
    if (access(BINARY_DIR "/libingot_mpi.so", R_OK) != 0)
        return "this build has no plug-in for MPI: mpicc was not found";
    return system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") == 0 ? NULL
                                                                            : "Open MPI's mpirun is not here";
}

static char *read_whole(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *n = (size_t)st.st_size;
    char *text = malloc(*n + 1);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

static void ranks_compute_what_one_process_does(void **state)
{
    const struct rank_work *w = *state;
    char folder[] = "/tmp/ingot_ranks_XXXXXX", one[64], many[64];
    size_t n_one, n_many;

    if (no_mpi()) {
        print_message("skipped: %s\n", no_mpi());
        skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(many, sizeof many, "%s/many", folder);
    run_work(w, false, one);
    // Leaks are not looked for: MPI has some of its own at its end.
    shell("ASAN_OPTIONS=detect_leaks=0 mpirun --bind-to none --map-by :OVERSUBSCRIBE --allow-run-as-root -n "
          "%u %s %s %s >&2",
          w->n_ranks, self, w->name, many);
    char *a = read_whole(one, &n_one), *b = read_whole(many, &n_many);
    assert_true(n_one > 0);
    if (n_one < 100000 && w->run != write_logits)
        assert_string_equal(a, b);
    assert_int_equal(n_one, n_many);
    assert_memory_equal(a, b, n_one);
    free(a);
    free(b);
    shell("rm -r %s", folder);
}

static int work_as_rank(const char *name, const char *path)
{
    const struct rank_work *w = works;
    struct err err = { 0 };

    while (strcmp(w->name, name))
        w++;
    struct ingot_engine_options o = options_of(w, true);
    remote_want();
    if (strcmp(getenv("OMPI_COMM_WORLD_RANK"), "0")) {
        enum follow_end end = engine_follow(&o, &err);
        if (end != FOLLOW_CLOSED)
            fprintf(stderr, "%s\n", err.message);
        return end;
    }
    run_work(w, true, path);
    return 0;
}

// As a rank that is no ingot: for ends.py.
static int send_rubbish(const char *kind)
{
    static unsigned char bytes[1 << 18];
    static const struct {
        const char *kind;
        uint32_t head[4]; // magic, kind, bytes of the body
        size_t n;
    } messages[] = {
        { "short", { RANK_MAGIC, RANK_HELLO, 0, 0 }, 7 },
        { "magic", { 0x12345678, RANK_HELLO, 16, 0 }, 32 },
        { "kind", { RANK_MAGIC, 99, 16, 0 }, 32 },
        { "long", { RANK_MAGIC, RANK_HELLO, sizeof bytes - 16, 0 }, sizeof bytes },
        { "step", { RANK_MAGIC, RANK_STEP, 1008, 0 }, 1024 },
    };
    struct err err = { 0 };
    const struct mpi_plugin *mpi = plugin_open(&err);
    int rank, n_ranks, from;
    size_t i = 0, n;

    if (!mpi || mpi->start(&rank, &n_ranks) != 0)
        return 1;
    while (strcmp(messages[i].kind, kind))
        i++;
    memcpy(bytes, messages[i].head, sizeof messages[i].head);
    int slot = mpi->send(0, bytes, messages[i].n);
    for (int k = 0; k < 100; k++) { // until mpirun ends it
        mpi->test(slot);
        mpi->probe(&from, &n);
        usleep(100000);
    }
    return 0;
}

int main(int argc, char **argv)
{
    enum { N = sizeof works / sizeof *works };
    struct CMUnitTest tests[N];

    if (argc == 3 && !strcmp(argv[1], "rubbish"))
        return send_rubbish(argv[2]);
    if (argc == 3)
        return work_as_rank(argv[1], argv[2]);
    if (!realpath(argv[0], self))
        return 1;
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){ works[i].name, ranks_compute_what_one_process_does, NULL, NULL,
                                        (void *)(uintptr_t)&works[i] };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
