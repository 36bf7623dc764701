// test_serve_roles.c - one server reads prompts, another answers: the same tokens as one server alone gives,
// and whatever the prefill server does, from silence to lies, costs the request nothing but time.
#include <pthread.h>
#include "server/client.h"

#define KEY    "Authorization: Bearer pk\r\n"
#define NOBODY "http://127.0.0.1:1"
#define LLAMA3 SOURCE_DIR "/tests/golden/llama3/model.gguf"
#define LFM2   SOURCE_DIR "/tests/golden/lfm2/model.gguf"
enum { LENGTH = 150, LEAST = 64, PAGES = 144 };

static struct served prefill, alone;

static int start_servers(void **state)
{
    static const char *const one[] = { "--role", "prefill", "--api-key", "pk", NULL }, *const other[] = {
        NULL
    };

    (void)state;
    prefill = serve_start(one);
    alone = serve_start(other);
    return 0;
}

static int stop_servers(void **state)
{
    (void)state;
    return serve_stop(&prefill) == 0 && serve_stop(&alone) == 0 ? 0 : -1;
}

// A decode server that asks there. more: NULL-terminated.
static struct served decode_start(int port, const char *key, const char *const *more)
{
    char url[64];
    const char *args[24] = { "--role", "decode", "--prefill", url, "--prefill-least", "64", "--drain", "1" };
    int n = 8;

    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    if (key) {
        args[n++] = "--prefill-key";
        args[n++] = key;
    }
    while (more && *more && n < 23)
        args[n++] = *more++;
    return serve_start(args);
}

static struct buf body_of(uint32_t seed, uint32_t n, const char *more)
{
    struct buf text = { 0 };

    buf_printf(&text, "{%s\"max_tokens\":12,\"ignore_eos\":true%s,\"prompt\":[",
               strstr(more, "temperature") ? "" : "\"temperature\":0,", more);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&text, "%s%u", i ? "," : "", (i * 7919 + seed * 31 + 5) % 131);
    buf_text(&text, "]}");
    return text;
}

static json_t *ask(int port, const char *path, const char *body)
{
    int status;
    json_t *reply = http_json(port, path, body, &status);

    if (status != 200)
        fail_msg("%d: %s", status, json_dumps(reply, JSON_COMPACT));
    return reply;
}

static json_t *timings_of(json_t *reply)
{
    return json_object_get(reply, "timings");
}

static json_int_t number(json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static void assert_same_choices(json_t *a, json_t *b)
{
    json_t *left = json_object_get(a, "choices"), *right = json_object_get(b, "choices");

    assert_true(json_array_size(left) > 0);
    if (!json_equal(left, right))
        fail_msg("%s\n%s", json_dumps(left, JSON_COMPACT), json_dumps(right, JSON_COMPACT));
}

// ---- two servers

static void the_same_tokens_come_as_from_one(void **state)
{
    static const char *const forms[] = { "", ",\"logprobs\":3", ",\"n\":3,\"temperature\":1,\"seed\":7" };
    struct served decode = decode_start(prefill.port, "pk", NULL);

    (void)state;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct buf body = body_of(i, LENGTH, forms[i]);
        json_t *got = ask(decode.port, "/v1/completions", body.at),
               *wanted = ask(alone.port, "/v1/completions", body.at);
        assert_same_choices(got, wanted);
        assert_int_equal(number(timings_of(got), "fetched_n"), PAGES);
        assert_int_equal(number(timings_of(got), "cache_n"), PAGES);
        assert_true(json_real_value(json_object_get(timings_of(got), "fetch_ms")) > 0);
        assert_null(json_object_get(timings_of(wanted), "fetched_n"));
        json_decref(got);
        got = ask(decode.port, "/v1/completions", body.at); // kept now
        assert_same_choices(got, wanted);
        assert_null(json_object_get(timings_of(got), "fetched_n"));
        json_decref(got);
        json_decref(wanted);
        buf_free(&body);
    }
    assert_int_equal((int)metric(decode.port, "ingot:prefill_fetches_total"), 3);
    assert_int_equal((int)metric(decode.port, "ingot:prefill_failures_total"), 0);
    assert_int_equal((int)metric(decode.port, "ingot:prefill_tokens_total"), 3 * PAGES);
    assert_int_equal(serve_stop(&decode), 0);
}

static void short_prompts_are_read_here(void **state)
{
    struct served decode = decode_start(prefill.port, "pk", NULL);
    struct buf body = body_of(4, LEAST, "");
    json_t *got = ask(decode.port, "/v1/completions", body.at);

    (void)state;
    assert_null(json_object_get(timings_of(got), "fetched_n"));
    assert_int_equal((int)metric(decode.port, "ingot:prefill_fetches_total"), 0);
    json_decref(got);
    buf_free(&body);
    assert_int_equal(serve_stop(&decode), 0);
}

