// conversation.c - see conversation.h. Files of conversations are in conversation_file.c.
#include "main/chat/conversation.h"
#include <jansson.h>
#include "base/mem.h"
#include "main/terminal/fail.h"

static bool is_role(const struct ingot_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

void conversation_free(struct conversation *c)
{
    conversation_cut(c, 0);
    mem_free(c->at);
    mem_free(c->pictures);
    *c = (struct conversation){ 0 };
}

static void forget(struct conversation *c, size_t i)
{
    mem_free((char *)(uintptr_t)c->at[i].content);
    chat_pictures_free(&c->pictures[i]);
}

void conversation_cut(struct conversation *c, size_t n)
{
    while (c->n > n)
        forget(c, --c->n);
}

static char *copy_of(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = mem_alloc(n);

    if (copy)
        memcpy(copy, text, n);
    else
        fail("out of memory for the conversation");
    return copy;
}

// Room for one more message.
static bool reserve(struct conversation *c)
{
    size_t capacity = c->capacity ? 2 * c->capacity : 64;

    if (c->n < c->capacity)
        return true;
    struct ingot_message *at = mem_realloc(c->at, capacity * sizeof *at);
    c->at = at ? at : c->at;
    struct chat_pictures *pictures = at ? mem_realloc(c->pictures, capacity * sizeof *pictures) : NULL;
    if (!pictures) {
        fail("out of memory for the conversation");
        return false;
    }
    c->pictures = pictures;
    c->capacity = capacity;
    return true;
}

static bool insert(struct conversation *c, size_t at, const char *role, const char *content)
{
    char *copy = reserve(c) ? copy_of(content) : NULL;

    if (!copy)
        return false;
    memmove(c->at + at + 1, c->at + at, (c->n - at) * sizeof *c->at);
    memmove(c->pictures + at + 1, c->pictures + at, (c->n++ - at) * sizeof *c->pictures);
    c->at[at] = (struct ingot_message){ .role = role, .content = copy };
    c->pictures[at] = (struct chat_pictures){ 0 };
    return true;
}

bool conversation_add(struct conversation *c, const char *role, const char *content)
{
    return insert(c, c->n, role, content);
}

bool conversation_add_seen(struct conversation *c, const char *content, struct chat_pictures *pictures)
{
    if (!conversation_add(c, "user", content))
        return false;
    c->pictures[c->n - 1] = *pictures;
    *pictures = (struct chat_pictures){ 0 };
    return true;
}

const char *conversation_system(const struct conversation *c)
{
    return c->n && is_role(&c->at[0], "system") ? c->at[0].content : NULL;
}

// Removes n messages from `at` on.
static void take_out(struct conversation *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        forget(c, i);
    memmove(c->at + at, c->at + at + n, (c->n - at - n) * sizeof *c->at);
    memmove(c->pictures + at, c->pictures + at + n, (c->n - at - n) * sizeof *c->pictures);
    c->n -= n;
}

bool conversation_set_system(struct conversation *c, const char *content)
{
    bool had = conversation_system(c) != NULL;

    if (content && !insert(c, 0, "system", content))
        return false;
    if (had)
        take_out(c, content != NULL, 1);
    return true;
}

size_t conversation_last_user(const struct conversation *c)
{
    for (size_t i = c->n; i-- > 0;) {
        if (is_role(&c->at[i], "user"))
            return i;
    }
    return SIZE_MAX;
}

// The end of the turn that begins at `from`.
static size_t turn_end(const struct conversation *c, size_t from)
{
    size_t to = from + 1;

    while (to < c->n && !is_role(&c->at[to], "user"))
        to++;
    return to < c->n ? to : c->n;
}

// ---- as a request has it ----------------------------------------------------------------------------------

// A value's JSON text; NULL: no memory.
static char *text_of(const json_t *value)
{
    size_t n = json_dumpb(value, NULL, 0, JSON_COMPACT);
    char *text = n ? mem_alloc(n + 1) : NULL;

    if (text)
        text[json_dumpb(value, text, n, JSON_COMPACT)] = 0;
    return text;
}

// {"content": [{"type": "image"}, {"type": "text", "text": content}]}
static char *parts_of(const char *content, size_t n_pictures)
{
    json_t *parts = json_array();

    for (size_t i = 0; i < n_pictures; i++)
        json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", content));
    bool whole = json_array_size(parts) == n_pictures + 1;
    json_t *fields = json_pack("{s:o}", "content", parts);
    char *text = whole && fields ? text_of(fields) : NULL;
    json_decref(fields);
    return text;
}

static bool add_message(struct conversation_prompt *p, const struct conversation *c, size_t i)
{
    struct ingot_message *m = &p->messages[p->n_messages++];
    const struct chat_pictures *seen = &c->pictures[i];

    *m = c->at[i];
    if (!seen->n)
        return true;
    m->fields = parts_of(m->content, seen->n);
    m->content = NULL;
    for (size_t k = 0; k < seen->n; k++)
        p->pictures[p->n_pictures++] = seen->at[k];
    return m->fields != NULL;
}

bool conversation_prompt(struct conversation_prompt *p, const struct conversation *c, size_t first,
                         size_t from, struct err *err)
{
    size_t n_pictures = 0;

    for (size_t i = 0; i < c->n; i++)
        n_pictures += c->pictures[i].n;
    *p = (struct conversation_prompt){ .messages = mem_alloc_array(c->n + 1, sizeof *p->messages),
                                       .pictures = mem_alloc_array(n_pictures + 1, sizeof *p->pictures) };
    bool ok = p->messages && p->pictures;
    for (size_t i = 0; ok && i < c->n; i++)
        ok = (i >= first && i < from) || add_message(p, c, i);
    if (!ok)
        conversation_prompt_free(p);
    return ok || err_memory(err, "the conversation");
}

void conversation_prompt_free(struct conversation_prompt *p)
{
    for (size_t i = 0; i < p->n_messages; i++)
        mem_free((char *)(uintptr_t)p->messages[i].fields);
    mem_free(p->messages);
    mem_free(p->pictures);
    *p = (struct conversation_prompt){ 0 };
}

// ---- what fits --------------------------------------------------------------------------------------------

struct counting {
    const struct conversation *c;
    struct ingot_engine *engine;
    bool no_split;
};

// Tokens of the conversation without the messages from `first` up to `from`.
static bool count(const struct counting *k, size_t first, size_t from, uint32_t *n_tokens, struct err *err)
{
    struct ingot_request_options options = ingot_request_defaults();
    struct conversation_prompt said;
    size_t n = 0;

    if (!conversation_prompt(&said, k->c, first, from, err))
        return false;
    options.messages = said.messages;
    options.n_messages = said.n_messages;
    options.pictures = said.pictures;
    options.n_pictures = said.n_pictures;
    options.no_split = k->no_split;
    struct ingot_prompt *prompt = ingot_prompt_render(k->engine, &options, (struct ingot_error *)err);
    bool ok = prompt && ingot_prompt_tokens(prompt, &n, (struct ingot_error *)err);
    *n_tokens = (uint32_t)n;
    ingot_prompt_free(prompt);
    conversation_prompt_free(&said);
    return ok;
}

bool conversation_fit(struct conversation *c, struct ingot_engine *engine, struct conversation_room room,
                      uint32_t *n_tokens, struct err *err)
{
    size_t first = conversation_system(c) != NULL, from = first, last = conversation_last_user(c);
    const struct counting counting = { c, engine, room.no_split };
    struct ingot_engine_info info;
    uint32_t n_turns = 0;

    ingot_engine_info(engine, &info);
    if (!count(&counting, first, from, n_tokens, err))
        return false;
    bool may = last != SIZE_MAX && !room.keep_all;
    for (uint32_t wanted = room.least; may && *n_tokens + wanted > info.n_context && from < last; n_turns++) {
        wanted = room.goal;
        from = turn_end(c, from);
        if (!count(&counting, first, from, n_tokens, err))
            return false;
    }
    if (*n_tokens >= info.n_context && room.keep_all)
        return err_set(err, ERR_LIMIT,
                       "the context is full: %u of %u tokens; /undo or /clear makes room, -c gives more, and "
                       "without --no-shift the "
                       "oldest turns are left out",
                       *n_tokens, info.n_context);
    if (*n_tokens >= info.n_context)
        return err_set(err, ERR_LIMIT,
                       "the message takes %u tokens of the context of %u; -c gives a larger one", *n_tokens,
                       info.n_context);
    take_out(c, first, from - first);
    c->n_dropped += n_turns;
    return true;
}
