// llamacpp.c - responses in the form of llama.cpp's server at /completion and /infill, whole and streamed.
//
// The answer to one prompt is an object, to a list of prompts a list. In a stream each piece is an object
// with "stop": false, and the last one has the figures of the whole answer. Not here: parsing the request
// (api_request.c), fill-in-the-middle prompts (infill.c).
#include "server/api/api_response.h"
#include "server/api/served_model.h"
#include "server/http/sse.h"

static const char *stop_type(const struct ingot_result *r)
{
    return r->finish == INGOT_FINISH_LENGTH ? "limit" : r->finish == INGOT_FINISH_STOP ? "word" : "eos";
}

static json_t *stopping_word(const struct api_response *t, const struct ingot_result *r)
{
    json_t *list = t->request.stop_list, *word = json_is_array(list) ? json_array_get(list, r->stop) : list;
    return r->finish == INGOT_FINISH_STOP && word ? json_incref(word) : json_string("");
}

static json_t *settings(const struct api_response *t)
{
    const struct ingot_sampling *s = &t->request.sampling;
    json_int_t most = t->request.max_tokens ? (json_int_t)t->request.max_tokens : -1;

    return json_pack("{s:I, s:I, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:O*, s:b, s:b, s:i, s:i}",
                     "n_predict", most, "max_tokens", most, "top_k", (int)s->top_k, "temperature",
                     api_request_number(s->temperature), "top_p", api_request_number(s->top_p), "min_p",
                     api_request_number(s->min_p), "repeat_last_n", (int)s->penalty_window, "repeat_penalty",
                     api_request_number(s->repeat_penalty), "presence_penalty",
                     api_request_number(s->presence_penalty), "frequency_penalty",
                     api_request_number(s->frequency_penalty), "stop", t->request.stop_list, "stream",
                     t->request.stream, "ignore_eos", t->request.ignore_eos, "n_probs",
                     (int)t->request.top_logprobs, "n_ctx", (int)t->model->info.n_context);
}

// The tokens since the last call, with return_tokens.
static json_t *take_tokens(struct api_response_choice *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->tokens.n; i++)
        json_array_append_new(list, json_integer(c->tokens.ids[i]));
    c->tokens.n = 0;
    return list;
}

static void add_probabilities(struct api_response *t, struct api_response_choice *c, json_t *to)
{
    if (!t->request.logprobs)
        return;
    json_object_set_new(to, "completion_probabilities", c->logprobs);
    c->logprobs = json_array();
}

// Takes text.
static json_t *part(struct api_response *t, uint32_t choice, json_t *text, bool stop)
{
    struct api_response_choice *c = &t->choices[choice];
    json_t *value = json_pack("{s:i, s:o, s:o, s:b, s:i}", "index", (int)choice, "content", text, "tokens",
                              take_tokens(c), "stop", stop, "id_slot", -1);

    add_probabilities(t, c, value);
    return value;
}

// Takes text.
static json_t *last_part(struct api_response *t, uint32_t choice, json_t *text)
{
    const struct ingot_result *r = &t->generation->choices[choice].result;
    json_t *value = part(t, choice, text, true),
           *more = json_pack("{s:s, s:i, s:i, s:i, s:b, s:s, s:o, s:o, s:o}", "model", t->name,
                             "tokens_predicted", (int)(t->request.echo_only ? 0 : r->n_generated),
                             "tokens_evaluated", (int)r->n_prompt, "tokens_cached", (int)r->n_reused,
                             "truncated", 0, "stop_type", stop_type(r), "stopping_word", stopping_word(t, r),
                             "generation_settings", settings(t), "timings", api_response_timings(t));

    json_object_update(value, more);
    json_decref(more);
    if (choice == 0)
        api_response_add_warnings(t, value);
    return value;
}

static json_t *whole(struct api_response *t)
{
    json_t *list = json_array(), *only;

    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct api_response_choice *c = &t->choices[i];
        bool lines = c->text.n && memchr(c->text.at, '\n', c->text.n);
        json_t *value = last_part(t, i, api_response_text(&c->text));
        json_object_set_new(value, "has_new_line", json_boolean(lines));
        json_array_append_new(list, value);
    }
    if (t->n_choices > 1)
        return list;
    only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

static void piece(struct api_response *t, uint32_t choice, const struct output_piece *p, struct buf *out)
{
    sse_event(out, NULL, part(t, choice, json_stringn(p->text.at, p->text.n), false));
}

static void finish(struct api_response *t, uint32_t choice, struct buf *out)
{
    sse_event(out, NULL, last_part(t, choice, json_string("")));
}

static void fail_stream(struct api_response *t, const struct err *err, struct buf *out)
{
    (void)t;
    sse_event(out, NULL,
              json_pack("{s:{s:i, s:o, s:s}}", "error", "code", err->code == ERR_CANCELLED ? 503 : 500,
                        "message", sse_text(err->message), "type",
                        err->code == ERR_CANCELLED ? "unavailable_error" : "server_error"));
}

const struct api_format api_format_llamacpp = {
    .piece = piece, .finish = finish, .fail = fail_stream, .whole = whole
};