static void a_conversation_fetches_what_is_new(void **state)
{
    struct served decode = decode_start(prefill.port, "pk", NULL);
    struct buf first = body_of(5, LENGTH, ""), second = body_of(5, LENGTH + 2 * LEAST, "");
    json_t *got;

    (void)state;
    json_decref(ask(decode.port, "/v1/completions", first.at));
    got = ask(decode.port, "/v1/completions", second.at);
    assert_int_equal(number(timings_of(got), "fetched_n"), 2 * LEAST);
    assert_int_equal(number(timings_of(got), "cache_n"), PAGES + 2 * LEAST);
    json_t *wanted = ask(alone.port, "/v1/completions", second.at);
    assert_same_choices(got, wanted);
    json_decref(got);
    json_decref(wanted);
    buf_free(&first);
    buf_free(&second);
    assert_int_equal(serve_stop(&decode), 0);
}

static void streams_and_chats_fetch_too(void **state)
{
    struct served decode = decode_start(prefill.port, "pk", NULL);
    struct buf body = body_of(6, LENGTH, ",\"stream\":true"), text = { 0 };
    struct response r = http_post(decode.port, "/v1/completions", body.at);

    (void)state;
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "[DONE]"));
    response_free(&r);
    buf_text(&text, "{\"temperature\":0,\"max_tokens\":8,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 60; i++)
        buf_printf(&text, "Say %d. ", i);
    buf_text(&text, "\"}]}");
    json_t *got = ask(decode.port, "/v1/chat/completions", text.at),
           *wanted = ask(alone.port, "/v1/chat/completions", text.at);
    assert_same_choices(got, wanted);
    assert_true(number(timings_of(got), "fetched_n") > LEAST);
    assert_int_equal((int)metric(decode.port, "ingot:prefill_fetches_total"), 2);
    json_decref(got);
    json_decref(wanted);
    buf_free(&body);
    buf_free(&text);
    assert_int_equal(serve_stop(&decode), 0);
}

// Pages of the model's states come with the others.
static void models_with_states_fetch_them(void **state)
{
    static const char *const one[] = { "-m", LFM2, "--role", "prefill", NULL }, *const more[] = { "-m", LFM2,
                                                                                                  NULL };
    struct served reader = serve_start(one), decode = decode_start(reader.port, NULL, more);
    struct buf body = body_of(7, LENGTH, "");
    json_t *got = ask(decode.port, "/v1/completions", body.at);

    (void)state;
    assert_int_equal(number(timings_of(got), "fetched_n"), 128); // states are kept at multiples of 64 tokens
    assert_int_equal(number(timings_of(got), "cache_n"), 128);
    json_decref(got);
    buf_free(&body);
    assert_int_equal(serve_stop(&decode), 0);
    assert_int_equal(serve_stop(&reader), 0);
}

// ---- a prefill server that is none, or another one's

// Answers although `port` does not help. `why` is in the log.
static void check_falls_back(int port, const char *key, const char *const *more, const char *why)
{
    struct served decode = decode_start(port, key, more);
    struct buf body = body_of(9, LENGTH, ""), log = { 0 };
    char block[4096];
    json_t *got = ask(decode.port, "/v1/completions", body.at);

    if (!more) {
        json_t *wanted = ask(alone.port, "/v1/completions", body.at);
        assert_same_choices(got, wanted);
        json_decref(wanted);
    }
    assert_int_equal((int)metric(decode.port, "ingot:prefill_fetches_total"), 1);
    assert_int_equal((int)metric(decode.port, "ingot:prefill_failures_total"), 1);
    for (ssize_t n; (n = read(decode.log, block, sizeof block)) > 0;)
        buf_append(&log, block, (size_t)n);
    if (!strstr(log.at, "is read here") || !strstr(log.at, why))
        fail_msg("want \"%s\" in:\n%s", why, log.at);
    json_decref(got);
    buf_free(&body);
    buf_free(&log);
    assert_int_equal(serve_stop(&decode), 0);
}

