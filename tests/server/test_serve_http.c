// test_serve_http.c - the server as a hostile or unlucky network sees it: forged requests, keys, clients that
// leave or stall, a full queue, a stop in the middle of an answer.
#include <dirent.h>
#include "server/client.h"
#include "server/http/auth.h"

#define CHAT "/v1/chat/completions"
#define LONG                                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Count.\"}],\"ignore_eos\":true,\"temperature\":1.5," \
    "\"max_tokens\":950"
#define SLOW        "-dev", "cpu:plain" // the plain loops: an answer of LONG takes seconds
#define N_OF(array) (sizeof(array) / sizeof *(array))

static void keys_and_names_are_compared_whole(void **state)
{
    char room[64];

    (void)state;
    assert_true(auth_same_key(STR("secret"), "secret"));
    assert_false(auth_same_key(STR("secre"), "secret"));
    assert_false(auth_same_key(STR("secretsecret"), "secret"));
    assert_false(auth_same_key(STR(""), "secret"));
    assert_false(auth_same_key(STR(""), ""));
    assert_true(str_is(auth_key_of("Bearer abc", NULL, room, sizeof room), "abc"));
    assert_true(str_is(auth_key_of("bearer   abc", "x", room, sizeof room), "abc"));
    assert_true(str_is(auth_key_of(NULL, "x", room, sizeof room), "x"));
    assert_true(str_is(auth_key_of("Basic dXNlcjprZXk=", NULL, room, sizeof room), "key")); // user:key
    assert_int_equal(auth_key_of("Basic !!!!", NULL, room, sizeof room).n, 0);
    assert_int_equal(auth_key_of("Basic dXNlcg==", NULL, room, sizeof room).n, 0); // no colon
    assert_int_equal(auth_key_of("Basic dXNlcjprZXk=", NULL, room, 4).n, 0);
}

static void only_loopback_is_loopback(void **state)
{
    static const char *const good[] = { "localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]",
                                        "[::1]:65535" };
    static const char *const bad[] = { "",
                                       "evil.com",
                                       "localhost.evil.com",
                                       "127.0.0.1.evil.com",
                                       "localhost:80:80",
                                       "localhost:",
                                       "localhost:8a",
                                       "[::1",
                                       "a/b?c#d",
                                       "localhost/v1",
                                       "127.0.0.1:123456",
                                       "localhost@evil" };

    (void)state;
    for (size_t i = 0; i < N_OF(good); i++)
        assert_true(auth_host_is_loopback(str_from(good[i])));
    for (size_t i = 0; i < N_OF(bad); i++)
        if (auth_host_is_loopback(str_from(bad[i])))
            fail_msg("'%s' counts as loopback", bad[i]);
    assert_true(auth_origin_is_host(STR("http://localhost:80"), STR("localhost:80")));
    assert_false(auth_origin_is_host(STR("http://localhost:80"), STR("localhost:81")));
    assert_false(auth_origin_is_host(STR("null"), STR("localhost")));
    assert_true(auth_length_is_plain(STR("12")));
    assert_false(auth_length_is_plain(STR("+12")));
    assert_false(auth_length_is_plain(STR("")));
    assert_false(auth_length_is_plain(STR("18446744073709551616")));
}

static int raw_status(const struct served *s, const char *bytes)
{
    struct response r = http_raw(s->port, bytes, strlen(bytes));
    int status = r.status;
    response_free(&r);
    serve_skip_log(s);
    return status;
}

static void forged_requests_are_refused(void **state)
{
#define POST "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    static const char *const cases[] = {
        POST "Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{\"content\":\"a\"}\r\n0\r\n\r\n",
        POST "Content-Length: 15\r\nContent-Length: 15\r\n\r\n{\"content\":\"a\"}",
        POST "Content-Length: +15\r\n\r\n{\"content\":\"a\"}",
        POST "Content-Length: -1\r\n\r\n",
        POST "Content-Length: 5,5\r\n\r\n{   }",
        POST "Content-Length: 0x5\r\n\r\n{   }",
        POST "Content-Length: 18446744073709551616\r\n\r\n{}",
        POST "Content-Length: 9000000000\r\n\r\n{}",
        POST "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n{}\r\n0\r\n\r\n",
        POST "Transfer-Encoding: gzip\r\n\r\n{}",
        POST "Host: localhost\r\nContent-Length: 15\r\n\r\n{\"content\":\"a\"}",
        "GET /v1/models HTTP/1.1\r\nHost: a/b?c#d\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET http://localhost/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET //v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/../v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/%6dodels HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/models/%2e%2e HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\x01z\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nConnection: close\r\n\r\n",
        "BREW / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\n"
         "Connection: close\r\n\r\n"),
    };
    struct served *s = *state;

    for (size_t i = 0; i < N_OF(cases); i++) {
        int status = raw_status(s, cases[i]);
        if (status != 0 && (status < 400 || status >= 500))
            fail_msg("status %d: %s", status, cases[i]);
    }
    assert_int_equal(raw_status(s, POST "Content-Length: 15\r\n\r\n{\"content\":\"a\"}"), 200);
    assert_int_equal(
        raw_status(s, POST "Transfer-Encoding: chunked\r\n\r\nf\r\n{\"content\":\"a\"}\r\n0\r\n\r\n"), 200);
    assert_int_equal(raw_status(s, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                                   "http://localhost\r\nConnection: close\r\n\r\n"),
                     200);
}

