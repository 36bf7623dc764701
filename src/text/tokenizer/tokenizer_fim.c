// tokenizer_fim.c - the tokens around a gap that a model was trained to fill ("fill in the middle").
//
// A GGUF file may name them by keys; otherwise, and in a tokenizer.json, they are found by their spelling.
// Only control tokens and tokens added by the user count: an ordinary token may have the same spelling by
// chance.
#include "text/tokenizer/tokenizer_parts.h"

static const char *const spellings[N_FIM][7] = {
    [FIM_PREFIX] = { "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                     "<|code_prefix|>" },
    [FIM_SUFFIX] = { "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                     "<|code_suffix|>" },
    [FIM_MIDDLE] = { "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                     "<|code_middle|>" },
    [FIM_REPO] = { "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>" },
    [FIM_FILE] = { "<|file_sep|>", "<|file_separator|>" },
};

static int64_t find_spelling(const struct tokenizer *t, enum fim_token which)
{
    for (size_t i = 0; i < 7 && spellings[which][i]; i++) {
        int64_t id = tokenizer_find(t, str_from(spellings[which][i]));
        if (id >= 0 && (t->kinds[id] == TOKEN_CONTROL || t->kinds[id] == TOKEN_USER_DEFINED))
            return id;
    }
    return -1;
}

void tokenizer_find_fim(struct tokenizer *t)
{
    for (int i = 0; i < N_FIM; i++) {
        if (t->fim[i] < 0)
            t->fim[i] = find_spelling(t, (enum fim_token)i);
        if (t->fim[i] >= 0 && i >= FIM_REPO) // the next file's name ends the file that is filled in
            t->is_end[t->fim[i]] = true;
    }
}

int64_t tokenizer_fim(const struct tokenizer *t, enum fim_token which)
{
    return t->fim[which];
}
