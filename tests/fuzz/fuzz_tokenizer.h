// fuzz_tokenizer.h - what the targets do with a tokeniser that could be loaded.
#pragma once
#include "text/tokenizer/tokenizer.h"

static inline void use_tokenizer(struct tokenizer *t)
{
    static const char TEXT[] =
        "It's 1234 ab  abab\n\n <s>A</s> \xe4\xb8\x96 e\xcc\x81 \xef\xac\x81\xff<0x41>\xe2\x96\x81 a.";
    struct err err = { 0 };
    struct token_ids ids = { 0 };
    struct buf out = { .max = 1 << 24 };

    for (int i = 0; i < 4; i++) {
        struct tokenize_flags flags = { .add_special = i & 1, .parse_special = i & 2 };
        CHECK(tokenizer_encode(t, (struct str){ TEXT, sizeof TEXT - 1 }, flags, &ids, &err) ||
              err.message[0]);
    }
    for (size_t i = 0; i < ids.n; i++)
        CHECK(ids.ids[i] < tokenizer_n_tokens(t));
    CHECK(tokenizer_decode(t, &ids, true, &out) || out.failed);
    token_ids_free(&ids);
    tokenizer_free(t);
    buf_free(&out);
}
