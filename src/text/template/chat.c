// chat.c - see chat.h.
//
// Variables of a request cannot replace those that the engine sets: messages, tools, special tokens, the
// language's functions. The check is here because the template language treats all variables alike.
#include "text/template/chat.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/json_memory.h"

struct chat {
    struct template *template;
    const struct reasoning_marks *marks;
    struct str bos_token, eos_token;
    struct arena *arena;
    bool takes_parts, takes_calls, arguments_as_text, short_ids;
    bool refuses_system, refuses_users_in_a_row;
    const char *reasoning;   // the template's name for reasoning_content; NULL: that, or none
    bool reasoning_in_parts; // it wants a part of type thinking instead
    bool unsure;             // a probe had no memory
    enum {
        // of a message that has calls and no content
        CONTENT_AS_GIVEN,
        CONTENT_EMPTY,
        CONTENT_NULL
    } call_content;
};

static const char chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Renders messages (takes the reference); true when the result contains `wanted` and not `unwanted`.
static bool probe(struct chat *chat, json_t *messages, const char *wanted, const char *unwanted)
{
    struct template_output out;
    struct err err = { 0 };
    json_t *variables = json_pack("{s:o, s:b, s:s, s:s}", "messages", messages, "add_generation_prompt", 0,
                                  "bos_token", "<s>", "eos_token", "</s>");
    bool ok = variables && template_render(chat->template, variables, &out, &err);

    if (ok) {
        ok = str_find(out.text, str_from(wanted)) != SIZE_MAX &&
             str_find(out.text, str_from(unwanted)) == SIZE_MAX;
        template_output_free(&out);
    }
    json_decref(variables);
    chat->unsure |= err.code == ERR_MEMORY || json_memory_failed();
    return ok;
}

// A conversation with a call. content: NULL is null.
static json_t *call_probe(const char *id, const char *content, bool as_text)
{
    json_t *arguments = as_text ? json_string("{\"probe\": 1}") : json_pack("{s:i}", "probe", 1);

    return json_pack("[{s:s, s:s}, {s:s, s:s?, s:[{s:s, s:s, s:{s:s, s:o}}]}, {s:s, s:s, s:s, s:s}]", "role",
                     "user", "content", "u", "role", "assistant", "content", content, "tool_calls", "id", id,
                     "type", "function", "function", "name", "f", "arguments", arguments, "role", "tool",
                     "name", "f", "tool_call_id", id, "content", "r");
}

// Whether the template omits or refuses a message of this role before a user message, although it renders the
// user message alone.
static bool refuses_before_user(struct chat *chat, const char *role)
{
    json_t *alone = json_pack("[{s:s, s:s}]", "role", "user", "content", "probe");
    json_t *before = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", role, "content", "probe", "role", "user",
                               "content", "u");
    bool takes_alone = probe(chat, alone, "probe", "{'"), takes_before = probe(chat, before, "probe", "{'");

    return takes_alone && !takes_before;
}

#define THOUGHT "probed thought" // Ministral's own system message speaks of thoughts

// Whether the template shows the reasoning before a call under this name.
static bool shows_reasoning(struct chat *chat, const char *name)
{
    json_t *messages = call_probe("call00001", "", false);

    json_object_set_new(json_array_get(messages, 1), name, json_string(THOUGHT));
    return probe(chat, messages, THOUGHT, "{'probe'");
}

static void probe_reasoning(struct chat *chat)
{
    json_t *parts = json_pack("[{s:s, s:s}, {s:s, s:[{s:s, s:s}, {s:s, s:s}]}]", "role", "user", "content",
                              "u", "role", "assistant", "content", "type", "thinking", "thinking", THOUGHT,
                              "type", "text", "text", "probe");
    bool usual = shows_reasoning(chat, "reasoning_content");
    bool printed = !probe(chat, json_incref(parts), THOUGHT, "\"thinking\""); // as JSON, or not at all

    chat->reasoning = usual                                ? NULL
                      : shows_reasoning(chat, "thinking")  ? "thinking"
                      : shows_reasoning(chat, "reasoning") ? "reasoning"
                                                           : NULL;
    chat->reasoning_in_parts = probe(chat, parts, THOUGHT, "{'") && !printed && !usual && !chat->reasoning;
}

