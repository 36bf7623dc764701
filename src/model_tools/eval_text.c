// eval_text.c - see eval_text.h.
#include "model_tools/eval_text.h"
#include "base/mem.h"
#include "base/str.h"

static bool fill_error(struct err *err, const struct ingot_error *error)
{
    return err_set(err, (enum err_code)error->code, "%s", error->message);
}

bool eval_text_vocabulary(const struct ingot_engine *engine, struct sha256 *sum, struct err *err)
{
    struct sha256_stream *s = sha256_open();
    struct ingot_engine_info info;

    if (!s)
        return err_memory(err, "the vocabulary's sum");
    ingot_engine_info(engine, &info);
    for (uint32_t i = 0; i < info.n_vocab; i++) {
        struct ingot_token_info token = { .kind = INGOT_TOKEN_UNUSED };
        if (!ingot_token_info(engine, i, &token) || token.kind == INGOT_TOKEN_UNUSED)
            continue; // GGUF files have a name for these, tokenizer.json has none
        uint32_t head[2] = { i, (uint32_t)token.n_spelling };
        sha256_add(s, head, sizeof head);
        sha256_add(s, token.spelling, token.n_spelling);
    }
    *sum = sha256_take(s);
    sha256_close(s);
    return true;
}

// -1: the model puts none before a text.
static int64_t leading_bos(const struct ingot_engine *engine)
{
    uint32_t first;
    int64_t bos = ingot_token_special(engine, INGOT_SPECIAL_BOS);

    return ingot_encode(engine, "", 0, INGOT_ADD_SPECIAL, &first, 1, NULL) > 0 && first == bos ? bos : -1;
}

// All tokens of the text into t->tokens.
static int64_t encode(struct eval_text *t, const struct ingot_engine *engine,
                      const struct eval_text_source *source, struct err *err)
{
    unsigned flags = INGOT_ADD_SPECIAL | (source->parse_special ? INGOT_PARSE_SPECIAL : 0);
    struct ingot_error error;
    int64_t n = ingot_encode(engine, source->text, source->n_bytes, flags, NULL, 0, &error);

    t->tokens = n >= 0 ? mem_alloc_array((size_t)n + 1, sizeof *t->tokens) : NULL;
    if (t->tokens)
        n = ingot_encode(engine, source->text, source->n_bytes, flags, t->tokens, (size_t)n, &error);
    if (n < 0)
        fill_error(err, &error);
    else if (!t->tokens)
        err_memory(err, "the text's tokens");
    return t->tokens ? n : -1;
}

bool eval_text_make(struct eval_text *t, const struct ingot_engine *engine,
                    const struct eval_text_source *source, struct err *err)
{
    struct ingot_engine_info info;

    ingot_engine_info(engine, &info);
    *t = (struct eval_text){ .n_vocab = info.n_vocab, .n_chunk = source->n_chunk };
    if (source->n_chunk < EVAL_CHUNK_MIN || source->n_chunk > EVAL_CHUNK_MAX)
        return err_set(err, ERR_INPUT, "chunks of %u tokens; want %d to %d", source->n_chunk, EVAL_CHUNK_MIN,
                       EVAL_CHUNK_MAX);
    int64_t n = encode(t, engine, source, err), bos = leading_bos(engine);
    if (n < 0)
        return false;
    uint64_t n_chunks = (uint64_t)n / source->n_chunk;
    char shorter[32] = "";
    if (n >= EVAL_CHUNK_MIN)
        snprintf(shorter, sizeof shorter, ", or -c %lld", (long long)n);
    if (n_chunks == 0)
        return err_set(err, ERR_INPUT, "the text has %lld token%s and a chunk %u; take a longer text%s",
                       (long long)n, str_plural((uint64_t)n), source->n_chunk, shorter);
    n_chunks = source->most_chunks && source->most_chunks < n_chunks ? source->most_chunks : n_chunks;
    t->n_chunks = (uint32_t)n_chunks;
    for (uint64_t i = 0; i < n_chunks && bos >= 0; i++)
        t->tokens[i * t->n_chunk] = (uint32_t)bos;
    return eval_text_vocabulary(engine, &t->vocabulary, err);
}

void eval_text_free(struct eval_text *t)
{
    mem_free(t->tokens);
    *t = (struct eval_text){ 0 };
}