static void what_cannot_help_is_named(void **state)
{
    static const char *const other_model[] = { "-m", LLAMA3, NULL },
                             *const other_type[] = { "-ctk", "f32", "-ctv", "f32", NULL },
                             *const exact[] = { "--exact", "-ctk", "f16", "-ctv", "f16", NULL };

    (void)state;
    check_falls_back(1, NULL, NULL, "onnect"); // nobody listens there
    check_falls_back(prefill.port, NULL, NULL, "status 401: a valid key is needed");
    check_falls_back(prefill.port, "wrong", NULL, "status 401");
    check_falls_back(alone.port, NULL, NULL,
                     "status 404: this server gives no pages; start it with --role prefill");
    check_falls_back(prefill.port, "pk", other_model,
                     "the model (digest of its weights) of the two servers differ");
    check_falls_back(prefill.port, "pk", other_type, "the type of K and V of the two servers differ");
    check_falls_back(prefill.port, "pk", exact, "of the two servers differ");
}

// ---- a server that lies

enum lie {
    LIE_CLOSE,
    LIE_GARBAGE,
    LIE_ENDLESS,
    LIE_REDIRECT,
    LIE_CUT,
    LIE_SHORT,
    LIE_CHANGED,
    LIE_EMPTY,
    LIE_TWICE,
    LIE_SILENT,
    LIE_RELAY
};

struct liar {
    int listens, port;
    enum lie lie;
    struct buf question; // that it was asked
    pthread_t thread;
};

static void read_question(int fd, struct buf *question)
{
    char block[4096];
    struct buf all = { 0 };
    size_t wanted = SIZE_MAX;

    for (ssize_t n; all.n < wanted && (n = recv(fd, block, sizeof block, 0)) > 0;) {
        buf_append(&all, block, (size_t)n);
        const char *end = strstr(all.at, "\r\n\r\n"), *length = strstr(all.at, "Content-Length: ");
        if (end && length)
            wanted = (size_t)(end + 4 - all.at) + number_in(length + 16, 10);
    }
    const char *end = all.n ? strstr(all.at, "\r\n\r\n") : NULL;
    if (end)
        buf_text(question, end + 4);
    buf_free(&all);
}

// The pages that the true server gives.
static struct buf true_pages(const char *question)
{
    struct response r = http_with(prefill.port, "/prefill", KEY, question);
    struct buf pages = { 0 };

    assert_int_equal(r.status, 200);
    response_unchunk(&r, &pages);
    response_free(&r);
    return pages;
}

static void send_pages(int fd, const struct liar *l)
{
    struct buf pages = true_pages(l->question.at), reply = { 0 };
    size_t n = pages.n;

    if (l->lie == LIE_CHANGED)
        pages.at[n / 2] = (char)(pages.at[n / 2] ^ 1);
    if (l->lie == LIE_TWICE)
        assert_true(buf_reserve(&pages, n) && buf_append(&pages, pages.at, n));
    if (l->lie == LIE_SHORT)
        pages.n = n = n / 2 + 7;
    buf_printf(&reply, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", pages.n);
    buf_append(&reply, pages.at, l->lie == LIE_CUT ? n / 2 : pages.n);
    http_send(fd, reply.at, reply.n);
    buf_free(&pages);
    buf_free(&reply);
}

static void send_endless(int fd)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n", zeros[4096];
    ssize_t n = send(fd, head, strlen(head), MSG_NOSIGNAL);

    while (n > 0) // until the other side has had enough
        n = send(fd, zeros, sizeof zeros, MSG_NOSIGNAL);
}

static void *lie_once(void *arg)
{
    static const char garbage[] = "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n",
                      redirect[] =
                          "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                      empty[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    struct liar *l = arg;
    int fd = accept(l->listens, NULL, NULL);
    char byte;

    if (fd < 0)
        return NULL;
    read_question(fd, &l->question);
    if (l->lie == LIE_GARBAGE) {
        http_send(fd, garbage, strlen(garbage));
        for (int i = 0; i < 300; i++)
            http_send(fd, "\xff", 1);
    } else if (l->lie == LIE_ENDLESS) {
        send_endless(fd);
    } else if (l->lie == LIE_REDIRECT) {
        http_send(fd, redirect, strlen(redirect));
    } else if (l->lie == LIE_EMPTY) {
        http_send(fd, empty, strlen(empty));
    } else if (l->lie == LIE_SILENT) {
        while (recv(fd, &byte, 1, 0) > 0) // until it is left
            ;
    } else if (l->lie != LIE_CLOSE) {
        send_pages(fd, l);
    }
    close(fd);
    return NULL;
}

static void liar_start(struct liar *l, enum lie lie)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;

    *l = (struct liar){ .listens = socket(AF_INET, SOCK_STREAM, 0), .lie = lie };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fcntl(l->listens, F_SETFD, FD_CLOEXEC);
    assert_int_equal(bind(l->listens, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(l->listens, 4), 0);
    assert_int_equal(getsockname(l->listens, (struct sockaddr *)&at, &n), 0);
    l->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&l->thread, NULL, lie_once, l), 0);
}

