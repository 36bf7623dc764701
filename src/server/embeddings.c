// embeddings.c - vectors of texts as OpenAI's embeddings tell them, as numbers or in base64.
//
// The vectors come from a language model's hidden states: good for likeness within one model, not comparable with those
// of models that were trained for it.
#include "server/state.h"
#include "server/api_response.h"

json_t *embeddings_numbers(const struct buf *vector)
{
    json_t *list = json_array();

    for (size_t i = 0; i + sizeof(float) <= vector->n; i += sizeof(float)) {
        float x;
        memcpy(&x, vector->at + i, sizeof x);
        json_array_append_new(list, json_real((double)x));
    }
    return list;
}

static json_t *as_base64(const struct buf *vector)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf text = { 0 };

    for (size_t i = 0; i < vector->n; i += 3) {
        uint32_t bits = 0, n = vector->n - i < 3 ? (uint32_t)(vector->n - i) : 3;
        for (uint32_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < n ? (unsigned char)vector->at[i + k] : 0);
        char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63], n > 1 ? digits[bits >> 6 & 63] : '=',
                         n > 2 ? digits[bits & 63] : '=' };
        buf_append(&text, four, sizeof four);
    }
    json_t *value = api_response_text(&text);
    buf_free(&text);
    return value;
}

static json_t *whole(struct api_response *t)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct buf *vector = &t->choices[i].text;
        json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", (int)i, "embedding",
                                              t->base64 ? as_base64(vector) : embeddings_numbers(vector)));
    }
    json_t *reply = json_pack("{s:s, s:o, s:s, s:{s:i, s:i}}", "object", "list", "data", list, "model", t->server->name, "usage",
                              "prompt_tokens", (int)t->n_prompt, "total_tokens", (int)t->n_prompt);
    api_response_add_warnings(t, reply);
    return reply;
}

const struct api_format api_format_embeddings = { .whole = whole };
