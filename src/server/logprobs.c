// logprobs.c - see logprobs.h.
#include "server/logprobs.h"
#include <math.h>
#include "server/ask.h"
#include "server/vocab.h"

static double log_sum(const float *logits, uint32_t n)
{
    double most = logits[0], sum = 0;

    for (uint32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

// The n likeliest tokens, the likeliest first, the lowest id first among equals.
static uint32_t likeliest(const struct logprobs_row *row, uint32_t top[ASK_MAX_TOP_LOGPROBS])
{
    uint32_t n = 0, most = row->n_top < ASK_MAX_TOP_LOGPROBS ? row->n_top : ASK_MAX_TOP_LOGPROBS;

    for (uint32_t i = 0; i < row->n_vocab && most > 0; i++) {
        if (n == most && row->logits[i] <= row->logits[top[n - 1]])
            continue;
        uint32_t at = n < most ? n++ : n - 1;
        for (; at > 0 && row->logits[i] > row->logits[top[at - 1]]; at--)
            top[at] = top[at - 1];
        top[at] = i;
    }
    return n;
}

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
    json_object_set_new(entry, "logprob", json_real(logprob > -9999 ? logprob : -9999)); // JSON has no infinity
    json_object_set_new(entry, "bytes", list);
    if (with_id)
        json_object_set_new(entry, "id", json_integer(token));
    buf_free(&text);
    return entry;
}

double logprobs_of(const struct logprobs_row *row)
{
    return row->logits[row->token] - log_sum(row->logits, row->n_vocab);
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

    return ingot_token_info(engine, token, &info) && info.kind != INGOT_TOKEN_CONTROL && info.kind != INGOT_TOKEN_UNKNOWN;
}

// The space that a tokenizer puts in front of a prompt is none of its text.
static void tell_offset(json_t *entry, const struct ingot_engine *engine, const struct logprobs_row *row)
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
    uint32_t top[ASK_MAX_TOP_LOGPROBS], n = row->logits ? likeliest(row, top) : 0;
    double sum = row->logits ? log_sum(row->logits, row->n_vocab) : 0;
    json_t *entry = token_json(engine, row->token, row->logits ? row->logits[row->token] - sum : 0, row->with_id),
           *list = json_array();

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, token_json(engine, top[i], row->logits[top[i]] - sum, row->with_id));
    json_object_set_new(entry, "top_logprobs", list);
    if (!row->logits) {
        json_object_set_new(entry, "logprob", json_null());
        json_object_set_new(entry, "top_logprobs", json_null());
    }
    if (row->offset)
        tell_offset(entry, engine, row);
    return entry;
}

static json_t *legacy_top(json_t *list)
{
    json_t *top = json_is_null(list) ? json_null() : json_object(), *other;
    size_t i;

    json_array_foreach(list, i, other)
    {
        json_object_set(top, json_string_value(json_object_get(other, "token")), json_object_get(other, "logprob"));
    }
    return top;
}

json_t *logprobs_legacy(json_t *entries)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array(), *entry;
    size_t i;

    json_array_foreach(entries, i, entry)
    {
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, legacy_top(json_object_get(entry, "top_logprobs")));
        json_array_append(offsets, json_object_get(entry, "text_offset"));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops, "text_offset",
                     offsets);
}