static void liar_end(struct liar *l)
{
    shutdown(l->listens, SHUT_RDWR);
    pthread_join(l->thread, NULL);
    close(l->listens);
    buf_free(&l->question);
}

static void lies_cost_time_alone(void **state)
{
    static const struct {
        enum lie lie;
        const char *why;
    } lies[] = {
        { LIE_CLOSE, "mpty reply" },
        { LIE_GARBAGE, "no file of the next one" },
        { LIE_ENDLESS, "no file" },
        { LIE_REDIRECT, "status 302" },
        { LIE_EMPTY, "it sent no page" },
        { LIE_CUT, "" },
        { LIE_SHORT, "end within a file" },
        { LIE_CHANGED, "is damaged" },
        { LIE_TWICE, "no file of the next one" },
    };
    struct liar l;

    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        liar_start(&l, lies[i].lie);
        check_falls_back(l.port, NULL, NULL, lies[i].why);
        liar_end(&l);
    }
}

static void silence_ends(void **state)
{
    static const char *const more[] = { "--prefill-timeout", "1", NULL };
    struct liar l;

    (void)state;
    liar_start(&l, LIE_SILENT);
    check_falls_back(l.port, NULL, more, "is read here");
    liar_end(&l);
}

// ---- clients that leave, and the end

static void wait_until_asked(const struct served *decode)
{
    for (int i = 0; i < 3000 && metric(decode->port, "vllm:num_requests_running") < 1; i++)
        poll(NULL, 0, 10);
}

static void a_client_that_leaves_ends_the_fetch(void **state)
{
    struct liar l;
    struct buf body = body_of(10, LENGTH, ""), other = body_of(11, 20, "");

    (void)state;
    liar_start(&l, LIE_SILENT);
    struct served decode = decode_start(l.port, NULL, NULL);
    int fd = http_begin(decode.port, "/v1/completions", "", body.at);
    wait_until_asked(&decode);
    json_decref(ask(decode.port, "/v1/completions", other.at)); // goes on meanwhile
    close(fd);
    for (int i = 0; i < 3000 && metric(decode.port, "vllm:num_requests_running") > 0; i++)
        poll(NULL, 0, 10);
    assert_int_equal((int)metric(decode.port, "vllm:num_requests_running"), 0);
    assert_int_equal((int)metric(decode.port, "ingot:prefill_failures_total"), 0);
    assert_int_equal(serve_stop(&decode), 0);
    liar_end(&l);
    buf_free(&body);
    buf_free(&other);
}

static void the_end_waits_for_no_fetch(void **state)
{
    struct liar l;
    struct response r = { 0 };
    struct buf body = body_of(12, LENGTH, "");

    (void)state;
    liar_start(&l, LIE_SILENT);
    struct served decode = decode_start(l.port, NULL, NULL);
    int fd = http_begin(decode.port, "/v1/completions", "", body.at);
    wait_until_asked(&decode);
    assert_int_equal(serve_stop(&decode), 0);
    http_read(fd, &r);
    assert_int_equal(r.status, 503);
    response_free(&r);
    liar_end(&l);
    buf_free(&body);
}

static void a_deadline_holds_during_a_fetch(void **state)
{
    struct liar l;
    struct buf body = body_of(13, LENGTH, ",\"deadline_ms\":300");

    (void)state;
    liar_start(&l, LIE_SILENT);
    struct served decode = decode_start(l.port, NULL, NULL);
    struct response r = http_post(decode.port, "/v1/completions", body.at);
    assert_int_equal(r.status, 504);
    response_free(&r);
    assert_int_equal(serve_stop(&decode), 0);
    liar_end(&l);
    buf_free(&body);
}

// ---- questions that no decode server asks

static int status_of(json_t *question)
{
    char *text = json_dumps(question, JSON_COMPACT);
    struct response r = http_with(prefill.port, "/prefill", KEY, text);
    int status = r.status;

    free(text);
    response_free(&r);
    return status;
}

