// load_generator.c - see load_generator.h. One thread: libcurl's multi interface holds all connections.
#include "main/load_generator.h"
#include <curl/curl.h>
#include <jansson.h>
#include <string.h>
#include "base/buf_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/str.h"
#include "main/terminal/signals.h"

enum { MAX_REPLY = 1 << 24, POLL_MS = 200, CONNECT_S = 10 };

struct client {
    struct drive *drive;
    CURL *easy;
    struct buf request, reply; // reply: bytes received and not parsed yet
    uint64_t begun_ns, last_ns;
    uint32_t n_pieces, n_counted; // counted: by the server
    bool ended, failed;
    char error[CURL_ERROR_SIZE];
};

struct drive {
    const struct load_options *options;
    struct load_result *result;
    CURLM *multi;
    struct curl_slist *headers;
    struct client *clients;
    uint32_t n_sent, n_open;
    char model[256], chat_url[2048];
};

static bool add_time(struct load_times *t, double ms)
{
    if (t->n == t->capacity) {
        uint32_t capacity = t->capacity ? t->capacity * 2 : 1024;
        double *more = mem_realloc(t->at, capacity * sizeof *more);
        if (!more)
            return false;
        t->at = more;
        t->capacity = capacity;
    }
    t->at[t->n++] = ms;
    return true;
}

static void note_problem(struct drive *l, const char *what)
{
    if (!l->result->problem[0])
        snprintf(l->result->problem, sizeof l->result->problem, "%s", what);
}

// ---- what comes back

static void note_piece(struct client *c)
{
    uint64_t now = clock_ns();
    struct load_result *r = c->drive->result;
    bool first = c->n_pieces++ == 0;

    c->failed |=
        !add_time(first ? &r->first : &r->gaps, (double)(now - (first ? c->begun_ns : c->last_ns)) / 1e6);
    c->last_ns = now;
}

// True for an event that holds text alone, which need not be parsed. In a JSON string a quote is always
// escaped.
static bool is_plain_piece(struct str data)
{
    const struct str text = STR("\"content\":\"");
    size_t at = str_find(data, text);

    return at != SIZE_MAX && data.at[at + text.n] != '"' && str_find(data, STR("\"usage\":{")) == SIZE_MAX &&
           str_find(data, STR("\"error\"")) == SIZE_MAX;
}

static void read_event(struct client *c, struct str data)
{
    if (str_is(data, "[DONE]")) {
        c->ended = true;
        return;
    }
    if (is_plain_piece(data)) {
        note_piece(c);
        return;
    }
    json_t *event = json_loadb(data.at, data.n, 0, NULL);
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0),
           *delta = json_object_get(choice, "delta");
    const char *text = json_string_value(json_object_get(delta, "content"));
    const char *thought = json_string_value(json_object_get(delta, "reasoning_content"));
    json_t *count = json_object_get(json_object_get(event, "usage"), "completion_tokens");
    json_t *problem = json_object_get(json_object_get(event, "error"), "message");

    if ((text && *text) || (thought && *thought))
        note_piece(c);
    if (json_is_integer(count))
        c->n_counted = (uint32_t)json_integer_value(count);
    if (json_is_string(problem)) {
        note_problem(c->drive, json_string_value(problem));
        c->failed = true;
    }
    json_decref(event);
}

// Lines that begin with "data:" and are complete.
static void read_events(struct client *c)
{
    size_t from = 0;

    for (;;) {
        struct str rest = { c->reply.at + from, c->reply.n - from };
        size_t end = str_find(rest, STR("\n"));
        if (end == SIZE_MAX)
            break;
        size_t n = end > 0 && rest.at[end - 1] == '\r' ? end - 1 : end;
        if (n > 5 && !memcmp(rest.at, "data:", 5))
            read_event(c, str_from_to(rest, rest.at[5] == ' ' ? 6 : 5, n));
        from += end + 1;
    }
    c->reply.n -= from;
    memmove(c->reply.at, c->reply.at + from, c->reply.n + 1);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct client *c = arg;
    long status = 0;

    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->reply.n + one * n > MAX_REPLY || !buf_append(&c->reply, bytes, one * n))
        return 0;
    if (status == 200 && c->request.n > 0) // a list of models is read as a whole
        read_events(c);
    return one * n;
}

