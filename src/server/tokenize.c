// tokenize.c - see tokenize.h.
#include "server/tokenize.h"
#include "server/answer.h"
#include "server/api/prompts.h"
#include "server/generation/vocab.h"
#include "server/state.h"
#include "text/tokenizer/token_json.h"

static json_t *tokens_json(const struct ingot_engine *engine, const struct token_ids *ids, bool with_pieces)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ids->n; i++) {
        json_t *id = json_integer(ids->ids[i]);
        json_array_append_new(list, with_pieces ? json_pack("{s:o, s:o}", "id", id, "piece",
                                                            token_json(vocab_bytes(engine, ids->ids[i])))
                                                : id);
    }
    return list;
}

static bool read_text(const struct server *s, json_t *body, struct token_ids *ids, struct err *err)
{
    json_t *text =
        json_object_get(body, "content") ? json_object_get(body, "content") : json_object_get(body, "prompt");
    unsigned flags = (json_is_true(json_object_get(body, "add_special")) ? INGOT_ADD_SPECIAL : 0) |
                     (json_is_true(json_object_get(body, "parse_special")) ? INGOT_PARSE_SPECIAL : 0);

    if (!json_is_string(text))
        return err_set(err, ERR_INPUT, "content: want a string");
    if (!s->model.info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer");
    return vocab_encode(s->model.engine, (struct str){ json_string_value(text), json_string_length(text) },
                        flags, ids, err);
}

bool tokenize_text(struct http_exchange *x)
{
    const struct server *s = x->server;
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    json_t *body = api_request_parse(buf_as_str(&x->body), &err);
    bool ok = body && read_text(s, body, &ids, &err);

    if (ok) {
        json_t *list = tokens_json(s->model.engine, &ids, json_is_true(json_object_get(body, "with_pieces")));
        ok = exchange_reply_json(x, 200,
                                 json_pack("{s:o, s:I, s:i}", "tokens", list, "count", (json_int_t)ids.n,
                                           "max_model_len", (int)s->model.info.n_context));
    } else {
        ok = answer_error(x, &err);
    }
    token_ids_free(&ids);
    json_decref(body);
    return ok;
}

static bool read_ids(const struct server *s, json_t *list, struct token_ids *ids, struct err *err)
{
    json_t *item;
    size_t i;

    if (!json_is_array(list))
        return err_set(err, ERR_INPUT, "tokens: want a list of integers");
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= (json_int_t)s->model.info.n_vocab)
            return err_set(err, ERR_INPUT, "tokens[%zu]: want an integer from 0 to %u", i,
                           s->model.info.n_vocab - 1);
        if (!token_ids_push(ids, (uint32_t)id))
            return err_memory(err, "tokens");
    }
    return s->model.info.has_tokenizer || err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer");
}

bool tokenize_decode(struct http_exchange *x)
{
    struct token_ids ids = { 0 };
    struct buf text = { 0 };
    struct err err = { 0 };
    json_t *body = api_request_parse(buf_as_str(&x->body), &err);
    bool ok = body && read_ids(x->server, json_object_get(body, "tokens"), &ids, &err);
    unsigned flags = json_is_true(json_object_get(body, "keep_special")) ? INGOT_KEEP_SPECIAL : 0;

    if (ok && !vocab_decode(x->server->model.engine, &ids, flags, &text))
        ok = err_memory(&err, "the text");
    if (ok) {
        json_t *value = json_stringn(buf_as_str(&text).at, text.n);
        ok = exchange_reply_json(x, 200, json_pack("{s:O, s:o}", "content", value, "prompt", value));
    } else {
        ok = answer_error(x, &err);
    }
    buf_free(&text);
    token_ids_free(&ids);
    json_decref(body);
    return ok;
}

bool tokenize_template(struct http_exchange *x)
{
    struct api_request request = { .strict = x->server->options->strict };
    struct buf text = { 0 };
    struct err err = { 0 };

    if (!api_request_read_text(&request, DIALECT_TEMPLATE, buf_as_str(&x->body), &x->server->options->limits,
                               &err))
        return answer_error(x, &err);
    bool ok = prompts_render(&x->server->model, &request, &text, &err);
    if (ok) {
        json_t *reply = json_pack("{s:o}", "prompt", json_stringn(buf_as_str(&text).at, text.n));
        if (json_array_size(request.warnings))
            json_object_set(reply, "warnings", request.warnings);
        ok = exchange_reply_json(x, 200, reply);
    } else {
        ok = answer_error(x, &err);
    }
    buf_free(&text);
    api_request_release(&request);
    return ok;
}

static bool count_tokens(struct http_exchange *x, enum dialect dialect)
{
    struct api_request request = { .strict = x->server->options->strict };
    struct prompts prompts = { 0 };
    struct err err = { 0 };

    if (!api_request_read_text(&request, dialect, buf_as_str(&x->body), &x->server->options->limits, &err))
        return answer_error(x, &err);
    bool ok = prompts_make(&x->server->model, &request, &prompts, &err);
    if (ok) {
        json_t *reply = json_pack("{s:I}", "input_tokens", (json_int_t)prompts.at[0].n);
        if (dialect == DIALECT_RESPONSES)
            json_object_set_new(reply, "object", json_string("response.input_tokens"));
        ok = exchange_reply_json(x, 200, reply);
    } else {
        ok = answer_error(x, &err);
    }
    prompts_free(&prompts);
    api_request_release(&request);
    return ok;
}

bool tokenize_count(struct http_exchange *x)
{
    return count_tokens(x, DIALECT_COUNT);
}

bool tokenize_count_response(struct http_exchange *x)
{
    return count_tokens(x, DIALECT_RESPONSES);
}
