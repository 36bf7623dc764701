// tokenizer_json.c - the vocabulary and the model part of a Hugging Face tokenizer.json, and the files beside
// it.
//
// The steps around the model (normalizer, pre_tokenizer, post_processor, decoder) are in
// tokenizer_json_steps.c. An unsupported component is an error that names it: guessing would give wrong ids
// silently. Memory follows the number of entries: an id far beyond it is refused.
#include "text/tokenizer/tokenizer_json.h"
#include "format/model_file.h"
#include "text/json_memory.h"

enum { SPARSE_IDS = 4, SPARSE_EXTRA = 4096 };

struct str json_text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? (struct str){ json_string_value(value), json_string_length(value) }
                                 : (struct str){ 0 };
}

bool json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool id_in_range(const json_t *value, size_t n_entries, const char *what, uint32_t *id,
                        struct err *err)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || (uint64_t)n >= n_entries * SPARSE_IDS + SPARSE_EXTRA || n >= TOKENS_MAX)
        return err_set(
            err, ERR_INPUT,
            "tokenizer.json: token '%s' has the id %lld: expected a whole number near the %zu entries", what,
            (long long)n, n_entries);
    *id = (uint32_t)n;
    return true;
}

static bool allocate_tokens(struct tokenizer *t, uint32_t n, bool scores, size_t n_added, struct err *err)
{
    t->n_tokens = n;
    t->raw = arena_alloc_array(t->arena, n, sizeof *t->raw);
    t->kinds = arena_alloc_array(t->arena, n, sizeof *t->kinds);
    t->scores = scores ? arena_alloc_array(t->arena, n, sizeof *t->scores) : NULL;
    t->added = arena_alloc_array(t->arena, n_added, sizeof *t->added);
    if (!t->raw || !t->kinds || (scores && !t->scores) || !t->added)
        return err_memory(err, "the vocabulary");
    for (uint32_t id = 0; id < n; id++) {
        t->raw[id] = STR("");
        t->kinds[id] = TOKEN_UNUSED;
    }
    return true;
}

static bool put_token(struct tokenizer *t, uint32_t id, struct str text, struct err *err)
{
    if (t->raw[id].n)
        return err_set(err, ERR_INPUT, "tokenizer.json: '%.*s' and '%.*s' have the same id %u",
                       STR_ARG(t->raw[id]), STR_ARG(text), id);
    t->raw[id] = arena_str(t->arena, text);
    t->kinds[id] = t->byte_fallback && tokenizer_byte_value(text) >= 0 ? TOKEN_BYTE : TOKEN_NORMAL;
    return t->raw[id].at || err_memory(err, "the vocabulary");
}

// One past the highest id of vocabulary and added tokens.
static bool count_tokens(const json_t *vocab, const json_t *added, uint32_t *n, struct err *err)
{
    size_t n_entries = json_object_size(vocab) + json_array_size(vocab) + json_array_size(added), i;
    const char *text;
    json_t *value;
    uint32_t id = 0;

    *n = (uint32_t)json_array_size(vocab);
    if (n_entries == 0 || n_entries > TOKENS_MAX)
        return err_set(err, ERR_INPUT, "tokenizer.json: a vocabulary of %zu tokens: expected 1 to %d",
                       n_entries, TOKENS_MAX);
    json_object_foreach((json_t *)vocab, text, value)
    {
        if (!id_in_range(value, n_entries, text, &id, err))
            return false;
        *n = id >= *n ? id + 1 : *n;
    }
    json_array_foreach(added, i, value)
    {
        struct str content = json_text(value, "content");
        if (!id_in_range(json_object_get(value, "id"), n_entries, content.at ? content.at : "", &id, err))
            return false;
        *n = id >= *n ? id + 1 : *n;
    }
    return true;
}

static bool read_scored(struct tokenizer *t, const json_t *vocab, struct err *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(vocab, i, entry)
    {
        const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return err_set(err, ERR_INPUT, "tokenizer.json: vocab[%zu]: expected a text and a score", i);
        if (!put_token(t, (uint32_t)i, (struct str){ json_string_value(text), json_string_length(text) },
                       err))
            return false;
        t->scores[i] = json_number_value(score);
    }
    return true;
}

static bool read_vocab(struct tokenizer *t, const json_t *vocab, const json_t *added, struct err *err)
{
    const char *text;
    json_t *value;
    uint32_t n, id = 0;

    if (t->model == TEXT_UNIGRAM ? !json_is_array(vocab) : !json_is_object(vocab))
        return err_set(err, ERR_INPUT, "tokenizer.json: model.vocab: expected %s",
                       t->model == TEXT_UNIGRAM ? "an array of texts and scores"
                                                : "an object of texts and ids");
    if (!count_tokens(vocab, added, &n, err) ||
        !allocate_tokens(t, n, t->model == TEXT_UNIGRAM, json_array_size(added), err))
        return false;
    if (t->model == TEXT_UNIGRAM)
        return read_scored(t, vocab, err);
    json_object_foreach((json_t *)vocab, text, value)
    {
        if (!id_in_range(value, n, text, &id, err) || !put_token(t, id, str_from(text), err))
            return false;
    }
    return true;
}

