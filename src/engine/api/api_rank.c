// api_rank.c - the tokens of a query and a document as a reranker reads them.
//
// Encoders read both texts one behind the other, between the tokens that end a text. Qwen3's rerankers read a
// chat that asks whether the document meets the query (model card of Qwen3-Reranker, 2025); a GGUF file may
// have a text of its own for that, with {query} and {document} in it.
#include "engine/api.h"
#include "engine/pool.h"
#include "models/arch.h"

enum { SPANS_MAX = 64 };

static const char FORM[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
    "{instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
    "</think>\n\n";
static const char INSTRUCTION[] =
    "Given a web search query, retrieve relevant passages that answer the query";

struct rank_spans {
    struct text_span at[SPANS_MAX];
    size_t n;
};

static void rank_add(struct rank_spans *spans, struct str text, bool trusted)
{
    if (text.n)
        spans->at[spans->n++] = (struct text_span){ text, trusted };
}

static struct str or_empty(const char *text, size_t n)
{
    return text ? (struct str){ text, n } : STR("");
}

// Where the first of the marks in text begins; *which is its number.
static size_t next_mark(struct str text, const char *const marks[3], int *which)
{
    size_t first = SIZE_MAX;

    for (int i = 0; i < 3; i++) {
        size_t at = str_find(text, str_from(marks[i]));
        if (at < first) {
            first = at;
            *which = i;
        }
    }
    return first;
}

// The form with the texts in their places; the form's own words are trusted.
static bool rank_fill(struct str form, const struct ingot_pair *pair, struct rank_spans *spans,
                      struct err *err)
{
    static const char *const marks[3] = { "{query}", "{document}", "{instruction}" };
    const struct str texts[3] = { or_empty(pair->query, pair->n_query),
                                  or_empty(pair->document, pair->n_document),
                                  pair->instruction ? (struct str){ pair->instruction, pair->n_instruction }
                                                    : str_from(INSTRUCTION) };
    int which = 0;

    for (size_t at; (at = next_mark(form, marks, &which)) != SIZE_MAX;) {
        if (spans->n + 3 > SPANS_MAX)
            return err_set(err, ERR_LIMIT, "the reranker's template has more than %d parts", SPANS_MAX);
        rank_add(spans, str_from_to(form, 0, at), true);
        rank_add(spans, texts[which], false);
        form = str_from_to(form, at + strlen(marks[which]), form.n);
    }
    rank_add(spans, form, true);
    return true;
}

static bool rank_chat(const struct engine *e, const struct ingot_pair *pair, struct token_ids *ids,
                      struct err *err)
{
    struct str form = str_from(FORM);
    struct rank_spans spans = { .n = 0 };

    return model_file_string(e->loaded->file, "tokenizer.chat_template.rerank", &form, err) &&
           rank_fill(form, pair, &spans, err) &&
           tokenizer_encode_spans(e->loaded->tokenizer, spans.at, spans.n, (struct tokenize_flags){ 0 }, ids,
                                  err);
}

// <s> query </s> </s> document </s>: each text as alone, with what ends the first one in place of the
// second's beginning.
static bool rank_pair(const struct engine *e, const struct ingot_pair *pair, struct token_ids *ids,
                      struct err *err)
{
    const struct tokenizer *t = e->loaded->tokenizer;
    const struct tokenize_flags whole = { .add_special = true };
    struct token_ids second = { 0 };
    bool ok = tokenizer_encode(t, or_empty(pair->query, pair->n_query), whole, ids, err) &&
              tokenizer_encode(t, or_empty(pair->document, pair->n_document), whole, &second, err);

    if (ok && (ids->n < 2 || second.n < 2))
        ok = err_set(err, ERR_UNSUPPORTED,
                     "this model's tokenizer puts no tokens around a text, and a reranker's "
                     "pair needs them");
    for (size_t i = 0; ok && i < second.n; i++)
        ok = token_ids_push(ids, i == 0 ? ids->ids[ids->n - 1] : second.ids[i]) ||
             err_memory(err, "a pair of texts");
    token_ids_free(&second);
    return ok;
}

int64_t ingot_rank_tokens(const struct ingot_engine *engine, const struct ingot_pair *pair, uint32_t *tokens,
                          size_t capacity, struct ingot_error *error)
{
    const struct engine *e = &engine->inner;
    struct token_ids ids = { 0 };
    struct err *err = as_err(error);
    int64_t n = -1;

    if (!e->loaded->tokenizer)
        err_set(err, ERR_UNSUPPORTED, "no tokenizer: %s", e->loaded->no_tokenizer.message);
    else if (!pool_ranks(e))
        err_set(err, ERR_UNSUPPORTED, "this model is no reranker: it has no head for scores");
    else if (e->loaded->model.arch->is_encoder ? rank_pair(e, pair, &ids, err)
                                               : rank_chat(e, pair, &ids, err))
        n = (int64_t)ids.n;
    for (size_t i = 0; n >= 0 && i < ids.n && i < capacity; i++)
        tokens[i] = ids.ids[i];
    token_ids_free(&ids);
    return n;
}
