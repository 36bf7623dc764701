// logprobs.c - see logprobs.h.
#include "server/api/logprobs.h"
#include "server/generation/vocab.h"

static json_t *token_json(const struct ingot_engine *engine, uint32_t token, double logprob, bool with_id)
{
    struct str bytes = vocab_bytes(engine, token);
    const struct token_ids ids = { &token, 1, 1 };
    struct buf text = { 0 };
    json_t *list = json_array(), *entry = json_object();

    vocab_decode(engine, &ids, INGOT_KEEP_SPECIAL, &text);
    for (size_t i = 0; i < bytes.n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes.at[i]));
    json_t *name = json_stringn(buf_as_str(&text).at, text.n);
    json_object_set_new(entry, "token", name ? name : json_string(""));
    double finite = logprob > -9999 ? logprob : -9999; // JSON has no infinity
    json_object_set_new(entry, "logprob", json_real(finite));
    json_object_set_new(entry, "bytes", list);
    if (with_id)
        json_object_set_new(entry, "id", json_integer(token));
    buf_free(&text);
    return entry;
}

static size_t n_characters(struct str bytes) // that begin there
{
    size_t n = 0;

    for (size_t i = 0; i < bytes.n; i++)
        n += ((unsigned char)bytes.at[i] & 0xc0) != 0x80;
    return n;
}

static bool has_text(const struct ingot_engine *engine, uint32_t token)
{
    struct ingot_token_info info;

    return ingot_token_info(engine, token, &info) && info.kind != INGOT_TOKEN_CONTROL &&
           info.kind != INGOT_TOKEN_UNKNOWN;
}

// The space that a tokenizer puts in front of a prompt is not part of the text.
static void add_offset(json_t *entry, const struct ingot_engine *engine, const struct logprobs_row *row)
{
    const struct token_ids ids = { (uint32_t *)(uintptr_t)&row->token, 1, 1 };
    struct buf text = { 0 };

    json_object_set_new(entry, "text_offset", json_integer((json_int_t)*row->offset));
    if (*row->offset == 0 && row->of_prompt)
        vocab_decode(engine, &ids, 0, &text);
    else if (has_text(engine, row->token))
        buf_str(&text, vocab_bytes(engine, row->token));
    *row->offset += n_characters(buf_as_str(&text));
    buf_free(&text);
}

json_t *logprobs_entry(const struct ingot_engine *engine, const struct logprobs_row *row)
{
    json_t *entry = token_json(engine, row->token, row->n ? row->at[0].logprob : 0, row->with_id),
           *list = json_array();

    for (uint32_t i = 1; i < row->n; i++)
        json_array_append_new(list, token_json(engine, row->at[i].token, row->at[i].logprob, row->with_id));
    json_object_set_new(entry, "top_logprobs", list);
    if (row->n == 0) {
        json_object_set_new(entry, "logprob", json_null());
        json_object_set_new(entry, "top_logprobs", json_null());
    }
    if (row->offset)
        add_offset(entry, engine, row);
    return entry;
}

static json_t *legacy_top(json_t *list)
{
    json_t *top = json_is_null(list) ? json_null() : json_object(), *other;
    size_t i;

    json_array_foreach(list, i, other)
    {
        json_object_set(top, json_string_value(json_object_get(other, "token")),
                        json_object_get(other, "logprob"));
    }
    return top;
}

json_t *logprobs_legacy(json_t *entries)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array(),
           *entry;
    size_t i;

    json_array_foreach(entries, i, entry)
    {
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, legacy_top(json_object_get(entry, "top_logprobs")));
        json_array_append(offsets, json_object_get(entry, "text_offset"));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                     "text_offset", offsets);
}
