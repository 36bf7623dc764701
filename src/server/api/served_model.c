// served_model.c - see served_model.h.
#include "server/api/served_model.h"
#include <stdio.h>
#include "base/str.h"

bool served_model_adapter(const struct served_model *m, uint32_t adapter, char name[SERVED_NAME_BYTES])
{
    struct ingot_adapter_info info;

    if (!ingot_adapter_info(m->engine, adapter, &info))
        return false;
    snprintf(name, SERVED_NAME_BYTES, "%s:%s", m->name, info.name);
    return true;
}

static bool is_model(const struct served_model *m, struct str name)
{
    return name.n == 0 || str_is(name, m->name) || str_is(name, "default");
}

// "model:adapter", or the adapter alone.
static uint32_t find_adapter(const struct served_model *m, struct str name)
{
    size_t colon = str_find_last(name, ':');
    struct ingot_adapter_info info;

    if (colon != SIZE_MAX && is_model(m, str_from_to(name, 0, colon)))
        name = str_from_to(name, colon + 1, name.n);
    for (uint32_t i = 0; ingot_adapter_info(m->engine, i, &info); i++)
        if (str_is(name, info.name))
            return i;
    return UINT32_MAX;
}

// Ollama's clients append ":latest" to a name without a tag.
struct served_choice served_model_find(const struct served_model *m, const char *asked)
{
    struct str name = str_from(asked), latest = STR(":latest");

    if (str_ends(name, latest) && !str_ends(str_from(m->name), latest))
        name.n -= latest.n;
    if (is_model(m, name))
        return (struct served_choice){ true, UINT32_MAX };
    uint32_t adapter = find_adapter(m, name);
    return (struct served_choice){ adapter != UINT32_MAX, adapter };
}
