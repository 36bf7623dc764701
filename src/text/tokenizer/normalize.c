// normalize.c - normalisation of text before it is split into words. Each step reads one of two buffers and
// writes the other.
#include "text/tokenizer/tokenizer_parts.h"

static bool replace(struct encode_run *run, const struct normal_step *step, struct str text, struct buf *out)
{
    if (!encode_run_patterns(run))
        return false;
    for (size_t at = 0; at < text.n;) {
        size_t from = at, to;
        if (!pattern_next(step->pattern, run->patterns, text, &from, &to, run->err))
            return false;
        buf_append(out, text.at + at, from - at);
        if (to > from)
            buf_str(out, step->text);
        at = to;
    }
    return true;
}

static void strip(const struct normal_step *step, struct str text, struct buf *out)
{
    size_t from = 0, end = 0;
    bool inside = false;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp, length = utf8_read(text.at + i, text.n - i, &cp);
        bool space = unicode_is_space(cp);
        if (!space && !inside) {
            inside = true;
            from = i;
        }
        i += length;
        if (!space)
            end = i;
    }
    if (!inside && (step->left || step->right))
        return;
    buf_str(out, str_from_to(text, step->left ? from : 0, step->right ? end : text.n));
}

static bool apply_step(struct encode_run *run, const struct normal_step *step, struct str text,
                       struct buf *out)
{
    switch (step->kind) {
    case NORMAL_FORM:
        return unicode_normalize(out, text, step->form) || err_memory(run->err, "a normal form");
    case NORMAL_LOWER:
        unicode_lower(out, text);
        return true;
    case NORMAL_STRIP_ACCENTS:
        unicode_strip_accents(out, text);
        return true;
    case NORMAL_PREPEND:
        if (text.n)
            buf_str(out, step->text);
        buf_str(out, text);
        return true;
    case NORMAL_REPLACE:
        return replace(run, step, text, out);
    case NORMAL_STRIP:
        strip(step, text, out);
        return true;
    case NORMAL_CHARSMAP:
        charsmap_apply(out, step->text, text);
        return true;
    case NORMAL_CLEAN:
        unicode_clean(out, text);
        return true;
    case NORMAL_STRIP_NONSPACING:
        unicode_strip_nonspacing(out, text);
        return true;
    }
    return true;
}

bool normalize_apply(struct encode_run *run, struct str text, struct str *result)
{
    for (uint32_t i = 0; i < run->t->n_normal; i++) {
        struct buf *out = &run->normal[i % 2];
        out->n = 0;
        if (!apply_step(run, &run->t->normal[i], text, out))
            return false;
        if (out->failed)
            return err_set(run->err, ERR_LIMIT, "the text grows beyond 1 GiB in normalisation");
        text = buf_as_str(out);
    }
    *result = text;
    return true;
}

bool normalize_add_replace(struct tokenizer *t, struct str pattern, bool regex, struct str text,
                           struct err *err)
{
    if (t->n_normal == NORMAL_STEPS_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d normalizer steps", NORMAL_STEPS_MAX);
    struct normal_step *step = &t->normal[t->n_normal];
    *step = (struct normal_step){ .kind = NORMAL_REPLACE, .text = arena_str(t->arena, text) };
    if (!step->text.at)
        return err_memory(err, "a normalizer");
    bool ok = regex ? pattern_compile(&step->pattern, pattern, err)
                    : pattern_compile_literal(&step->pattern, pattern, err);
    t->n_normal += ok;
    return ok;
}

bool normalize_add_bert(struct tokenizer *t, bool strips_accents, bool lower, struct err *err)
{
    if (t->n_normal + 4 > NORMAL_STEPS_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d normalizer steps", NORMAL_STEPS_MAX);
    t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_CLEAN };
    if (strips_accents) {
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_FORM, .form = UNICODE_NFD };
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_STRIP_NONSPACING };
    }
    if (lower)
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_LOWER };
    return true;
}