// ---- what is sent

// Writes words that differ between requests from the first one on.
static void write_prompt(struct buf *text, uint64_t seed, uint32_t n_words)
{
    static const char *const words[] = { "river", "stone", "lamp",   "green", "winter", "paper",
                                         "cloud", "seven", "horse",  "quiet", "salt",   "tower",
                                         "bread", "glass", "garden", "north" };
    uint64_t x = seed;

    for (uint32_t i = 0; i < n_words; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        buf_text(text, i ? " " : "");
        buf_text(text, words[x >> 60]);
    }
}

static bool write_request(struct client *c, uint32_t number)
{
    const struct load_options *o = c->drive->options;
    struct buf prompt = { 0 };

    write_prompt(&prompt, o->seed * 1000003 + number * 2654435761u + 1, o->n_words);
    json_t *body = json_pack("{s:s, s:[{s:s, s:s%}], s:i, s:b, s:b, s:{s:b}, s:I}", "model", c->drive->model,
                             "messages", "role", "user", "content", prompt.n ? prompt.at : "", prompt.n,
                             "max_tokens", (int)o->n_tokens, "stream", 1, "ignore_eos", 1, "stream_options",
                             "include_usage", 1, "seed", (json_int_t)number);
    c->request.n = 0;
    bool ok = buf_json(&c->request, body, JSON_COMPACT);
    json_decref(body);
    buf_free(&prompt);
    return ok;
}

static bool send_next(struct client *c)
{
    struct drive *l = c->drive;

    if (l->n_sent == l->options->n_requests || signals_interrupts() || !write_request(c, l->n_sent))
        return false;
    l->n_sent++;
    c->reply.n = 0;
    c->n_pieces = c->n_counted = 0;
    c->ended = c->failed = false;
    c->error[0] = 0;
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, (long)c->request.n);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->request.at);
    c->begun_ns = clock_ns();
    if (curl_multi_add_handle(l->multi, c->easy) != CURLM_OK)
        return false;
    l->n_open++;
    return true;
}

static void finish(struct client *c, CURLcode code)
{
    struct load_result *r = c->drive->result;
    long status = 0;

    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(c->drive->multi, c->easy);
    c->drive->n_open--;
    r->n_tokens += c->n_counted ? c->n_counted : c->n_pieces;
    if (status == 429 || status == 503)
        r->n_refused++;
    else if (code == CURLE_OK && status == 200 && c->ended && !c->failed)
        r->n_whole++;
    else if (status == 200 && !c->failed)
        r->n_cut++;
    else
        r->n_failed++;
    if (code != CURLE_OK)
        note_problem(c->drive, c->error[0] ? c->error : curl_easy_strerror(code));
    else if (status != 200 && status != 429 && status != 503 && c->reply.n)
        note_problem(c->drive, c->reply.at);
}

// ---- the clients

static CURL *make_easy(struct drive *l, const char *url, void *to, char *error)
{
    CURL *easy = curl_easy_init();

    if (!easy)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, l->headers);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, to);
    return easy;
}

static bool make_headers(struct drive *l)
{
    char line[1024];

    l->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (l->headers && l->options->key) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", l->options->key);
        struct curl_slist *more = curl_slist_append(l->headers, line);
        l->headers = more ? more : l->headers;
    }
    return l->headers != NULL;
}

// Without a slash or the /v1 that a client's base URL ends with.
static struct str server_of(const char *url)
{
    struct str server = str_from_to(str_from(url), 0, strcspn(url, " "));

    while (server.n && server.at[server.n - 1] == '/')
        server.n--;
    server.n -= str_ends(server, STR("/v1")) ? strlen("/v1") : 0;
    return server;
}

