// prompts.c - see prompts.h.
#include "server/api/prompts.h"
#include "base/buf_json.h"
#include "base/mem.h"
#include "server/api/chat_messages.h"
#include "server/api/infill.h"
#include "server/api/served_model.h"
#include "server/generation/vocab.h"

enum { MAX_EMBEDDINGS = 2048 }; // of one request, OpenAI's limit

static struct str template_of(const struct served_model *model)
{
    return (struct str){ model->template.text, model->template.n_bytes };
}

static enum tool_call_style style_of(const struct served_model *model)
{
    if (!model->template.takes_tools && !model->template.takes_calls)
        return CALLS_TAGS; // the style that chat_messages.c describes to the model
    return tool_call_style_of(template_of(model));
}

const struct reasoning_marks *prompts_style(const struct served_model *model,
                                            const struct api_request *request, enum tool_call_style *style,
                                            bool *thinks)
{
    struct str text = template_of(model);
    bool channels = tool_call_style_of(text) == CALLS_CHANNELS; // without tools too
    const struct reasoning_marks *marks = reasoning_marks_of(text, thinks);

    *style = channels                                           ? CALLS_CHANNELS
             : request->tools && request->choice != CHOICE_NONE ? style_of(model)
                                                                : CALLS_NONE;
    *thinks |= channels;
    return marks;
}

// Sets the reasoning effort under the name that the template has for it.
static bool add_effort(const struct served_model *model, struct api_request *request, json_t *to,
                       struct err *err)
{
    json_t *effort = json_object_get(request->reasoning, "effort");
    const char *word = request->effort ? request->effort : json_string_value(effort);
    bool off =
        request->thinking == THINKING_OFF || (word && (!strcmp(word, "none") || !strcmp(word, "minimal")));

    if (!word && request->thinking == THINKING_AS_TEMPLATE)
        return true;
    if (word && ingot_template_uses(model->engine, "reasoning_effort"))
        return json_object_set_new(to, "reasoning_effort", json_string(word)) == 0 ||
               err_memory(err, "variables");
    if (ingot_template_uses(model->engine, "enable_thinking"))
        return json_object_set_new(to, "enable_thinking", json_boolean(!off)) == 0 ||
               err_memory(err, "variables");
    return off ||
           api_request_warn(request, err, "%s is not honoured: this model's template knows nothing of it",
                            word ? "reasoning effort" : "thinking");
}

// ---- a conversation as the engine takes it

struct template_conversation {
    struct buf json;            // texts, each ended by NUL: messages, tools, variables
    struct ingot_message *list; // [n]
    size_t n;
    struct ingot_request_options options; // messages, pictures (those of the request) and how to render them
};

void prompts_show_pictures(const struct api_request *request, struct ingot_request_options *options)
{
    options->pictures = (const struct ingot_picture *const *)request->pictures.at;
    options->n_pictures = request->pictures.n;
    options->no_splits = request->pictures.low;
}

// Returns the offset of the value's text in c->json; the buffer may still move.
static size_t add_json(struct template_conversation *c, const json_t *value)
{
    size_t at = c->json.n;

    if (!buf_json(&c->json, value, JSON_COMPACT))
        c->json.failed = true;
    buf_append(&c->json, "", 1);
    return at;
}

static void conversation_free(struct template_conversation *c)
{
    buf_free(&c->json);
    mem_free(c->list);
    *c = (struct template_conversation){ 0 };
}

static bool conversation_fill(struct template_conversation *c, const struct api_request *request,
                              const struct messages *m, const json_t *variables)
{
    bool with_tools = request->tools && request->choice != CHOICE_NONE;
    size_t *at = mem_alloc_array(c->n, sizeof *at), tools = 0;
    struct ingot_request_options *o = &c->options;

    c->list = mem_alloc_array(c->n, sizeof *c->list);
    for (size_t i = 0; at && i < c->n; i++)
        at[i] = add_json(c, json_array_get(m->list, i));
    if (with_tools)
        tools = add_json(c, request->tools);
    size_t last = add_json(c, variables);
    bool ok = at && c->list && !c->json.failed;
    for (size_t i = 0; ok && i < c->n; i++)
        c->list[i].fields = c->json.at + at[i];
    mem_free(at);
    if (!ok)
        return false;
    *o = ingot_request_defaults();
    o->messages = c->list;
    o->n_messages = c->n;
    o->tools = with_tools ? c->json.at + tools : NULL;
    o->template_variables = c->json.at + last;
    o->continue_last = m->continues;
    o->no_generation_prompt = request->no_generation_prompt;
    prompts_show_pictures(request, o);
    return true;
}

// Free c in any case.
static bool write_conversation(const struct served_model *model, struct api_request *request,
                               struct template_conversation *c, struct err *err)
{
    struct messages m;

