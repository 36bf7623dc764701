// tokenizer_json_steps.c - the parts of tokenizer.json around the model: normalizer, pre_tokenizer,
// post_processor, decoder.
//
// Each part is one component or a Sequence of components; a table says which ones are known. Nesting is
// limited.
#include "base/base64.h"
#include "text/tokenizer/tokenizer_json.h"

enum { DEPTH_MAX = 8 };

struct component {
    const char *type;
    bool (*read)(struct tokenizer *t, const json_t *json, struct err *err);
};

struct part {
    const char *name, *list; // "normalizer", and where a Sequence keeps its components
    const struct component *components;
};

static bool read_part(struct tokenizer *t, const struct part *part, const json_t *json, int depth,
                      struct err *err)
{
    struct str type = json_text(json, "type");
    size_t i;
    json_t *one;

    if (!json || json_is_null(json))
        return true;
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_INPUT, "tokenizer.json: %s: more than %d levels of Sequence", part->name,
                       DEPTH_MAX);
    if (str_is(type, "Sequence")) {
        const json_t *list = json_object_get(json, part->list);
        if (!json_is_array(list))
            return err_set(err, ERR_INPUT, "tokenizer.json: %s: Sequence without '%s'", part->name,
                           part->list);
        json_array_foreach(list, i, one)
        {
            if (!read_part(t, part, one, depth + 1, err))
                return false;
        }
        return true;
    }
    for (const struct component *c = part->components; type.at && c->type; c++)
        if (str_is(type, c->type))
            return c->read(t, json, err) || err_prefix(err, "tokenizer.json: %s %s", part->name, c->type);
    return err_set(err, ERR_UNSUPPORTED, "tokenizer.json: %s of type '%.*s' is not supported", part->name,
                   STR_ARG(type));
}

// --- normalizer ---

static bool add_normal(struct tokenizer *t, struct normal_step step, struct err *err)
{
    if (t->n_normal == NORMAL_STEPS_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d steps", NORMAL_STEPS_MAX);
    t->normal[t->n_normal++] = step;
    return true;
}

static bool read_form(struct tokenizer *t, const json_t *json, struct err *err)
{
    static const char *const NAMES[] = { "NFC", "NFD", "NFKC", "NFKD" };
    struct normal_step step = { .kind = NORMAL_FORM };
    for (int form = 0; form < 4; form++)
        if (str_is(json_text(json, "type"), NAMES[form]))
            step.form = (enum unicode_form)form;
    return add_normal(t, step, err);
}

static bool read_lowercase(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)json;
    return add_normal(t, (struct normal_step){ .kind = NORMAL_LOWER }, err);
}

static bool read_strip_accents(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)json;
    return add_normal(t, (struct normal_step){ .kind = NORMAL_STRIP_ACCENTS }, err);
}

static bool read_strip(struct tokenizer *t, const json_t *json, struct err *err)
{
    bool left = json_flag(json, "strip_left", true), right = json_flag(json, "strip_right", true);
    return add_normal(t, (struct normal_step){ .kind = NORMAL_STRIP, .left = left, .right = right }, err);
}

static bool read_prepend(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct str text = json_text(json, "prepend");
    if (!text.at)
        return err_set(err, ERR_INPUT, "'prepend' is missing");
    text = arena_str(t->arena, text);
    return text.at ? add_normal(t, (struct normal_step){ .kind = NORMAL_PREPEND, .text = text }, err)
                   : err_memory(err, "a step");
}

// {"String": text} or {"Regex": text}
static bool read_pattern(const json_t *json, struct str *text, bool *regex, struct err *err)
{
    const json_t *pattern = json_object_get(json, "pattern");
    *regex = json_object_get(pattern, "Regex") != NULL;
    *text = json_text(pattern, *regex ? "Regex" : "String");
    return text->n || err_set(err, ERR_INPUT, "'pattern': expected a String or a Regex that is not empty");
}

