// model_lookup.h - a model's name becomes a path, before any verb looks at it.
#pragma once
#include "hub/hub.h"
#include "main/settings.h"

// Where -m, -hf or the verb's operand name a model and no file of that name is there: finds it in the cache,
// or pulls it, and puts its path in their place; where it is [MODEL] it goes to settings->model. Returns an
// exit status, having printed the error.
int model_by_name(const struct option_verb *verb, struct settings *settings, struct option_operands *operands,
                  struct arena *arena);

struct model_wish {
    const char *text; // the name
    bool fresh;       // ask the hub for a newer one, even if it is in the cache
    bool guessed;     // it might as well be a file that is not there
    bool quiet;
};
// The path of one model. The same statuses.
int model_fetch(const struct hub *hub, const struct model_wish *wish, char path[HUB_PATH]);