    *c = (struct template_conversation){ 0 };
    request->pictures.accepted = model->info.takes_pictures;
    if (!messages_for_template(request, &model->template, style_of(model), &m, err))
        return false;
    json_t *variables = request->kwargs ? json_copy(request->kwargs) : json_object();
    c->n = json_array_size(m.list);
    bool ok = variables && add_effort(model, request, variables, err) &&
              (conversation_fill(c, request, &m, variables) || err_memory(err, "a conversation"));
    json_decref(variables);
    messages_release(&m);
    return ok;
}

// Free it with ingot_prompt_free, and c in any case; NULL: err says why.
static struct ingot_prompt *render(const struct served_model *model, struct api_request *request,
                                   struct template_conversation *c, struct err *err)
{
    static const struct ingot_message none;

    *c = (struct template_conversation){ .options = ingot_request_defaults() };
    c->options.messages =
        &none; // an unusable template is an error of the engine before it reads the messages
    bool ok = !model->template.is_usable || write_conversation(model, request, c, err);
    return ok ? ingot_prompt_render(model->engine, &c->options, (struct ingot_error *)err) : NULL;
}

bool prompts_render(const struct served_model *model, struct api_request *request, struct buf *text,
                    struct err *err)
{
    struct template_conversation c;
    struct ingot_prompt *prompt = render(model, request, &c, err);
    struct ingot_prompt_info info;

    conversation_free(&c);
    if (!prompt)
        return false;
    ingot_prompt_info(prompt, &info);
    bool ok = buf_append(text, info.text, info.n_bytes) || err_memory(err, "the rendered text");
    ingot_prompt_free(prompt);
    return ok;
}

// The prompt's tokens. Takes the prompt; NULL: there was an error before. Tokenizing some megabytes takes a
// second, so a text that cannot fit the context is rejected first.
static bool take_tokens(const struct served_model *model, struct ingot_prompt *prompt, struct token_ids *ids,
                        struct err *err)
{
    size_t most = (size_t)model->info.longest_token * model->info.n_context, n;
    struct ingot_prompt_info info;

    if (!prompt)
        return false;
    ingot_prompt_info(prompt, &info);
    bool ok = info.n_bytes <= most ||
              err_set(err, ERR_LIMIT,
                      "the prompt has %zu bytes and a context of %u tokens holds at most %zu; shorten it",
                      info.n_bytes, model->info.n_context, most);
    const uint32_t *tokens = ok ? ingot_prompt_tokens(prompt, &n, (struct ingot_error *)err) : NULL;
    ok = tokens && (token_ids_reserve(ids, n) || err_memory(err, "the prompt"));
    for (size_t i = 0; ok && i < n; i++)
        token_ids_push(ids, tokens[i]);
    ingot_prompt_free(prompt);
    return ok;
}

static bool messages_prompt(const struct served_model *model, struct api_request *request,
                            struct prompts *prompts, struct err *err)
{
    struct template_conversation c;
    struct ingot_prompt *prompt = render(model, request, &c, err);
    struct ingot_prompt_info info = { 0 };

    conversation_free(&c);
    if (prompt)
        ingot_prompt_info(prompt, &info);
    request->reasoning_open = info.reasoning == INGOT_REASONING_OPEN;
    request->reasoning_closed = info.reasoning == INGOT_REASONING_CLOSED;
    return take_tokens(model, prompt, &prompts->at[0], err);
}

// Where a text or tokens stand in the request.
static const char *field_of(const struct api_request *request)
{
    return request->dialect & DIALECTS_EMBED ? "input" : "prompt";
}

// A list of tokens, with texts between them as llama.cpp's server allows.
static bool ids_prompt(const struct served_model *model, const struct api_request *request, json_t *list,
                       struct token_ids *ids, struct err *err)
{
    json_t *item;
    size_t i;

    if (json_array_size(list) >= model->info.n_context)
        return err_set(err, ERR_LIMIT,
                       "the prompt has %zu tokens and the context holds %u, the answer included",
                       json_array_size(list), model->info.n_context);
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (json_is_string(item) && model->info.has_tokenizer) {
            struct str text = { json_string_value(item), json_string_length(item) };
            if (!vocab_encode(model->engine, text, i == 0 ? INGOT_ADD_SPECIAL : 0, ids, err))
                return false;
            continue;
        }
        if (!json_is_integer(item) || id < 0 || id >= (json_int_t)model->info.n_vocab)
            return err_set(err, ERR_INPUT, "%s: the token at place %zu is no integer from 0 to %u",
                           field_of(request), i, model->info.n_vocab - 1);
        if (!token_ids_push(ids, (uint32_t)id))
            return err_memory(err, "the prompt");
    }
    return true;
}