static bool read_replace(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct str pattern, content = json_text(json, "content");
    bool regex;
    if (!content.at)
        return err_set(err, ERR_INPUT, "'content' is missing");
    return read_pattern(json, &pattern, &regex, err) &&
           normalize_add_replace(t, pattern, regex, content, err);
}

static bool read_charsmap(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct str text = json_text(json, "precompiled_charsmap");
    if (text.n == 0)
        return true;
    char *room = arena_alloc(t->arena, base64_room(text.n));
    if (!room)
        return err_memory(err, "a normalisation table");
    struct str table = base64_decode(text, room, base64_room(text.n));
    if (!table.at)
        return err_set(err, ERR_INPUT, "'precompiled_charsmap' is not base64");
    return charsmap_check(table, err) &&
           add_normal(t, (struct normal_step){ .kind = NORMAL_CHARSMAP, .text = table }, err);
}

// --- pre_tokenizer ---

static const char GPT2_REGEX[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool read_behavior(const json_t *json, enum split_behavior *behavior, struct err *err)
{
    static const char *const NAMES[] = { "Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                         "MergedWithNext" };
    struct str name = json_text(json, "behavior");
    *behavior = SPLIT_ISOLATED;
    if (!name.at)
        return true;
    for (int i = 0; i < 5; i++)
        if (str_is(name, NAMES[i])) {
            *behavior = (enum split_behavior)i;
            return true;
        }
    return err_set(err, ERR_INPUT, "'behavior' is '%.*s'", STR_ARG(name));
}

static bool add_pretoken(struct tokenizer *t, struct pretoken_step step, struct str pattern, bool regex,
                         struct err *err)
{
    if (t->n_pretoken == PRETOKEN_STEPS_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d steps", PRETOKEN_STEPS_MAX);
    if (t->byte_level)
        return err_set(err, ERR_UNSUPPORTED, "a step after ByteLevel is not supported");
    if (pattern.n && !(regex ? pattern_compile(&step.pattern, pattern, err)
                             : pattern_compile_literal(&step.pattern, pattern, err)))
        return false;
    t->pretoken[t->n_pretoken++] = step;
    return true;
}

static bool read_byte_level(struct tokenizer *t, const json_t *json, struct err *err)
{
    if (json_flag(json, "add_prefix_space", true) &&
        !add_pretoken(t, (struct pretoken_step){ .kind = PRETOKEN_PREFIX_SPACE }, STR(""), false, err))
        return false;
    if (json_flag(json, "use_regex", true) &&
        !add_pretoken(t, (struct pretoken_step){ .kind = PRETOKEN_SPLIT }, str_from(GPT2_REGEX), true, err))
        return false;
    t->byte_level = true;
    return true;
}

static bool read_split(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct pretoken_step step = { .kind = PRETOKEN_SPLIT, .invert = json_flag(json, "invert", false) };
    struct str pattern;
    bool regex;
    return read_pattern(json, &pattern, &regex, err) && read_behavior(json, &step.behavior, err) &&
           add_pretoken(t, step, pattern, regex, err);
}

static bool read_digits(struct tokenizer *t, const json_t *json, struct err *err)
{
    bool single = json_flag(json, "individual_digits", false);
    struct pretoken_step step = { .kind = PRETOKEN_SPLIT,
                                  .behavior = single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS };
    return add_pretoken(t, step, STR("\\p{N}"), true, err);
}

static bool read_metaspace(struct tokenizer *t, const json_t *json, struct err *err)
{
    static const char *const SCHEMES[] = { "always", "first", "never" };
    struct str mark = json_text(json, "replacement"), scheme = json_text(json, "prepend_scheme");
    struct pretoken_step step = { .kind = PRETOKEN_METASPACE, .behavior = SPLIT_WITH_NEXT };
    bool known = !scheme.at;

    step.prepend = json_flag(json, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (int i = 0; i < 3; i++)
        if (str_is(scheme, SCHEMES[i])) {
            step.prepend = (enum prepend_scheme)i;
            known = true;
        }
    if (!known)
        return err_set(err, ERR_INPUT, "'prepend_scheme' is '%.*s': expected always, first or never",
                       STR_ARG(scheme));
    if (mark.n == 0)
        return err_set(err, ERR_INPUT, "'replacement' is missing");
    step.mark = arena_str(t->arena, mark);
    if (!step.mark.at)
        return err_memory(err, "a step");
    return add_pretoken(t, step, json_flag(json, "split", true) ? mark : STR(""), false, err);
}

static bool read_whitespace(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)json;
    struct pretoken_step step = { .kind = PRETOKEN_SPLIT, .behavior = SPLIT_REMOVED, .invert = true };
    return add_pretoken(t, step, STR("\\w+|[^\\w\\s]+"), true, err);
}

static bool read_whitespace_split(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)json;
    return add_pretoken(t, (struct pretoken_step){ .kind = PRETOKEN_SPLIT, .behavior = SPLIT_REMOVED },
                        STR("\\s"), true, err);
}

static bool read_punctuation(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct pretoken_step step = { .kind = PRETOKEN_SPLIT };
    return read_behavior(json, &step.behavior, err) &&
           add_pretoken(t, step, STR("[!-/:-@\\[-`{-~\\p{P}]"), true, err);
}

static bool read_bert_words(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)json;
    return pretokenize_add_bert(t, err);
}

// Without a word on accents they go where case goes.
static bool read_bert_normalizer(struct tokenizer *t, const json_t *json, struct err *err)
{
    bool lower = json_flag(json, "lowercase", true);

    if (!json_flag(json, "clean_text", true) || !json_flag(json, "handle_chinese_chars", true))
        return err_set(err, ERR_UNSUPPORTED, "without clean_text or handle_chinese_chars");
    return normalize_add_bert(t, json_flag(json, "strip_accents", lower), lower, err);
}

// --- decoder ---

static bool decode_nothing(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)t, (void)json, (void)err; // tokens are decoded to bytes when loaded, and joined
    return true;
}

