// shared.h - one server for all tests of a program, with the model that ships inside, and replies as JSON.
#pragma once
#include "server/client.h"

static struct served shared;

static inline int start(void **state)
{
    static const char *const args[] = { "-np", "4", NULL };
    (void)state;
    shared = serve_start(args);
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    return serve_stop(&shared) == 0 ? 0 : -1;
}

// An item by a path such as "choices.0.message.content"; borrowed.
static inline json_t *at(json_t *value, const char *path)
{
    char name[64];

    while (*path && value) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        value =
            json_is_array(value) ? json_array_get(value, number_in(name, 10)) : json_object_get(value, name);
        path += n + (path[n] == '.');
    }
    return value;
}

static inline const char *text(json_t *value, const char *path)
{
    const char *found = json_string_value(at(value, path));
    return found ? found : "";
}

static inline json_t *reply_of(const char *path, const char *body, int *status)
{
    json_t *r = http_json(shared.port, path, body, status);
    serve_skip_log(&shared); // a full pipe would stop the server
    return r;
}

// A reply that must be 200.
static inline json_t *post(const char *path, const char *body)
{
    int status;
    json_t *r = reply_of(path, body, &status);

    if (status != 200)
        fail_msg("%s: %d %s", path, status, json_dumps(r, JSON_COMPACT));
    return r;
}