static bool text_prompt(const struct served_model *model, const struct api_request *request, json_t *prompt,
                        struct token_ids *ids, struct err *err)
{
    if (json_is_array(prompt) && request->instruction)
        return err_set(err, ERR_INPUT, "instruction: it goes before texts; %s has tokens", field_of(request));
    if (json_is_array(prompt))
        return ids_prompt(model, request, prompt, ids, err);
    if (!json_is_string(prompt))
        return err_set(err, ERR_INPUT, "%s: want a string, a list of strings, or tokens", field_of(request));
    if (!model->info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer; give the prompt as tokens");
    struct ingot_request_options options = ingot_request_defaults();
    struct buf text = { 0 };
    if (request->instruction)
        buf_printf(&text, "%s%s", request->instruction, json_string_value(prompt));
    if (text.failed) {
        buf_free(&text);
        return err_memory(err, "the prompt");
    }
    options.text = request->instruction ? buf_as_str(&text).at : json_string_value(prompt);
    options.embed = request->dialect & DIALECTS_EMBED ? INGOT_EMBED_MODEL : INGOT_EMBED_NONE;
    bool ok =
        take_tokens(model, ingot_prompt_render(model->engine, &options, (struct ingot_error *)err), ids, err);
    buf_free(&text);
    return ok;
}

static bool fim_prompt(const struct served_model *model, const struct api_request *request,
                       struct token_ids *ids, struct err *err)
{
    if (!model->info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED,
                       "this model has no tokenizer, and a gap is filled in texts only");
    return infill_prompt(model->engine, request, ids, err);
}

// A document is a text, or an object with one.
static bool pair_prompt(const struct served_model *model, const struct api_request *request, json_t *document,
                        struct token_ids *ids, struct err *err)
{
    json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    const char *instruction = request->instruction;
    struct ingot_error *error = (struct ingot_error *)err;

    if (!json_is_string(text))
        return err_set(err, ERR_INPUT, "documents: want texts, or objects with a \"text\"");
    const struct ingot_pair pair = {
        request->query,         json_string_value(text),  instruction,
        strlen(request->query), json_string_length(text), instruction ? strlen(instruction) : 0
    };
    // The texts, a token for a byte at most, and what the model's own words take.
    size_t most = pair.n_query + pair.n_document + pair.n_instruction + 4096;
    if (!token_ids_reserve(ids, most))
        return err_memory(err, "a pair of texts");
    int64_t n = ingot_rank_tokens(model->engine, &pair, ids->ids, most, error);
    if (n > (int64_t)most)
        return err_set(err, ERR_LIMIT, "documents: a pair of %lld tokens", (long long)n);
    ids->n = n > 0 ? (size_t)n : 0;
    return n >= 0;
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

static bool check_length(const struct served_model *model, size_t n, bool embeds, struct err *err)
{
    if (embeds)
        return n <= model->info.n_context ||
               err_set(err, ERR_LIMIT, "the text has %zu tokens and the context holds %u; shorten it", n,
                       model->info.n_context);
    return n < model->info.n_context ||
           err_set(err, ERR_LIMIT,
                   "the prompt has %zu tokens and the context holds %u, the answer included; shorten it", n,
                   model->info.n_context);
}

bool prompts_make(const struct served_model *model, struct api_request *request, struct prompts *prompts,
                  struct err *err)
{
    bool plain = api_request_is_plain(request),
         many = request->dialect == DIALECT_RERANK || is_list_of_prompts(request->prompt);
    size_t n_prompts = many ? json_array_size(request->prompt) : 1;
    bool ok = true;

    bool embeds = request->dialect & DIALECTS_EMBED;
    uint32_t most = embeds ? MAX_EMBEDDINGS : model->limits->n_choices;

    if (n_prompts * request->n_per_prompt > most)
        return err_set(err, ERR_INPUT, "%zu prompts with %s = %u are %zu answers; at most %u", n_prompts,
                       request->best_of ? "best_of" : "n", request->n_per_prompt,
                       n_prompts * request->n_per_prompt, most);
    *prompts = (struct prompts){ .at = mem_alloc_array(n_prompts, sizeof *prompts->at) };
    if (!prompts->at)
        return err_memory(err, "prompts");
    while (ok && prompts->n < n_prompts) {
        struct token_ids *ids = &prompts->at[prompts->n++];
        json_t *prompt = many ? json_array_get(request->prompt, prompts->n - 1) : request->prompt;
        ok = !plain                               ? messages_prompt(model, request, prompts, err)
             : request->dialect == DIALECT_RERANK ? pair_prompt(model, request, prompt, ids, err)
             : request->suffix || request->dialect == DIALECT_INFILL
                 ? fim_prompt(model, request, ids, err)
                 : text_prompt(model, request, prompt, ids, err);
        if (ok && ids->n == 0)
            ok = err_set(err, ERR_INPUT, "%s: it is empty; give at least one token", field_of(request));
        ok = ok && check_length(model, ids->n, embeds, err);
    }
    return ok;
}

void prompts_free(struct prompts *prompts)
{
    for (uint32_t i = 0; i < prompts->n; i++)
        token_ids_free(&prompts->at[i]);
    mem_free(prompts->at);
    *prompts = (struct prompts){ 0 };
}
