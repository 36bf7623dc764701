// test_serve_wire.c - requests byte for byte: what is plain HTTP/1.1 is answered, what RFC 9112 lets two
// readers see in two ways is refused with 400 and the connection closed, so that a second request hidden
// behind it is never read. Run on the server itself, and cut at every byte on the reader alone.
#include "server/client.h"
#include "server/http/message.h"

#define HOST        "Host: localhost\r\n"
#define GET(h)      "GET /health HTTP/1.1\r\n" HOST h "\r\n"
#define POST(h)     "POST /tokenize HTTP/1.1\r\n" HOST h "\r\n"
#define BODY        "{\"content\":\"ab\"}" // 16 bytes
#define CHUNKED     "Transfer-Encoding: chunked\r\n"
#define CHUNKS      "10\r\n" BODY "\r\n0\r\n\r\n"
#define NEXT        "GET /health HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"
#define N_OF(array) (sizeof(array) / sizeof *(array))

struct sent {
    const char *what, *bytes;
    size_t n;
};
#define SENT(what, bytes)              \
    {                                  \
        what, bytes, sizeof(bytes) - 1 \
    }

// clang-format off
static const struct sent plain[] = {
    SENT("GET", GET("")),
    SENT("POST", POST("Content-Length: 16\r\n") BODY),
    SENT("blanks around values", POST("Content-Length:  16  \r\nX:\t y \t\r\n") BODY),
    SENT("empty values", GET("X:\r\nY: \r\n")),
    SENT("chunks", POST(CHUNKED) CHUNKS),
    SENT("chunk sizes of both cases, with zeros", POST(CHUNKED) "0006\r\n{\"cont\r\n0A\r\nent\":\"ab\"}\r\n000\r\n\r\n"),
    SENT("an empty line before", "\r\n" GET("")),
    SENT("HTTP/1.0 without a Host", "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    SENT("bytes above 0x7f in a value", GET("X: \xe9\r\n")),
    SENT("an upgrade that is not taken", POST("Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 16\r\n") BODY),
};

static const struct sent odd[] = {
    SENT("a folded name", POST("Content-: 16\r\n Length: 16\r\n") BODY),
    SENT("a folded name without colon", POST("Content-\r\n Length: 16\r\n") BODY),
    SENT("a folded name of Transfer-Encoding", POST("Transfer-: x\r\n Encoding: chunked\r\n") CHUNKS),
    SENT("a folded value", GET("X: a\r\n b\r\n")),
    SENT("a value folded by a tab", GET("X: a\r\n\tb\r\n")),
    SENT("a fold on the first line", "GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n"),
    SENT("a folded length", POST("Content-Length:\r\n 16\r\n") BODY),
    SENT("a blank before the colon of a length", POST("Content-Length : 16\r\n") BODY),
    SENT("a blank before a colon", GET("X : y\r\n")),
    SENT("a tab before a colon", GET("X\t: y\r\n")),
    SENT("a blank in a name", GET("X Y: y\r\n")),
    SENT("no colon", GET("Xyz\r\n")),
    SENT("no name", GET(": y\r\n")),
    SENT("a name that is no token", GET("X(Y): y\r\n")),
    SENT("a byte above 0x7f in a name", GET("X\xe9: y\r\n")),
    SENT("LF alone after the request line", "GET /health HTTP/1.1\n" HOST "\r\n"),
    SENT("LF alone after a header", GET("X: y\nZ: w\r\n")),
    SENT("LF alone at the end", "GET /health HTTP/1.1\r\n" HOST "\n"),
    SENT("LF alone everywhere", "GET /health HTTP/1.1\nHost: localhost\n\n"),
    SENT("LF alone before", "\n" GET("")),
    SENT("CR alone in a value", GET("X: a\rb\r\n")),
    SENT("CR alone before a hidden length", GET("X: a\rContent-Length: 16\r\n")),
    SENT("CR CR LF", GET("X: a\r\r\n")),
    SENT("NUL in a value", GET("X: a\0b\r\n")),
    SENT("NUL in a name", GET("X\0Y: b\r\n")),
    SENT("NUL in the path", "GET /health\0x HTTP/1.1\r\n" HOST "\r\n"),
    SENT("0x01 in a value", GET("X: a\001b\r\n")),
    SENT("0x0b in a value", GET("X: a\013b\r\n")),
    SENT("0x0c in a value", GET("X: a\014b\r\n")),
    SENT("0x7f in a value", GET("X: a\177b\r\n")),
    SENT("0x0b before a length", POST("Content-Length: \01316\r\n") BODY),
    SENT("0x0c after a length", POST("Content-Length: 16\014\r\n") BODY),
    SENT("length and chunks", POST("Content-Length: 16\r\n" CHUNKED) CHUNKS),
    SENT("chunks and length", POST(CHUNKED "Content-Length: 16\r\n") CHUNKS),
    SENT("the same length twice", POST("Content-Length: 16\r\nContent-Length: 16\r\n") BODY),
    SENT("two lengths", POST("Content-Length: 16\r\nContent-Length: 5\r\n") BODY),
    SENT("two lengths, the first 0", POST("Content-Length: 0\r\nContent-Length: 16\r\n") BODY),
    SENT("a list of lengths", POST("Content-Length: 16, 16\r\n") BODY),
    SENT("length +16", POST("Content-Length: +16\r\n") BODY),
    SENT("length -1", POST("Content-Length: -1\r\n") BODY),
    SENT("length 0x10", POST("Content-Length: 0x10\r\n") BODY),
    SENT("length 1 6", POST("Content-Length: 1 6\r\n") BODY),
    SENT("length 16a", POST("Content-Length: 16a\r\n") BODY),
    SENT("length 16.0", POST("Content-Length: 16.0\r\n") BODY),
    SENT("an empty length", POST("Content-Length:\r\n") BODY),
    SENT("length 2^64", POST("Content-Length: 18446744073709551616\r\n") BODY),
    SENT("length 2^64 + 16", POST("Content-Length: 18446744073709551632\r\n") BODY),
    SENT("encoding identity", POST("Transfer-Encoding: identity\r\n") BODY),
    SENT("encoding identity and a length", POST("Transfer-Encoding: identity\r\nContent-Length: 16\r\n") BODY),
    SENT("encoding gzip", POST("Transfer-Encoding: gzip\r\n") BODY),
    SENT("encoding chunked, chunked", POST("Transfer-Encoding: chunked, chunked\r\n") CHUNKS),
    SENT("encoding gzip, chunked", POST("Transfer-Encoding: gzip, chunked\r\n") CHUNKS),
    SENT("encoding chunked twice", POST(CHUNKED CHUNKED) CHUNKS),
    SENT("encoding chunked;q=1", POST("Transfer-Encoding: chunked;q=1\r\n") CHUNKS),
    SENT("encoding xchunked", POST("Transfer-Encoding: xchunked\r\n") CHUNKS),
    SENT("0x0b before an encoding", POST("Transfer-Encoding: \013chunked\r\n") CHUNKS),
    SENT("an empty encoding", POST("Transfer-Encoding:\r\nContent-Length: 16\r\n") BODY),
    SENT("chunks in HTTP/1.0", "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\n" HOST CHUNKED "\r\n" CHUNKS),
    SENT("a chunk's extension", POST(CHUNKED) "10;a=b\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("a chunk's extension with LF", POST(CHUNKED) "10;a\nb\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("a blank after a chunk's size", POST(CHUNKED) "10 \r\n" BODY "\r\n0\r\n\r\n"),
    SENT("a blank before a chunk's size", POST(CHUNKED) " 10\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("chunk size +10", POST(CHUNKED) "+10\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("chunk size -10", POST(CHUNKED) "-10\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("chunk size 0x10", POST(CHUNKED) "0x10\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("chunk size 10g", POST(CHUNKED) "10g\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("no chunk size", POST(CHUNKED) "\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("chunk size of 17 digits", POST(CHUNKED) "10000000000000010\r\n" BODY "\r\n0\r\n\r\n"),
    SENT("LF alone after a chunk's size", POST(CHUNKED) "10\n" BODY "\r\n0\r\n\r\n"),
    SENT("LF alone after a chunk", POST(CHUNKED) "10\r\n" BODY "\n0\r\n\r\n"),
    SENT("nothing after a chunk", POST(CHUNKED) "10\r\n" BODY "0\r\n\r\n"),
    SENT("more than a chunk's size", POST(CHUNKED) "10\r\n" BODY "XY0\r\n\r\n"),
    SENT("digits in place of a chunk's end", POST(CHUNKED) "10\r\n" BODY "AB0\r\n\r\n"),
    SENT("LF alone after the last chunk", POST(CHUNKED) "10\r\n" BODY "\r\n0\n\n"),
    SENT("trailers", POST(CHUNKED) "10\r\n" BODY "\r\n0\r\nX: y\r\n\r\n"),
    SENT("no Host", "GET /health HTTP/1.1\r\n\r\n"),
    SENT("two Hosts", GET(HOST)),
    SENT("two Hosts that differ", GET("Host: other\r\n")),
    SENT("HTTP/1.2", "GET /health HTTP/1.2\r\n" HOST "\r\n"),
    SENT("HTTP/2.0", "GET /health HTTP/2.0\r\n" HOST "\r\n"),
    SENT("HTTP/0.9", "GET /health\r\n"),
    SENT("HTTP/11.1", "GET /health HTTP/11.1\r\n" HOST "\r\n"),
    SENT("HTTP/1.10", "GET /health HTTP/1.10\r\n" HOST "\r\n"),
    SENT("http/1.1", "GET /health http/1.1\r\n" HOST "\r\n"),
    SENT("two blanks in the request line", "GET  /health HTTP/1.1\r\n" HOST "\r\n"),
    SENT("a blank in the path", "GET /health x HTTP/1.1\r\n" HOST "\r\n"),
    SENT("a tab in the request line", "GET\t/health HTTP/1.1\r\n" HOST "\r\n"),
    SENT("0x0b in the request line", "GET /health\013HTTP/1.1\r\n" HOST "\r\n"),
    SENT("a blank after the version", "GET /health HTTP/1.1 \r\n" HOST "\r\n"),
    SENT("a blank before the method", " GET /health HTTP/1.1\r\n" HOST "\r\n"),
    SENT("a method that is no token", "GE(T /health HTTP/1.1\r\n" HOST "\r\n"),
    SENT("TLS", "\026\003\001\002\0\001\0\001\374\003\003"),
};
// clang-format on

static struct served server;

static struct response send_both(const struct sent *sent)
{
    struct buf bytes = { 0 };

    buf_append(&bytes, sent->bytes, sent->n);
    buf_text(&bytes, NEXT);
    struct response r = http_raw(server.port, bytes.at, bytes.n);
    buf_free(&bytes);
    serve_skip_log(&server);
    return r;
}

static size_t n_times(const struct response *r, const char *what)
{
    size_t n = 0;

    for (const char *at = r->all.at; at && (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void plain_requests_are_answered_and_the_next_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(plain); i++) {
        struct response r = send_both(&plain[i]);
        if (n_times(&r, "HTTP/1.1 200 ") != 2)
            fail_msg("%s: %s", plain[i].what, r.all.n ? r.all.at : "(closed)");
        response_free(&r);
    }
}

static void ambiguous_requests_are_refused_once_and_the_connection_closed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(odd); i++) {
        struct response r = send_both(&odd[i]); // returns when the connection is closed
        if (r.status != 400 || n_times(&r, "HTTP/1.") != 1)
            fail_msg("%s: %s", odd[i].what, r.all.n ? r.all.at : "(closed)");
        response_free(&r);
    }
}

// ---- the reader alone

struct seen {
    struct buf body;
    unsigned n_heads;
};

static bool see_head(void *arg)
{
    struct seen *seen = arg;
    seen->n_heads++;
    return true;
}

static bool see_body(void *arg, const char *bytes, size_t n)
{
    struct seen *seen = arg;
    return buf_append(&seen->body, bytes, n);
}

static const struct message_reader watcher = { see_head, see_body };

// What becomes of one message whose bytes come in two parts.
static enum message_state read_in_two(const struct sent *sent, size_t cut, struct seen *seen)
{
    struct message m;
    size_t at = 0;

    *seen = (struct seen){ 0 };
    assert_true(message_create(&m, &watcher, 32768, seen));
    for (int part = 0; part < 2 && m.state <= MESSAGE_BODY; part++) {
        size_t end = part ? sent->n : cut;
        char *bytes = malloc(end - at + 1); // of its own, so that a sanitizer sees every byte beyond
        assert_non_null(bytes);
        memcpy(bytes, sent->bytes + at, end - at);
        at += message_read(&m, bytes, end - at);
        free(bytes);
    }
    enum message_state state = m.state;
    if (state == MESSAGE_COMPLETE)
        assert_int_equal(at, sent->n);
    message_destroy(&m);
    return state;
}

static void a_message_is_the_same_wherever_it_is_cut(void **state)
{
    struct seen whole, parts;

    (void)state;
    for (size_t i = 0; i < N_OF(plain); i++) {
        assert_int_equal(read_in_two(&plain[i], plain[i].n, &whole), MESSAGE_COMPLETE);
        for (size_t cut = 0; cut < plain[i].n; cut++) {
            assert_int_equal(read_in_two(&plain[i], cut, &parts), MESSAGE_COMPLETE);
            assert_int_equal(parts.n_heads, 1);
            assert_int_equal(parts.body.n, whole.body.n);
            assert_memory_equal(buf_as_str(&parts.body).at, buf_as_str(&whole.body).at, whole.body.n);
            buf_free(&parts.body);
        }
        buf_free(&whole.body);
    }
}

static void nothing_odd_slips_through_a_cut(void **state)
{
    struct seen whole, parts;

    (void)state;
    for (size_t i = 0; i < N_OF(odd); i++) {
        enum message_state expected = read_in_two(&odd[i], odd[i].n, &whole);
        buf_free(&whole.body);
        for (size_t cut = 0; cut < odd[i].n; cut++) {
            enum message_state found = read_in_two(&odd[i], cut, &parts);
            buf_free(&parts.body);
            if (found != expected)
                fail_msg("%s cut at %zu: %d, and %d whole", odd[i].what, cut, found, expected);
        }
    }
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
        cmocka_unit_test(plain_requests_are_answered_and_the_next_too),
        cmocka_unit_test(ambiguous_requests_are_refused_once_and_the_connection_closed),
        cmocka_unit_test(a_message_is_the_same_wherever_it_is_cut),
        cmocka_unit_test(nothing_odd_slips_through_a_cut),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
