// responses.c - responses in the form of OpenAI's Responses API, whole and as a stream of numbered events.
//
// An answer is a list of items: reasoning, messages, tool calls. In a stream an item is opened by its first
// piece, and written once more in full when it is complete. Nothing is stored, so previous_response_id is not
// supported. Not here: parsing the request (api_request.c, chat_messages.c).
#include "server/api/api_response.h"
#include "server/api/served_model.h"
#include "server/http/sse.h"

static json_t *usage(const struct api_response *t)
{
    return json_pack("{s:i, s:{s:i, s:i}, s:i, s:{s:i}, s:i}", "input_tokens", (int)t->n_prompt,
                     "input_tokens_details", "cached_tokens", (int)t->n_reused, "cache_write_tokens", 0,
                     "output_tokens", (int)t->n_generated, "output_tokens_details", "reasoning_tokens", 0,
                     "total_tokens", (int)(t->n_prompt + t->n_generated));
}

static json_t *text_part(json_t *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations",
                     "logprobs");
}

// status: "in_progress" or "completed".
static json_t *message_item(const char *id, json_t *part, const char *status)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status, "role",
                     "assistant", "content", part ? json_pack("[o]", part) : json_array());
}

static json_t *reasoning_item(const char *id, json_t *text, const char *status)
{
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", id, "status", status, "summary",
                     "content",
                     text ? json_pack("[{s:s, s:o}]", "type", "reasoning_text", "text", text) : json_array());
}

static json_t *call_item(const struct api_response_call *call, const char *status)
{
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:s}", "type", "function_call", "id",
                     json_sprintf("fc_%s", call->id), "call_id", call->id, "name",
                     api_response_text(&call->name), "arguments", api_response_text(&call->arguments),
                     "status", status);
}

static json_t *frame(const struct api_response *t, const char *status, json_t *output)
{
    json_t *reply =
        json_pack("{s:s, s:s, s:I, s:s, s:n, s:n, s:n, s:n, s:s, s:o}", "id", t->id, "object", "response",
                  "created_at", (json_int_t)t->created, "status", status, "error", "incomplete_details",
                  "instructions", "previous_response_id", "model", t->name, "output", output);

    json_t *more =
        json_pack("{s:b, s:f, s:f, s:s, s:s, s:b, s:{s:{s:s}}, s:{}, s:[], s:n}", "parallel_tool_calls",
                  !t->request.one_call, "temperature", api_request_number(t->request.sampling.temperature),
                  "top_p", api_request_number(t->request.sampling.top_p), "tool_choice",
                  t->request.choice >= CHOICE_REQUIRED ? "required"
                  : t->request.choice == CHOICE_NONE   ? "none"
                                                       : "auto",
                  "truncation", "disabled", "store", 0, "text", "format", "type", "text", "metadata", "tools",
                  "max_output_tokens");
    json_object_update(reply, more);
    json_object_update(reply, t->request.repeated);
    json_decref(more);
    return reply;
}