// False: memory was missing.
static bool probe_template(struct chat *chat, struct err *err)
{
    static const char id[] = "call00001", long_id[] = "call_0123456789abcdef0123";
    json_memory_failed(); // what failed before is another's
    json_t *parts =
        json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text", "text", "probe");

    chat->takes_parts = probe(chat, parts, "probe", "type");
    chat->refuses_system = refuses_before_user(chat, "system");
    chat->refuses_users_in_a_row = refuses_before_user(chat, "user");
    probe_reasoning(chat);
    // Whether the template needs arguments as text: it prints an object as a Python dict, or omits it.
    bool object = probe(chat, call_probe(id, "", false), "probe", "{'probe'") ||
                  probe(chat, call_probe(id, NULL, false), "probe", "{'probe'");
    bool text = probe(chat, call_probe(id, "", true), "\"probe\"", "\\\"probe") ||
                probe(chat, call_probe(id, NULL, true), "\"probe\"", "\\\"probe");
    chat->takes_calls = object || text;
    chat->arguments_as_text = text && !object;
    bool empty = probe(chat, call_probe(id, "", chat->arguments_as_text), "probe", "None");
    bool null = probe(chat, call_probe(id, NULL, chat->arguments_as_text), "probe", "None");
    chat->call_content = empty == null ? CONTENT_AS_GIVEN : empty ? CONTENT_EMPTY : CONTENT_NULL;
    if (!chat->takes_calls)
        chat->call_content = CONTENT_EMPTY;
    chat->short_ids =
        chat->takes_calls &&
        !probe(chat, call_probe(long_id, empty ? "" : NULL, chat->arguments_as_text), "probe", "None");
    return !chat->unsure || err_memory(err, "probing the template");
}

bool chat_create(struct chat **out, const struct chat_source *source, struct err *err)
{
    struct chat *chat = mem_alloc(sizeof *chat);
    bool given = source->template_text.n > 0;

    *out = chat;
    if (chat)
        chat->arena = arena_create(1 << 20);
    if (!chat || !chat->arena) {
        chat_destroy(chat);
        *out = NULL;
        return err_memory(err, "a chat template");
    }
    if (!given)
        log_line(LOG_WARN, "chat", "the model has no chat template; using ChatML");
    chat->marks = reasoning_marks_of(source->template_text, NULL);
    chat->bos_token = arena_str(chat->arena, source->bos_token);
    chat->eos_token = arena_str(chat->arena, source->eos_token);
    if (!chat->bos_token.at || !chat->eos_token.at)
        err_set(err, ERR_INPUT, "a special token is longer than 1 MiB");
    else if (template_parse(&chat->template, given ? source->template_text : str_from(chatml), NULL, err) &&
             probe_template(chat, err))
        return true;
    chat_destroy(chat);
    *out = NULL;
    return err_prefix(err, "the model's chat template");
}

void chat_destroy(struct chat *chat)
{
    if (!chat)
        return;
    template_free(chat->template);
    arena_destroy(chat->arena);
    mem_free(chat);
}

const struct reasoning_marks *chat_reasoning_marks(const struct chat *chat)
{
    return chat->marks;
}

bool chat_takes_parts(const struct chat *chat)
{
    return chat->takes_parts;
}

bool chat_takes_tools(const struct chat *chat)
{
    return template_uses(chat->template, "tools");
}

bool chat_takes_calls(const struct chat *chat)
{
    return chat->takes_calls;
}

bool chat_uses(const struct chat *chat, const char *variable)
{
    return template_uses(chat->template, variable);
}

// The text of a list of parts, one per line; fails on a part that is no text.
static json_t *join_parts(json_t *parts, size_t message, struct err *err)
{
    struct buf text = { 0 };
    json_t *part, *joined = NULL;
    size_t i;

    json_array_foreach(parts, i, part)
    {
        json_t *piece = json_object_get(part, "text");
        if (!json_is_string(piece)) {
            const char *type = json_string_value(json_object_get(part, "type"));
            err_set(err, ERR_INPUT, "messages[%zu].content[%zu]: this model takes text only, not \"%.40s\"",
                    message, i, type ? type : "?");
            buf_free(&text);
            return NULL;
        }
        if (i > 0)
            buf_append(&text, "\n", 1);
        buf_append(&text, json_string_value(piece), json_string_length(piece));
    }
    if (!text.failed)
        joined = json_stringn(buf_as_str(&text).at, text.n);
    if (!joined)
        err_memory(err, "a message");
    buf_free(&text);
    return joined;
}

