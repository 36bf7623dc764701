// logprobs.c - see logprobs.h.
#include "server/logprobs.h"
#include <math.h>
#include "server/ask.h"

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

static json_t *token_json(const struct tokenizer *t, uint32_t token, double logprob)
{
    struct str bytes = tokenizer_token_bytes(t, token, true);
    const struct token_ids ids = { &token, 1, 1 };
    struct buf text = { 0 };
    json_t *list = json_array(), *entry = json_object();

    tokenizer_decode(t, &ids, true, &text);
    for (size_t i = 0; i < bytes.n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes.at[i]));
    json_t *name = json_stringn(buf_as_str(&text).at, text.n);
    json_object_set_new(entry, "token", name ? name : json_string(""));
    json_object_set_new(entry, "logprob", json_real(logprob > -9999 ? logprob : -9999)); // JSON has no infinity
    json_object_set_new(entry, "bytes", list);
    buf_free(&text);
    return entry;
}

json_t *logprobs_entry(const struct tokenizer *t, const struct logprobs_row *row)
{
    uint32_t top[ASK_MAX_TOP_LOGPROBS], n = likeliest(row, top);
    double sum = log_sum(row->logits, row->n_vocab);
    json_t *entry = token_json(t, row->token, row->logits[row->token] - sum), *list = json_array();

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, token_json(t, top[i], row->logits[top[i]] - sum));
    json_object_set_new(entry, "top_logprobs", list);
    return entry;
}

static size_t n_characters(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

json_t *logprobs_legacy(json_t *entries, size_t *offset)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array(), *entry, *other;
    size_t i, j;

    json_array_foreach(entries, i, entry)
    {
        json_t *top = json_object();
        json_array_foreach(json_object_get(entry, "top_logprobs"), j, other)
        {
            json_object_set(top, json_string_value(json_object_get(other, "token")), json_object_get(other, "logprob"));
        }
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, top);
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += n_characters(json_string_value(json_object_get(entry, "token")));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops, "text_offset",
                     offsets);
}
