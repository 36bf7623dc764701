// api_error.c - see api_error.h. OpenAI's error names the field at fault in `param`; Anthropic's has the
// request's id beside it; Ollama's is a bare string.
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/http/sse.h"

static const char *error_type(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

json_t *api_error_json(const struct api_error *e, enum api_family family, const char *request_id)
{
    json_t *text = sse_text(e->message);
    const char *type = error_type(e->status);
    char param[API_REQUEST_PARAM_BYTES];

    switch (family) {
    case API_ANTHROPIC:
        return json_pack("{s:s, s:{s:s, s:o}, s:s}", "type", "error", "error", "type", type, "message", text,
                         "request_id", request_id);
    case API_OLLAMA:
        return json_pack("{s:o}", "error", text);
    case API_OPENAI:
        break;
    }
    bool named = e->status == 400 && api_request_param(e->message, param);
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", text, "type", type, "param",
                     named ? param : NULL, "code", e->code);
}

struct api_error api_error_of(const struct err *err)
{
    switch (err->code) {
    case ERR_LIMIT:
        if (!err->message[0])
            return (struct api_error){ 429, NULL, "all sequences and the queue are taken; try again" };
        return (struct api_error){ 400, "context_length_exceeded", err->message };
    case ERR_INPUT:
    case ERR_UNSUPPORTED:
    case ERR_NOT_FOUND:
        return (struct api_error){ 400, NULL, err->message };
    case ERR_MEMORY:
    case ERR_CANCELLED:
        return (struct api_error){ 503, NULL, err->message };
    case ERR_TIMEOUT:
        return (struct api_error){ 504, "deadline_exceeded", err->message };
    case ERR_NUMERIC:
        return (struct api_error){ 500, "numerical_error", err->message };
    default:
        return (struct api_error){ 500, NULL, err->message };
    }
}
