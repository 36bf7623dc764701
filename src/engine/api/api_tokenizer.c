// api_tokenizer.c - the tokenizer's functions of ingot.h: sizes checked, results copied into the caller's
// room.
#include "engine/api.h"
#include "engine/api/sizes.h"

_Static_assert((int)INGOT_TOKEN_CONTROL == (int)TOKEN_CONTROL && (int)INGOT_TOKEN_BYTE == (int)TOKEN_BYTE,
               "kinds of tokens are the same");
_Static_assert((int)INGOT_SPECIAL_FIM_FILE - (int)INGOT_SPECIAL_FIM_PREFIX == (int)FIM_FILE,
               "and so is the order around a gap");

static bool has_tokenizer(const struct engine *e, struct err *err)
{
    return e->loaded->tokenizer ||
           err_set(err, ERR_UNSUPPORTED, "no tokenizer: %s", e->loaded->no_tokenizer.message);
}

int64_t ingot_encode(const struct ingot_engine *engine, const char *text, size_t n_bytes, unsigned flags,
                     uint32_t *tokens, size_t capacity, struct ingot_error *error)
{
    struct token_ids ids = { 0 };
    struct tokenize_flags how = { .add_special = flags & INGOT_ADD_SPECIAL,
                                  .parse_special = flags & INGOT_PARSE_SPECIAL };
    int64_t n = -1;

    if (has_tokenizer(&engine->inner, as_err(error)) &&
        tokenizer_encode(engine->inner.loaded->tokenizer, (struct str){ text, n_bytes }, how, &ids,
                         as_err(error))) {
        n = (int64_t)ids.n;
        for (size_t i = 0; i < ids.n && i < capacity; i++)
            tokens[i] = ids.ids[i];
    }
    token_ids_free(&ids);
    return n;
}

int64_t ingot_decode(const struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                     unsigned flags, char *text, size_t capacity, struct ingot_error *error)
{
    const struct token_ids ids = { (uint32_t *)(uintptr_t)tokens, n_tokens, n_tokens };
    struct buf out = { 0 };
    int64_t n = -1;

    if (!has_tokenizer(&engine->inner, as_err(error)))
        return -1;
    if (tokenizer_decode(engine->inner.loaded->tokenizer, &ids, flags & INGOT_KEEP_SPECIAL, &out)) {
        n = (int64_t)out.n;
        size_t stored = out.n < capacity ? out.n : capacity - 1;
        if (capacity) {
            memcpy(text, buf_as_str(&out).at, stored);
            text[stored] = 0;
        }
    } else {
        err_memory(as_err(error), "the text");
    }
    buf_free(&out);
    return n;
}

int64_t ingot_tokenize(const struct ingot_engine *engine, const char *text, size_t n_bytes,
                       bool parse_special, uint32_t *tokens, size_t capacity, struct ingot_error *error)
{
    return ingot_encode(engine, text, n_bytes, parse_special ? INGOT_PARSE_SPECIAL : 0, tokens, capacity,
                        error);
}

int64_t ingot_detokenize(const struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                         char *text, size_t capacity, struct ingot_error *error)
{
    return ingot_decode(engine, tokens, n_tokens, 0, text, capacity, error);
}

bool ingot_token_info_fill(const struct ingot_engine *engine, uint32_t token, struct ingot_token_info *info,
                           size_t size)
{
    const struct tokenizer *t = engine->inner.loaded->tokenizer;

    if (!t || token >= tokenizer_n_tokens(t))
        return false;
    struct str spelling = tokenizer_raw(t, token), bytes = tokenizer_token_bytes(t, token, true);
    const struct ingot_token_info all = {
        .spelling = spelling.at,
        .bytes = bytes.at,
        .n_spelling = spelling.n,
        .n_bytes = bytes.n,
        .kind = (enum ingot_token_kind)tokenizer_kind(t, token),
        .ends_answer = tokenizer_is_end(t, token),
    };
    sizes_give(info, size, &all, sizeof all);
    return true;
}

int64_t ingot_token_find(const struct ingot_engine *engine, const char *spelling, size_t n_bytes)
{
    const struct tokenizer *t = engine->inner.loaded->tokenizer;

    return t ? tokenizer_find(t, (struct str){ spelling, n_bytes }) : -1;
}

int64_t ingot_token_special(const struct ingot_engine *engine, enum ingot_special which)
{
    const struct tokenizer *t = engine->inner.loaded->tokenizer;

    if (!t || (unsigned)which > INGOT_SPECIAL_FIM_FILE)
        return -1;
    if (which == INGOT_SPECIAL_BOS)
        return tokenizer_bos(t);
    return which == INGOT_SPECIAL_EOS ? tokenizer_eos(t)
                                      : tokenizer_fim(t, (enum fim_token)(which - INGOT_SPECIAL_FIM_PREFIX));
}