// Before the body is read, with what would be taken (RFC 9110, 15.5.16).
static void coded_bodies_are_refused(void **state)
{
    struct served *s = *state;
    static const char gzip[] = POST "Content-Encoding: gzip\r\nContent-Length: 15\r\n\r\n";
    struct response r = http_raw(s->port, gzip, strlen(gzip));

    assert_int_equal(r.status, 415);
    assert_non_null(strstr(r.all.at, "\r\nAccept-Encoding: identity\r\n"));
    assert_non_null(strstr(r.all.at, "Content-Encoding is \\\"gzip\\\"; want a body as it is"));
    response_free(&r);
    serve_skip_log(s);
    assert_int_equal(raw_status(s, POST "Content-Encoding: identity\r\nContent-Length: 15\r\n\r\n"
                                        "{\"content\":\"a\"}"),
                     200);
}

static void another_method_is_told_which(void **state)
{
    struct served *s = *state;
    static const char put[] = "PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct response r = http_raw(s->port, put, strlen(put));

    assert_int_equal(r.status, 405);
    assert_non_null(strstr(r.all.at, "\r\nAllow: GET, HEAD\r\n"));
    response_free(&r);
    serve_skip_log(s);
}

static void saving_needs_a_folder(void **state)
{
    struct served *s = *state;
    struct response r = http_post(s->port, "/cache/save", "");

    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "start the server with --cache-dir DIR"));
    response_free(&r);
    serve_skip_log(s);
}

