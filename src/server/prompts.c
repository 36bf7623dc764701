// prompts.c - see prompts.h.
#include "server/prompts.h"
#include "base/mem.h"
#include "engine/verify.h"
#include "server/infill.h"
#include "server/messages.h"
#include "server/state.h"
#include "server/vocab.h"
#include "text/template/chat.h"

enum { MAX_EMBEDDINGS = 2048 }; // of one request, as with OpenAI

static enum tool_call_style style_of(const struct server *s)
{
    const struct chat *chat = s->tokenizer ? engine_of(s->engine)->loaded->chat : NULL;

    if (!chat || (!chat_takes_tools(chat) && !chat_takes_calls(chat)))
        return CALLS_TAGS; // as messages.c tells it to the model
    return tool_call_style_of(tokenizer_chat_template(s->tokenizer));
}

void prompts_style(const struct server *s, const struct ask *ask, enum tool_call_style *style, bool *thinks)
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

// A conversation as the model reads it: the template's text, and behind it the answer as far as it is given.
enum { MAX_BEGUN_SPANS = 4 };

struct rendered {
    struct template_output out;
    struct messages messages;
    struct text_span *spans; // [n_spans]
    size_t n_spans;
};

static void rendered_free(struct rendered *r)
{
    mem_free(r->spans);
    messages_release(&r->messages);
    template_output_free(&r->out);
}

static void add_span(struct rendered *r, struct str text, bool trusted)
{
    if (text.n)
        r->spans[r->n_spans++] = (struct text_span){ text, trusted };
}

static struct str text_at(const json_t *object, const char *name)
{
    json_t *text = json_object_get(object, name);
    return json_is_string(text) ? (struct str){ json_string_value(text), json_string_length(text) } : STR("");
}

// The answer's beginning, its reasoning between marks. Without content it is the reasoning that goes on.
static void add_begun(struct rendered *r)
{
    struct str content = text_at(r->messages.begun, "content"), reasoning = text_at(r->messages.begun, "reasoning_content");
    bool open = ends_with(r->out.text, "<think>");

    if (!open && reasoning.n)
        add_span(r, STR("<think>\n"), true);
    add_span(r, reasoning, false);
    if ((open || reasoning.n) && content.n)
        add_span(r, STR("\n</think>\n\n"), true);
    add_span(r, content, false);
}

static bool join_spans(struct rendered *r, struct err *err)
{
    r->spans = mem_alloc_array(r->out.n_spans + MAX_BEGUN_SPANS, sizeof *r->spans);
    if (!r->spans)
        return err_memory(err, "a prompt");
    for (size_t i = 0; i < r->out.n_spans; i++)
        add_span(r, r->out.spans[i].text, r->out.spans[i].trusted);
    if (r->messages.begun)
        add_begun(r);
    return true;
}

// Free r in any case.
static bool render(struct server *s, struct ask *ask, struct rendered *r, struct err *err)
{
    const struct engine *e = engine_of(s->engine);

    *r = (struct rendered){ 0 };
    if (!e->loaded->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s",
                       e->loaded->tokenizer ? e->loaded->no_chat.message : e->loaded->no_tokenizer.message);
    if (!messages_for_template(ask, e->loaded->chat, style_of(s), &r->messages, err))
        return false;
    json_t *extra = variables_of(ask, e->loaded->chat, err);
    struct chat_options options = { .tools = ask->choice == CHOICE_NONE ? NULL : ask->tools,
                                    .extra = extra,
                                    .add_generation_prompt = r->messages.begun || !ask->no_generation_prompt };
    bool ok = extra && chat_render(e->loaded->chat, r->messages.list, &options, &r->out, err) && join_spans(r, err);
    json_decref(extra);
    return ok;
}

bool prompts_render(struct server *s, struct ask *ask, struct buf *text, struct err *err)
{
    struct rendered r;
    bool ok = render(s, ask, &r, err);

    for (size_t i = 0; ok && i < r.n_spans; i++)
        buf_str(text, r.spans[i].text);
    rendered_free(&r);
    return ok && (!text->failed || err_memory(err, "the rendered text"));
}

