// by_name.h - a model's name becomes a path, before any verb looks at it.
#pragma once
#include "hub/hub.h"
#include "main/settings.h"

// Where -m, -hf or the verb's operand name a model and no file of that name is there: finds it in the cache, or pulls it, and puts its
// path in their place. Returns an exit status, having printed the error.
int model_by_name(const struct option_verb *verb, struct settings *settings, struct option_operands *operands,
                  struct arena *arena);
// The path of one model; with `fresh` the hub is asked for a newer one. The same statuses.
int model_fetch(const struct hub *hub, const char *text, bool fresh, bool quiet, char path[HUB_PATH]);
