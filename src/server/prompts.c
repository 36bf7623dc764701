// prompts.c - see prompts.h.
#include "server/prompts.h"
#include "base/mem.h"
#include "engine/verify.h"
#include "server/messages.h"
#include "server/state.h"
#include "text/chat.h"

enum { MAX_EMBEDDINGS = 256 }; // of one request

static enum call_style style_of(const struct server *s)
{
    const struct chat *chat = s->tokenizer ? engine_of(s->engine)->chat : NULL;

    if (!chat || (!chat_takes_tools(chat) && !chat_takes_calls(chat)))
        return CALLS_TAGS; // as messages.c tells it to the model
    return speech_style_of(tokenizer_chat_template(s->tokenizer));
}

void prompts_style(const struct server *s, const struct ask *ask, enum call_style *style, bool *thinks)
{
    struct str text = s->tokenizer ? tokenizer_chat_template(s->tokenizer) : STR("");

    *style = ask->tools && ask->choice != CHOICE_NONE ? style_of(s) : CALLS_NONE;
    *thinks = str_find(text, STR("<think>")) != SIZE_MAX || str_find(text, STR("</think>")) != SIZE_MAX;
}

// How hard to think, under the names that templates have for it.
static bool add_effort(struct ask *ask, const struct chat *chat, json_t *to, struct err *err)
{
    json_t *effort = json_object_get(ask->reasoning, "effort");
    const char *word = ask->effort ? ask->effort : json_string_value(effort);
    bool off = ask->thinking == THINKING_OFF || (word && (!strcmp(word, "none") || !strcmp(word, "minimal")));

    if (!word && ask->thinking == THINKING_AS_TEMPLATE)
        return true;
    if (word && chat_uses(chat, "reasoning_effort"))
        return json_object_set_new(to, "reasoning_effort", json_string(word)) == 0 || err_memory(err, "variables");
    if (chat_uses(chat, "enable_thinking"))
        return json_object_set_new(to, "enable_thinking", json_boolean(!off)) == 0 || err_memory(err, "variables");
    return off || ask_warn(ask, err, "%s is not honoured: this model's template knows nothing of it",
                           word ? "reasoning effort" : "thinking");
}

// The template's variables; NULL after an error.
static json_t *variables_of(struct ask *ask, const struct chat *chat, struct err *err)
{
    json_t *to = ask->kwargs ? json_copy(ask->kwargs) : json_object();

    if (to && add_effort(ask, chat, to, err))
        return to;
    json_decref(to);
    return NULL;
}

// The prompt ends with this mark of reasoning, blanks aside.
static bool ends_with(struct str prompt, const char *mark)
{
    while (prompt.n && (prompt.at[prompt.n - 1] == '\n' || prompt.at[prompt.n - 1] == ' '))
        prompt.n--;
    return str_ends(prompt, str_from(mark));
}

static bool render(struct server *s, struct ask *ask, struct template_output *out, struct err *err)
{
    const struct engine *e = engine_of(s->engine);
    if (!e->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s", e->tokenizer ? e->no_chat.message : e->no_tokenizer.message);
    json_t *messages = messages_for_template(ask, e->chat, style_of(s), err),
           *extra = messages ? variables_of(ask, e->chat, err) : NULL;
    struct chat_options options = { .tools = ask->choice == CHOICE_NONE ? NULL : ask->tools,
                                    .extra = extra,
                                    .add_generation_prompt = !ask->no_generation_prompt };
    bool ok = messages && extra && chat_render(e->chat, messages, &options, out, err);
    json_decref(messages);
    json_decref(extra);
    return ok;
}

bool prompts_render(struct server *s, struct ask *ask, struct buf *text, struct err *err)
{
    struct template_output out;

    if (!render(s, ask, &out, err))
        return false;
    bool ok = buf_str(text, out.text) || out.text.n == 0;
    template_output_free(&out);
    return ok || err_memory(err, "the rendered text");
}

static bool messages_prompt(struct server *s, struct ask *ask, struct token_ids *ids, struct err *err)
{
    struct template_output out;

    if (!render(s, ask, &out, err))
        return false;
    bool ok = tokenizer_encode_spans(s->tokenizer, out.spans, out.n_spans, (struct tokenize_flags){ 0 }, ids, err);
    ask->reasoning_open = ends_with(out.text, "<think>");
    ask->reasoning_closed = ends_with(out.text, "</think>");
    template_output_free(&out);
    return ok;
}

static bool ids_prompt(const struct server *s, json_t *list, struct token_ids *ids, struct err *err)
{
    json_t *item;
    size_t i;

    if (json_array_size(list) >= s->info.n_context)
        return err_set(err, ERR_LIMIT, "the prompt has %zu tokens and the context holds %u, the answer included",
                       json_array_size(list), s->info.n_context);
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= (json_int_t)s->info.n_vocab)
            return err_set(err, ERR_INPUT, "prompt[%zu]: want a token, an integer from 0 to %u", i, s->info.n_vocab - 1);
        if (!token_ids_push(ids, (uint32_t)id))
            return err_memory(err, "the prompt");
    }
    return true;
}

static bool text_prompt(const struct server *s, json_t *prompt, struct token_ids *ids, struct err *err)
{
    if (json_is_array(prompt))
        return ids_prompt(s, prompt, ids, err);
    if (!json_is_string(prompt))
        return err_set(err, ERR_INPUT, "prompt: want a string, a list of strings, or tokens");
    if (!s->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer; give the prompt as tokens");
    struct str text = { json_string_value(prompt), json_string_length(prompt) };
    return tokenizer_encode(s->tokenizer, text, (struct tokenize_flags){ .add_special = true }, ids, err);
}

bool prompts_make(struct server *s, struct ask *ask, struct token_ids **prompts, uint32_t *n, struct err *err)
{
    json_t *first = json_array_get(ask->prompt, 0);
    bool plain = ask->dialect & (DIALECT_TEXT | DIALECT_EMBED), many = json_is_string(first) || json_is_array(first);
    size_t n_prompts = many ? json_array_size(ask->prompt) : 1;
    bool ok = true;

    uint32_t most = ask->dialect == DIALECT_EMBED ? MAX_EMBEDDINGS : s->options->limits.n_choices;

    if (n_prompts * ask->n_made > most)
        return err_set(err, ERR_INPUT, "%zu prompts with %s = %u are %zu answers; at most %u", n_prompts,
                       ask->best_of ? "best_of" : "n", ask->n_made, n_prompts * ask->n_made, most);
    *prompts = mem_alloc_array(n_prompts, sizeof **prompts);
    if (!*prompts)
        return err_memory(err, "prompts");
    for (*n = 0; ok && *n < n_prompts;) {
        struct token_ids *ids = &(*prompts)[(*n)++];
        ok = !plain ? messages_prompt(s, ask, ids, err)
                    : text_prompt(s, many ? json_array_get(ask->prompt, *n - 1) : ask->prompt, ids, err);
        if (ok && ids->n == 0)
            ok = err_set(err, ERR_INPUT, "the prompt is empty; give at least one token");
        if (ok && ids->n >= s->info.n_context)
            ok = err_set(err, ERR_LIMIT, "the prompt has %zu tokens and the context holds %u, the answer included; shorten it",
                         ids->n, s->info.n_context);
    }
    return ok;
}
