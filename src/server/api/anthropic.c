// anthropic.c - responses in the form of Anthropic's Messages API, whole and streamed, in the order of events
// that its clients require.
//
// A stream is a sequence of blocks: thinking, text, and one for each tool call. A block is opened by its
// first piece. A message without pieces has one empty text block. Not here: parsing the request
// (api_request.c, chat_messages.c).
#include "server/api/api_response.h"
#include "server/api/served_model.h"
#include "server/http/sse.h"

static const char *stop_reason(const struct api_response *t)
{
    enum ingot_finish finish = t->generation->choices[0].result.finish;

    if (finish == INGOT_FINISH_LENGTH)
        return "max_tokens";
    return t->choices[0].n_calls ? "tool_use" : finish == INGOT_FINISH_STOP ? "stop_sequence" : "end_turn";
}

// The stop string that ended the answer; NULL: it ended otherwise.
static json_t *stop_sequence(const struct api_response *t)
{
    const struct ingot_result *r = &t->generation->choices[0].result;
    json_t *list = t->request.stop_list, *stop = json_is_array(list) ? json_array_get(list, r->stop) : list;

    return !strcmp(stop_reason(t), "stop_sequence") ? json_incref(stop) : NULL;
}

static json_t *usage(const struct api_response *t)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:n, s:n}", "input_tokens", (int)(t->n_prompt - t->n_reused),
                     "cache_read_input_tokens", (int)t->n_reused, "cache_creation_input_tokens", 0,
                     "output_tokens", (int)t->n_generated, "output_tokens_details", "server_tool_use");
}

// Fields that the clients' types require and this server does not have are null.
static json_t *message(const struct api_response *t, json_t *content, const char *reason)
{
    static const char *const elsewhere[] = { "cache_creation", "inference_geo", "service_tier", "speed" };
    json_t *used = usage(t);

    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        json_object_set_new(used, elsewhere[i], json_null());
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:o?, s:o, s:n, s:n, s:n}", "id", t->id, "type",
                     "message", "role", "assistant", "model", t->name, "content", content, "stop_reason",
                     reason, "stop_sequence", reason ? stop_sequence(t) : NULL, "usage", used, "container",
                     "diagnostics", "stop_details");
}

static json_t *text_block(json_t *text)
{
    return json_pack("{s:s, s:o, s:n}", "type", "text", "text", text, "citations");
}

static json_t *call_block(const struct api_response_call *call, json_t *name, json_t *input)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:{s:s}}", "type", "tool_use", "id", call->id, "name", name,
                     "input", input, "caller", "type", "direct");
}

static json_t *whole(struct api_response *t)
{
    const struct api_response_choice *c = &t->choices[0];
    json_t *content = json_array();

    if (c->reasoning.n > 0)
        json_array_append_new(content, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                                 api_response_text(&c->reasoning), "signature", ""));
    if (c->text.n > 0 || c->n_calls == 0)
        json_array_append_new(content, text_block(api_response_text(&c->text)));
    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(content, call_block(&c->calls[i], api_response_text(&c->calls[i].name),
                                                  api_response_call_input(&c->calls[i])));
    json_t *reply = message(t, content, stop_reason(t));
    json_object_set_new(reply, "timings", api_response_timings(t));
    api_response_add_warnings(t, reply);
    return reply;
}

static void open_stream(struct api_response *t, struct buf *out)
{
    json_t *start =
        json_pack("{s:s, s:o}", "type", "message_start", "message", message(t, json_array(), NULL));

    api_response_add_warnings(t, start);
    sse_event(out, "message_start", start);
    sse_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

// ---- blocks

static void close_block(struct api_response_choice *c, struct buf *out)
{
    if (c->block < 0)
        return;
    c->block = -1;
    sse_event(out, "content_block_stop",
              json_pack("{s:s, s:i}", "type", "content_block_stop", "index", (int)c->n_blocks - 1));
}

static void open_block(struct api_response_choice *c, int kind, json_t *content, struct buf *out)
{
    close_block(c, out);
    c->block = kind;
    sse_event(out, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", (int)c->n_blocks++,
                        "content_block", content));
}

static void delta(struct api_response_choice *c, const char *type, const char *field, struct str text,
                  struct buf *out)
{
    sse_event(out, "content_block_delta",
              json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                        (int)c->n_blocks - 1, "delta", "type", type, field, json_stringn(text.at, text.n)));
}

static void piece(struct api_response *t, uint32_t choice, const struct output_piece *p, struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];

    switch (p->kind) {
    case PIECE_CONTENT:
        if (c->block != PIECE_CONTENT)
            open_block(c, PIECE_CONTENT, text_block(json_string("")), out);
        delta(c, "text_delta", "text", p->text, out);
        return;
    case PIECE_REASONING:
        if (c->block != PIECE_REASONING)
            open_block(c, PIECE_REASONING,
                       json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""),
                       out);
        delta(c, "thinking_delta", "thinking", p->text, out);
        return;
    case PIECE_CALL:
        open_block(c, PIECE_CALL,
                   call_block(&c->calls[c->n_calls - 1], json_stringn(p->text.at, p->text.n), json_object()),
                   out);
        return;
    case PIECE_ARGUMENTS:
        delta(c, "input_json_delta", "partial_json", p->text, out);
        return;
    case PIECE_CALL_END:
        close_block(c, out);
        return;
    }
}

static void finish(struct api_response *t, uint32_t choice, struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];

    if (c->n_blocks == 0)
        open_block(c, PIECE_CONTENT, text_block(json_string("")), out);
    close_block(c, out);
}

static void close_stream(struct api_response *t, struct buf *out)
{
    sse_event(out, "message_delta",
              json_pack("{s:s, s:{s:s, s:o?, s:n, s:n}, s:o}", "type", "message_delta", "delta",
                        "stop_reason", stop_reason(t), "stop_sequence", stop_sequence(t), "container",
                        "stop_details", "usage", usage(t)));
    sse_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void keep_alive(struct api_response *t, struct buf *out)
{
    (void)t;
    sse_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

static void fail_stream(struct api_response *t, const struct err *err, struct buf *out)
{
    (void)t;
    sse_event(out, "error",
              json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type",
                        err->code == ERR_CANCELLED ? "overloaded_error" : "api_error", "message",
                        sse_text(err->message)));
}

const struct api_format api_format_messages = { NULL,         open_stream, piece,       finish,
                                                close_stream, keep_alive,  fail_stream, whole };
