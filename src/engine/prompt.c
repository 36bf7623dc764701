// prompt.c - see prompt.h.
#include "engine/prompt.h"

static bool push_tokens(const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    for (size_t i = 0; i < o->n_tokens; i++)
        if (!token_ids_push(ids, o->tokens[i]))
            return err_memory(err, "the prompt");
    return true;
}

static bool role_check(const char *role, size_t i, struct err *err)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };

    for (size_t k = 0; role && k < sizeof roles / sizeof *roles; k++)
        if (!strcmp(role, roles[k]))
            return true;
    return err_set(err, ERR_INPUT, "message %zu has the role \"%.40s\"; want system, user, assistant or tool", i,
                   role ? role : "(null)");
}

static json_t *messages_to_json(const struct ingot_request_options *o, struct err *err)
{
    json_t *messages = json_array();

    for (size_t i = 0; messages && i < o->n_messages; i++) {
        const struct ingot_message *m = (const void *)((const char *)o->messages + i * o->message_size);
        if (!role_check(m->role, i, err)) {
            json_decref(messages);
            return NULL;
        }
        json_t *message = m->content ? json_pack("{s:s, s:s}", "role", m->role, "content", m->content) : NULL;
        if (!message || json_array_append_new(messages, message) != 0) {
            err_set(err, ERR_INPUT, "message %zu: its content must be valid UTF-8", i);
            json_decref(messages);
            return NULL;
        }
    }
    if (!messages)
        err_memory(err, "messages");
    return messages;
}

// Control tokens are recognised only in what the template wrote.
static bool push_messages(struct engine *e, const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    const struct chat_options options = { .add_generation_prompt = true };
    struct template_output out = { 0 };

    if (!e->loaded->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s",
                       e->loaded->no_chat.code != ERR_NONE ? e->loaded->no_chat.message : e->loaded->no_tokenizer.message);
    json_t *messages = messages_to_json(o, err);
    bool ok = messages && chat_render(e->loaded->chat, messages, &options, &out, err) &&
              tokenizer_encode_spans(e->loaded->tokenizer, out.spans, out.n_spans, (struct tokenize_flags){ 0 }, ids, err);
    template_output_free(&out);
    json_decref(messages);
    return ok;
}

bool prompt_tokens(struct engine *e, const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    struct tokenize_flags flags = { .add_special = true, .parse_special = o->parse_special };

    if ((o->messages != NULL) + (o->text != NULL) + (o->tokens != NULL) != 1)
        return err_set(err, ERR_INPUT, "set exactly one of messages, text and tokens");
    if (o->tokens)
        return push_tokens(o, ids, err);
    if (o->messages)
        return push_messages(e, o, ids, err);
    if (!e->loaded->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "no tokenizer: %s", e->loaded->no_tokenizer.message);
    return tokenizer_encode(e->loaded->tokenizer, str_from(o->text), flags, ids, err);
}
