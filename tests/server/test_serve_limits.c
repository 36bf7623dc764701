// test_serve_limits.c - the limits that docs/server.md states, from outside: heads, connections, values of a
// body and the memory they take, texts that cannot fit, and that nobody waits while a long text is made into
// tokens.
#include <sys/resource.h>
#include "server/client.h"

enum { MIB = 1 << 20, FILES = 256, OTHER_FILES = 64 };
#define CHAT "/v1/chat/completions"
#define ASK  "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":1"

static struct served server;

static json_t *post(const char *path, const struct buf *body, int *status)
{
    json_t *reply = http_json(server.port, path, body->at, status);
    serve_skip_log(&server);
    return reply;
}

static const char *message_of(json_t *reply)
{
    const char *text = json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
    return text ? text : "";
}

static void repeat(struct buf *b, const char *text, size_t n_bytes)
{
    for (size_t end = b->n + n_bytes; b->n < end;)
        buf_text(b, text);
}

static int status_of_head(size_t n_bytes)
{
    struct buf text = { 0 };

    buf_text(&text, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: ");
    repeat(&text, "y", n_bytes - text.n - 4);
    buf_text(&text, "\r\n\r\n");
    assert_int_equal(text.n, n_bytes);
    struct response r = http_raw(server.port, text.at, text.n);
    int status = r.status;
    response_free(&r);
    buf_free(&text);
    return status;
}

static void a_head_has_32_kib(void **state)
{
    (void)state;
    assert_int_equal(status_of_head(32 << 10), 200);
    assert_int_equal(status_of_head((32 << 10) + 1), 431);
    assert_int_equal(status_of_head(65 << 10), 431);
}

// ---- bodies

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) // these keep what was freed
// VmRSS or VmHWM, in bytes.
static size_t memory_of(const struct served *s, const char *what)
{
    char path[64], line[200];
    size_t kib = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)s->pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, what, strlen(what)))
            kib = number_in(line + strlen(what) + strspn(line + strlen(what), ": \t"), 10);
    fclose(file);
    return kib << 10;
}
#else
static size_t memory_of(const struct served *s, const char *what)
{
    (void)s;
    (void)what;
    return 0;
}
#endif

static void objects(struct buf *body, const char *before, const char *after)
{
    buf_text(body, before);
    repeat(body, "{},", 7 * MIB);
    buf_text(body, "{}");
    buf_text(body, after);
}

static void an_unknown_field_costs_no_more_than_its_text(void **state)
{
    struct buf body = { 0 };
    int status;

    (void)state;
    struct buf small = { 0 };
    buf_text(&small, ASK "}");
    json_decref(post(CHAT, &small, &status));
    size_t before = memory_of(&server, "VmRSS");
    objects(&body, ASK ",\"nobody_knows\":[", "]}");
    for (int i = 0; i < 3; i++) {
        json_t *reply = post(CHAT, &body, &status);
        assert_int_equal(status, 200);
        assert_int_equal(json_array_size(json_object_get(reply, "warnings")), 1);
        json_decref(reply);
    }
    assert_true(memory_of(&server, "VmHWM") < before + 64 * MIB);
    assert_true(memory_of(&server, "VmRSS") < before + 16 * MIB);
    buf_free(&body);
    buf_free(&small);
}

static void too_many_values_are_refused_before_they_are_built(void **state)
{
    static const char *const befores[] = { "{\"messages\":[", "{\"tools\":[", "{\"metadata\":[" };
    size_t before = memory_of(&server, "VmRSS");
    int status;

    (void)state;
    for (size_t i = 0; i < sizeof befores / sizeof *befores; i++) {
        struct buf body = { 0 };
        objects(&body, befores[i], "]}");
        json_t *reply = post(CHAT, &body, &status);
        assert_int_equal(status, 400);
        assert_non_null(strstr(message_of(reply), "values"));
        json_decref(reply);
        buf_free(&body);
    }
    struct buf tokens = { 0 };
    buf_text(&tokens, "{\"tokens\":[");
    repeat(&tokens, "1,", 2 * MIB);
    buf_text(&tokens, "1]}");
    json_decref(post("/detokenize", &tokens, &status));
    assert_int_equal(status, 400);
    buf_free(&tokens);
    assert_true(memory_of(&server, "VmRSS") < before + 16 * MIB);
}

// Texts and names full of what ends a value elsewhere.
static void what_is_left_out_ends_where_it_ends(void **state)
{
    static const char *const odd[] = {
        ASK ",\"x\":[\"]\",\"\\\"]\",{\"}\":\"\\\\\"}],\"n\":2}",
        ASK ",\"x\":{\"n\":7,\"messages\":[]},\"n\":2,\"y\":[[],[{}]]}",
        ("{\"x\":[],\"max_tok\\u0065ns\":1,\"m\\u0065ssages\":[{\"role\":\"user\",\"content\":\"}],[{\"}],"
         "\"n\":2}"),
    };
    int status;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct buf body = { 0 };
        buf_text(&body, odd[i]);
        json_t *reply = post(CHAT, &body, &status);
        if (status != 200 || json_array_size(json_object_get(reply, "choices")) != 2)
            fail_msg("%s: %d %s", odd[i], status, message_of(reply));
        json_decref(reply);
        buf_free(&body);
    }
}