// Mistral's templates accept only ids of nine letters and digits; other ids are mapped to such ids.
static json_t *short_id(const char *id)
{
    uint64_t hash = 1469598103934665603u;
    char text[10] = "";
    size_t n = 0;

    for (; id[n]; n++)
        hash = (hash ^ (uint8_t)id[n]) * 1099511628211u;
    if (n == 9 && strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == 9)
        return json_string(id);
    for (int i = 0; i < 9; i++, hash /= 36)
        text[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
    return json_string(text);
}

static void adapt_id(const struct chat *chat, json_t *object, const char *key)
{
    const char *id = json_string_value(json_object_get(object, key));

    if (chat->short_ids && id)
        json_object_set_new(object, key, short_id(id));
}

// A copy of one tool call, with arguments in the form that this template takes.
static json_t *adapt_call(const struct chat *chat, json_t *call)
{
    json_t *copy = json_deep_copy(call), *function = json_object_get(copy, "function");
    json_t *arguments = json_object_get(function, "arguments"), *other = NULL;

    if (json_is_string(arguments) && !chat->arguments_as_text) {
        other = json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
    } else if (json_is_object(arguments) && chat->arguments_as_text) {
        size_t n = json_dumpb(arguments, NULL, 0, 0);
        char *text = mem_alloc(n);
        other = text && json_dumpb(arguments, text, n, 0) == n ? json_stringn(text, n) : NULL;
        mem_free(text);
    }
    if (other)
        json_object_set_new(function, "arguments", other);
    adapt_id(chat, copy, "id");
    return copy;
}

static bool adapt_calls(const struct chat *chat, json_t *message, size_t index, struct err *err)
{
    json_t *calls = json_object_get(message, "tool_calls"), *adapted, *call;
    size_t i;

    if (!calls || json_is_null(calls))
        return true;
    if (!json_is_array(calls))
        return err_set(err, ERR_INPUT, "messages[%zu].tool_calls: expected an array", index);
    adapted = json_array();
    json_array_foreach(calls, i, call)
    {
        json_array_append_new(adapted, adapt_call(chat, call));
    }
    json_object_set_new(message, "tool_calls", adapted);
    if (!json_object_get(message, "content"))
        json_object_set_new(message, "content", json_string(""));
    const char *content = json_string_value(json_object_get(message, "content"));
    if (json_array_size(adapted) > 0 && (!content || !*content) &&
        !json_is_array(json_object_get(message, "content"))) {
        if (chat->call_content == CONTENT_EMPTY)
            json_object_set_new(message, "content", json_string(""));
        if (chat->call_content == CONTENT_NULL)
            json_object_set_new(message, "content", json_null());
    }
    return true;
}

// gpt-oss calls it thinking, and before a call has room for either that or content; Gemma calls it reasoning;
// Ministral wants it as a part of the content.
static void adapt_reasoning(const struct chat *chat, json_t *message)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    const char *content = json_string_value(json_object_get(message, "content"));

    if (!json_is_string(reasoning))
        return;
    if (chat->reasoning && !json_object_get(message, chat->reasoning) && !(calls && content && *content))
        json_object_set(message, chat->reasoning, reasoning);
    if (!chat->reasoning_in_parts || json_is_array(json_object_get(message, "content")))
        return;
    json_t *parts = json_pack("[{s:s, s:O}]", "type", "thinking", "thinking", reasoning);
    if (content && *content)
        json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", content));
    json_object_set_new(message, "content", parts);
}

static json_t *adapt_message(const struct chat *chat, json_t *message, size_t index, struct err *err)
{
    json_t *content = json_object_get(message, "content"), *copy, *joined;

    if (!json_is_object(message)) {
        err_set(err, ERR_INPUT, "messages[%zu]: expected an object", index);
        return NULL;
    }
    if (!json_is_string(json_object_get(message, "role"))) {
        err_set(err, ERR_INPUT, "messages[%zu].role: expected a string", index);
        return NULL;
    }
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content)) {
        err_set(err, ERR_INPUT, "messages[%zu].content: expected a string or an array of parts", index);
        return NULL;
    }
    copy = json_copy(message);
    adapt_id(chat, copy, "tool_call_id");
    if (json_is_array(content) && !chat->takes_parts) {
        joined = join_parts(content, index, err);
        if (joined)
            json_object_set_new(copy, "content", joined);
        if (!joined) {
            json_decref(copy);
            return NULL;
        }
    }
    if (!adapt_calls(chat, copy, index, err)) {
        json_decref(copy);
        return NULL;
    }
    adapt_reasoning(chat, copy);
    return copy;
}

