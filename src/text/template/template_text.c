// template_text.c - methods of strings, and the filters and tests that apply them to str(value).
#include "text/template/template_builtin.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

bool text_case(struct render *r, struct call *c)
{
    return string_case(r, *c->self, (enum string_case)c->mode, c->out);
}

bool text_has_case(struct render *r, struct call *c)
{
    *c->out = value_bool(string_has_case(c->self->s, c->mode == CASE_UPPER));
    return render_spend(r, 1);
}

bool text_strip(struct render *r, struct call *c)
{
    return string_strip(r, *c->self, *c->arg[0], c->mode, c->out);
}

bool text_split(struct render *r, struct call *c)
{
    const struct split how = { .separator = *c->arg[0], .limit = c->number[1], .from_right = c->mode };

    return string_split(r, *c->self, &how, c->out);
}

bool text_lines(struct render *r, struct call *c)
{
    return string_lines(r, *c->self, c->number[0], c->out);
}

// A safe string escapes its arguments, which may then have any type.
bool text_replace(struct render *r, struct call *c)
{
    struct value old_new[2] = { *c->arg[0] };

    return (c->self->safe ? show_string(r, *c->arg[1], &old_new[1])
                          : call_argument_string(r, c->arg[1], &old_new[1])) &&
           string_replace(r, *c->self, old_new, c->number[2], c->out);
}

bool text_join(struct render *r, struct call *c)
{
    struct list items;

    if (!value_items(r, *c->arg[0], &items))
        return false;
    for (size_t i = 0; i < items.n; i++)
        if (items.at[i].kind != VALUE_STRING && !c->self->safe)
            return render_fail(r, ERR_INPUT, "sequence item %zu: expected str instance, %s found", i,
                               value_type_name(items.at[i]));
    return string_join(r, *c->self, &items, c->out);
}

bool text_format(struct render *r, struct call *c)
{
    return format_braces(r, *c->self, c->raw, c->out);
}

static bool has_affix(struct str text, struct str affix, bool end)
{
    return end ? str_ends(text, affix) : str_starts(text, affix);
}

// startswith and endswith: a string, or a tuple of strings.
bool text_affix(struct render *r, struct call *c)
{
    bool many = c->arg[0]->kind == VALUE_LIST && c->arg[0]->list->kind == LIST_TUPLE, found = false;
    size_t n = many ? c->arg[0]->list->n : 1;
    struct value one;

    for (size_t i = 0; i < n && !found; i++) {
        if (!call_argument_string(r, many ? &c->arg[0]->list->at[i] : c->arg[0], &one))
            return false;
        found = has_affix(c->self->s, one.s, c->mode);
    }
    *c->out = value_bool(found);
    return true;
}

bool text_remove_affix(struct render *r, struct call *c)
{
    struct value v = *c->self;
    size_t n = has_affix(v.s, c->arg[0]->s, c->mode) ? c->arg[0]->s.n : 0;

    *c->out = c->mode ? value_part(v, 0, v.s.n - n) : value_part(v, n, v.s.n);
    return render_spend(r, 1);
}

// The index of a substring in characters, from a start, or -1.
static bool find_in(struct render *r, struct call *c, int64_t *index)
{
    struct str text = c->self->s, what = c->arg[0]->s;
    int64_t start = c->number[1], n;
    size_t found = SIZE_MAX, at;
    bool last = c->mode & FIND_LAST;

    if (!value_length(r, *c->self, &n))
        return false;
    start = start < -n ? 0 : start < 0 ? start + n : start;
    *index = -1;
    if (start > n)
        return true;
    size_t from = char_offset(text, (size_t)start);
    do {
        at = str_find(str_from_to(text, from, text.n), what);
        if (at == SIZE_MAX || !render_spend(r, 1))
            break;
        found = from + at;
        from = found + 1;
    } while (last && from <= text.n && what.n);
    if (last && what.n == 0)
        *index = n;
    else if (found != SIZE_MAX)
        *index = (int64_t)char_count(str_from_to(text, 0, found));
    return true;
}

bool text_find(struct render *r, struct call *c)
{
    int64_t index;

    if (!find_in(r, c, &index))
        return false;
    if ((c->mode & FIND_MUST) && index < 0)
        return render_fail(r, ERR_INPUT, "substring not found");
    *c->out = value_int(index);
    return true;
}

bool text_count(struct render *r, struct call *c)
{
    int64_t n = 0;
    struct str text = c->self->s, what = c->arg[0]->s;

    if (!value_length(r, *c->self, &n))
        return false;
    *c->out = value_int(n + 1);
    if (what.n == 0)
        return true;
    for (n = 0;; n++) {
        size_t found = str_find(text, what);
        if (found == SIZE_MAX || !render_spend(r, 1))
            break;
        text = str_from_to(text, found + what.n, text.n);
    }
    *c->out = value_int(n);
    return true;
}

bool text_partition(struct render *r, struct call *c)
{
    const struct split how = { .separator = *c->arg[0], .limit = 1, .from_right = c->mode };
    struct value parts, text = *c->self;
    struct value out[3] = { value_part(text, 0, 0), value_part(text, 0, 0), value_part(text, 0, 0) };

    if (!string_split(r, text, &how, &parts) || !value_list_new(r, LIST_TUPLE, 3, c->out))
        return false;
    if (parts.list->n == 2) {
        out[0] = parts.list->at[0];
        out[1] = how.separator;
        out[1].safe |= text.safe;
        out[2] = parts.list->at[1];
    } else {
        out[c->mode ? 2 : 0] = text;
    }
    memcpy(c->out->list->at, out, sizeof out);
    return true;
}

bool text_pad(struct render *r, struct call *c)
{
    int64_t width = c->number[0], n;

    if (!value_length(r, *c->self, &n))
        return false;
    int64_t pad = width > n ? width - n : 0;
    int64_t left = c->mode == PAD_RIGHT ? 0 : c->mode == PAD_LEFT ? pad : pad / 2 + (pad & width & 1);
    return string_pad(r, *c->self, left, pad - left, c->out);
}

// isdigit and others: the text is not empty, and every character is in one of the classes.
bool text_all_are(struct render *r, struct call *c)
{
    bool all = c->self->s.n > 0;

    for (size_t at = 0; at < c->self->s.n && all;) {
        uint32_t code = char_next(c->self->s, &at);
        all = ((c->mode & CHARS_DIGIT) && char_is_digit(code)) ||
              ((c->mode & CHARS_LETTER) && char_is_letter(code)) ||
              ((c->mode & CHARS_SPACE) && char_is_space(code));
    }
    *c->out = value_bool(all);
    return render_spend(r, 1);
}
