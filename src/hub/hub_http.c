// hub_http.c - see hub_http.h.
#include "hub/hub_http.h"
#include <ctype.h>
#include <strings.h>
#include <curl/curl.h>
#include "base/mem.h"

enum { CONNECT_S = 30, MAX_REDIRECTS = 10, LEAST_BYTES_PER_S = 1024 };

struct hub_http {
    CURL *easy;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
    const struct hub_get *get;
    struct hub_reply *reply;
    bool answered; // by an earlier request: then no connection is a passing failure
    bool headed, stopped;
};

// ---- the head

// The value of a header of this name, or an empty str.
static struct str value_of(struct str line, const char *name)
{
    size_t n = strlen(name);

    if (line.n <= n || line.at[n] != ':' || strncasecmp(line.at, name, n) != 0)
        return (struct str){ "", 0 };
    line = str_from_to(line, n + 1, line.n);
    while (line.n && isspace((unsigned char)line.at[0]))
        line = str_from_to(line, 1, line.n);
    while (line.n && isspace((unsigned char)line.at[line.n - 1]))
        line.n--;
    return line;
}

// "bytes 100-199/200": only a range to the end is of use.
static void read_range(struct str s, struct hub_reply *r)
{
    size_t dash = str_find(s, STR("-")), slash = str_find(s, STR("/"));
    uint64_t to;

    r->ranged = str_starts(s, STR("bytes ")) && dash > 6 && dash < slash && slash < s.n &&
                str_to_u64(str_from_to(s, 6, dash), &r->from) &&
                str_to_u64(str_from_to(s, dash + 1, slash), &to) &&
                str_to_u64(str_from_to(s, slash + 1, s.n), &r->total) && to + 1 == r->total && r->from <= to;
}

static void keep_printable(char *to, size_t n, struct str s)
{
    size_t used = 0;

    for (size_t i = 0; i < s.n && used + 1 < n; i++) {
        if ((unsigned char)s.at[i] >= 0x20 && (unsigned char)s.at[i] < 0x7f)
            to[used++] = s.at[i];
    }
    to[used] = 0;
}

static size_t on_header(char *bytes, size_t one, size_t n, void *arg)
{
    struct hub_reply *r = ((struct hub_http *)arg)->reply;
    struct str line = { bytes, one * n }, value;

    if (str_starts(line, STR("HTTP/"))) // the next response, after a redirect
        *r = (struct hub_reply){ 0 };
    if ((value = value_of(line, "ETag")).n > 2 && value.at[0] == '"' && value.n < sizeof r->etag)
        keep_printable(r->etag, sizeof r->etag, value);
    if ((value = value_of(line, "Content-Range")).n)
        read_range(value, r);
    if ((value = value_of(line, "X-Error-Message")).n)
        keep_printable(r->error, sizeof r->error, value);
    return one * n;
}

static bool read_head(struct hub_http *h)
{
    if (h->headed)
        return true;
    h->headed = true;
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &h->reply->status);
    return !h->get->head || h->get->head(h->get->arg, h->reply);
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct hub_http *h = arg;

    h->stopped = h->stopped || !read_head(h) || !h->get->body(h->get->arg, bytes, one * n);
    return h->stopped ? 0 : one * n;
}

static int on_tick(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct hub_http *h = arg;
    (void)a, (void)b, (void)c, (void)d;

    h->stopped = h->stopped || !h->get->go_on(h->get->arg);
    return h->stopped;
}

// ---- requests

static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *more = curl_slist_append(*list, line);
    *list = more ? more : *list;
    return more != NULL;
}

