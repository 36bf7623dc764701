// prompt.c - see prompt.h.
#include "engine/prompt.h"

static bool push_tokens(const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    for (size_t i = 0; i < o->n_tokens; i++)
        if (!token_ids_push(ids, o->tokens[i]))
            return err_memory(err, "the prompt");
    return true;
}

bool prompt_tokens(struct engine *e, const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    struct tokenize_flags flags = { .add_special = true, .parse_special = o->parse_special };

    if ((o->messages != NULL) + (o->text != NULL) + (o->tokens != NULL) != 1)
        return err_set(err, ERR_INPUT, "set exactly one of messages, text and tokens");
    if (o->tokens)
        return push_tokens(o, ids, err);
    if (!e->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "no tokenizer: %s", e->no_tokenizer.message);
    if (o->text)
        return tokenizer_encode(e->tokenizer, str_from(o->text), flags, ids, err);
    return err_set(err, ERR_UNSUPPORTED, "messages need a chat template");
}