static void a_text_that_cannot_fit_is_refused_by_its_bytes(void **state)
{
    struct buf body = { 0 };
    int status;

    (void)state;
    buf_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    repeat(&body, "word ", 7 * MIB);
    buf_text(&body, "\"}]}");
    json_t *reply = post(CHAT, &body, &status);
    assert_int_equal(status, 400);
    assert_non_null(strstr(message_of(reply), "bytes"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(reply, "error"), "code")),
                        "context_length_exceeded");
    json_decref(reply);
    buf_free(&body);
}

static void nobody_waits_for_anothers_tokens(void **state)
{
    struct buf body = { 0 };
    int fds[4];

    (void)state;
    buf_text(&body, "{\"content\":\"");
    repeat(&body, "some words that are no code, 12345; ", 7 * MIB);
    buf_text(&body, "\"}");
    for (int i = 0; i < 4; i++) // more than threads that make tokens
        fds[i] = http_begin(server.port, "/tokenize", "", body.at);
    for (int i = 0; i < 8; i++) // every I/O thread is asked
        assert_int_equal(http_status(server.port, "/health"), 200);
    struct pollfd last = { .fd = fds[3], .events = POLLIN };
    assert_int_equal(poll(&last, 1, 0), 0);
    for (int i = 0; i < 4; i++) {
        struct response r = { 0 };
        http_read(fds[i], &r);
        assert_int_equal(r.status, 200);
        response_free(&r);
    }
    buf_free(&body);
}

// ---- connections and addresses

static int n_open(const int *fds, int n)
{
    int n_left = 0;

    for (int i = 0; i < n; i++) {
        struct pollfd p = { .fd = fds[i], .events = POLLIN };
        n_left += poll(&p, 1, 0) == 0; // one that was closed can be read
    }
    return n_left;
}

// In a process of its own, whose limit of files is the server's too.
static int open_too_many(void)
{
    enum { N = FILES - 16 };
    static const char *const args[] = { NULL };
    const struct rlimit few = { FILES, FILES };
    int fds[N];

    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        return 1;
    struct served s = serve_start(args);
    for (int i = 0; i < N; i++)
        fds[i] = http_connect(s.port);
    for (int i = 0; i < 1000 && n_open(fds, N) > FILES - OTHER_FILES; i++)
        poll(NULL, 0, 10);
    int n_left = n_open(fds, N);
    close(fds[N - 1]);
    bool answers = http_status(s.port, "/health") == 200;
    return answers && n_left <= FILES - OTHER_FILES && n_left > FILES / 2 && serve_stop(&s) == 0 ? 0 : 1;
}

static void connections_are_as_many_as_files_allow(void **state)
{
    pid_t child = fork();
    int status;

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        _exit(open_too_many());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool warns_of_strangers(const char *const *argv)
{
    char text[8192] = "";
    size_t n = 0;
    int ends[2], status;

    assert_int_equal(pipe(ends), 0);
    pid_t pid = serve_spawn(argv, ends[1]);
    close(ends[1]);
    while (!strstr(text, "listening on")) {
        ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        text[n] = 0;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(ends[0]);
    return strstr(text, "without --api-key");
}

static void a_server_for_everybody_warns_without_a_key(void **state)
{
    const char *const open[] = { INGOT_PROGRAM, "serve", "--port", "0", "--host", "0.0.0.0", NULL };
    const char *const keyed[] = { INGOT_PROGRAM, "serve",     "--port", "0", "--host",
                                  "0.0.0.0",     "--api-key", "k",      NULL };
    const char *const local[] = { INGOT_PROGRAM, "serve", "--port", "0", NULL };

    (void)state;
    assert_true(warns_of_strangers(open));
    assert_false(warns_of_strangers(keyed));
    assert_false(warns_of_strangers(local));
}

static int start(void **state)
{
    static const char *const args[] = { NULL };
    (void)state;
    server = serve_start(args);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return serve_stop(&server) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_has_32_kib),
        cmocka_unit_test(an_unknown_field_costs_no_more_than_its_text),
        cmocka_unit_test(too_many_values_are_refused_before_they_are_built),
        cmocka_unit_test(what_is_left_out_ends_where_it_ends),
        cmocka_unit_test(a_text_that_cannot_fit_is_refused_by_its_bytes),
        cmocka_unit_test(nobody_waits_for_anothers_tokens),
        cmocka_unit_test(connections_are_as_many_as_files_allow),
        cmocka_unit_test(a_server_for_everybody_warns_without_a_key),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
