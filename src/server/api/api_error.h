// api_error.h - an error in the form of the API that it is sent to.
#pragma once
#include <jansson.h>
#include "base/err.h"

enum api_family { API_OPENAI, API_ANTHROPIC, API_OLLAMA };

struct api_error {
    unsigned status;
    const char *code, *message; // code: OpenAI's, or NULL
};

// The status and the code follow from err's code. The result points into err.
struct api_error api_error_of(const struct err *err);
json_t *api_error_json(const struct api_error *error, enum api_family family, const char *request_id);
