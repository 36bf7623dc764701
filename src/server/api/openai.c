// openai.c - responses in the form of OpenAI's chat completions and completions, whole and streamed.
//
// Beyond OpenAI's fields a reply has `timings` (as llama.cpp's server names them) and `warnings` (see
// api_request.h). The usage has the number of prompt tokens that came from the prefix cache. Not here:
// parsing the request (api_request.c), parsing the answer (api_response_parse.c).
#include <math.h>
#include "server/api/api_response.h"
#include "server/api/logprobs.h"
#include "server/api/served_model.h"
#include "server/generation/vocab.h"
#include "server/http/sse.h"

static bool is_chat(const struct api_response *t)
{
    return t->request.dialect == DIALECT_CHAT;
}

static json_t *usage(const struct api_response *t)
{
    return json_pack("{s:i, s:i, s:i, s:{s:i, s:i}}", "prompt_tokens", (int)t->n_prompt, "completion_tokens",
                     (int)t->n_generated, "total_tokens", (int)(t->n_prompt + t->n_generated),
                     "prompt_tokens_details", "cached_tokens", (int)t->n_reused, "cache_write_tokens", 0);
}

static json_t *frame(const struct api_response *t, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", t->id, "object", object, "created",
                     (json_int_t)t->created, "model", t->name, "system_fingerprint", "ingot-" INGOT_VERSION);
}

static json_t *choice_logprobs(struct api_response *t, struct api_response_choice *c)
{
    if (!t->request.logprobs)
        return json_null();
    if (is_chat(t))
        return json_pack("{s:O, s:n}", "content", c->logprobs, "refusal");
    return logprobs_legacy(c->logprobs);
}

// The text of a completion; the first text of an answer follows the echoed prompt.
static json_t *text_of(const struct api_response *t, uint32_t choice, struct str piece)
{
    struct buf text = { 0 };

    if (t->request.echo && t->model->info.has_tokenizer && !t->choices[choice].opened)
        vocab_decode(t->model->engine, &t->prompts.at[choice / t->request.n_per_prompt], 0, &text);
    buf_str(&text, piece);
    json_t *value = api_response_text(&text);
    buf_free(&text);
    return value;
}

static json_t *whole_message(const struct api_response_choice *c)
{
    json_t *message = json_pack("{s:s, s:n}", "role", "assistant", "refusal"), *calls = json_array();

    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", c->calls[i].id, "type", "function",
                                        "function", "name", api_response_text(&c->calls[i].name), "arguments",
                                        api_response_text(&c->calls[i].arguments)));
    json_object_set_new(message, "content",
                        c->n_calls && c->text.n == 0 ? json_null() : api_response_text(&c->text));
    if (c->reasoning.n > 0)
        json_object_set_new(message, "reasoning_content", api_response_text(&c->reasoning));
    if (c->n_calls > 0)
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    return message;
}

static json_t *whole_choice(struct api_response *t, uint32_t i, uint32_t index)
{
    struct api_response_choice *c = &t->choices[i];
    json_t *choice =
        json_pack("{s:i, s:s}", "index", (int)index, "finish_reason", api_response_finish_name(t, i));

    json_object_set_new(choice, "logprobs", choice_logprobs(t, c));
    if (is_chat(t))
        json_object_set_new(choice, "message", whole_message(c));
    else
        json_object_set_new(choice, "text", text_of(t, i, buf_as_str(&c->text)));
    return choice;
}

static double mean_score(const struct api_response_choice *c)
{
    return c->n_scored ? c->score / c->n_scored : -INFINITY; // an empty answer is never the best
}

// The prompt's next answer that is not returned yet; with best_of the one with the best mean log-probability.
static uint32_t next_choice(struct api_response *t, uint32_t prompt)
{
    uint32_t first = prompt * t->request.n_per_prompt, best = UINT32_MAX;

    for (uint32_t i = first; i < first + t->request.n_per_prompt; i++)
        if (!t->choices[i].returned &&
            (best == UINT32_MAX || mean_score(&t->choices[i]) > mean_score(&t->choices[best])))
            best = i;
    t->choices[best].returned = true;
    return best;
}

static json_t *whole(struct api_response *t)
{
    json_t *reply = frame(t, is_chat(t) ? "chat.completion" : "text_completion"), *choices = json_array();

    for (uint32_t i = 0; i < t->prompts.n * t->request.n; i++)
        json_array_append_new(choices, whole_choice(t, next_choice(t, i / t->request.n), i));
    json_object_set_new(reply, "choices", choices);
    json_object_set_new(reply, "usage", usage(t));
    json_object_set_new(reply, "timings", api_response_timings(t));
    api_response_add_warnings(t, reply);
    return reply;
}