static bool decode_replace(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct str pattern, content = json_text(json, "content");
    bool regex;
    if (!read_pattern(json, &pattern, &regex, err))
        return false;
    if (regex || !str_is(pattern, "\xe2\x96\x81") || !str_is(content, " "))
        return err_set(err, ERR_UNSUPPORTED, "'%.*s' by '%.*s': only U+2581 by a space is supported",
                       STR_ARG(pattern), STR_ARG(content));
    t->space_mark = true;
    return true;
}

static bool decode_strip(struct tokenizer *t, const json_t *json, struct err *err)
{
    json_int_t start = json_integer_value(json_object_get(json, "start")),
               stop = json_integer_value(json_object_get(json, "stop"));
    if (!str_is(json_text(json, "content"), " ") || start < 0 || start > 1 || stop != 0)
        return err_set(err, ERR_UNSUPPORTED, "only one space at the start can be stripped");
    t->strip_space = start == 1;
    return true;
}

static bool decode_metaspace(struct tokenizer *t, const json_t *json, struct err *err)
{
    struct str scheme = json_text(json, "prepend_scheme");
    if (!str_is(json_text(json, "replacement"), "\xe2\x96\x81"))
        return err_set(err, ERR_UNSUPPORTED, "'replacement': only U+2581 is supported");
    t->space_mark = true;
    t->strip_space = scheme.at ? !str_is(scheme, "never") : json_flag(json, "add_prefix_space", true);
    return true;
}