static bool is_reserved(const char *name)
{
    static const char *const names[] = {
        "messages", "tools",     "documents", "add_generation_prompt", "tokenize",    "chat_template",
        "range",    "namespace", "dict",      "raise_exception",       "strftime_now"
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return str_ends(str_from(name), STR("_token"));
}

static bool add_extra(json_t *variables, json_t *extra, struct err *err)
{
    const char *name;
    json_t *value;

    if (!extra || json_is_null(extra))
        return true;
    if (!json_is_object(extra))
        return err_set(err, ERR_INPUT, "chat_template_kwargs: expected an object");
    json_object_foreach(extra, name, value)
    {
        if (is_reserved(name))
            return err_set(err, ERR_INPUT,
                           "chat_template_kwargs: '%.60s' is set by the engine and cannot be given", name);
        json_object_set(variables, name, value);
    }
    return true;
}

static bool has_role(const json_t *message, const char *role)
{
    return !strcmp(json_string_value(json_object_get(message, "role")), role);
}

// Prepends one content to another, with a blank line between them; takes the reference `before`. A list of
// parts stays a list.
static json_t *join_contents(json_t *before, json_t *after)
{
    const char *first = json_string_value(before), *second = json_string_value(after);
    json_t *joined = NULL;

    if (first && (second || !after || json_is_null(after))) {
        joined = second ? json_sprintf("%s\n\n%s", first, second) : json_incref(before);
    } else if (first) {
        joined = json_copy(after);
        json_array_insert_new(joined, 0,
                              json_pack("{s:s, s:o}", "type", "text", "text", json_sprintf("%s\n\n", first)));
    } else {
        joined = json_copy(before);
        json_t *rest = second ? json_pack("[{s:s, s:O}]", "type", "text", "text", after) : json_incref(after);
        json_array_extend(joined, rest);
        json_decref(rest);
    }
    json_decref(before);
    return joined;
}

// Moves the text of a refused message to the start of the next user message, or makes it one.
static json_t *fold_refused(const struct chat *chat, json_t *messages)
{
    json_t *folded = json_array(), *pending = NULL, *message;
    size_t i;

    json_array_foreach(messages, i, message)
    {
        const json_t *next = json_array_get(messages, i + 1);
        bool user = has_role(message, "user"), system = chat->refuses_system && has_role(message, "system");
        json_t *content = json_object_get(message, "content");
        if (system || user) {
            content = pending ? join_contents(pending, content) : json_incref(content);
            pending = NULL;
        }
        if (system || (user && chat->refuses_users_in_a_row && next && has_role(next, "user"))) {
            pending = content;
            continue;
        }
        if (user)
            json_object_set_new(message, "content", content);
        json_array_append(folded, message);
    }
    if (pending)
        json_array_append_new(folded, json_pack("{s:s, s:o}", "role", "user", "content", pending));
    return folded;
}

static bool add_messages(const struct chat *chat, json_t *variables, json_t *messages, struct err *err)
{
    json_t *adapted, *message;
    size_t i;

    if (!json_is_array(messages))
        return err_set(err, ERR_INPUT, "messages: expected an array");
    adapted = json_array();
    json_object_set_new(variables, "messages", adapted);
    json_array_foreach(messages, i, message)
    {
        json_t *copy = adapt_message(chat, message, i, err);
        if (!copy)
            return false;
        json_array_append_new(adapted, copy);
    }
    if (chat->refuses_system || chat->refuses_users_in_a_row)
        json_object_set_new(variables, "messages", fold_refused(chat, adapted));
    return true;
}

bool chat_render(const struct chat *chat, json_t *messages, const struct chat_options *options,
                 struct template_output *out, struct err *err)
{
    json_memory_failed(); // what failed before is another's
    json_t *variables = json_object();

    *out = (struct template_output){ 0 };
    bool ok = add_messages(chat, variables, messages, err) && add_extra(variables, options->extra, err);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(options->add_generation_prompt));
    json_object_set_new(variables, "bos_token", json_stringn(chat->bos_token.at, chat->bos_token.n));
    json_object_set_new(variables, "eos_token", json_stringn(chat->eos_token.at, chat->eos_token.n));
    if (options->tools)
        json_object_set(variables, "tools", options->tools);
    if (options->documents)
        json_object_set(variables, "documents", options->documents);
    ok = ok && (template_render(chat->template, variables, out, err) ||
                err_prefix(err, "the model's chat template"));
    json_decref(variables);
    if (!json_memory_failed())
        return ok;
    if (ok)
        template_output_free(out);
    return err_memory(err, "the messages");
}
