// conversation.c - see conversation.h. Files of conversations are in conversation_file.c.
#include "main/chat/conversation.h"
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
    *c = (struct conversation){ 0 };
}

void conversation_cut(struct conversation *c, size_t n)
{
    while (c->n > n)
        mem_free((char *)(uintptr_t)c->at[--c->n].content);
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

static bool reserve(struct conversation *c)
{
    size_t capacity = c->capacity ? 2 * c->capacity : 64;
    struct ingot_message *grown = c->n < c->capacity ? c->at : mem_realloc(c->at, capacity * sizeof *c->at);

    if (!grown) {
        fail("out of memory for the conversation");
        return false;
    }
    c->capacity = c->n < c->capacity ? c->capacity : capacity;
    c->at = grown;
    return true;
}

bool conversation_add(struct conversation *c, const char *role, const char *content)
{
    char *copy = reserve(c) ? copy_of(content) : NULL;

    if (copy)
        c->at[c->n++] = (struct ingot_message){ .role = role, .content = copy };
    return copy != NULL;
}

const char *conversation_system(const struct conversation *c)
{
    return c->n && is_role(&c->at[0], "system") ? c->at[0].content : NULL;
}

// Removes n messages from `at` on.
static void take_out(struct conversation *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        mem_free((char *)(uintptr_t)c->at[i].content);
    memmove(c->at + at, c->at + at + n, (c->n - at - n) * sizeof *c->at);
    c->n -= n;
}

bool conversation_set_system(struct conversation *c, const char *content)
{
    char *copy = content && reserve(c) ? copy_of(content) : NULL;

    if (content && !copy)
        return false;
    if (conversation_system(c))
        take_out(c, 0, 1);
    if (!copy)
        return true;
    memmove(c->at + 1, c->at, c->n++ * sizeof *c->at);
    c->at[0] = (struct ingot_message){ .role = "system", .content = copy };
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

// Tokens of the conversation without the messages from `first` up to `from`.
static bool count(const struct conversation *c, struct ingot_engine *engine, size_t first, size_t from,
                  uint32_t *n_tokens, struct err *err)
{
    struct ingot_message *messages = mem_alloc_array(c->n, sizeof *messages);
    struct ingot_request_options options = ingot_request_defaults();
    size_t n = 0;

    if (!messages)
        return err_memory(err, "the conversation");
    memcpy(messages, c->at, first * sizeof *messages);
    memcpy(messages + first, c->at + from, (c->n - from) * sizeof *messages);
    options.messages = messages;
    options.n_messages = c->n - (from - first);
    struct ingot_prompt *prompt = ingot_prompt_render(engine, &options, (struct ingot_error *)err);
    bool ok = prompt && ingot_prompt_tokens(prompt, &n, (struct ingot_error *)err);
    *n_tokens = (uint32_t)n;
    ingot_prompt_free(prompt);
    mem_free(messages);
    return ok;
}

bool conversation_fit(struct conversation *c, struct ingot_engine *engine, struct conversation_room room,
                      uint32_t *n_tokens, struct err *err)
{
    size_t first = conversation_system(c) != NULL, from = first, last = conversation_last_user(c);
    struct ingot_engine_info info;
    uint32_t n_turns = 0;

    ingot_engine_info(engine, &info);
    if (!count(c, engine, first, from, n_tokens, err))
        return false;
    bool may = last != SIZE_MAX && !room.keep_all;
    for (uint32_t wanted = room.least; may && *n_tokens + wanted > info.n_context && from < last; n_turns++) {
        wanted = room.goal;
        from = turn_end(c, from);
        if (!count(c, engine, first, from, n_tokens, err))
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
