// conversation_file.c - a conversation on disk, as JSON in the form that other programs use. See
// conversation.h.
#include <jansson.h>
#include "base/buf_json.h"
#include "base/file.h"
#include "main/chat/conversation.h"
#include "text/json_memory.h"

enum { MAX_BYTES = 1 << 26, MAX_MESSAGES = 100000 };

// The role as a constant string; NULL when a chat has no such role.
static const char *role_of(const json_t *message)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    const char *role = json_string_value(json_object_get(message, "role"));

    for (int i = 0; role && i < 3; i++) {
        if (!strcmp(role, roles[i]))
            return roles[i];
    }
    return NULL;
}

// The pictures before a message, read again from their files.
static bool add_pictures(struct chat_pictures *to, const json_t *images)
{
    const json_t *path;
    size_t i;

    json_array_foreach(images, i, path)
    {
        if (!json_is_string(path) || !chat_pictures_add(to, json_string_value(path)))
            return false;
    }
    return !images || json_is_array(images);
}

static bool add(struct conversation *c, size_t i, const json_t *message, struct err *err)
{
    const char *role = role_of(message), *content = json_string_value(json_object_get(message, "content"));

    if (!role || !content || strlen(content) != json_string_length(json_object_get(message, "content")))
        return err_set(err, ERR_INPUT,
                       "message %zu: expected a role (system, user or assistant) and a text as content", i);
    if (i > 0 && !strcmp(role, "system"))
        return err_set(err, ERR_INPUT, "message %zu: a system message is expected at the beginning only", i);
    if (!conversation_add(c, role, content))
        return err_memory(err, "the conversation");
    return add_pictures(&c->pictures[c->n - 1], json_object_get(message, "images")) ||
           err_set(err, ERR_INPUT, "message %zu: expected images as a list of paths of pictures", i);
}

static bool add_all(struct conversation *c, const json_t *messages, struct err *err)
{
    if (!json_is_array(messages))
        return err_set(err, ERR_INPUT, "found no array \"messages\": this is no saved chat");
    if (json_array_size(messages) > MAX_MESSAGES)
        return err_set(err, ERR_LIMIT, "%zu messages; at most %d are read", json_array_size(messages),
                       MAX_MESSAGES);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!add(c, i, json_array_get(messages, i), err))
            return false;
    }
    return true;
}

static bool parse(struct conversation *c, struct str json, struct err *err)
{
    struct conversation read = { 0 };
    json_error_t error;
    json_t *root = json_memory_read(json, JSON_REJECT_DUPLICATES, &error);

    if (!root)
        return err_set(err, ERR_INPUT, "line %d: %s", error.line, error.text);
    bool ok = add_all(&read, json_is_array(root) ? root : json_object_get(root, "messages"), err);
    json_decref(root);
    if (!ok) {
        conversation_free(&read);
        return false;
    }
    conversation_free(c);
    *c = read;
    return true;
}

bool conversation_load(struct conversation *c, const char *path, struct err *err)
{
    struct buf text = { 0 };
    bool ok = file_read(&text, path, MAX_BYTES, err);

    if (ok && !parse(c, buf_as_str(&text), err))
        ok = err_prefix(err, "%.200s", path);
    buf_free(&text);
    return ok;
}

// A file that is something else, such as a draft, must not be overwritten by mistake.
static bool may_write(const char *path, struct err *err)
{
    struct conversation old = { 0 };
    bool ok = !file_exists(path) || conversation_load(&old, path, err);

    conversation_free(&old);
    return ok || err_set(err, ERR_INPUT, "%.200s is there and is no saved chat: name another file", path);
}

static json_t *paths_of(const struct chat_pictures *pictures)
{
    json_t *paths = json_array();

    for (size_t i = 0; i < pictures->n; i++)
        json_array_append_new(paths, json_string(pictures->paths[i]));
    return paths;
}

static json_t *to_json(const struct conversation *c)
{
    json_t *messages = json_array();

    for (size_t i = 0; i < c->n; i++) {
        json_t *message = json_pack("{s:s, s:s}", "role", c->at[i].role, "content", c->at[i].content);
        if (c->pictures[i].n)
            json_object_set_new(message, "images", paths_of(&c->pictures[i]));
        json_array_append_new(messages, message);
    }
    return json_pack("{s:o}", "messages", messages);
}

bool conversation_save(const struct conversation *c, const char *path, struct err *err)
{
    struct buf text = { 0 };

    if (!may_write(path, err))
        return false;
    json_t *json = to_json(c);
    bool ok = json_array_size(json_object_get(json, "messages")) == c->n &&
              buf_json(&text, json, JSON_INDENT(1)) && buf_text(&text, "\n");
    json_decref(json);
    ok = ok ? file_save(path, buf_as_str(&text), err) : err_memory(err, "the conversation");
    buf_free(&text);
    return ok;
}
