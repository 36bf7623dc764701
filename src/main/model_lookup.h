// model_lookup.h - a model's name becomes a path, before any verb looks at it.
#pragma once
#include "hub/hub.h"
#include "main/settings.h"

// When -m, -hf or the verb's operand names a model and no file has that name: finds it in the cache or pulls
// it, and replaces the name with its path; the path of an operand [MODEL] goes to settings->model. Returns an
// exit status; an error has been printed.
int model_lookup(const struct option_verb *verb, struct settings *settings, struct option_operands *operands,
                 struct arena *arena);

struct model_query {
    const char *text; // the name
    bool fresh;       // ask the hub for a newer one, even if it is in the cache
    bool guessed;     // the text may also be meant as a file, which does not exist
    bool quiet;
};
// The path of one model. Returns the same statuses.
int model_fetch(const struct hub *hub, const struct model_query *query, char path[HUB_PATH]);
