// pretokenize.c - splits text into words; merges happen within a word.
//
// A chain of steps. Each piece of a step goes through the rest of the chain before the next piece is cut, so
// no list of pieces is stored. The call depth is the number of steps, which the loader limits. A step that
// rewrites text (space to U+2581) has its own buffer, released when its pieces are done.
#include "text/tokenizer/tokenizer_parts.h"

static bool run_step(struct encode_run *run, uint32_t step, struct str piece, bool at_start);

// Neighbouring stretches that are emitted as one; whether the last one was a match; whether the text is the
// start of the whole text.
struct pending {
    size_t from, to;
    bool is_match, any, at_start;
};

static bool joins(enum split_behavior behavior, bool last, bool now)
{
    return (behavior == SPLIT_CONTIGUOUS && last == now) ||
           (behavior == SPLIT_WITH_PREVIOUS && !last && now) || (behavior == SPLIT_WITH_NEXT && last && !now);
}

static bool put_out(struct encode_run *run, uint32_t step, struct str text, struct pending p)
{
    if (!p.any || p.from == p.to || (p.is_match && run->t->pretoken[step].behavior == SPLIT_REMOVED))
        return true;
    return run_step(run, step + 1, str_from_to(text, p.from, p.to), p.at_start && p.from == 0);
}

// The next stretch of the text: appended to the pending one, or emitted after it.
static bool take_stretch(struct encode_run *run, uint32_t step, struct str text, struct pending next,
                         struct pending *pending)
{
    if (next.from == next.to)
        return true;
    if (pending->any && joins(run->t->pretoken[step].behavior, pending->is_match, next.is_match)) {
        pending->to = next.to;
        pending->is_match = next.is_match;
        return true;
    }
    bool ok = put_out(run, step, text, *pending);
    *pending = next;
    return ok;
}

static bool split(struct encode_run *run, uint32_t step, struct str text, bool at_start)
{
    const struct pretoken_step *s = &run->t->pretoken[step];
    struct pending pending = { 0 };
    bool ok = true;

    for (size_t at = 0, to; ok && at < text.n; at = to) {
        size_t from = at;
        if (!pattern_next(s->pattern, run->patterns, text, &from, &to, run->err))
            return false;
        struct pending before = { at, from, s->invert, true, at_start },
                       match = { from, to, !s->invert, true, at_start };
        ok =
            take_stretch(run, step, text, before, &pending) && take_stretch(run, step, text, match, &pending);
    }
    return ok && put_out(run, step, text, pending);
}

static bool rewrite_spaces(struct encode_run *run, uint32_t step, struct str *text, bool at_start)
{
    const struct pretoken_step *s = &run->t->pretoken[step];
    struct buf *out = &run->rewritten[step];
    bool marked = str_starts(*text, s->mark) || str_starts(*text, STR(" "));

    out->n = 0;
    if (!marked && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && at_start)))
        buf_str(out, s->mark);
    for (size_t i = 0; i < text->n;) {
        const char *space = memchr(text->at + i, ' ', text->n - i);
        size_t end = space ? (size_t)(space - text->at) : text->n;
        buf_append(out, text->at + i, end - i);
        if (space)
            buf_str(out, s->mark);
        i = end + 1;
    }
    *text = buf_as_str(out);
    return !out->failed || err_memory(run->err, "marking spaces");
}

static bool prefix_space(struct encode_run *run, uint32_t step, struct str *text)
{
    struct buf *out = &run->rewritten[step];
    if (str_starts(*text, STR(" ")))
        return true;
    out->n = 0;
    buf_str(out, STR(" "));
    buf_str(out, *text);
    *text = buf_as_str(out);
    return !out->failed || err_memory(run->err, "a prefix space");
}

static bool run_step(struct encode_run *run, uint32_t step, struct str piece, bool at_start)
{
    if (step == run->t->n_pretoken)
        return encode_word(run, piece);
    const struct pretoken_step *s = &run->t->pretoken[step];
    if (s->kind == PRETOKEN_METASPACE && !rewrite_spaces(run, step, &piece, at_start))
        return false;
    if (s->kind == PRETOKEN_PREFIX_SPACE && !prefix_space(run, step, &piece))
        return false;
    return s->pattern ? split(run, step, piece, at_start) : run_step(run, step + 1, piece, at_start);
}

bool pretokenize_apply(struct encode_run *run, struct str text, bool at_start)
{
    if (text.n == 0)
        return true;
    return (run->t->n_pretoken == 0 || encode_run_patterns(run)) && run_step(run, 0, text, at_start);
}

bool pretokenize_add_split(struct tokenizer *t, struct str regex, enum split_behavior behavior,
                           struct err *err)
{
    if (t->n_pretoken == PRETOKEN_STEPS_MAX)
        return err_set(err, ERR_UNSUPPORTED, "more than %d pre-tokenizer steps", PRETOKEN_STEPS_MAX);
    struct pretoken_step *step = &t->pretoken[t->n_pretoken];
    *step = (struct pretoken_step){ .kind = PRETOKEN_SPLIT, .behavior = behavior };
    if (!pattern_compile(&step->pattern, regex, err))
        return false;
    t->n_pretoken++;
    return true;
}

// Runs of spaces are dropped, and each mark of punctuation is a word.
bool pretokenize_add_bert(struct tokenizer *t, struct err *err)
{
    return pretokenize_add_split(t, STR("\\s"), SPLIT_REMOVED, err) &&
           pretokenize_add_split(t, STR("[!-/:-@\\[-`{-~\\p{P}]"), SPLIT_ISOLATED, err);
}
