// embeddings.c - embeddings in the form of OpenAI's API, as numbers or in base64.
//
// An embedding model's vectors are pooled as its file says. Those of a language model are the mean of its
// hidden states: they measure similarity within one model, and do not equal those of trained embedding
// models.
#include "base/base64.h"
#include "server/api/api_response.h"
#include "server/api/served_model.h"

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
    struct buf text = { 0 };

    base64_append(&text, buf_as_str(vector));
    json_t *value = api_response_text(&text);
    buf_free(&text);
    return value;
}

static json_t *whole(struct api_response *t)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct buf *vector = &t->choices[i].text;
        json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", (int)i,
                                              "embedding",
                                              t->base64 ? as_base64(vector) : embeddings_numbers(vector)));
    }
    json_t *reply =
        json_pack("{s:s, s:o, s:s, s:{s:i, s:i}}", "object", "list", "data", list, "model", t->name, "usage",
                  "prompt_tokens", (int)t->n_prompt, "total_tokens", (int)t->n_prompt);
    api_response_add_warnings(t, reply);
    return reply;
}

const struct api_format api_format_embeddings = { .whole = whole };