static void set_options(struct hub_http *h, const struct hub *hub)
{
    bool https = !strncmp(hub->endpoint, "https:", 6);

    curl_easy_setopt(h->easy, CURLOPT_PROTOCOLS_STR, https ? "https" : "http,https");
    curl_easy_setopt(h->easy, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
    curl_easy_setopt(h->easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h->easy, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(h->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(h->easy, CURLOPT_LOW_SPEED_LIMIT, (long)LEAST_BYTES_PER_S);
    curl_easy_setopt(h->easy, CURLOPT_LOW_SPEED_TIME, (long)hub->stall_s);
    curl_easy_setopt(h->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h->easy, CURLOPT_USERAGENT, "ingot/" INGOT_VERSION);
    curl_easy_setopt(h->easy, CURLOPT_ERRORBUFFER, h->error);
    curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, h);
    curl_easy_setopt(h->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h->easy, CURLOPT_HEADERDATA, h);
    curl_easy_setopt(h->easy, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(h->easy, CURLOPT_XFERINFODATA, h);
}

struct hub_http *hub_http_open(const struct hub *hub, struct err *err)
{
    struct hub_http *h = mem_alloc(sizeof *h);
    char token[sizeof hub->token + 32];

    if (!h || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        mem_free(h);
        err_set(err, ERR_IO, "libcurl does not start");
        return NULL;
    }
    snprintf(token, sizeof token, "Authorization: Bearer %s", hub->token);
    h->easy = curl_easy_init();
    if (!h->easy || !add_header(&h->headers, "Accept-Encoding: identity") ||
        (hub->token[0] && !add_header(&h->headers, token))) {
        hub_http_close(h);
        err_memory(err, "requests");
        return NULL;
    }
    set_options(h, hub);
    return h;
}

void hub_http_close(struct hub_http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->easy);
    curl_slist_free_all(h->headers);
    curl_global_cleanup();
    mem_free(h);
}

// The headers of one request: the constant ones, and If-Range.
static struct curl_slist *headers_for(const struct hub_http *h, const struct hub_get *get)
{
    struct curl_slist *list = NULL;
    char line[300];
    bool ok = true;

    for (const struct curl_slist *at = h->headers; ok && at; at = at->next)
        ok = add_header(&list, at->data);
    if (ok && get->from && get->etag) {
        snprintf(line, sizeof line, "If-Range: %s", get->etag);
        ok = add_header(&list, line);
    }
    if (ok)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

static enum hub_http_result end_of(struct hub_http *h, CURLcode code, const char *url, struct err *err)
{
    char why[CURL_ERROR_SIZE];
    bool away = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                code == CURLE_COULDNT_RESOLVE_PROXY;

    if (h->stopped) {
        err_set(err, ERR_CANCELLED, "stopped");
        return HUB_HTTP_STOPPED;
    }
    keep_printable(why, sizeof why, str_from(h->error[0] ? h->error : curl_easy_strerror(code)));
    err_set(err, ERR_IO, "%.200s: %s", url, why);
    switch (code) {
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return HUB_HTTP_FAILED;
    default:
        return away && !h->answered ? HUB_HTTP_FAILED : HUB_HTTP_BROKEN;
    }
}

enum hub_http_result hub_http_get(struct hub_http *h, const struct hub_get *get, struct hub_reply *reply,
                                  struct err *err)
{
    struct curl_slist *headers = headers_for(h, get);
    char range[32];
    curl_off_t wait = 0;

    *reply = (struct hub_reply){ 0 };
    if (!headers) {
        err_memory(err, "a request");
        return HUB_HTTP_FAILED;
    }
    h->get = get;
    h->reply = reply;
    h->headed = h->stopped = false;
    h->error[0] = 0;
    snprintf(range, sizeof range, "%llu-", (unsigned long long)get->from);
    curl_easy_setopt(h->easy, CURLOPT_URL, get->url);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h->easy, CURLOPT_RANGE, get->from ? range : NULL);
    CURLcode code = curl_easy_perform(h->easy);
    h->stopped = h->stopped || (code == CURLE_OK && !read_head(h)); // a response without a body
    curl_slist_free_all(headers);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, NULL);
    if (curl_easy_getinfo(h->easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
        reply->wait_s = wait < 1000000 ? (uint32_t)wait : 1000000;
    if (code == CURLE_OK && !h->stopped) {
        h->answered = true;
        return HUB_HTTP_ANSWERED;
    }
    return end_of(h, code, get->url, err);
}
