// hub_name.c - see hub.h: names of models, and the environment.
#include "base/file.h"
#include "base/options.h"
#include "hub/hub.h"

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The hub's own rule: letters, digits, _, and single - and . between them. So "--" can stand for the slash in
// a folder's name.
static bool repo_part(struct str s)
{
    bool mark = true;

    for (size_t i = 0; i < s.n; i++) {
        bool is_mark = s.at[i] == '-' || s.at[i] == '.';
        if ((!is_mark && !word_char(s.at[i])) || (is_mark && mark && (i == 0 || s.at[i - 1] == s.at[i])))
            return false;
        mark = is_mark;
    }
    return s.n > 0 && s.n <= HUB_PART && !mark;
}

bool hub_path_safe(struct str path)
{
    size_t from = 0;

    if (path.n == 0 || path.n > 1024)
        return false;
    for (size_t i = 0; i <= path.n; i++) {
        unsigned char c = i < path.n ? (unsigned char)path.at[i] : '/';
        if (c < 0x20 || c > 0x7e || c == '\\')
            return false;
        if (c != '/')
            continue;
        struct str part = str_from_to(path, from, i);
        if (part.n == 0 || part.n > 255 || str_is(part, ".") || str_is(part, ".."))
            return false;
        from = i + 1;
    }
    return true;
}

bool hub_hex(struct str text, size_t n)
{
    for (size_t i = 0; i < text.n; i++) {
        if (!(text.at[i] >= '0' && text.at[i] <= '9') && !(text.at[i] >= 'a' && text.at[i] <= 'f'))
            return false;
    }
    return text.n == n;
}

// A revision is a branch, a tag or a commit: it becomes a path below refs/ and a part of an address.
static bool revision_ok(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!word_char(s.at[i]) && !strchr("-.+/", s.at[i]))
            return false;
    }
    return s.n < 256 && hub_path_safe(s);
}

static struct str without_address(struct str s)
{
    static const char *const addresses[] = { "https://huggingface.co/", "huggingface.co/", "https://hf.co/",
                                             "hf.co/" };

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        if (str_starts(s, str_from(addresses[i])))
            return str_from_to(s, strlen(addresses[i]), s.n);
    }
    return s;
}

static void keep(char *to, size_t n, struct str s)
{
    snprintf(to, n, "%.*s", (int)s.n, s.at);
}

bool hub_name_read(struct hub_name *name, const char *text, struct err *err)
{
    struct str s = without_address(str_from(text)), revision = STR("main"), quant = { "", 0 };
    size_t at = str_find_last(s, '@');

    if (at != SIZE_MAX) {
        revision = str_from_to(s, at + 1, s.n);
        s.n = at;
    }
    size_t colon = str_find(s, STR(":")), slash = str_find(s, STR("/"));
    if (colon != SIZE_MAX) {
        quant = str_from_to(s, colon + 1, s.n);
        s.n = colon;
    }
    if (slash >= s.n || !repo_part(str_from_to(s, 0, slash)) || !repo_part(str_from_to(s, slash + 1, s.n)))
        return err_set(err, ERR_INPUT,
                       "found '%.80s', expected a model's name such as user/repo or user/repo:Q4_K_M", text);
    if (!revision_ok(revision))
        return err_set(err, ERR_INPUT, "%.80s: what follows @ must be a branch, a tag or a commit", text);
    if (colon != SIZE_MAX && (quant.n > 255 || !hub_path_safe(quant)))
        return err_set(err, ERR_INPUT,
                       "%.80s: what follows : must be a quant such as Q4_K_M, or a .gguf file's name", text);
    keep(name->repo, sizeof name->repo, s);
    keep(name->quant, sizeof name->quant, quant);
    keep(name->revision, sizeof name->revision, revision);
    return true;
}

bool hub_name_like(const char *text)
{
    struct hub_name name;
    struct str repo;

    if (!hub_name_read(&name, text, NULL))
        return false;
    repo = str_from(name.repo);
    return !str_ends(repo, STR(".gguf")) && !str_ends(repo, STR(".safetensors"));
}

// The token file of a login holds one line.
static void read_token(struct hub *hub, const struct options_hub *from)
{
    struct buf text = { 0 };
    struct err ignored;

    if (from->token[0] == 0 && file_exists(from->token_path) &&
        file_read(&text, from->token_path, sizeof hub->token, &ignored))
        snprintf(hub->token, sizeof hub->token, "%s", text.at ? text.at : "");
    else
        snprintf(hub->token, sizeof hub->token, "%s", from->token);
    hub->token[strcspn(hub->token, " \t\r\n")] = 0; // a second line would be a second header
    buf_free(&text);
}

bool hub_open(struct hub *hub, bool offline, struct err *err)
{
    struct options_hub from;

    if (!options_hub(&from))
        return err_set(err, ERR_INPUT, "no place for models: set HOME or HF_HUB_CACHE");
    *hub = (struct hub){ .offline = offline || from.offline, .n_tries = 6, .retry_ms = 500, .stall_s = 30 };
    snprintf(hub->cache, sizeof hub->cache, "%s", from.cache);
    snprintf(hub->endpoint, sizeof hub->endpoint, "%s", from.endpoint);
    for (size_t n = strlen(hub->endpoint); n && hub->endpoint[n - 1] == '/'; n--)
        hub->endpoint[n - 1] = 0;
    read_token(hub, &from);
    return true;
}