// Writes one event with one choice. Takes delta; finish may be NULL.
static void chunk(struct api_response *t, uint32_t choice, json_t *delta, const char *finish, struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    json_t *event = frame(t, is_chat(t) ? "chat.completion.chunk" : "text_completion");
    json_t *entry = json_pack("{s:i, s:o, s:s?}", "index", (int)choice, is_chat(t) ? "delta" : "text", delta,
                              "finish_reason", finish);

    json_object_set_new(entry, "logprobs",
                        json_array_size(c->logprobs) ? choice_logprobs(t, c) : json_null());
    if (t->request.logprobs) {
        json_decref(c->logprobs);
        c->logprobs = json_array();
    }
    json_object_set_new(event, "choices", json_pack("[o]", entry));
    if (t->request.include_usage)
        json_object_set_new(event, "usage", json_null());
    if (choice == 0 && !c->opened)
        api_response_add_warnings(t, event);
    c->opened = true;
    sse_event(out, NULL, event);
}

static void open_stream(struct api_response *t, struct buf *out)
{
    for (uint32_t i = 0; i < t->n_choices && is_chat(t); i++)
        chunk(t, i, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, out);
}

static json_t *delta_of(const struct api_response_choice *c, const struct output_piece *piece)
{
    json_t *text = json_stringn(piece->text.at, piece->text.n);

    switch (piece->kind) {
    case PIECE_CONTENT:
        return json_pack("{s:o}", "content", text);
    case PIECE_REASONING:
        return json_pack("{s:o}", "reasoning_content", text);
    case PIECE_CALL:
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index", (int)piece->call, "id",
                         c->calls[c->n_calls - 1].id, "type", "function", "function", "name", text,
                         "arguments", "");
    case PIECE_ARGUMENTS:
        return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)piece->call, "function",
                         "arguments", text);
    case PIECE_CALL_END:
        break;
    }
    json_decref(text);
    return NULL;
}

static void write_piece(struct api_response *t, uint32_t choice, const struct output_piece *p,
                        struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    json_t *delta = is_chat(t) ? delta_of(c, p) : text_of(t, choice, p->text);

    if (delta)
        chunk(t, choice, delta, NULL, out);
}

// Writes the event of a piece with a mark in place of its text, and cuts the mark out.
static void make_frame(struct api_response *t, uint32_t choice, enum piece_kind kind)
{
    struct buf *frame = &t->choices[choice].frame;
    const struct output_piece mark = { kind, 0, STR("\x1f") };
    const struct str written = STR("\\u001F");

    frame->n = 0;
    write_piece(t, choice, &mark, frame);
    size_t at = str_find(buf_as_str(frame), written);
    frame->failed |= at == SIZE_MAX;
    if (frame->failed)
        return;
    frame->n -= written.n;
    memmove(frame->at + at, frame->at + at + written.n, frame->n - at);
    t->choices[choice].frame_at = at;
    t->choices[choice].frame_kind = kind;
}

// The hot path of a stream: the event around a text is written once, and then reused.
static void piece(struct api_response *t, uint32_t choice, const struct output_piece *p, struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    bool text = p->kind == PIECE_CONTENT || p->kind == PIECE_REASONING;

    if (!text || t->request.logprobs || !c->opened) {
        write_piece(t, choice, p, out);
        return;
    }
    if (c->frame.n == 0 || c->frame_kind != p->kind)
        make_frame(t, choice, p->kind);
    struct str frame = buf_as_str(&c->frame);
    out->failed |= c->frame.failed;
    buf_str(out, str_from_to(frame, 0, c->frame_at));
    sse_escape(out, p->text);
    buf_str(out, str_from_to(frame, c->frame_at, frame.n));
}

static void finish(struct api_response *t, uint32_t choice, struct buf *out)
{
    chunk(t, choice, is_chat(t) ? json_object() : text_of(t, choice, STR("")),
          api_response_finish_name(t, choice), out);
}

static void close_stream(struct api_response *t, struct buf *out)
{
    if (t->request.include_usage) {
        json_t *event = frame(t, is_chat(t) ? "chat.completion.chunk" : "text_completion");
        json_object_set_new(event, "choices", json_array());
        json_object_set_new(event, "usage", usage(t));
        json_object_set_new(event, "timings", api_response_timings(t));
        sse_event(out, NULL, event);
    }
    buf_text(out, "data: [DONE]\n\n");
}

static void fail_stream(struct api_response *t, const struct err *err, struct buf *out)
{
    (void)t;
    sse_event(out, NULL,
              json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", sse_text(err->message), "type",
                        "server_error", "param", "code",
                        err->code == ERR_CANCELLED ? "stopping"
                        : err->code == ERR_NUMERIC ? "numerical_error"
                                                   : "server_error"));
}

const struct api_format api_format_chat = { NULL,         open_stream, piece,       finish,
                                            close_stream, NULL,        fail_stream, whole };
const struct api_format api_format_text = { NULL,         open_stream, piece,       finish,
                                            close_stream, NULL,        fail_stream, whole };
