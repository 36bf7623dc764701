// info.h - endpoints that describe the model and the server, in the form of each API.
#pragma once
#include <stdbool.h>

struct http_exchange;

bool info_models(struct http_exchange *x); // OpenAI's and Anthropic's
bool info_model(struct http_exchange *x);
bool info_props(struct http_exchange *x); // llama.cpp's server
bool info_slots(struct http_exchange *x);
bool info_tags(struct http_exchange *x); // Ollama's
bool info_running(struct http_exchange *x);
bool info_version(struct http_exchange *x);
bool info_show(struct http_exchange *x);
// The answer to an empty prompt, by which Ollama's clients have the model loaded.
bool info_loaded(struct http_exchange *x, bool chat);
