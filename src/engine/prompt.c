// prompt.c - see prompt.h.
//
// Text that the template wrote is trusted and may hold control tokens; text from messages is not. The same
// holds for the beginning of an answer that continue_last appends to the rendered text: its reasoning marks
// are trusted, its words are not.
#include "engine/prompt_pictures.h"
#include "base/mem.h"
#include "models/arch.h"
#include "text/json_memory.h"
#include "text/utf8.h"

enum { MAX_BEGUN_SPANS = 4 };

static bool read_tokens(const struct ingot_request_options *o, struct token_ids *ids, struct err *err)
{
    for (size_t i = 0; i < o->n_tokens; i++)
        if (!token_ids_push(ids, o->tokens[i]))
            return err_memory(err, "the prompt");
    return true;
}

static bool read_text(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                      struct err *err)
{
    if (!e->loaded->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "no tokenizer: %s", e->loaded->no_tokenizer.message);
    p->spans = mem_alloc_array(1, sizeof *p->spans);
    if (!p->spans || !buf_text(&p->plain, o->text))
        return err_memory(err, "the prompt");
    p->spans[p->n_spans++] = (struct text_span){ buf_as_str(&p->plain), o->parse_special };
    p->flags.add_special = true;
    p->is_embedded = o->embed != INGOT_EMBED_NONE;
    return true;
}

// ---- messages to JSON -------------------------------------------------------------------------------------

static json_t *read_json(const char *text, const char *what, struct err *err)
{
    json_error_t where;
    json_t *value = json_memory_read(str_from(text), JSON_REJECT_DUPLICATES, &where);

    if (!value)
        err_set(err, ERR_INPUT, "%s: this is no JSON: %s", what, where.text);
    return value;
}

static bool role_check(const char *role, size_t i, struct err *err)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool", "observation" };

    for (size_t k = 0; role && k < sizeof roles / sizeof *roles; k++)
        if (!strcmp(role, roles[k]))
            return true;
    return err_set(err, ERR_INPUT, "message %zu has the role \"%.40s\"; want system, user, assistant or tool",
                   i, role ? role : "(null)");
}

// Parts are texts and image places. The number of pictures is checked later.
static bool parts_check(json_t *content, size_t index, struct err *err)
{
    json_t *part;
    size_t i;

    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        bool is_image = type && strcmp(type, "image") == 0;
        if (!is_image &&
            (!type || strcmp(type, "text") != 0 || !json_is_string(json_object_get(part, "text"))))
            return err_set(err, ERR_UNSUPPORTED,
                           "message %zu: part %zu has the type \"%.40s\"; only text and image are supported",
                           index, i, type ? type : "?");
    }
    return true;
}

static bool set_text(json_t *object, const char *name, const char *text)
{
    json_t *value = text ? json_string(text) : NULL;

    return !text || (value && json_object_set_new(object, name, value) == 0);
}

// Of the first byte that no character begins or goes on with; the text's length: there is none.
static size_t ill_formed_at(struct str text)
{
    size_t at = 0;
    uint32_t cp;

    while (at < text.n) {
        uint32_t n = utf8_read(text.at + at, text.n - at, &cp);
        if (cp == UTF8_ILL_FORMED)
            break;
        at += n;
    }
    return at;
}

static bool message_fill(json_t *message, const struct ingot_message *m, size_t i, struct err *err)
{
    const char *role = m->role ? m->role : json_string_value(json_object_get(message, "role"));

    if (!role_check(role, i, err))
        return false;
    if (!m->fields && !m->content)
        return err_set(err, ERR_INPUT, "message %zu has no content", i);
    if (m->content && !utf8_is_valid(str_from(m->content)))
        return err_set(err, ERR_INPUT, "message %zu, of the role %s: byte %zu is not UTF-8, expected text", i,
                       role, ill_formed_at(str_from(m->content)));
    if (!set_text(message, "role", m->role) || !set_text(message, "content", m->content))
        return err_memory(err, "a message");
    return parts_check(json_object_get(message, "content"), i, err);
}

