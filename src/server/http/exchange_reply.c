// exchange_reply.c - the bytes of a response: its head, and its body, whole or in chunks.
#include <stdarg.h>
#include <time.h>
#include "base/clock.h"
#include "server/http/exchange.h"
#include "server/http/http.h"
#include "server/http/message.h"
#include "server/http/sse.h"

static const char *reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } reasons[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 413, "Content Too Large" },
        { 415, "Unsupported Media Type" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
    };

    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "";
}

static void add_cors(struct http_exchange *x, unsigned status)
{
    if (!x->origin)
        return;
    buf_printf(&x->out,
               "Access-Control-Allow-Origin: %s\r\n"
               "Access-Control-Expose-Headers: Request-Id, X-Request-Id, Retry-After\r\n"
               "Vary: Origin, Access-Control-Request-Headers\r\n",
               x->origin);
    if (status == 204)
        buf_printf(&x->out,
                   "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Allow-Headers: %s\r\n"
                   "Access-Control-Max-Age: 600\r\n",
                   x->requested_headers ? x->requested_headers : "authorization, content-type");
}

// All of the head but its empty line.
static void add_head(struct http_exchange *x, unsigned status, const char *type)
{
    struct buf *out = &x->out;
    time_t now = time(NULL);
    char date[40] = "";
    struct tm tm;

    if (gmtime_r(&now, &tm))
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    x->status = status;
    x->closes = x->closes || !x->message->keeps_alive;
    buf_printf(out, "HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %s\r\n", status, reason(status), date, type);
    if (status == 429 || status == 503)
        buf_printf(out, "Retry-After: %u\r\n", x->http->limits->retry_after_s);
    if (status == 401)
        buf_printf(out, "WWW-Authenticate: %s\r\n", x->path[1] ? "Bearer" : "Basic realm=\"ingot\"");
    if (status == 405)
        buf_printf(out, "Allow: %s%s\r\n", x->allow, strcmp(x->allow, "GET") ? "" : ", HEAD");
    if (status == 415)
        buf_text(out, "Accept-Encoding: identity\r\n");
    if (x->policy)
        buf_printf(out, "Content-Security-Policy: %s\r\n", x->policy);
    buf_printf(out, "X-Content-Type-Options: nosniff\r\n%s: %s\r\n", x->id_header, x->id);
    add_cors(x, status);
    if (x->closes)
        buf_text(out, "Connection: close\r\n");
    else if (x->message->is_1_0)
        buf_text(out, "Connection: keep-alive\r\n");
}

static bool is_head(const struct http_exchange *x)
{
    return x->message->method && !strcmp(x->message->method, "HEAD");
}

bool exchange_reply_text(struct http_exchange *x, unsigned status, const char *type, struct str text)
{
    x->out.n = 0;
    add_head(x, status, type);
    if (status != 204)
        buf_printf(&x->out, "Content-Length: %zu\r\n", text.n);
    buf_text(&x->out, "\r\n");
    if (!is_head(x))
        buf_str(&x->out, text);
    x->answer_bytes = text.n;
    x->replied = !x->out.failed;
    return x->replied;
}

bool exchange_reply_json(struct http_exchange *x, unsigned status, json_t *value)
{
    struct buf text = { 0 };

    sse_json(&text, value);
    buf_text(&text, "\n");
    bool ok = !text.failed && exchange_reply_text(x, status, "application/json", buf_as_str(&text));
    buf_free(&text);
    return ok;
}

bool exchange_reply_stream(struct http_exchange *x, const char *type)
{
    x->streams = true;
    x->closes = x->closes || x->message->is_1_0; // HTTP/1.0 has no chunks
    add_head(x, 200, type);
    buf_printf(&x->out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
               x->message->is_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
    return !x->out.failed;
}

bool exchange_add_chunk(struct http_exchange *x, bool last)
{
    bool chunked = !x->message->is_1_0;

    if (x->text.n > 0) {
        if (chunked)
            buf_printf(&x->out, "%zx\r\n", x->text.n);
        buf_str(&x->out, buf_as_str(&x->text));
        if (chunked)
            buf_text(&x->out, "\r\n");
        x->answer_bytes += x->text.n;
        x->sent_ns = clock_ns();
    }
    if (last && chunked)
        buf_text(&x->out, "0\r\n\r\n");
    return !x->text.failed && !x->out.failed;
}

bool exchange_reply_error(struct http_exchange *x, unsigned status, const char *format, ...)
{
    char message[600];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return x->http->service->reply_error(x, status, message);
}