// The first model that the server lists. Also checks that a server answers.
static bool ask_model(struct drive *l, struct err *err)
{
    struct str server = server_of(l->options->url);
    struct client c = { .drive = l };
    char url[2048];
    long status = 0;

    snprintf(url, sizeof url, "%.*s/v1/models", (int)server.n, server.at);
    CURLcode code = CURLE_OUT_OF_MEMORY;
    if ((c.easy = make_easy(l, url, &c, c.error)))
        code = curl_easy_perform(c.easy);
    if (c.easy)
        curl_easy_getinfo(c.easy, CURLINFO_RESPONSE_CODE, &status);
    bool ok = code == CURLE_OK && status == 200;
    if (code != CURLE_OK)
        err_set(err, ERR_IO, "%s: %s", url, c.error[0] ? c.error : curl_easy_strerror(code));
    else if (!ok)
        err_set(err, ERR_IO, "%s: status %ld%s; expected a list of models", url, status,
                status == 401 ? ": give the key with --api-key" : "");
    json_t *list = ok ? json_loadb(buf_as_str(&c.reply).at, c.reply.n, 0, NULL) : NULL;
    const char *name =
        json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    if (ok && !name)
        ok = err_set(err, ERR_IO, "%s: the answer lists no model", url);
    if (ok)
        snprintf(l->model, sizeof l->model, "%s", name);
    json_decref(list);
    buf_free(&c.reply);
    curl_easy_cleanup(c.easy);
    return ok;
}

static bool make_clients(struct drive *l)
{
    const struct load_options *o = l->options;
    struct str server = server_of(o->url);

    snprintf(l->chat_url, sizeof l->chat_url, "%.*s/v1/chat/completions", (int)server.n, server.at);
    l->multi = curl_multi_init();
    l->clients = mem_alloc_array(o->n_clients, sizeof *l->clients);
    for (uint32_t i = 0; l->multi && l->clients && i < o->n_clients; i++) {
        struct client *c = &l->clients[i];
        c->drive = l;
        c->easy = make_easy(l, l->chat_url, c, c->error);
        if (!c->easy)
            return false;
        curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    }
    return l->multi && l->clients;
}

static void play(struct drive *l)
{
    int n_running;

    for (uint32_t i = 0; i < l->options->n_clients; i++)
        send_next(&l->clients[i]);
    while (l->n_open > 0 && !signals_interrupts()) {
        if (curl_multi_perform(l->multi, &n_running) != CURLM_OK)
            return;
        int n_left;
        for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &n_left));) {
            struct client *c = NULL;
            CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
            finish(c, code);
            send_next(c);
        }
        if (l->n_open > 0)
            curl_multi_poll(l->multi, NULL, 0, POLL_MS, NULL);
    }
}

static void drive_close(struct drive *l)
{
    for (uint32_t i = 0; l->clients && i < l->options->n_clients; i++) {
        struct client *c = &l->clients[i];
        if (c->easy && l->multi)
            curl_multi_remove_handle(l->multi, c->easy);
        curl_easy_cleanup(c->easy);
        buf_free(&c->request);
        buf_free(&c->reply);
    }
    mem_free(l->clients);
    if (l->multi)
        curl_multi_cleanup(l->multi);
    curl_slist_free_all(l->headers);
}

bool load_run(const struct load_options *o, struct load_result *result, struct err *err)
{
    struct drive l = { .options = o, .result = result };

    *result = (struct load_result){ .n_clients = o->n_clients };
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, ERR_IO, "libcurl does not start");
    bool ok = make_headers(&l) || err_memory(err, "requests");
    ok = ok && ask_model(&l, err) && (make_clients(&l) || err_memory(err, "clients"));
    uint64_t begun = clock_ns();
    if (ok)
        play(&l);
    result->seconds = (double)(clock_ns() - begun) / 1e9;
    drive_close(&l);
    curl_global_cleanup();
    stats_sort(result->first.at, result->first.n);
    stats_sort(result->gaps.at, result->gaps.n);
    if (ok && signals_interrupts())
        return err_set(err, ERR_CANCELLED, "stopped");
    return ok;
}

void load_release(struct load_result *r)
{
    mem_free(r->first.at);
    mem_free(r->gaps.at);
    *r = (struct load_result){ 0 };
}