static json_t *message_to_json(const struct ingot_message *m, size_t i, struct err *err)
{
    json_t *message = m->fields ? read_json(m->fields, "fields", err) : json_object();

    if (!message) {
        err_prefix(err, "message %zu", i);
    } else if (!json_is_object(message)) {
        err_set(err, ERR_INPUT, "message %zu: its fields are no JSON object", i);
    } else if (message_fill(message, m, i, err)) {
        return message;
    }
    json_decref(message);
    return NULL;
}

static json_t *messages_to_json(const struct ingot_request_options *o, struct err *err)
{
    json_t *messages = json_array();

    for (size_t i = 0; messages && i < o->n_messages; i++) {
        struct ingot_message own = { 0 };
        memcpy(&own, (const char *)o->messages + i * o->message_size, o->message_size);
        json_t *message = message_to_json(&own, i, err);
        if (!message || json_array_append_new(messages, message) != 0) {
            json_decref(messages);
            return NULL;
        }
    }
    if (!messages)
        err_memory(err, "messages");
    return messages;
}

// ---- rendering --------------------------------------------------------------------------------------------

static struct str text_at(const json_t *object, const char *name)
{
    json_t *text = json_object_get(object, name);
    return json_is_string(text) ? (struct str){ json_string_value(text), json_string_length(text) } : STR("");
}

// Takes the last message off the list: it becomes the beginning of the answer.
static bool take_begun(struct prompt *p, json_t *messages, struct err *err)
{
    size_t n = json_array_size(messages);
    json_t *last = json_array_get(messages, n - 1);

    if (!str_is(text_at(last, "role"), "assistant") || !json_is_string(json_object_get(last, "content")) ||
        json_object_get(last, "tool_calls") ||
        text_at(last, "content").n + text_at(last, "reasoning_content").n == 0)
        return err_set(err, ERR_INPUT, "continue_last: the last message is no text of the assistant's");
    p->begun = json_incref(last);
    json_array_remove(messages, n - 1);
    return true;
}

// Whether the prompt ends with this reasoning mark, blanks aside.
static bool ends_with(struct str prompt, const char *mark)
{
    while (prompt.n && (prompt.at[prompt.n - 1] == '\n' || prompt.at[prompt.n - 1] == ' '))
        prompt.n--;
    return str_ends(prompt, str_from(mark));
}

static void add_span(struct prompt *p, struct str text, bool trusted)
{
    if (text.n)
        p->spans[p->n_spans++] = (struct text_span){ text, trusted };
}

// Answers that are messages, each on a channel; see text/parsers/channel_parser.c.
static void add_begun_messages(struct prompt *p, struct str reasoning, struct str content)
{
    if (reasoning.n)
        add_span(p, STR("<|channel|>analysis<|message|>"), true);
    add_span(p, reasoning, false);
    if (content.n)
        add_span(p,
                 reasoning.n ? STR("<|end|><|start|>assistant<|channel|>final<|message|>")
                             : STR("<|channel|>final<|message|>"),
                 true);
    add_span(p, content, false);
}

// The answer's beginning, its reasoning between marks. Without content it is the reasoning that goes on.
static void add_begun(struct prompt *p)
{
    struct str content = text_at(p->begun, "content"), reasoning = text_at(p->begun, "reasoning_content");

    if (ends_with(p->rendered.text, "<|start|>assistant")) {
        add_begun_messages(p, reasoning, content);
        return;
    }
    bool open = ends_with(p->rendered.text, p->marks->open);

    if (!open && reasoning.n)
        add_span(p, str_from(p->marks->begin), true);
    add_span(p, reasoning, false);
    if ((open || reasoning.n) && content.n)
        add_span(p, str_from(p->marks->end), true);
    add_span(p, content, false);
}

static bool join_spans(struct prompt *p, struct err *err)
{
    p->spans = mem_alloc_array(p->rendered.n_spans + MAX_BEGUN_SPANS, sizeof *p->spans);
    if (!p->spans)
        return err_memory(err, "a prompt");
    for (size_t i = 0; i < p->rendered.n_spans; i++)
        add_span(p, p->rendered.spans[i].text, p->rendered.spans[i].trusted);
    if (p->begun)
        add_begun(p);
    return true;
}

static enum ingot_reasoning reasoning_of(const struct prompt *p)
{
    bool thinks = text_at(p->begun, "reasoning_content").n, answers = text_at(p->begun, "content").n;