static json_t *final_reply(struct api_response *t, json_t *output)
{
    bool cut = t->generation->choices[0].result.finish == INGOT_FINISH_LENGTH;
    json_t *reply = frame(t, cut ? "incomplete" : "completed", output);

    if (cut)
        json_object_set_new(reply, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    json_object_set_new(reply, "usage", usage(t));
    json_object_set_new(reply, "timings", api_response_timings(t));
    api_response_add_warnings(t, reply);
    return reply;
}

// The id of an item: that of the response with a prefix and a number.
static const char *item_id(const struct api_response *t, const char *prefix, uint32_t index, char room[64])
{
    snprintf(room, 64, "%s_%s_%u", prefix, t->id + strlen("resp_"), index);
    return room;
}

static json_t *whole(struct api_response *t)
{
    const struct api_response_choice *c = &t->choices[0];
    json_t *output = json_array();
    char id[64];

    if (c->reasoning.n > 0)
        json_array_append_new(
            output, reasoning_item(item_id(t, "rs", 0, id), api_response_text(&c->reasoning), "completed"));
    if (c->text.n > 0 || c->n_calls == 0)
        json_array_append_new(output, message_item(item_id(t, "msg", 1, id),
                                                   text_part(api_response_text(&c->text)), "completed"));
    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(output, call_item(&c->calls[i], "completed"));
    return final_reply(t, output);
}

// ---- the stream

// Takes event.
static void write_event(struct api_response *t, const char *type, json_t *event, struct buf *out)
{
    json_object_set_new(event, "type", json_string(type));
    json_object_set_new(event, "sequence_number", json_integer((json_int_t)t->n_events++));
    sse_event(out, type, event);
}

static void open_stream(struct api_response *t, struct buf *out)
{
    json_t *reply = frame(t, "in_progress", json_array());

    api_response_add_warnings(t, reply);
    t->items = json_array();
    write_event(t, "response.created", json_pack("{s:O}", "response", reply), out);
    write_event(t, "response.in_progress", json_pack("{s:o}", "response", reply), out);
}

static const char *open_id(const struct api_response *t, const struct api_response_choice *c, char room[64])
{
    return item_id(t, c->block == PIECE_REASONING ? "rs" : "msg", c->n_blocks - 1, room);
}

// The fields that every event within an item has.
static json_t *item_event(const struct api_response *t, const struct api_response_choice *c)
{
    char id[64];
    json_t *name = c->block == PIECE_CALL ? json_sprintf("fc_%s", c->calls[c->n_calls - 1].id)
                                          : json_string(open_id(t, c, id));
    json_t *event = json_pack("{s:o, s:i}", "item_id", name, "output_index", (int)c->n_blocks - 1);

    if (c->block != PIECE_CALL)
        json_object_set_new(event, "content_index", json_integer(0));
    return event;
}

static void write_field(struct api_response *t, const char *type, const char *field, json_t *value,
                        struct buf *out)
{
    json_t *event = item_event(t, &t->choices[0]);

    json_object_set_new(event, field, value);
    if (!strncmp(type, "response.output_text", 20))
        json_object_set_new(event, "logprobs", json_array());
    write_event(t, type, event, out);
}

static void item_done(struct api_response *t, json_t *item, struct buf *out)
{
    const struct api_response_choice *c = &t->choices[0];

    json_array_append(t->items, item);
    write_event(t, "response.output_item.done",
                json_pack("{s:i, s:o}", "output_index", (int)c->n_blocks - 1, "item", item), out);
}

static json_t *item_text(const struct buf *text, size_t from)
{
    struct str s = str_from_to(buf_as_str(text), from, text->n);
    return json_stringn(s.at, s.n);
}

static void close_item(struct api_response *t, struct buf *out)
{
    struct api_response_choice *c = &t->choices[0];
    char id[64];

    if (c->block == PIECE_CONTENT) {
        json_t *text = item_text(&c->text, c->text_offset);
        write_field(t, "response.output_text.done", "text", json_incref(text), out);
        write_field(t, "response.content_part.done", "part", text_part(json_incref(text)), out);
        item_done(t, message_item(open_id(t, c, id), text_part(text), "completed"), out);
    } else if (c->block == PIECE_REASONING) {
        write_field(t, "response.reasoning_text.done", "text", api_response_text(&c->reasoning), out);
        item_done(t, reasoning_item(open_id(t, c, id), api_response_text(&c->reasoning), "completed"), out);
    } else if (c->block == PIECE_CALL) {
        const struct api_response_call *call = &c->calls[c->n_calls - 1];
        json_t *event = item_event(t, c);
        json_object_set_new(event, "name", api_response_text(&call->name));
        json_object_set_new(event, "arguments", api_response_text(&call->arguments));
        write_event(t, "response.function_call_arguments.done", event, out);
        item_done(t, call_item(call, "completed"), out);
    }
    c->block = -1;
}

static void open_item(struct api_response *t, int kind, struct buf *out)
{
    struct api_response_choice *c = &t->choices[0];
    char id[64];

    close_item(t, out);
    c->block = kind;
    c->n_blocks++;
    json_t *item = kind == PIECE_CALL        ? call_item(&c->calls[c->n_calls - 1], "in_progress")
                   : kind == PIECE_REASONING ? reasoning_item(open_id(t, c, id), NULL, "in_progress")
                                             : message_item(open_id(t, c, id), NULL, "in_progress");
    write_event(t, "response.output_item.added",
                json_pack("{s:i, s:o}", "output_index", (int)c->n_blocks - 1, "item", item), out);
    if (kind == PIECE_CONTENT)
        write_field(t, "response.content_part.added", "part", text_part(json_string("")), out);
}

static void piece(struct api_response *t, uint32_t choice, const struct output_piece *p, struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    json_t *text = json_stringn(p->text.at, p->text.n);

    if (p->kind == PIECE_CONTENT && c->block != PIECE_CONTENT) {
        open_item(t, PIECE_CONTENT, out);
        c->text_offset = c->text.n - p->text.n; // c->text has this piece already
    }
    if (p->kind == PIECE_REASONING && c->block != PIECE_REASONING)
        open_item(t, PIECE_REASONING, out);
    if (p->kind == PIECE_CALL)
        open_item(t, PIECE_CALL, out);
    if (p->kind == PIECE_CONTENT)
        write_field(t, "response.output_text.delta", "delta", json_incref(text), out);
    if (p->kind == PIECE_REASONING)
        write_field(t, "response.reasoning_text.delta", "delta", json_incref(text), out);
    if (p->kind == PIECE_ARGUMENTS)
        write_field(t, "response.function_call_arguments.delta", "delta", json_incref(text), out);
    if (p->kind == PIECE_CALL_END)
        close_item(t, out);
    json_decref(text);
}

static void finish(struct api_response *t, uint32_t choice, struct buf *out)
{
    if (t->choices[choice].n_blocks == 0)
        open_item(t, PIECE_CONTENT, out);
    close_item(t, out);
}

static void close_stream(struct api_response *t, struct buf *out)
{
    json_t *reply = final_reply(t, json_incref(t->items));
    const char *type = json_is_null(json_object_get(reply, "incomplete_details")) ? "response.completed"
                                                                                  : "response.incomplete";

    write_event(t, type, json_pack("{s:o}", "response", reply), out);
}

static void fail_stream(struct api_response *t, const struct err *err, struct buf *out)
{
    json_t *reply = frame(t, "failed", json_array());

    json_object_set_new(reply, "error",
                        json_pack("{s:s, s:o}", "code", "server_error", "message", sse_text(err->message)));
    write_event(t, "response.failed", json_pack("{s:o}", "response", reply), out);
}

const struct api_format api_format_responses = { NULL,         open_stream, piece,       finish,
                                                 close_stream, NULL,        fail_stream, whole };