// Tokenising takes a second for some megabytes: not for what cannot fit.
static bool can_fit(const struct server *s, size_t n_bytes, struct err *err)
{
    size_t most = s->longest_token * s->info.n_context;

    return n_bytes <= most ||
           err_set(err, ERR_LIMIT, "the prompt has %zu bytes and a context of %u tokens holds at most %zu; shorten it", n_bytes,
                   s->info.n_context, most);
}

static bool messages_prompt(struct server *s, struct ask *ask, struct token_ids *ids, struct err *err)
{
    struct rendered r;
    bool ok = render(s, ask, &r, err);

    ok = ok && can_fit(s, r.out.text.n, err) &&
         tokenizer_encode_spans(s->tokenizer, r.spans, r.n_spans, (struct tokenize_flags){ 0 }, ids, err);
    if (ok) {
        json_t *begun = r.messages.begun;
        bool thinks = begun && text_at(begun, "reasoning_content").n, answers = begun && text_at(begun, "content").n;
        ask->reasoning_open = !answers && (thinks || ends_with(r.out.text, "<think>"));
        ask->reasoning_closed = answers || (!thinks && ends_with(r.out.text, "</think>"));
    }
    rendered_free(&r);
    return ok;
}

// Tokens, and as llama.cpp has it texts between them.
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
        if (json_is_string(item) && s->info.has_tokenizer) {
            struct str text = { json_string_value(item), json_string_length(item) };
            if (!vocab_encode(s->engine, text, i == 0 ? INGOT_ADD_SPECIAL : 0, ids, err))
                return false;
            continue;
        }
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
    if (!s->info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer; give the prompt as tokens");
    struct str text = { json_string_value(prompt), json_string_length(prompt) };
    return can_fit(s, text.n, err) && vocab_encode(s->engine, text, INGOT_ADD_SPECIAL, ids, err);
}

static bool gap_prompt(const struct server *s, const struct ask *ask, struct token_ids *ids, struct err *err)
{
    if (!s->info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer, and a gap is filled in texts only");
    return infill_prompt(s->engine, ask, ids, err);
}

// A list of texts or of lists of tokens; one with a token in it is a single prompt.
static bool is_list_of_prompts(json_t *prompt)
{
    json_t *item;
    size_t i;

    json_array_foreach(prompt, i, item)
    {
        if (!json_is_string(item) && !json_is_array(item))
            return false;
    }
    return json_array_size(prompt) > 0;
}

bool prompts_make(struct server *s, struct ask *ask, struct token_ids **prompts, uint32_t *n, struct err *err)
{
    bool plain = ask_is_plain(ask), many = is_list_of_prompts(ask->prompt);
    size_t n_prompts = many ? json_array_size(ask->prompt) : 1;
    bool ok = true;

    uint32_t most = ask->dialect & DIALECTS_EMBED ? MAX_EMBEDDINGS : s->options->limits.n_choices;

    if (n_prompts * ask->n_made > most)
        return err_set(err, ERR_INPUT, "%zu prompts with %s = %u are %zu answers; at most %u", n_prompts,
                       ask->best_of ? "best_of" : "n", ask->n_made, n_prompts * ask->n_made, most);
    *prompts = mem_alloc_array(n_prompts, sizeof **prompts);
    if (!*prompts)
        return err_memory(err, "prompts");
    for (*n = 0; ok && *n < n_prompts;) {
        struct token_ids *ids = &(*prompts)[(*n)++];
        ok = !plain ? messages_prompt(s, ask, ids, err)
             : ask->suffix || ask->dialect == DIALECT_INFILL
                 ? gap_prompt(s, ask, ids, err)
                 : text_prompt(s, many ? json_array_get(ask->prompt, *n - 1) : ask->prompt, ids, err);
        if (ok && ids->n == 0)
            ok = err_set(err, ERR_INPUT, "the prompt is empty; give at least one token");
        if (ok && ids->n >= s->info.n_context)
            ok = err_set(err, ERR_LIMIT, "the prompt has %zu tokens and the context holds %u, the answer included; shorten it",
                         ids->n, s->info.n_context);
    }
    return ok;
}
