// tokenizer_gguf.c - the tokeniser in a GGUF file's metadata: tokenizer.ggml.*.
//
// The file gives tokens with kinds and, by model, merges (gpt2: byte-level BPE; gemma4: BPE over characters)
// or scores (llama: SentencePiece BPE; t5: unigram), or neither (bert: WordPiece), and the name of a
// pre-tokeniser. Added tokens are those of kind control, unknown and user-defined. Keys that a converter may
// leave out have the defaults that converters assume. Not in a GGUF file, and so not supported: added tokens
// that strip the space beside them.
#include "base/log.h"
#include "format/model_file.h"
#include "text/tokenizer/tokenizer_parts.h"

static const char MARK[] = "\xe2\x96\x81"; // U+2581

struct gguf_source {
    struct tokenizer *t;
    const struct model_file *file;
    struct str model;
    bool add_bos, add_eos, add_space, squeeze;
    int64_t separator; // of WordPiece: behind a text; -1: none
};

static bool is_bert(const struct gguf_source *s)
{
    return str_is(s->model, "bert");
}

// An array key; NULL when absent. *ok = false when it is something else or has the wrong length (n = 0: any).
static const struct meta *array_key(const struct gguf_source *s, const char *key, uint64_t n, bool *ok,
                                    struct err *err)
{
    const struct meta *meta = model_file_meta(s->file, key);
    if (meta && meta->type != META_ARRAY)
        *ok = err_set(err, ERR_INPUT, "%s: %s: expected an array", model_file_path(s->file), key);
    else if (meta && n && meta->n != n)
        *ok = err_set(err, ERR_INPUT, "%s: %s has %llu elements: expected %llu, one per token",
                      model_file_path(s->file), key, (unsigned long long)meta->n, (unsigned long long)n);
    return *ok ? meta : NULL;
}

static bool read_tokens(struct gguf_source *s, struct err *err)
{
    struct tokenizer *t = s->t;
    bool ok = true;
    const struct meta *tokens = array_key(s, "tokenizer.ggml.tokens", 0, &ok, err);

    if (!ok)
        return false;
    if (!tokens || tokens->element != META_STRING || tokens->n == 0 || tokens->n > TOKENS_MAX)
        return err_set(err, ERR_INPUT, "%s: tokenizer.ggml.tokens: expected an array of 1 to %d strings",
                       model_file_path(s->file), TOKENS_MAX);
    t->n_tokens = (uint32_t)tokens->n;
    t->raw = arena_alloc_array(t->arena, t->n_tokens, sizeof *t->raw);
    t->kinds = arena_alloc_array(t->arena, t->n_tokens, sizeof *t->kinds);
    if (!t->raw || !t->kinds)
        return err_memory(err, "the vocabulary");
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct str text = meta_at(tokens, id).s;
        if (!tokenizer_check_text(text, id, "token", SIZE_MAX, err))
            return err_prefix(err, "%s: tokenizer.ggml.tokens", model_file_path(s->file));
        t->raw[id] = arena_str(t->arena, text);
        if (!t->raw[id].at)
            return err_memory(err, "the vocabulary");
    }
    return true;
}

static bool read_kinds(struct gguf_source *s, struct err *err)
{
    static const enum token_kind KINDS[] = { TOKEN_UNUSED,       TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL,
                                             TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };
    bool ok = true;
    const struct meta *kinds = array_key(s, "tokenizer.ggml.token_type", s->t->n_tokens, &ok, err);

    if (!ok)
        return false;
    if (kinds && kinds->element != META_INT && kinds->element != META_UINT)
        return err_set(err, ERR_INPUT, "%s: tokenizer.ggml.token_type: expected whole numbers",
                       model_file_path(s->file));
    for (uint32_t id = 0; id < s->t->n_tokens; id++) {
        uint64_t kind = kinds ? meta_at(kinds, id).u : 1;
        if (kind > 6)
            return err_set(err, ERR_INPUT, "%s: tokenizer.ggml.token_type[%u] is %lld: expected 0 to 6",
                           model_file_path(s->file), id, (long long)kind);
        s->t->kinds[id] = (uint8_t)KINDS[kind];
        s->t->byte_fallback |= kind == 6;
    }
    return true;
}