bool json_steps_read(struct tokenizer *t, const json_t *root, struct err *err)
{
    static const struct component NORMALIZERS[] = {
        { "NFC", read_form },
        { "NFD", read_form },
        { "NFKC", read_form },
        { "NFKD", read_form },
        { "Strip", read_strip },
        { "Lowercase", read_lowercase },
        { "StripAccents", read_strip_accents },
        { "Prepend", read_prepend },
        { "Replace", read_replace },
        { "Precompiled", read_charsmap },
        { "BertNormalizer", read_bert_normalizer },
        { 0 },
    };
    static const struct component PRETOKENIZERS[] = {
        { "ByteLevel", read_byte_level },
        { "Split", read_split },
        { "Digits", read_digits },
        { "Metaspace", read_metaspace },
        { "Whitespace", read_whitespace },
        { "WhitespaceSplit", read_whitespace_split },
        { "Punctuation", read_punctuation },
        { "BertPreTokenizer", read_bert_words },
        { 0 },
    };
    static const struct component DECODERS[] = {
        { "ByteLevel", decode_nothing }, { "ByteFallback", decode_nothing },
        { "Fuse", decode_nothing },      { "Replace", decode_replace },
        { "Strip", decode_strip },       { "Metaspace", decode_metaspace },
        { "WordPiece", decode_nothing }, { 0 },
    };
    return read_part(t, &(struct part){ "normalizer", "normalizers", NORMALIZERS },
                     json_object_get(root, "normalizer"), 0, err) &&
           read_part(t, &(struct part){ "pre_tokenizer", "pretokenizers", PRETOKENIZERS },
                     json_object_get(root, "pre_tokenizer"), 0, err) &&
           read_part(t, &(struct part){ "decoder", "decoders", DECODERS }, json_object_get(root, "decoder"),
                     0, err);
}

// --- post_processor ---

static bool add_around(struct tokenizer *t, bool after, int64_t id, struct err *err)
{
    uint32_t *n = after ? &t->n_after : &t->n_before;
    if (id < 0 || id >= (int64_t)t->n_tokens)
        return err_set(err, ERR_INPUT, "a token that is not in the vocabulary");
    if (*n == AROUND_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d tokens on one side of the text", AROUND_MAX);
    (after ? t->after : t->before)[(*n)++] = (uint32_t)id;
    return true;
}

static bool around_nothing(struct tokenizer *t, const json_t *json, struct err *err)
{
    (void)t, (void)json, (void)err; // ByteLevel trims offsets, which ingot does not compute
    return true;
}

// {"special_tokens": {"<s>": {"ids": [1]}}, "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id":
// "A"}}]}
static bool around_template(struct tokenizer *t, const json_t *json, struct err *err)
{
    const json_t *tokens = json_object_get(json, "special_tokens"), *single = json_object_get(json, "single");
    bool after = false;
    size_t i, j;
    json_t *item, *id;

    if (!json_is_array(single))
        return err_set(err, ERR_UNSUPPORTED, "'single': expected an array");
    json_array_foreach(single, i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (!special) {
            after = true;
            continue;
        }
        struct str name = json_text(special, "id");
        const json_t *ids = name.at ? json_object_get(json_object_get(tokens, name.at), "ids") : NULL;
        if (!json_is_array(ids))
            return err_set(err, ERR_INPUT, "special token '%.*s' has no ids", STR_ARG(name));
        json_array_foreach(ids, j, id)
        {
            if (!add_around(t, after, json_is_integer(id) ? json_integer_value(id) : -1, err))
                return false;
        }
    }
    return true;
}

static bool around_pair(struct tokenizer *t, const json_t *json, struct err *err)
{
    const json_t *cls = json_array_get(json_object_get(json, "cls"), 1),
                 *sep = json_array_get(json_object_get(json, "sep"), 1);
    return add_around(t, false, json_is_integer(cls) ? json_integer_value(cls) : -1, err) &&
           add_around(t, true, json_is_integer(sep) ? json_integer_value(sep) : -1, err);
}

bool json_around_read(struct tokenizer *t, const json_t *post_processor, struct err *err)
{
    static const struct component PROCESSORS[] = {
        { "ByteLevel", around_nothing },
        { "TemplateProcessing", around_template },
        { "RobertaProcessing", around_pair },
        { "BertProcessing", around_pair },
        { 0 },
    };
    return read_part(t, &(struct part){ "post_processor", "processors", PROCESSORS }, post_processor, 0, err);
}
