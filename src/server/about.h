// about.h - what is here: the model and the server, as each API describes them.
#pragma once
#include <stdbool.h>

struct http_exchange;

bool about_models(struct http_exchange *x); // OpenAI's and Anthropic's
bool about_model(struct http_exchange *x);
bool about_props(struct http_exchange *x); // llama.cpp's server
bool about_slots(struct http_exchange *x);
bool about_tags(struct http_exchange *x); // Ollama's
bool about_running(struct http_exchange *x);
bool about_version(struct http_exchange *x);
bool about_show(struct http_exchange *x);
bool about_loaded(struct http_exchange *x,
                  bool chat); // to a prompt without words, by which clients have the model loaded