static bool read_scores(struct gguf_source *s, struct err *err)
{
    struct tokenizer *t = s->t;
    bool ok = true;
    const struct meta *scores = array_key(s, "tokenizer.ggml.scores", t->n_tokens, &ok, err);

    if (!ok)
        return false;
    if (!scores || (scores->element != META_FLOAT && scores->element != META_INT))
        return err_set(
            err, ERR_INPUT,
            "%s: tokenizer.ggml.scores: expected an array of numbers, because tokenizer.ggml.model is %.*s",
            model_file_path(s->file), STR_ARG(s->model));
    t->scores = arena_alloc_array(t->arena, t->n_tokens, sizeof *t->scores);
    if (!t->scores)
        return err_memory(err, "the vocabulary");
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct meta score = meta_at(scores, id);
        t->scores[id] = score.type == META_FLOAT ? score.f : (double)score.i;
    }
    return true;
}

static bool read_id(const struct gguf_source *s, const char *key, int64_t *id, struct err *err)
{
    uint64_t value = UINT64_MAX;
    if (*id >= (int64_t)s->t->n_tokens)
        *id = -1; // a default that this vocabulary does not have
    if (!model_file_u64(s->file, key, 0, s->t->n_tokens - 1, &value, err))
        return false;
    *id = value == UINT64_MAX ? *id : (int64_t)value;
    return true;
}

// Ids and flags, with the defaults of converters.
static bool read_special(struct gguf_source *s, int64_t *end_of_turn, int64_t *end_of_message,
                         struct err *err)
{
    struct tokenizer *t = s->t;
    bool llama = str_is(s->model, "llama"), t5 = str_is(s->model, "t5");
    int64_t unused = -1;

    bool bert = is_bert(s);

    t->bos = llama ? 1 : bert ? 101 : -1;
    t->eos = llama ? 2 : t5 ? 1 : -1;
    t->unknown = llama ? 0 : t5 ? 2 : bert ? 100 : -1;
    t->pad = t5 || bert ? 0 : -1;
    s->separator = bert ? 102 : -1;
    s->add_bos |= llama || bert;
    s->add_eos = t5;
    s->add_space = llama || t5;
    return read_id(s, "tokenizer.ggml.bos_token_id", &t->bos, err) &&
           read_id(s, "tokenizer.ggml.cls_token_id", bert ? &t->bos : &unused, err) &&
           read_id(s, "tokenizer.ggml.seperator_token_id", bert ? &s->separator : &unused, err) &&
           read_id(s, "tokenizer.ggml.eos_token_id", &t->eos, err) &&
           read_id(s, "tokenizer.ggml.unknown_token_id", &t->unknown, err) &&
           read_id(s, "tokenizer.ggml.padding_token_id", &t->pad, err) &&
           read_id(s, "tokenizer.ggml.eot_token_id", end_of_turn, err) &&
           read_id(s, "tokenizer.ggml.eom_token_id", end_of_message, err) &&
           model_file_bool(s->file, "tokenizer.ggml.add_bos_token", &s->add_bos, err) &&
           model_file_bool(s->file, "tokenizer.ggml.add_eos_token", &s->add_eos, err) &&
           model_file_bool(s->file, "tokenizer.ggml.add_space_prefix", &s->add_space, err) &&
           model_file_bool(s->file, "tokenizer.ggml.remove_extra_whitespaces", &s->squeeze, err);
}

// Two names for each of the first three: today's, and an older one.
static bool read_fim(const struct gguf_source *s, struct err *err)
{
    static const struct {
        const char *key;
        enum fim_token which;
    } keys[] = {
        { "tokenizer.ggml.prefix_token_id", FIM_PREFIX },  { "tokenizer.ggml.suffix_token_id", FIM_SUFFIX },
        { "tokenizer.ggml.middle_token_id", FIM_MIDDLE },  { "tokenizer.ggml.fim_pre_token_id", FIM_PREFIX },
        { "tokenizer.ggml.fim_suf_token_id", FIM_SUFFIX }, { "tokenizer.ggml.fim_mid_token_id", FIM_MIDDLE },
        { "tokenizer.ggml.fim_rep_token_id", FIM_REPO },   { "tokenizer.ggml.fim_sep_token_id", FIM_FILE },
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!read_id(s, keys[i].key, &s->t->fim[keys[i].which], err))
            return false;
    return true;
}

// Old files have no kinds: the ids that the file names are control tokens.
static void make_control(struct tokenizer *t, int64_t id)
{
    if (id >= 0 && t->kinds[id] == TOKEN_NORMAL)
        t->kinds[id] = TOKEN_CONTROL;
}

