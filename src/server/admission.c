// admission.c - see admission.h. An error at this point is sent before the body is read, and the connection
// is closed after it.
#include "server/admission.h"
#include <strings.h>
#include "server/http/auth.h"
#include "server/http/message.h"
#include "server/routes.h"
#include "server/state.h"

enum { MAX_KEY = 1024 };

struct headers {
    unsigned n_host, n_length, n_encoding;
    const char *host, *origin, *length, *encoding;
};

static struct headers read_headers(const struct message *m)
{
    struct headers h = { .origin = message_field(m, "origin", NULL) };

    h.host = message_field(m, "host", &h.n_host);
    h.length = message_field(m, "content-length", &h.n_length);
    h.encoding = message_field(m, "transfer-encoding", &h.n_encoding);
    return h;
}

// Rejects ambiguous requests: a proxy and this server must not read different requests from the same bytes
// (request smuggling).
static bool check_form(struct http_exchange *x, const struct headers *h)
{
    const struct message *m = x->message;

    if (m->n_fields > MESSAGE_MAX_FIELDS)
        return !exchange_reply_error(x, 431, "%u headers; at most %d", m->n_fields, MESSAGE_MAX_FIELDS);
    if (h->n_host == 0 && !m->is_1_0)
        return !exchange_reply_error(x, 400, "Host is missing");
    if (h->n_host > 1 || h->n_length > 1 || h->n_encoding > 1)
        return !exchange_reply_error(x, 400, "Host, Content-Length or Transfer-Encoding is given twice");
    if (h->length && h->encoding)
        return !exchange_reply_error(x, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (h->length && !auth_length_is_plain(str_from(h->length)))
        return !exchange_reply_error(x, 400, "Content-Length is not a plain number");
    if (h->encoding && (m->is_1_0 || strcasecmp(h->encoding, "chunked") != 0))
        return !exchange_reply_error(x, 400, "Transfer-Encoding: want chunked, in version 1.1, or nothing");
    return true;
}

static const char *allowed_origin(const struct server_options *o, const char *origin)
{
    for (size_t i = 0; i < o->n_origins; i++)
        if (!strcmp(o->origins[i], origin))
            return o->origins[i];
    return NULL;
}

static bool check_sender(struct http_exchange *x, const struct headers *h)
{
    const struct server *s = x->server;

    if (s->loopback && h->host && !auth_host_is_loopback(str_from(h->host)))
        return !exchange_reply_error(
            x, 403, "Host is not this machine; a server on loopback answers for localhost only");
    if (!h->origin)
        return true;
    x->origin = allowed_origin(s->options, h->origin);
    if (x->origin || (h->host && auth_origin_is_host(str_from(h->origin), str_from(h->host))))
        return true;
    return !exchange_reply_error(x, 403,
                                 "Origin is not allowed; start the server with --cors-origin to allow it");
}

// Every key is compared in full, so that the time reveals nothing.
static bool has_key(struct http_exchange *x)
{
    const char *authorization = message_field(x->message, "authorization", NULL);
    const char *x_api_key = message_field(x->message, "x-api-key", NULL);
    const struct server_options *o = x->server->options;
    char room[MAX_KEY];
    struct str given = auth_key_of(authorization, x_api_key, room, sizeof room);

    if (given.n > MAX_KEY)
        return false;
    for (size_t i = 0; i < o->n_api_keys; i++)
        x->key = auth_same_key(given, o->api_keys[i]) ? o->api_keys[i] : x->key;
    return o->n_api_keys == 0 || x->key;
}

static void set_family(struct http_exchange *x, enum api_family family)
{
    x->family = family;
    x->id_header = family == API_ANTHROPIC ? "Request-Id" : "X-Request-Id";
}

static bool check_route(struct http_exchange *x)
{
    const char *method = x->message->method;
    const char *other = NULL;
    bool preflight = !strcmp(method, "OPTIONS") && x->origin;

    x->route = route_find(method, x->path, &other);
    if (x->route && x->route->flags & (ROUTE_ANTHROPIC | ROUTE_OLLAMA))
        set_family(x, x->route->flags & ROUTE_OLLAMA ? API_OLLAMA : API_ANTHROPIC);
    bool open = (x->route && (x->route->flags & ROUTE_OPEN)) || preflight;
    if (!open && !has_key(x))
        return !exchange_reply_error(x, 401, "a valid key is needed: Authorization: Bearer KEY");
    if (preflight)
        return !exchange_reply_text(x, 204, "text/plain", STR(""));
    x->allow = x->route ? NULL : other;
    if (x->allow)
        return !exchange_reply_error(x, 405, "%.20s is not for this path; use %s", method, other);
    if (!x->route)
        return !exchange_reply_error(x, 404, "nothing is at this path");
    return true;
}

static bool check_coding(struct http_exchange *x)
{
    const char *coding = message_field(x->message, "content-encoding", NULL);

    return !coding || !*coding || !strcasecmp(coding, "identity") ||
           !exchange_reply_error(x, 415, "Content-Encoding is \"%.40s\"; want a body as it is, without one",
                                 coding);
}

static bool check_room(struct http_exchange *x, const struct headers *h)
{
    struct server *s = x->server;
    uint64_t length = 0;

    if (x->route->flags & ROUTE_MODEL) {
        if (server_phase(s) == PHASE_LOADING)
            return !exchange_reply_error(x, 503, "the model is loading: %.1f %%",
                                         atomic_load(&s->progress) / 10.0);
        if (server_phase(s) != PHASE_READY && (x->route->flags & ROUTE_GENERATES))
            return !exchange_reply_error(x, 503, "the server is stopping");
        if (server_phase(s) == PHASE_FAILED)
            return !exchange_reply_error(x, 503, "the server has failed");
    }
    if (h->length && (!str_to_u64(str_from(h->length), &length) || length > s->options->limits.body_bytes))
        return !exchange_reply_error(x, 413, "the body is larger than %u bytes",
                                     s->options->limits.body_bytes);
    if ((x->route->flags & ROUTE_GENERATES) && engine_thread_is_full(&s->model.thread, 1))
        return !exchange_reply_error(x, 429, "all sequences and the queue are taken; try again");
    return true;
}

bool admission_check(struct http_exchange *x)
{
    struct headers h = read_headers(x->message);

    set_family(x, message_field(x->message, "anthropic-version", NULL) ? API_ANTHROPIC : API_OPENAI);
    x->requested_headers = message_field(x->message, "access-control-request-headers", NULL);
    x->closes = true;
    bool ok =
        check_form(x, &h) && check_sender(x, &h) && check_route(x) && check_coding(x) && check_room(x, &h);
    x->closes = !ok;
    return ok;
}