static bool read_added(struct tokenizer *t, const json_t *vocab, const json_t *added, struct err *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(added, i, entry)
    {
        struct str text = json_text(entry, "content");
        const json_t *known = json_is_object(vocab) && text.at ? json_object_get(vocab, text.at) : NULL;
        // counted before
        uint32_t id = (uint32_t)json_integer_value(known ? known : json_object_get(entry, "id"));
        if (text.n == 0)
            continue;
        if (t->raw[id].n == 0 && !put_token(t, id, text, err))
            return false;
        if (!str_eq(t->raw[id], text))
            return err_set(err, ERR_INPUT, "tokenizer.json: added token '%.*s' has the id %u of '%.*s'",
                           STR_ARG(text), id, STR_ARG(t->raw[id]));
        t->kinds[id] = json_flag(entry, "special", false) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
        t->added[t->n_added++] = (struct added_token){ .id = id,
                                                       .strip_left = json_flag(entry, "lstrip", false),
                                                       .strip_right = json_flag(entry, "rstrip", false),
                                                       .single_word = json_flag(entry, "single_word", false),
                                                       .normalized = json_flag(entry, "normalized", true) };
    }
    return true;
}

static bool read_merge(struct tokenizer *t, uint32_t rank, const json_t *merge, struct err *err)
{
    if (json_is_array(merge) && json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
        json_is_string(json_array_get(merge, 1)))
        return bpe_add_merge(t, rank, str_from(json_string_value(json_array_get(merge, 0))),
                             str_from(json_string_value(json_array_get(merge, 1))), err);
    struct str line =
        json_is_string(merge) ? (struct str){ json_string_value(merge), json_string_length(merge) } : STR("");
    size_t space = str_find(line, STR(" "));
    if (str_starts(line, STR("#version")))
        return true;
    if (space == SIZE_MAX)
        return err_set(err, ERR_INPUT,
                       "tokenizer.json: merges[%u] is '%.*s': expected two tokens with a space between", rank,
                       STR_ARG(line));
    return bpe_add_merge(t, rank, str_from_to(line, 0, space), str_from_to(line, space + 1, line.n), err);
}

static bool read_merges(struct tokenizer *t, const json_t *merges, struct err *err)
{
    size_t i;
    json_t *merge;

    if (!json_is_array(merges))
        return err_set(err, ERR_INPUT, "tokenizer.json: model.merges: expected an array");
    if (!bpe_init_merges(t, json_array_size(merges), err))
        return false;
    json_array_foreach(merges, i, merge)
    {
        if (!read_merge(t, (uint32_t)i, merge, err))
            return false;
    }
    return true;
}

static bool read_wordpiece(struct tokenizer *t, const json_t *model, struct err *err)
{
    struct str prefix = json_text(model, "continuing_subword_prefix");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    json_int_t n = json_is_integer(most) ? json_integer_value(most) : 100;

    if (prefix.at && !str_is(prefix, "##"))
        return err_set(err, ERR_UNSUPPORTED,
                       "tokenizer.json: continuing_subword_prefix is '%.*s': expected ##", STR_ARG(prefix));
    if (n < 1 || n > 1 << 20)
        return err_set(err, ERR_INPUT, "tokenizer.json: max_input_chars_per_word is %lld: expected 1 to %d",
                       (long long)n, 1 << 20);
    t->model = TEXT_WORDPIECE;
    t->max_word = (uint32_t)n;
    t->strip_space = true;
    return true;
}

static bool read_model(struct tokenizer *t, const json_t *model, struct err *err)
{
    struct str type = json_text(model, "type");

    if (!type.at)
        type = json_object_get(model, "merges") ? STR("BPE") : STR("Unigram");
    if (!str_is(type, "BPE") && !str_is(type, "Unigram") && !str_is(type, "WordPiece"))
        return err_set(err, ERR_UNSUPPORTED,
                       "tokenizer.json: model type '%.*s': expected BPE, Unigram or WordPiece",
                       STR_ARG(type));
    if (str_is(type, "WordPiece"))
        return read_wordpiece(t, model, err);
    if (json_text(model, "continuing_subword_prefix").n || json_text(model, "end_of_word_suffix").n)
        return err_set(err, ERR_UNSUPPORTED,
                       "tokenizer.json: continuing_subword_prefix and end_of_word_suffix are not supported");
    t->model = str_is(type, "BPE") ? TEXT_BPE : TEXT_UNIGRAM;
    t->byte_fallback = json_flag(model, "byte_fallback", false);
    t->fuse_unknown = t->model == TEXT_UNIGRAM || json_flag(model, "fuse_unk", false);
    t->ignore_merges = json_flag(model, "ignore_merges", false);
    return true;
}

