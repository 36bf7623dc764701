// page_question.c - see page_question.h.
#include "server/generation/page_question.h"
#include <stddef.h>
#include "base/buf_json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "text/json_memory.h"

#define AT(name) offsetof(struct ingot_pages_info, name), sizeof(((struct ingot_pages_info *)0)->name)
// The words, those first whose difference explains most.
static const struct info_word {
    const char *name, *what;
    size_t at, n_bytes; // in ingot_pages_info
} words[] = {
    { "version", "version", AT(version) },
    { "weights", "model (digest of its weights)", AT(weights) },
    { "cache_types", "type of K and V", AT(cache_types) },
    { "devices", "devices", AT(devices) },
    { "identity", "settings", AT(identity) },
};
enum { N_WORDS = sizeof words / sizeof *words };

bool page_question_salt(const char *salt, char to[PAGE_SALT_BYTES])
{
    struct sha256_stream *s = sha256_open();

    if (!s)
        return false;
    sha256_add(s, "ingot salt 1", 13);
    sha256_add(s, salt, strlen(salt));
    struct sha256 sum = sha256_take(s);
    sha256_close(s);
    sha256_hex(&sum, to);
    return true;
}

bool page_question_write(const struct page_question *q, struct buf *text)
{
    json_t *object = json_object();
    const char *info = (const char *)&q->info;

    json_memory_failed(); // what failed before is another's
    for (size_t i = 0; i < N_WORDS; i++)
        json_object_set_new(object, words[i].name, json_string(info + words[i].at));
    json_object_set_new(object, "cpu_features", json_integer((json_int_t)q->info.cpu_features));
    json_object_set_new(object, "page_bytes", json_integer((json_int_t)q->info.page_bytes));
    json_object_set_new(object, "state_bytes", json_integer((json_int_t)q->info.state_bytes));
    json_object_set_new(object, "cache_salt", json_string(q->cache_salt));
    json_object_set_new(object, "n_known", json_integer((json_int_t)q->n_known));
    bool ok = buf_json(text, object, JSON_COMPACT) && !json_memory_failed();
    json_decref(object);
    if (!ok)
        return false;
    text->n--; // the object goes on
    for (size_t i = 0; i < q->n_tokens; i++)
        buf_printf(text, "%s%u", i ? "," : ",\"tokens\":[", q->tokens[i]);
    return buf_text(text, q->n_tokens ? "]}" : ",\"tokens\":[]}") && !text->failed;
}

static bool read_word(char *to, size_t n, const json_t *value, const char *name, struct err *err)
{
    const char *text = json_string_value(json_object_get(value, name));

    if (!text || strlen(text) >= n)
        return err_set(err, ERR_INPUT, "%s: want a string of at most %zu bytes", name, n - 1);
    snprintf(to, n, "%s", text);
    return true;
}

static bool read_number(uint64_t *to, uint64_t most, const json_t *value, const char *name, struct err *err)
{
    const json_t *number = json_object_get(value, name);
    json_int_t n = json_integer_value(number);

    if (!json_is_integer(number) || n < 0 || (uint64_t)n > most)
        return err_set(err, ERR_INPUT, "%s: want an integer from 0 to %llu", name, (unsigned long long)most);
    *to = (uint64_t)n;
    return true;
}

static bool read_info(struct ingot_pages_info *info, const json_t *value, struct err *err)
{
    uint64_t features = 0;

    for (size_t i = 0; i < N_WORDS; i++)
        if (!read_word((char *)info + words[i].at, words[i].n_bytes, value, words[i].name, err))
            return false;
    if (!read_number(&features, UINT32_MAX, value, "cpu_features", err) ||
        !read_number(&info->page_bytes, INT64_MAX, value, "page_bytes", err) ||
        !read_number(&info->state_bytes, INT64_MAX, value, "state_bytes", err))
        return false;
    info->cpu_features = (uint32_t)features;
    return true;
}

static bool read_tokens(struct page_question *q, const json_t *list, struct err *err)
{
    size_t n = json_array_size(list);

    if (n == 0)
        return err_set(err, ERR_INPUT, "tokens: want a list of integers, one at least");
    q->tokens = mem_alloc_array(n, sizeof *q->tokens);
    if (!q->tokens)
        return err_memory(err, "the tokens");
    for (; q->n_tokens < n; q->n_tokens++) {
        const json_t *item = json_array_get(list, q->n_tokens);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > UINT32_MAX)
            return err_set(err, ERR_INPUT, "tokens[%zu]: want a token", q->n_tokens);
        q->tokens[q->n_tokens] = (uint32_t)id;
    }
    return true;
}

bool page_question_read(struct page_question *q, const json_t *value, struct err *err)
{
    uint64_t n_known = 0;

    *q = (struct page_question){ 0 };
    if (!read_info(&q->info, value, err) ||
        !read_word(q->cache_salt, sizeof q->cache_salt, value, "cache_salt", err) ||
        !read_number(&n_known, UINT32_MAX, value, "n_known", err))
        return false;
    q->n_known = n_known;
    if (strspn(q->cache_salt, "0123456789abcdef") != PAGE_SALT_BYTES - 1)
        return err_set(err, ERR_INPUT, "cache_salt: want 64 hexadecimal digits");
    return read_tokens(q, json_object_get(value, "tokens"), err);
}

void page_question_free(struct page_question *q)
{
    mem_free(q->tokens);
    *q = (struct page_question){ 0 };
}

bool page_question_fits(const struct page_question *q, const struct ingot_pages_info *own, struct err *err)
{
    const char *theirs = (const char *)&q->info, *ours = (const char *)own;

    for (size_t i = 0; i < N_WORDS; i++) {
        if (words[i].at == offsetof(struct ingot_pages_info, identity) &&
            q->info.cpu_features != own->cpu_features)
            return err_set(err, ERR_INPUT,
                           "the processors' instructions differ: the decode server uses %#x, this one %#x",
                           q->info.cpu_features, own->cpu_features);
        if (strcmp(theirs + words[i].at, ours + words[i].at) != 0)
            return err_set(err, ERR_INPUT,
                           "the %s of the two servers differ: the decode server has %.100s, this one %.100s",
                           words[i].what, theirs + words[i].at, ours + words[i].at);
    }
    return (q->info.page_bytes == own->page_bytes && q->info.state_bytes == own->state_bytes) ||
           err_set(err, ERR_INPUT, "the sizes of the two servers' pages differ");
}
