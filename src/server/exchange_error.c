// exchange_error.c - refusals, each in the words of the dialect it is told in.
//
// OpenAI's error names the field at fault in `param`; Anthropic's has the request's id beside it; Ollama's is
// a bare string.
#include "server/api_request.h"
#include "server/http.h"
#include "server/sse.h"

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

static bool reply_problem(struct exchange *x, unsigned status, const char *code, const char *message)
{
    json_t *text = sse_text(message);
    char param[API_REQUEST_PARAM_BYTES];

    switch (x->family) {
    case API_ANTHROPIC:
        return exchange_reply_json(x, status,
                                   json_pack("{s:s, s:{s:s, s:o}, s:s}", "type", "error", "error", "type",
                                             error_type(status), "message", text, "request_id", x->id));
    case API_OLLAMA:
        return exchange_reply_json(x, status, json_pack("{s:o}", "error", text));
    case API_OPENAI:
        break;
    }
    bool named = status == 400 && api_request_param(message, param);
    return exchange_reply_json(x, status,
                               json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", text, "type",
                                         error_type(status), "param", named ? param : NULL, "code", code));
}

bool exchange_reply_error(struct exchange *x, unsigned status, const char *format, ...)
{
    char message[600];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return reply_problem(x, status, NULL, message);
}

bool exchange_reply_err(struct exchange *x, const struct err *err)
{
    switch (err->code) {
    case ERR_LIMIT:
        if (!err->message[0])
            return exchange_reply_error(x, 429, "all sequences and the queue are taken; try again");
        return reply_problem(x, 400, "context_length_exceeded", err->message);
    case ERR_INPUT:
    case ERR_UNSUPPORTED:
    case ERR_NOT_FOUND:
        return reply_problem(x, 400, NULL, err->message);
    case ERR_MEMORY:
    case ERR_CANCELLED:
        return reply_problem(x, 503, NULL, err->message);
    case ERR_TIMEOUT:
        return reply_problem(x, 504, "deadline_exceeded", err->message);
    case ERR_NUMERIC:
        return reply_problem(x, 500, "numerical_error", err->message);
    default:
        return reply_problem(x, 500, NULL, err->message);
    }
}
