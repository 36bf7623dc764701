// test_porch.c - a connection is handed over with its whole head unread, or closed.
#include "server/porch.h"
#include "server/client.h"

enum { HEADER_BYTES = 64, WAITING = 3 };

struct house {
    struct porch *porch;
    int handed[2]; // a pipe of descriptors
    int port;
};

static void hand_over(void *arg, int fd, const struct sockaddr *from, socklen_t from_bytes)
{
    struct house *h = arg;

    if (from->sa_family != AF_INET || from_bytes != sizeof(struct sockaddr_in))
        fd = -2;
    if (write(h->handed[1], &fd, sizeof fd) != sizeof fd)
        abort();
}

static void house_open(struct house *h, u32 head_s)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    assert_int_equal(pipe(h->handed), 0);
    h->porch = porch_open(&(struct porch_options){ (const struct sockaddr *)&address, sizeof address, WAITING, HEADER_BYTES,
                                                   head_s, hand_over, h });
    assert_non_null(h->porch);
    h->port = (int)porch_port(h->porch);
}

static void house_close(struct house *h)
{
    porch_close(h->porch);
    close(h->handed[0]);
    close(h->handed[1]);
}

static bool is_ready(int fd, int ms)
{
    return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ms) == 1;
}

// Whoever is handed over within the time, and what can be read from it; closes it.
static void expect_handed(struct house *h, const char *bytes)
{
    char text[256];
    int fd;

    assert_true(is_ready(h->handed[0], 10000));
    assert_int_equal(read(h->handed[0], &fd, sizeof fd), sizeof fd);
    ssize_t n = recv(fd, text, sizeof text, 0);
    assert_int_equal(n, strlen(bytes));
    assert_memory_equal(text, bytes, (size_t)n);
    close(fd);
}

static void expect_closed(int fd)
{
    char byte;

    assert_true(is_ready(fd, 10000));
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static void a_whole_head_is_handed_over_unread(void **state)
{
    static const char *const heads[] = { "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "POST /\r\n\r\nand a body" };
    struct house h;
    (void)state;
    house_open(&h, 30);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        int fd = http_connect(h.port);
        http_send(fd, heads[i], strlen(heads[i]));
        expect_handed(&h, heads[i]);
        close(fd);
    }
    house_close(&h);
}

static void a_head_may_come_byte_by_byte(void **state)
{
    const char head[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    struct house h;
    (void)state;
    house_open(&h, 30);
    int fd = http_connect(h.port);
    for (size_t i = 0; i + 1 < sizeof head; i++) {
        assert_false(is_ready(h.handed[0], 2));
        http_send(fd, head + i, 1);
    }
    expect_handed(&h, head);
    close(fd);
    house_close(&h);
}

static void a_head_that_is_too_long_is_handed_over_to_be_refused(void **state)
{
    char head[HEADER_BYTES + 1];
    struct house h;
    (void)state;
    house_open(&h, 30);
    memset(head, 'a', HEADER_BYTES);
    head[HEADER_BYTES] = 0;
    int fd = http_connect(h.port);
    http_send(fd, head, HEADER_BYTES);
    expect_handed(&h, head);
    close(fd);
    house_close(&h);
}

static void who_ends_or_resets_within_a_head_is_let_go(void **state)
{
    const struct linger at_once = { .l_onoff = 1 };
    struct house h;
    (void)state;
    house_open(&h, 30);
    for (int i = 0; i < 20; i++) { // more than may wait
        int ends = http_connect(h.port), resets = http_connect(h.port);
        http_send(ends, "GET", 3);
        http_send(resets, "GET", 3);
        shutdown(ends, SHUT_WR);
        setsockopt(resets, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(resets);
        expect_closed(ends);
    }
    assert_false(is_ready(h.handed[0], 0));
    house_close(&h);
}

static void the_longest_waiting_makes_room(void **state)
{
    struct house h;
    int fds[WAITING + 1];
    (void)state;
    house_open(&h, 30);
    for (int i = 0; i <= WAITING; i++) {
        fds[i] = http_connect(h.port);
        http_send(fds[i], "G", 1);
    }
    expect_closed(fds[0]);
    for (int i = WAITING; i > 0; i--) {
        http_send(fds[i], "\n\n", 2);
        expect_handed(&h, "G\n\n");
        close(fds[i]);
    }
    house_close(&h);
}

static void a_head_has_its_time(void **state)
{
    struct house h;
    (void)state;
    house_open(&h, 1);
    int silent = http_connect(h.port), slow = http_connect(h.port);
    http_send(slow, "GET", 3);
    expect_closed(silent);
    expect_closed(slow);
    house_close(&h);
}

static void closing_the_porch_sends_all_away(void **state)
{
    struct house h;
    (void)state;
    house_open(&h, 30);
    int fd = http_connect(h.port);
    http_send(fd, "GET", 3);
    house_close(&h);
    expect_closed(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_head_is_handed_over_unread),
        cmocka_unit_test(a_head_may_come_byte_by_byte),
        cmocka_unit_test(a_head_that_is_too_long_is_handed_over_to_be_refused),
        cmocka_unit_test(who_ends_or_resets_within_a_head_is_let_go),
        cmocka_unit_test(the_longest_waiting_makes_room),
        cmocka_unit_test(a_head_has_its_time),
        cmocka_unit_test(closing_the_porch_sends_all_away),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
