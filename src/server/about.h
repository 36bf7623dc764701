// about.h - what is here: the model and the server, as each API describes them.
#pragma once
#include "server/http.h"

bool about_is_model(const struct server *s, const char *asked); // a name that clients may have for it

bool about_models(struct exchange *x); // OpenAI's and Anthropic's
bool about_model(struct exchange *x);
bool about_props(struct exchange *x); // llama.cpp's server
bool about_slots(struct exchange *x);
bool about_tags(struct exchange *x); // Ollama's
bool about_running(struct exchange *x);
bool about_version(struct exchange *x);
bool about_show(struct exchange *x);
bool about_loaded(struct exchange *x,
                  bool chat); // to a prompt without words, by which clients have the model loaded
