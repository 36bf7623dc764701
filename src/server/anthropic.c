// anthropic.c - answers as Anthropic's messages tell them, whole and as a stream, in the order of events that its clients insist on.
//
// Not here: reading the request (ask.c), tool use, thinking blocks.
#include "server/sse.h"
#include "server/state.h"
#include "server/talk.h"

static json_t *text_json(const struct buf *text)
{
    struct str s = buf_as_str(text);
    json_t *value = json_stringn(s.at, s.n);
    return value ? value : json_string("");
}

static const char *stop_reason(enum ingot_finish finish)
{
    return finish == INGOT_FINISH_LENGTH ? "max_tokens" : finish == INGOT_FINISH_STOP ? "stop_sequence" : "end_turn";
}

static json_t *usage(const struct talk *t)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "input_tokens", (int)(t->n_prompt - t->n_reused), "cache_read_input_tokens",
                     (int)t->n_reused, "cache_creation_input_tokens", 0, "output_tokens", (int)t->n_generated);
}

static json_t *message(const struct talk *t, json_t *content, const char *reason)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:n, s:o}", "id", t->id, "type", "message", "role", "assistant", "model",
                     t->server->name, "content", content, "stop_reason", reason, "stop_sequence", "usage", usage(t));
}

static json_t *whole(struct talk *t)
{
    json_t *content = json_pack("[{s:s, s:o}]", "type", "text", "text", text_json(&t->choices[0].text));
    json_t *reply = message(t, content, stop_reason(t->generation->choices[0].result.finish));

    json_object_set_new(reply, "timings", talk_timings(t));
    talk_add_warnings(t, reply);
    return reply;
}

static void open_stream(struct talk *t, struct buf *out)
{
    json_t *start = json_pack("{s:s, s:o}", "type", "message_start", "message", message(t, json_array(), NULL));

    talk_add_warnings(t, start);
    sse_event(out, "message_start", start);
    sse_event(out, "content_block_start",
              json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_start", "index", 0, "content_block", "type", "text",
                        "text", ""));
    sse_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

static void piece(struct talk *t, uint32_t choice, const struct ingot_event *event, struct buf *out)
{
    struct talk_choice *c = &t->choices[choice];

    (void)event;
    if (c->text.n > 0)
        sse_event(out, "content_block_delta",
                  json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", 0, "delta", "type", "text_delta",
                            "text", text_json(&c->text)));
    c->text.n = 0;
}

static void close_stream(struct talk *t, struct buf *out)
{
    const char *reason = stop_reason(t->generation->choices[0].result.finish);

    sse_event(out, "content_block_stop", json_pack("{s:s, s:i}", "type", "content_block_stop", "index", 0));
    sse_event(out, "message_delta",
              json_pack("{s:s, s:{s:s, s:n}, s:o}", "type", "message_delta", "delta", "stop_reason", reason, "stop_sequence",
                        "usage", usage(t)));
    sse_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void quiet(struct talk *t, struct buf *out)
{
    (void)t;
    sse_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

static void fail_stream(struct talk *t, const struct err *err, struct buf *out)
{
    (void)t;
    sse_event(out, "error",
              json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type",
                        err->code == ERR_CANCELLED ? "overloaded_error" : "api_error", "message", sse_text(err->message)));
}

const struct dialect_voice voice_messages = { open_stream, piece, close_stream, quiet, fail_stream, whole };