    if (answers)
        return INGOT_REASONING_CLOSED;
    if (thinks || ends_with(p->rendered.text, p->marks->open))
        return INGOT_REASONING_OPEN;
    return ends_with(p->rendered.text, p->marks->close) ? INGOT_REASONING_CLOSED : INGOT_REASONING_NONE;
}

static bool render(const struct engine *e, const struct ingot_request_options *o, json_t *messages,
                   struct prompt *p, struct err *err)
{
    struct chat_options options = { .add_generation_prompt = o->continue_last || !o->no_generation_prompt };
    bool ok = (!o->continue_last || take_begun(p, messages, err)) &&
              (!o->tools || (options.tools = read_json(o->tools, "tools", err))) &&
              (!o->template_variables ||
               (options.extra = read_json(o->template_variables, "template_variables", err)));

    if (ok && options.tools && !json_is_array(options.tools))
        ok = err_set(err, ERR_INPUT, "tools: want a JSON list");
    if (ok && options.extra && !json_is_object(options.extra))
        ok = err_set(err, ERR_INPUT, "template_variables: want a JSON object");
    p->marks = chat_reasoning_marks(e->loaded->chat);
    ok = ok && chat_render(e->loaded->chat, messages, &options, &p->rendered, err) && join_spans(p, err);
    json_decref(options.tools);
    json_decref(options.extra);
    if (ok)
        p->reasoning = reasoning_of(p);
    return ok;
}

static bool read_messages(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                          struct err *err)
{
    if (!e->loaded->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s",
                       e->loaded->tokenizer ? e->loaded->no_chat.message : e->loaded->no_tokenizer.message);
    json_t *messages = messages_to_json(o, err);
    bool ok = messages && prompt_pictures_to_messages(o, messages, err) && render(e, o, messages, p, err);

    json_decref(messages);
    return ok;
}

bool prompt_read(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                 struct err *err)
{
    if ((o->messages != NULL) + (o->text != NULL) + (o->tokens != NULL) != 1)
        return err_set(err, ERR_INPUT, "set exactly one of messages, text and tokens");
    if (o->n_pictures && !prompt_sees(e, o, err))
        return false;
    if (o->tokens)
        return read_tokens(o, &p->ids, err);
    return (o->messages ? read_messages(e, o, p, err) : read_text(e, o, p, err)) &&
           (!o->n_pictures || prompt_pictures_place(e, o, p, err));
}

// Qwen3's embedding models were trained on texts that end so, and older files of theirs do not say it.
static bool end_embedding(const struct engine *e, struct token_ids *ids, struct err *err)
{
    const struct model *m = &e->loaded->model;
    int64_t end = m->arch->ranks_by_words && m->embedder.pooling == POOLING_LAST
                      ? tokenizer_find(e->loaded->tokenizer, STR("<|endoftext|>"))
                      : -1;

    return end < 0 || (ids->n > 0 && ids->ids[ids->n - 1] == (uint32_t)end) ||
           token_ids_push(ids, (uint32_t)end) || err_memory(err, "the prompt");
}

bool prompt_encode(const struct engine *e, struct prompt *p, struct err *err)
{
    if (p->spans &&
        !tokenizer_encode_spans(e->loaded->tokenizer, p->spans, p->n_spans, p->flags, &p->ids, err))
        return false;
    if (p->is_embedded && !end_embedding(e, &p->ids, err))
        return false;
    if (p->has_pictures)
        prompt_pictures_mark(e, &p->ids);
    return true;
}

void prompt_free(struct prompt *p)
{
    mem_free(p->spans);
    buf_free(&p->plain);
    buf_free(&p->pictures);
    json_decref(p->begun);
    template_output_free(&p->rendered);
    token_ids_free(&p->ids);
    *p = (struct prompt){ 0 };
}

bool prompt_tokens(const struct engine *e, const struct ingot_request_options *o, struct token_ids *ids,
                   struct err *err)
{
    struct prompt p = { 0 };
    bool ok = prompt_read(e, o, &p, err) && prompt_encode(e, &p, err);

    if (ok) {
        *ids = p.ids;
        p.ids = (struct token_ids){ 0 };
    }
    prompt_free(&p);
    return ok;
}
