// rerank.c - documents by how well they answer a query, in the form of Jina's and Cohere's API.
#include <stdlib.h>
#include "base/mem.h"
#include "server/api/api_response.h"
#include "server/api/served_model.h"

struct ranked {
    uint32_t index;
    float score;
};

// The best first; of equals the earlier one.
static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static json_t *result(const struct api_response *t, const struct ranked *r)
{
    json_t *one = json_pack("{s:i, s:f}", "index", (int)r->index, "relevance_score", (double)r->score);
    json_t *document = json_array_get(t->request.documents, r->index);

    if (document)
        json_object_set_new(one, "document",
                            json_is_string(document) ? json_pack("{s:O}", "text", document)
                                                     : json_incref(document));
    return one;
}

static json_t *whole(struct api_response *t)
{
    uint32_t n = t->n_choices, most = t->request.top_n && t->request.top_n < n ? t->request.top_n : n;
    struct ranked *ranked = mem_alloc_array(n, sizeof *ranked);
    json_t *list = json_array();

    for (uint32_t i = 0; ranked && i < n; i++) {
        const struct buf *text = &t->choices[i].text;
        ranked[i] = (struct ranked){ .index = i };
        if (text->n == sizeof ranked[i].score)
            memcpy(&ranked[i].score, text->at, sizeof ranked[i].score);
    }
    if (ranked)
        qsort(ranked, n, sizeof *ranked, compare);
    for (uint32_t i = 0; ranked && i < most; i++)
        json_array_append_new(list, result(t, &ranked[i]));
    mem_free(ranked);
    json_t *reply = json_pack("{s:s, s:s, s:s, s:o, s:{s:i, s:i}}", "id", t->id, "object", "list", "model",
                              t->model->name, "results", list, "usage", "prompt_tokens", (int)t->n_prompt,
                              "total_tokens", (int)t->n_prompt);
    api_response_add_warnings(t, reply);
    return reply;
}

const struct api_format api_format_rerank = { .whole = whole };
