// prefill_client.c - see prefill_client.h. Each question has a libcurl handle of its own: several threads ask
// at once, and a connection is nothing beside a prompt. No redirects, and no proxy: pages go to one place
// alone.
#include "main/prefill_client.h"
#include <curl/curl.h>
#include <jansson.h>

enum { CONNECT_S = 5, REFUSAL_BYTES = 4096, RECEIVE_BYTES = 1 << 20 };

struct asking {
    const struct prefetch_call *call;
    CURL *easy;
    long status; // 0: the head has not come
    bool left;   // nobody wants the rest
    char error[CURL_ERROR_SIZE];
    struct buf refusal; // the body of an answer that is no 200
};

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct asking *a = arg;

    if (a->status == 0)
        curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &a->status);
    if (a->status == 200)
        a->left = !a->call->take(a->call->arg, bytes, one * n);
    else if (a->refusal.n + one * n <= REFUSAL_BYTES)
        buf_append(&a->refusal, bytes, one * n);
    return a->left ? 0 : one * n;
}

static int on_tick(void *arg, curl_off_t b, curl_off_t c, curl_off_t d, curl_off_t e)
{
    struct asking *a = arg;
    (void)b, (void)c, (void)d, (void)e;

    a->left = a->left || !a->call->goes_on(a->call->arg);
    return a->left;
}

static void set_options(const struct prefill_client *client, struct asking *a)
{
    CURL *easy = a->easy;

    curl_easy_setopt(easy, CURLOPT_URL, client->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)a->call->question.n);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, a->call->question.at);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)client->silence_s);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "ingot/" INGOT_VERSION);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, a->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, a);
}

// Only printable ASCII goes to the log.
static void printable_put(char *to, size_t n, const char *text)
{
    size_t used = 0;

    for (; *text && used + 1 < n; text++)
        if (*text >= 0x20 && *text < 0x7f)
            to[used++] = *text;
    to[used] = 0;
}

// The server's own words, as the APIs' errors have them.
static bool refuse(const struct asking *a, struct err *err)
{
    json_t *body = json_loadb(a->refusal.n ? a->refusal.at : "", a->refusal.n, 0, NULL);
    const char *text = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    char words[300];

    printable_put(words, sizeof words, text ? text : "no reason");
    json_decref(body);
    return err_set(err, ERR_IO, "status %ld: %s", a->status, words);
}

static bool ask(void *arg, const struct prefetch_call *call, struct err *err)
{
    struct asking a = { .call = call, .easy = curl_easy_init() };
    char why[CURL_ERROR_SIZE];

    if (!a.easy)
        return err_memory(err, "a request");
    set_options(arg, &a);
    CURLcode code = curl_easy_perform(a.easy);
    curl_easy_getinfo(a.easy, CURLINFO_RESPONSE_CODE, &a.status);
    curl_easy_cleanup(a.easy);
    printable_put(why, sizeof why, a.error[0] ? a.error : curl_easy_strerror(code));
    bool ok = code == CURLE_OK && a.status == 200;
    if (a.left)
        err_set(err, ERR_CANCELLED, "stopped");
    else if (code != CURLE_OK)
        err_set(err, ERR_IO, "%s", why);
    else if (!ok)
        refuse(&a, err);
    buf_free(&a.refusal);
    return ok;
}

static bool add_header(struct prefill_client *client, const char *line)
{
    struct curl_slist *more = curl_slist_append(client->headers, line);

    client->headers = more ? more : client->headers;
    return more != NULL;
}

bool prefill_client_open(struct prefill_client *client, const struct settings *s, struct err *err)
{
    struct str url = str_from(s->prefill);
    char key[1100] = "";

    *client = (struct prefill_client){ .options = { s->prefill, s->prefill_least, ask, client },
                                       .silence_s = s->prefill_silence_s };
    while (url.n && url.at[url.n - 1] == '/')
        url.n--;
    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return err_set(err, ERR_INPUT, "--prefill %.200s: want http://HOST:PORT", s->prefill);
    if (snprintf(client->url, sizeof client->url, "%.*s/prefill", STR_ARG(url)) >= (int)sizeof client->url)
        return err_set(err, ERR_INPUT, "--prefill: want an address of at most %zu bytes",
                       sizeof client->url - 9);
    if (s->prefill_key &&
        snprintf(key, sizeof key, "Authorization: Bearer %s", s->prefill_key) >= (int)sizeof key)
        return err_set(err, ERR_INPUT, "--prefill-key: want at most 1024 bytes");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, ERR_IO, "libcurl does not start");
    if (add_header(client, "Content-Type: application/json") && add_header(client, "Expect:") &&
        (!key[0] || add_header(client, key)))
        return true;
    prefill_client_close(client);
    return err_memory(err, "a prefill client");
}

void prefill_client_close(struct prefill_client *client)
{
    if (!client->options.ask)
        return;
    curl_slist_free_all(client->headers);
    curl_global_cleanup();
    client->headers = NULL;
    client->options.ask = NULL;
}
