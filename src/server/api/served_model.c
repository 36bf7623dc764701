// served_model.c - see served_model.h.
#include "server/api/served_model.h"
#include "base/str.h"

static bool is_model(const struct served_model *m, struct str name)
{
    return name.n == 0 || str_is(name, m->name) || str_is(name, "default");
}

// Ollama's clients append ":latest" to a name without a tag.
bool served_model_is(const struct served_model *m, const char *asked)
{
    struct str name = str_from(asked), latest = STR(":latest");

    if (str_ends(name, latest) && !str_ends(str_from(m->name), latest))
        name.n -= latest.n;
    return name.n == 0 || str_is(name, m->name) || str_is(name, "default");
}
