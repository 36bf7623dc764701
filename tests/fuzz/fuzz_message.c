// fuzz_message.c - the bytes of a request, in one piece and in two that are cut where the first byte says:
// both must come out the same, and a message that is whole must be free of what makes two readers disagree.
#include "base/mem.h"
#include "server/http/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_HEAD_BYTES = 1024 };

struct message_seen {
    struct buf body;
    unsigned n_heads;
};

static bool see_head(void *arg)
{
    struct message_seen *seen = arg;
    CHECK(seen->n_heads++ == 0 && seen->body.n == 0);
    return true;
}

static bool see_body(void *arg, const char *bytes, size_t n)
{
    struct message_seen *seen = arg;
    CHECK(seen->n_heads == 1);
    return buf_append(&seen->body, bytes, n);
}

static const struct message_reader watcher = { see_head, see_body };

static void check_whole(const struct message *m)
{
    unsigned n_lengths, n_encodings;

    message_field(m, "content-length", &n_lengths);
    message_field(m, "transfer-encoding", &n_encodings);
    CHECK(m->method && message_target(m)[0]);
    CHECK(m->n_fields > MESSAGE_MAX_FIELDS || n_lengths + (n_encodings > 0) <= 1);
    for (unsigned i = 0; i < m->n_stored; i++)
        CHECK(!strpbrk(m->text.at + m->fields[i].name, " \t\r\n") &&
              !strpbrk(m->text.at + m->fields[i].value, "\r\n"));
}

// Returns how many bytes were taken.
static size_t read_in_two(struct str text, size_t cut, struct message_seen *seen, enum message_state *state)
{
    struct message m;
    size_t at;

    CHECK(message_create(&m, &watcher, MOST_HEAD_BYTES, seen));
    at = message_read(&m, text.at, cut);
    if (m.state <= MESSAGE_BODY)
        at += message_read(&m, text.at + at, text.n - at);
    CHECK(m.state > MESSAGE_BODY || at == text.n);
    CHECK((m.state == MESSAGE_BAD) == (m.problem != NULL));
    if (m.state == MESSAGE_COMPLETE)
        check_whole(&m);
    *state = m.state;
    message_destroy(&m);
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message_seen whole = { 0 }, parts = { 0 };
    enum message_state a, b;

    if (size == 0)
        return 0;
    struct str text = { (const char *)data + 1, size - 1 };
    size_t cut = data[0] < text.n ? data[0] : text.n;
    size_t n_whole = read_in_two(text, text.n, &whole, &a), n_parts = read_in_two(text, cut, &parts, &b);
    CHECK(a == b);
    if (a == MESSAGE_COMPLETE) {
        CHECK(n_whole == n_parts && whole.body.n == parts.body.n);
        CHECK(!memcmp(buf_as_str(&whole.body).at, buf_as_str(&parts.body).at, whole.body.n));
    }
    buf_free(&whole.body);
    buf_free(&parts.body);
    return 0;
}