static void find_unknown(struct tokenizer *t, const json_t *model)
{
    const json_t *unk_id = json_object_get(model, "unk_id");
    struct str unk = json_text(model, "unk_token");
    const json_t *id = unk.at ? json_object_get(json_object_get(model, "vocab"), unk.at) : NULL;
    if (t->model == TEXT_UNIGRAM)
        t->unknown = json_is_integer(unk_id) ? json_integer_value(unk_id) : -1;
    else if (id)
        t->unknown = json_integer_value(id);
}

static bool read_tokenizer(struct tokenizer *t, const json_t *root, struct err *err)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    const json_t *vocab = json_object_get(model, "vocab");

    if (!read_model(t, model, err) || !json_steps_read(t, root, err) || !read_vocab(t, vocab, added, err) ||
        !read_added(t, vocab, added, err))
        return false;
    find_unknown(t, model);
    if (!tokenizer_finish(t, err) || !json_around_read(t, json_object_get(root, "post_processor"), err))
        return false;
    return t->model == TEXT_UNIGRAM     ? unigram_init(t, err)
           : t->model == TEXT_WORDPIECE ? wordpiece_init(t, err)
                                        : read_merges(t, json_object_get(model, "merges"), err);
}

bool tokenizer_load_json(struct tokenizer **t, struct str json, struct err *err)
{
    json_error_t why;
    json_t *root = json_memory_read(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);

    *t = NULL;
    if (!root && (json_memory_failed() || !why.text[0]))
        return err_memory(err, "tokenizer.json");
    if (!root)
        return err_set(err, ERR_INPUT, "tokenizer.json line %d: %.300s", why.line, why.text);
    *t = tokenizer_create(err);
    bool ok = *t && read_tokenizer(*t, root, err);
    json_decref(root);
    if (!ok) {
        tokenizer_free(*t);
        *t = NULL;
    }
    return ok;
}

// The id of a token that tokenizer_config.json names: "eos_token" is a text, or an object with a "content".
static int64_t named_token(const struct tokenizer *t, const struct model_file *file, const char *name)
{
    char key[128];
    struct str text = { 0 };
    for (int i = 0; i < 2 && !text.n; i++) {
        snprintf(key, sizeof key, "tokenizer_config.%s_token%s", name, i ? ".content" : "");
        const struct meta *meta = model_file_meta(file, key);
        if (meta && meta->type == META_STRING)
            text = meta->s;
    }
    return text.n ? tokenizer_find(t, text) : -1;
}

// Marks the ids of a key that holds one id or a list of them; returns the first, or -1.
static int64_t mark_listed(struct tokenizer *t, const struct model_file *file, const char *key)
{
    const struct meta *meta = model_file_meta(file, key);
    int64_t first = -1;
    if (!meta)
        return -1;
    uint64_t n = meta->type == META_ARRAY ? meta->n : 1;
    for (uint64_t i = 0; i < n; i++) {
        struct meta one = meta->type == META_ARRAY ? meta_at(meta, i) : *meta;
        bool whole = one.type == META_UINT || (one.type == META_INT && one.i >= 0);
        if (!whole || one.u >= t->n_tokens)
            continue;
        t->is_end[one.u] = true;
        first = first < 0 ? (int64_t)one.u : first;
    }
    return first;
}

bool tokenizer_load_files(struct tokenizer **out, const struct model_file *file, struct err *err)
{
    struct str json = model_file_tokenizer_json(file), template = { 0 };

    if (json.n == 0)
        return err_set(err, ERR_NOT_FOUND, "%s: there is no tokenizer.json beside the weights",
                       model_file_path(file));
    if (!model_file_string(file, "tokenizer_config.chat_template", &template, err))
        return false;
    if (!tokenizer_load_json(out, json, err))
        return err_prefix(err, "%s", model_file_path(file));
    struct tokenizer *t = *out;
    int64_t first = mark_listed(t, file, "generation_config.eos_token_id"),
            other = mark_listed(t, file, "eos_token_id");
    t->bos = named_token(t, file, "bos");
    t->eos = named_token(t, file, "eos");
    t->pad = named_token(t, file, "pad");
    if (t->eos < 0)
        t->eos = first >= 0 ? first : other;
    if (t->eos >= 0)
        t->is_end[t->eos] = true;
    t->chat_template = arena_str(t->arena, template);
    if (!t->chat_template.at) {
        tokenizer_free(t);
        *out = NULL;
        return err_memory(err, "the chat template");
    }
    return true;
}