static void other_questions_are_refused(void **state)
{
    static const char *const texts[] = { "", "{", "[]", "{}", "{\"tokens\":[1]}", "null" };
    static const char *const names[] = { "version",    "weights", "cache_types", "devices", "identity",
                                         "page_bytes", "n_known", "cache_salt",  "tokens",  "cpu_features" };
    struct liar l;
    struct buf body = body_of(14, LENGTH, "");

    (void)state;
    liar_start(&l, LIE_RELAY);
    struct served decode = decode_start(l.port, NULL, NULL);
    json_t *got = ask(decode.port, "/v1/completions", body.at);
    assert_int_equal(number(timings_of(got), "fetched_n"), PAGES); // through the one between
    json_decref(got);
    assert_int_equal(serve_stop(&decode), 0);
    json_t *question = json_loads(l.question.at, 0, NULL);
    assert_int_equal(status_of(question), 200);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct response r = http_with(prefill.port, "/prefill", KEY, texts[i]);
        assert_int_equal(r.status, 400);
        response_free(&r);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *bad = json_copy(question);
        json_object_set_new(bad, names[i], json_string("x"));
        assert_int_equal(status_of(bad), 400);
        json_object_del(bad, names[i]);
        assert_int_equal(status_of(bad), 400);
        json_object_set_new(bad, names[i], json_integer(-1));
        assert_int_equal(status_of(bad), 400);
        json_decref(bad);
    }
    json_object_set_new(question, "n_known", json_integer(4294967295)); // all of them: nothing is sent
    assert_int_equal(status_of(question), 200);
    json_array_set_new(json_object_get(question, "tokens"), 3, json_integer(4294967295));
    assert_int_equal(status_of(question), 400);
    for (int i = 0; i < 5000; i++)
        json_array_append_new(json_object_get(question, "tokens"), json_integer(1));
    json_array_set_new(json_object_get(question, "tokens"), 3, json_integer(1));
    assert_int_equal(status_of(question), 400); // more than the context
    struct response r = http_post(prefill.port, "/prefill", l.question.at);
    assert_int_equal(r.status, 401);
    response_free(&r);
    json_decref(question);
    liar_end(&l);
    buf_free(&body);
}

// Slow, and gone in the middle.
static void a_decode_server_that_leaves_is_forgotten(void **state)
{
    struct liar l;
    struct buf body = body_of(15, LENGTH, "");

    (void)state;
    liar_start(&l, LIE_RELAY);
    struct served decode = decode_start(l.port, NULL, NULL);
    json_decref(ask(decode.port, "/v1/completions", body.at));
    assert_int_equal(serve_stop(&decode), 0);
    for (int i = 0; i < 40; i++)
        close(http_begin(prefill.port, "/prefill", KEY, l.question.at));
    int status = 429; // until the sixteen places are free again
    for (int i = 0; i < 3000 && status == 429; i++, poll(NULL, 0, 10)) {
        struct response r = http_with(prefill.port, "/prefill", KEY, l.question.at);
        status = r.status;
        response_free(&r);
    }
    assert_int_equal(status, 200);
    liar_end(&l);
    buf_free(&body);
}

// ---- options

static void check_refused(const char *const *args, const char *why, int wanted)
{
    const char *argv[16] = { INGOT_PROGRAM, "serve", "--port", "0" };
    char text[4096];
    int ends[2], n = 4, status;
    size_t used = 0;

    while (*args)
        argv[n++] = *args++;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = serve_spawn(argv, ends[1]);
    close(ends[1]);
    for (ssize_t got;
         used + 1 < sizeof text && (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
    if (!strstr(text, why))
        fail_msg("want \"%s\" in: %s", why, text);
}

static void roles_that_cannot_be_are_refused(void **state)
{
    static const char *const alone_args[] = { "--role", "decode", NULL },
                             *const no_role[] = { "--prefill", NOBODY, NULL },
                             *const no_url[] = { "--role", "decode", "--prefill", "127.0.0.1:1", NULL },
                             *const no_cache[] = { "--role", "prefill", "--no-cache-prompt", NULL };

    (void)state;
    check_refused(alone_args, "--role decode needs --prefill", 2);
    check_refused(no_role, "--prefill is for --role decode", 2);
    check_refused(no_url, "want http://HOST:PORT", 2);
    check_refused(no_cache, "this engine keeps no pages of prompts", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_come_as_from_one),
        cmocka_unit_test(short_prompts_are_read_here),
        cmocka_unit_test(a_conversation_fetches_what_is_new),
        cmocka_unit_test(streams_and_chats_fetch_too),
        cmocka_unit_test(models_with_states_fetch_them),
        cmocka_unit_test(what_cannot_help_is_named),
        cmocka_unit_test(lies_cost_time_alone),
        cmocka_unit_test(silence_ends),
        cmocka_unit_test(a_client_that_leaves_ends_the_fetch),
        cmocka_unit_test(the_end_waits_for_no_fetch),
        cmocka_unit_test(a_deadline_holds_during_a_fetch),
        cmocka_unit_test(other_questions_are_refused),
        cmocka_unit_test(a_decode_server_that_leaves_is_forgotten),
        cmocka_unit_test(roles_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