static void endless_headers_and_bodies_are_refused(void **state)
{
    struct served *s = *state;
    struct buf text = { 0 };

    buf_text(&text, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (int i = 0; i < 150; i++)
        buf_printf(&text, "X-%d: y\r\n", i);
    buf_text(&text, "\r\n");
    assert_int_equal(raw_status(s, text.at), 431);
    text.n = 0;
    buf_text(&text, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    for (int i = 0; i < 1 << 17; i++)
        buf_text(&text, "yyyyyyyy");
    buf_text(&text, "\r\n\r\n");
    int status = raw_status(s, text.at);
    assert_true(status == 0 || (status >= 400 && status < 500));
    text.n = 0;
    buf_text(&text, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n");
    for (int i = 0; i < 10; i++) { // 10 MiB in chunks, and no length that could be checked before
        buf_text(&text, "100000\r\n");
        for (int k = 0; k < 1 << 16; k++)
            buf_text(&text, "aaaaaaaaaaaaaaaa");
        buf_text(&text, "\r\n");
    }
    buf_text(&text, "0\r\n\r\n");
    status = raw_status(s, text.at);
    assert_true(status == 0 || status == 413);
    assert_int_equal(http_status(s->port, "/health"), 200);
    buf_free(&text);
}

static void many_requests_in_one_piece_are_answered_in_order(void **state)
{
    struct served *s = *state;
    struct buf text = { 0 };
    size_t n = 0;

    for (int i = 0; i < 1000; i++)
        buf_printf(&text, "GET /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                   i == 999 ? "Connection: close\r\n" : "");
    struct response r = http_raw(s->port, text.at, text.n);
    for (const char *at = r.all.at; at && (at = strstr(at, "HTTP/1.1 200")); at++)
        n++;
    assert_int_equal(n, 1000);
    response_free(&r);
    buf_free(&text);
    serve_skip_log(s);
}

static void wait_until_idle(const struct served *s)
{
    uint64_t begun = clock_ns();

    while (metric(s->port, "vllm:num_requests_running") != 0) {
        serve_skip_log(s);
        if (clock_ns() - begun > 60000000000u)
            fail_msg("still running after 60 s");
    }
}

static void wait_running(const struct served *s, double n)
{
    for (int i = 0; i < 1000 && metric(s->port, "vllm:num_requests_running") < n; i++)
        poll(NULL, 0, 1);
    assert_true(metric(s->port, "vllm:num_requests_running") >= n);
}

static void a_client_that_leaves_stops_its_request(void **state)
{
    static const char *const bodies[] = { LONG ",\"n\":2}", LONG ",\"n\":2,\"stream\":true}" };
    struct served *s = *state;

    for (int i = 0; i < 6; i++) {
        double tokens = metric(s->port, "vllm:generation_tokens_total");
        int fd = http_begin(s->port, CHAT, "", bodies[i % 2]);
        wait_running(s, 1);
        if (i < 4)
            close(fd);
        else
            shutdown(fd, SHUT_WR); // a half-closed connection counts as gone
        wait_until_idle(s);
        assert_true(metric(s->port, "vllm:generation_tokens_total") < tokens + 1900); // far from the end
        if (i >= 4)
            close(fd);
    }
}

#ifdef __linux__
static int n_open_files(const struct served *s)
{
    char path[64];
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)s->pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void leave(int fd, bool reset)
{
    const struct linger at_once = { .l_onoff = 1 };

    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void clients_that_leave_leave_nothing_behind(void **state)
{
    static const char *const bodies[] = { LONG "}", LONG ",\"stream\":true}",
                                          LONG ",\"stream\":true,\"n\":2}" };
    struct served *s = *state;
    int before = n_open_files(s), fds[30], after = 0;

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 30; i++)
            fds[i] = http_begin(s->port, CHAT, "", bodies[i % 3]);
        poll(NULL, 0, round * 5);
        for (int i = 0; i < 30; i++)
            leave(fds[i], i % 2);
        serve_skip_log(s);
    }
    wait_until_idle(s);
    for (int i = 0; i < 200 && (after = n_open_files(s)) > before; i++)
        poll(NULL, 0, 10);
    assert_true(after <= before);
}
#endif

static void a_full_queue_answers_429_at_once(void **state)
{
    static const char *const args[] = { SLOW, "-np", "1", "--queue", "1", NULL };
    struct served s = serve_start(args);
    int first = http_begin(s.port, CHAT, "", LONG "}"), second;

    (void)state;
    wait_running(&s, 1);
    second = http_begin(s.port, CHAT, "", LONG "}");
    for (int i = 0; i < 2000 && metric(s.port, "vllm:num_requests_waiting") < 1; i++)
        poll(NULL, 0, 1);
    struct response r = http_post(s.port, CHAT, LONG "}");
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.all.at, "Retry-After: "));
    // at once: the two before it are where they were
    assert_true(metric(s.port, "vllm:num_requests_waiting") == 1);
    response_free(&r);
    close(first);
    close(second);
    wait_until_idle(&s);
    r = http_post(s.port, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":1}");
    assert_int_equal(r.status, 200);
    response_free(&r);
    assert_int_equal(serve_stop(&s), 0);
}

static void every_route_but_health_needs_a_key(void **state)
{
    static const char *const args[] = { "--api-key", "first", "--api-key", "second", NULL };
    static const char *const paths[] = { "/",        "/v1/models", "/metrics", "/v1/models/x",
                                         "/nothing", "//health",   "/health/" };
    static const char *const good[] = { "Authorization: Bearer second\r\n", "X-Api-Key: first\r\n",
                                        "Authorization: Basic eDpmaXJzdA==\r\n" };
    struct served s = serve_start(args);

    (void)state;
    for (size_t i = 0; i < N_OF(paths); i++)
        assert_int_equal(http_status(s.port, paths[i]), 401);
    assert_int_equal(http_status(s.port, "/health"), 200);
    struct response r = http_with(s.port, "/v1/models", "Authorization: Bearer firs\r\n", NULL);
    assert_int_equal(r.status, 401);
    response_free(&r);
    for (size_t i = 0; i < N_OF(good); i++) {
        r = http_with(s.port, "/v1/models", good[i], NULL);
        assert_int_equal(r.status, 200);
        response_free(&r);
    }
    r = http_post(s.port, CHAT, "{}");
    assert_int_equal(r.status, 401);
    response_free(&r);
    assert_int_equal(serve_stop(&s), 0);
}

static void an_allowed_origin_gets_cors_and_no_other(void **state)
{
    static const char *const args[] = { "--cors-origin", "http://app.test", NULL };
    struct served s = serve_start(args);
    struct response r = http_with(s.port, "/v1/models", "Origin: http://app.test\r\n", NULL);

    (void)state;
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.all.at, "Access-Control-Allow-Origin: http://app.test\r\n"));
    response_free(&r);
    r = http_with(s.port, "/v1/models", "Origin: http://other.test\r\n", NULL);
    assert_int_equal(r.status, 403);
    assert_null(strstr(r.all.at, "Access-Control"));
    response_free(&r);
    r = http_with(s.port, "/v1/models", "", NULL);
    assert_null(strstr(r.all.at, "Access-Control"));
    response_free(&r);
    assert_int_equal(
        raw_status(&s,
                   "OPTIONS " CHAT
                   " HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.test\r\nConnection: close\r\n\r\n"),
        204);
    assert_int_equal(serve_stop(&s), 0);
}