// Gemma 4's marks are user-defined in files, which would make them out of any text; what users write is no
// mark.
static void make_marks_control(struct tokenizer *t)
{
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->kinds[id] == TOKEN_USER_DEFINED &&
            (str_starts(t->raw[id], STR("<|")) || str_ends(t->raw[id], STR("|>"))))
            t->kinds[id] = TOKEN_CONTROL;
}

static bool collect_added(struct tokenizer *t, struct err *err)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t id = 0; id < t->n_tokens; id++) {
            bool added = t->kinds[id] == TOKEN_CONTROL || t->kinds[id] == TOKEN_USER_DEFINED ||
                         t->kinds[id] == TOKEN_UNKNOWN;
            if (added && t->raw[id].n && pass == 1)
                t->added[t->n_added++].id = id;
            n += added && pass == 0;
        }
        if (pass == 0)
            t->added = arena_alloc_array(t->arena, n, sizeof *t->added);
        if (!t->added)
            return err_memory(err, "added tokens");
    }
    return true;
}

static bool read_charsmap(struct gguf_source *s, struct err *err)
{
    bool ok = true;
    const struct meta *bytes = array_key(s, "tokenizer.ggml.precompiled_charsmap", 0, &ok, err);
    struct buf table = { 0 };

    if (!ok || !bytes || bytes->n == 0)
        return ok;
    if (bytes->element != META_UINT && bytes->element != META_INT)
        return err_set(err, ERR_INPUT, "%s: tokenizer.ggml.precompiled_charsmap: expected bytes",
                       model_file_path(s->file));
    for (uint64_t i = 0; i < bytes->n; i++)
        buf_append(&table, &(char){ (char)meta_at(bytes, i).u }, 1);
    struct str kept = table.failed ? (struct str){ 0 } : arena_str(s->t->arena, buf_as_str(&table));
    buf_free(&table);
    if (!kept.at)
        return err_memory(err, "a normalisation table");
    s->t->normal[s->t->n_normal++] = (struct normal_step){ .kind = NORMAL_CHARSMAP, .text = kept };
    return charsmap_check(kept, err) || err_prefix(err, "%s", model_file_path(s->file));
}

static bool has_merges(const struct gguf_source *s)
{
    return str_is(s->model, "gpt2") || str_is(s->model, "gemma4");
}

// Files say nothing of case: what is written here is lower case, as it is elsewhere.
static bool add_word_steps(struct gguf_source *s, struct err *err)
{
    s->t->space_mark = s->t->strip_space = true;
    s->t->max_word = 100;
    return normalize_add_bert(s->t, true, true, err) && pretokenize_add_bert(s->t, err);
}

// The SentencePiece models and Gemma 4's see spaces as U+2581, and often one before the text.
static bool add_space_steps(struct gguf_source *s, struct err *err)
{
    struct tokenizer *t = s->t;
    t->space_mark = true;
    t->strip_space = s->add_space;
    if (!read_charsmap(s, err))
        return false;
    if (s->squeeze && !normalize_add_replace(t, STR(" {2,}"), true, STR(" "), err))
        return false;
    if (s->squeeze)
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_STRIP, .left = true, .right = true };
    if (s->add_space)
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_PREPEND, .text = str_from(MARK) };
    return normalize_add_replace(t, STR(" "), false, str_from(MARK), err);
}

static bool read_merges(struct gguf_source *s, struct err *err)
{
    bool ok = true;
    const struct meta *merges = array_key(s, "tokenizer.ggml.merges", 0, &ok, err);

    if (!ok)
        return false;
    if (!merges || (merges->n && merges->element != META_STRING))
        return err_set(
            err, ERR_INPUT,
            "%s: tokenizer.ggml.merges: expected an array of strings, because tokenizer.ggml.model is %.*s",
            model_file_path(s->file), STR_ARG(s->model));
    if (!bpe_init_merges(s->t, merges->n, err))
        return false;
    for (uint64_t i = 0; i < merges->n; i++) {
        struct str line = meta_at(merges, i).s;
        // a token may begin with a space
        size_t space = line.n ? str_find(str_from_to(line, 1, line.n), STR(" ")) : SIZE_MAX;
        if (space == SIZE_MAX)
            return err_set(
                err, ERR_INPUT,
                "%s: tokenizer.ggml.merges[%llu] is '%.*s': expected two tokens with a space between",
                model_file_path(s->file), (unsigned long long)i, STR_ARG(line));
        if (!bpe_add_merge(s->t, (uint32_t)i, str_from_to(line, 0, space + 1),
                           str_from_to(line, space + 2, line.n), err))
            return err_prefix(err, "%s", model_file_path(s->file));
    }
    return true;
}

