// ollama.c - responses in the form of Ollama at /api/chat, /api/generate and /api/embed: one JSON object, or
// a stream with one object a line.
//
// The last object has the figures, in nanoseconds. A tool call is written when it is complete, its arguments
// as an object. Not here: parsing the request (api_request_ollama.c), the description of the model (info.c).
#include <time.h>
#include "server/api/api_response.h"
#include "server/api/served_model.h"
#include "server/http/sse.h"

static bool is_chat(const struct api_response *t)
{
    return t->request.dialect == DIALECT_OLLAMA_CHAT;
}

static json_int_t ns_of(double ms)
{
    return (json_int_t)(ms * 1e6);
}

static json_t *frame(const struct api_response *t, bool done)
{
    time_t at = (time_t)t->created;
    char when[32] = "1970-01-01T00:00:00Z";
    struct tm tm;

    if (gmtime_r(&at, &tm))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_pack("{s:s, s:s, s:b}", "model", t->name, "created_at", when, "done", done);
}

// Adds the parts of an answer at the place that the endpoint has for them. Takes what is not NULL.
static void put(const struct api_response *t, json_t *to, json_t *text, json_t *thinking, json_t *calls)
{
    json_t *place = is_chat(t) ? json_pack("{s:s}", "role", "assistant") : json_incref(to);

    json_object_set_new(place, is_chat(t) ? "content" : "response", text ? text : json_string(""));
    if (thinking)
        json_object_set_new(place, "thinking", thinking);
    if (calls)
        json_object_set_new(place, "tool_calls", calls);
    if (is_chat(t))
        json_object_set(to, "message", place);
    json_decref(place);
}

static json_t *call_json(const struct api_response_call *call)
{
    return json_pack("{s:{s:o, s:o}}", "function", "name", api_response_text(&call->name), "arguments",
                     api_response_call_input(call));
}

static void add_logprobs(struct api_response *t, json_t *to)
{
    struct api_response_choice *c = &t->choices[0];

    if (!t->request.logprobs)
        return;
    json_object_set_new(to, "logprobs", c->logprobs);
    c->logprobs = json_array();
}

static void add_figures(struct api_response *t, json_t *to)
{
    const struct ingot_result *r = &t->generation->choices[0].result;
    json_t *figures =
        json_pack("{s:s, s:I, s:i, s:i, s:I, s:i, s:I}", "done_reason",
                  r->finish == INGOT_FINISH_LENGTH ? "length" : "stop", "total_duration",
                  ns_of(r->first_token_ms + r->decode_ms), "load_duration", 0, "prompt_eval_count",
                  (int)r->n_prompt, "prompt_eval_duration", ns_of(r->prefill_ms), "eval_count",
                  (int)r->n_generated, "eval_duration", ns_of(r->decode_ms));

    json_object_update(to, figures);
    json_decref(figures);
}

static json_t *whole(struct api_response *t)
{
    const struct api_response_choice *c = &t->choices[0];
    json_t *reply = frame(t, true), *calls = c->n_calls ? json_array() : NULL;

    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(calls, call_json(&c->calls[i]));
    put(t, reply, api_response_text(&c->text), c->reasoning.n ? api_response_text(&c->reasoning) : NULL,
        calls);
    add_logprobs(t, reply);
    add_figures(t, reply);
    api_response_add_warnings(t, reply);
    return reply;
}

// ---- the stream

// Takes value.
static void write_line(struct buf *out, json_t *value)
{
    sse_json(out, value);
    buf_append(out, "\n", 1);
}

static void piece(struct api_response *t, uint32_t choice, const struct output_piece *p, struct buf *out)
{
    const struct api_response_choice *c = &t->choices[choice];
    bool call = p->kind == PIECE_CALL_END && c->n_calls;

    if (p->kind == PIECE_CALL || p->kind == PIECE_ARGUMENTS)
        return;
    json_t *event = frame(t, false), *text = call ? NULL : json_stringn(p->text.at, p->text.n);
    bool thinking = p->kind == PIECE_REASONING;
    put(t, event, thinking ? NULL : text, thinking ? text : NULL,
        call ? json_pack("[o]", call_json(&c->calls[c->n_calls - 1])) : NULL);
    add_logprobs(t, event);
    write_line(out, event);
}

static void finish(struct api_response *t, uint32_t choice, struct buf *out)
{
    json_t *event = frame(t, true);

    (void)choice;
    put(t, event, NULL, NULL, NULL);
    add_logprobs(t, event);
    add_figures(t, event);
    api_response_add_warnings(t, event);
    write_line(out, event);
}

// NDJSON has no comments, and most clients reject blank lines: an empty piece is sent.
static void keep_alive(struct api_response *t, struct buf *out)
{
    json_t *event = frame(t, false);

    put(t, event, NULL, NULL, NULL);
    write_line(out, event);
}

static void fail_stream(struct api_response *t, const struct err *err, struct buf *out)
{
    (void)t;
    write_line(out, json_pack("{s:o}", "error", sse_text(err->message)));
}

const struct api_format api_format_ollama = {
    "application/x-ndjson", NULL, piece, finish, NULL, keep_alive, fail_stream, whole
};

// ---- embeddings

static json_t *whole_embed(struct api_response *t)
{
    const struct ingot_result *r = &t->generation->choices[0].result;
    json_t *list = json_array();

    for (uint32_t i = 0; i < t->n_choices; i++)
        json_array_append_new(list, embeddings_numbers(&t->choices[i].text));
    json_t *reply =
        json_pack("{s:s, s:o, s:I, s:i, s:i}", "model", t->name, "embeddings", list, "total_duration",
                  ns_of(r->first_token_ms), "load_duration", 0, "prompt_eval_count", (int)t->n_prompt);
    api_response_add_warnings(t, reply);
    return reply;
}

const struct api_format api_format_ollama_embed = { .whole = whole_embed };