static void a_stop_lets_answers_finish(void **state)
{
    static const char *const args[] = { SLOW, "--drain", "600", NULL }; // a busy machine is slow
    struct served s = serve_start(args);
    struct response r = { 0 };
    int fd = http_begin(s.port, CHAT, "",
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"Count.\"}],\"ignore_eos\":true,"
                        "\"max_tokens\":200,\"stream\":true}");

    (void)state;
    wait_running(&s, 1);
    kill(s.pid, SIGTERM);
    for (int i = 0; i < 1000 && http_status(s.port, "/health") != 503; i++)
        poll(NULL, 0, 1);
    struct response late = http_post(s.port, CHAT, LONG "}");
    assert_int_equal(late.status, 503);
    response_free(&late);
    http_read(fd, &r);
    assert_non_null(strstr(r.all.at, "data: [DONE]"));
    response_free(&r);
    assert_int_equal(serve_wait(&s), 0);
}

static void a_stop_without_time_ends_answers_with_an_error(void **state)
{
    static const char *const args[] = { SLOW, "--drain", "0", NULL };
    struct served s = serve_start(args);
    struct response stream = { 0 }, whole = { 0 };
    int a = http_begin(s.port, CHAT, "", LONG ",\"stream\":true}"),
        b = http_begin(s.port, CHAT, "", LONG "}");

    (void)state;
    wait_running(&s, 2);
    kill(s.pid, SIGTERM);
    http_read(a, &stream);
    http_read(b, &whole);
    assert_non_null(strstr(stream.all.at, "\"code\":\"stopping\""));
    assert_null(strstr(stream.all.at, "[DONE]"));
    assert_non_null(strstr(stream.all.at, "\r\n0\r\n")); // the stream itself ends in order
    assert_int_equal(whole.status, 503);
    response_free(&stream);
    response_free(&whole);
    assert_int_equal(serve_wait(&s), 0);
}

static void a_client_that_does_not_read_is_cut_off(void **state)
{
    static const char *const args[] = { "--write-timeout", "1", NULL };
    struct served s = serve_start(args);
    char body[300], byte;
    int small = 4096, fd = http_connect(s.port);

    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(body, sizeof body, LONG ",\"n\":4,\"stream\":true,\"logprobs\":true,\"top_logprobs\":20}");
    struct buf text = { 0 };
    buf_printf(&text, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
               strlen(body), body);
    http_send(fd, text.at, text.n);
    buf_free(&text);
    wait_running(&s, 1);
    wait_until_idle(&s); // cut off, or made in full for nobody: the connection tells which
    uint64_t begun = clock_ns();
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    // as long as for idleness: 8 MB are written first
    while (poll(&p, 1, 100) == 0 && clock_ns() - begun < 60000000000u)
        serve_skip_log(&s);
    assert_true(p.revents & (POLLRDHUP | POLLHUP | POLLERR));
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0)
        ;
    close(fd);
    assert_int_equal(serve_stop(&s), 0);
}

static void wrong_options_are_told(void **state)
{
    static const char *const cases[][3] = { { "--host", "no.such.host", NULL },
                                            { "--port", "70000", NULL },
                                            { "-m", "/no/such/file.gguf", NULL } };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        const char *argv[] = { INGOT_PROGRAM, "serve",     "--port",    "0", "--log",
                               "error",       cases[i][0], cases[i][1], NULL };
        pid_t pid = serve_spawn(argv, 2);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2));
    }
}

static struct served shared;

static int start(void **state)
{
    static const char *const args[] = { SLOW, "-np", "2", NULL };
    shared = serve_start(args);
    *state = &shared;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return serve_stop(&shared) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_names_are_compared_whole),
        cmocka_unit_test(only_loopback_is_loopback),
        cmocka_unit_test(forged_requests_are_refused),
        cmocka_unit_test(coded_bodies_are_refused),
        cmocka_unit_test(another_method_is_told_which),
        cmocka_unit_test(saving_needs_a_folder),
        cmocka_unit_test(endless_headers_and_bodies_are_refused),
        cmocka_unit_test(many_requests_in_one_piece_are_answered_in_order),
        cmocka_unit_test(a_client_that_leaves_stops_its_request),
#ifdef __linux__
        cmocka_unit_test(clients_that_leave_leave_nothing_behind),
#endif
        cmocka_unit_test(a_full_queue_answers_429_at_once),
        cmocka_unit_test(every_route_but_health_needs_a_key),
        cmocka_unit_test(an_allowed_origin_gets_cors_and_no_other),
        cmocka_unit_test(a_stop_lets_answers_finish),
        cmocka_unit_test(a_stop_without_time_ends_answers_with_an_error),
        cmocka_unit_test(a_client_that_does_not_read_is_cut_off),
        cmocka_unit_test(wrong_options_are_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
