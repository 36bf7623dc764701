// fuzz_api_request.c - a request's JSON through the table of fields, in each dialect; the first byte chooses.
// What is taken must be within the stated limits; a conversation also becomes what a template takes, its
// pictures read. The same bytes go through the checks of headers.
#include "base/mem.h"
#include "server/api/api_request.h"
#include "server/api/constrain.h"
#include "server/http/auth.h"
#include "server/api/chat_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_taken(const struct api_request *ask)
{
    const struct server_limits *limits = &server_limits_default;

    CHECK(ask->n >= 1 && ask->n <= limits->n_choices);
    CHECK(ask->n_stops <= limits->n_stops);
    CHECK(ask->top_logprobs <= API_REQUEST_MAX_TOP_LOGPROBS);
    CHECK(ask->sampling.top_p >= 0 && ask->sampling.top_p <= 1);
    CHECK(ask->sampling.temperature >= 0 && ask->sampling.temperature <= 100);
    CHECK(!ask->strict || json_array_size(ask->warnings) == 0);
}

static void constrain(const struct api_request *ask)
{
    for (enum tool_call_style style = CALLS_NONE; style < N_CALL_STYLES; style++) {
        const struct constrain_options options = { .style = style, .thinks = true };
        struct buf gbnf = { 0 };
        struct err err = { 0 };
        CHECK(constrain_answer(ask, &options, &gbnf, &err) || (err.code != ERR_NONE && err.message[0]));
        buf_free(&gbnf);
    }
}

// Templates that show calls, and those that do not.
static void converse(struct api_request *ask, bool shows_calls)
{
    const struct ingot_template_info template = { .takes_calls = shows_calls, .takes_tools = shows_calls };
    struct messages m;
    struct err err = { 0 };

    ask->pictures.accepted = true;
    if (!messages_for_template(ask, &template, CALLS_TAGS, &m, &err)) {
        CHECK(err.code != ERR_NONE && err.message[0]);
        return;
    }
    CHECK(json_array_size(m.list) > 0 && ask->pictures.n <= PICTURES_MOST);
    CHECK(ask->pictures.n_pixels <= ask->limits->pixels);
    messages_release(&m);
}

static void read_ask(enum dialect dialect, struct str body, bool strict)
{
    struct err err = { 0 };
    struct api_request ask = { .strict = strict };
    json_t *json = api_request_parse(body, &err);

    if (!json || !api_request_read(&ask, dialect, json, &server_limits_default, &err)) {
        CHECK(err.code != ERR_NONE && err.message[0]);
        return;
    }
    check_taken(&ask);
    constrain(&ask);
    if (!api_request_is_plain(&ask) && !ask.loads_only)
        converse(&ask, body.n % 2);
    api_request_forget_body(&ask);
    api_request_release(&ask);
}

static void read_headers(struct str text)
{
    char room[64], *copy = mem_alloc(text.n + 1);

    if (!copy)
        return;
    memcpy(copy, text.at, text.n);
    struct str key = auth_key_of(copy, copy, room, sizeof room);
    CHECK(key.n <= text.n);
    auth_same_key(key, "secret");
    auth_host_is_loopback(text);
    auth_origin_is_host(text, STR("localhost"));
    auth_length_is_plain(text);
    mem_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum dialect dialects[] = { DIALECT_CHAT,        DIALECT_TEXT,        DIALECT_MESSAGES,
                                             DIALECT_COUNT,       DIALECT_TEMPLATE,    DIALECT_RESPONSES,
                                             DIALECT_EMBED,       DIALECT_NATIVE,      DIALECT_INFILL,
                                             DIALECT_OLLAMA_CHAT, DIALECT_OLLAMA_TEXT, DIALECT_OLLAMA_EMBED,
                                             DIALECT_RERANK };

    if (size == 0)
        return 0;
    struct str body = { (const char *)data + 1, size - 1 };
    read_ask(dialects[(data[0] & 0x7f) % (sizeof dialects / sizeof *dialects)], body, data[0] & 0x80);
    read_headers(body);
    return 0;
}