static bool read_pretokenizer(struct gguf_source *s, struct err *err)
{
    struct str name = { 0 };
    if (!model_file_string(s->file, "tokenizer.ggml.pre", &name, err))
        return false;
    if (!name.n)
        log_line(LOG_WARN, "text",
                 "%s: tokenizer.ggml.pre is missing: using the default pattern, ids may be wrong",
                 model_file_path(s->file));
    s->t->byte_level = true;
    return pretokenize_add_published(s->t, name.n ? name : STR("default"), &s->add_bos, err) ||
           err_prefix(err, "%s", model_file_path(s->file));
}

static bool read_model(struct gguf_source *s, struct err *err)
{
    struct tokenizer *t = s->t;
    if (has_merges(s))
        return read_merges(s, err);
    return t->model == TEXT_WORDPIECE ? wordpiece_init(t, err)
           : t->model == TEXT_UNIGRAM ? unigram_init(t, err)
                                      : spm_init_merges(t, err);
}

static bool read_all(struct gguf_source *s, struct err *err)
{
    struct tokenizer *t = s->t;
    struct str chat_template = { 0 };
    int64_t end_of_turn = -1, end_of_message = -1;
    bool byte_level = str_is(s->model, "gpt2");

    t->model = str_is(s->model, "t5") ? TEXT_UNIGRAM : is_bert(s) ? TEXT_WORDPIECE : TEXT_BPE;
    t->fuse_unknown = t->model == TEXT_UNIGRAM;
    if (!read_tokens(s, err) || !read_kinds(s, err) || (byte_level && !read_pretokenizer(s, err)) ||
        (!has_merges(s) && !is_bert(s) && !read_scores(s, err)) ||
        !read_special(s, &end_of_turn, &end_of_message, err) || !read_fim(s, err) ||
        (is_bert(s) ? !add_word_steps(s, err) : !byte_level && !add_space_steps(s, err)) ||
        !model_file_string(s->file, "tokenizer.chat_template", &chat_template, err))
        return false;
    const int64_t named[] = { t->bos, t->eos, end_of_turn, end_of_message };
    for (int i = 0; i < 4; i++)
        make_control(t, named[i]);
    make_control(t, s->separator);
    for (int i = 0; i < N_FIM; i++)
        make_control(t, t->fim[i]);
    if (str_is(s->model, "gemma4"))
        make_marks_control(t);
    if (!collect_added(t, err) || !tokenizer_finish(t, err) || !read_model(s, err))
        return false;
    for (int i = 2; i < 4; i++)
        if (named[i] >= 0)
            t->is_end[named[i]] = true;
    tokenizer_leave_message_ends(t);
    if (s->add_bos && t->bos >= 0)
        t->before[t->n_before++] = (uint32_t)t->bos;
    if (s->separator >= 0)
        t->after[t->n_after++] = (uint32_t)s->separator;
    if (s->add_eos && t->eos >= 0)
        t->after[t->n_after++] = (uint32_t)t->eos;
    t->chat_template = arena_str(t->arena, chat_template);
    return t->chat_template.at || err_memory(err, "the chat template");
}

bool tokenizer_load_gguf(struct tokenizer **t, const struct model_file *file, struct err *err)
{
    struct gguf_source source = { .file = file };

    if (!model_file_string(file, "tokenizer.ggml.model", &source.model, err))
        return false;
    if (!source.model.n || str_is(source.model, "none") || str_is(source.model, "no_vocab"))
        return err_set(
            err, ERR_NOT_FOUND,
            "%s has no tokenizer (tokenizer.ggml.model is '%.*s'), and text cannot be read without",
            model_file_path(file), STR_ARG(source.model));
    if (!has_merges(&source) && !str_is(source.model, "llama") && !str_is(source.model, "t5") &&
        !is_bert(&source))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tokenizer.ggml.model is '%.*s': expected gpt2, llama, t5, bert or gemma4",
                       model_file_path(file), STR_ARG(source.model));
    source.t = tokenizer_create(err);
    if (source.t && !read_all(&source, err)) {
        tokenizer_free(source.t);
        source.t = NULL;
    }
    *t = source.t;
    return *t != NULL;
}
