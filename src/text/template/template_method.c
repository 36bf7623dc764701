// template_method.c - methods of strings, dicts, lists and loops.
//
// Python's methods that change a list or a dict in place are refused, as transformers' sandbox refuses them; but a list that the template
// made itself can be appended to, as other engines let it.
#include "text/template/template_run.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

static bool method_upper(struct render *r, struct call *c)
{
    return string_case(r, *c->self, CASE_UPPER, c->out);
}

static bool method_lower(struct render *r, struct call *c)
{
    return string_case(r, *c->self, CASE_LOWER, c->out);
}

static bool method_title(struct render *r, struct call *c)
{
    return string_case(r, *c->self, CASE_TITLE, c->out);
}

static bool method_capitalize(struct render *r, struct call *c)
{
    return string_case(r, *c->self, CASE_CAPITALIZE, c->out);
}

static bool method_swapcase(struct render *r, struct call *c)
{
    return string_case(r, *c->self, CASE_SWAP, c->out);
}

static bool method_strip(struct render *r, struct call *c)
{
    return string_strip(r, *c->self, *c->arg[0], CHAR_STRIP_BOTH, c->out);
}

static bool method_lstrip(struct render *r, struct call *c)
{
    return string_strip(r, *c->self, *c->arg[0], CHAR_STRIP_LEFT, c->out);
}

static bool method_rstrip(struct render *r, struct call *c)
{
    return string_strip(r, *c->self, *c->arg[0], CHAR_STRIP_RIGHT, c->out);
}

static bool split_with(struct render *r, struct call *c, bool from_right)
{
    struct split how = { .separator = *c->arg[0], .from_right = from_right };

    return argument_int(r, c->arg[1], -1, &how.limit) && string_split(r, *c->self, &how, c->out);
}

static bool method_split(struct render *r, struct call *c)
{
    return split_with(r, c, false);
}

static bool method_rsplit(struct render *r, struct call *c)
{
    return split_with(r, c, true);
}

static bool method_splitlines(struct render *r, struct call *c)
{
    return string_lines(r, *c->self, argument_true(c->arg[0], false), c->out);
}

// A string that goes into self. A safe one escapes it, and what can be escaped can be of any type.
static bool argument_beside(struct render *r, const struct value *self, const struct value *v, struct value *out)
{
    return self->safe ? show_string(r, *v, out) : argument_string(r, v, out);
}

static bool method_replace(struct render *r, struct call *c)
{
    struct value old_new[2];
    int64_t count;

    return argument_string(r, c->arg[0], &old_new[0]) && argument_beside(r, c->self, c->arg[1], &old_new[1]) &&
           argument_int(r, c->arg[2], -1, &count) && string_replace(r, *c->self, old_new, count, c->out);
}

static bool method_join(struct render *r, struct call *c)
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

static bool method_format(struct render *r, struct call *c)
{
    return format_braces(r, *c->self, c->raw, c->out);
}

static bool affix(struct render *r, const struct value *text, const struct value *with, bool end, bool *found)
{
    struct value one;

    *found = false;
    if (with->kind == VALUE_LIST && with->list->kind == LIST_TUPLE) {
        for (size_t i = 0; i < with->list->n && !*found; i++) {
            if (!argument_string(r, &with->list->at[i], &one))
                return false;
            *found = end ? str_ends(text->s, one.s) : str_starts(text->s, one.s);
        }
        return true;
    }
    if (!argument_string(r, with, &one))
        return false;
    *found = end ? str_ends(text->s, one.s) : str_starts(text->s, one.s);
    return true;
}

static bool method_startswith(struct render *r, struct call *c)
{
    bool found;

    if (!affix(r, c->self, c->arg[0], false, &found))
        return false;
    *c->out = value_bool(found);
    return true;
}

static bool method_endswith(struct render *r, struct call *c)
{
    bool found;

    if (!affix(r, c->self, c->arg[0], true, &found))
        return false;
    *c->out = value_bool(found);
    return true;
}

static bool method_removeprefix(struct render *r, struct call *c)
{
    struct value v = *c->self, prefix;

    if (!argument_string(r, c->arg[0], &prefix))
        return false;
    *c->out = str_starts(v.s, prefix.s) ? value_part(v, prefix.s.n, v.s.n) : v;
    return true;
}

static bool method_removesuffix(struct render *r, struct call *c)
{
    struct value v = *c->self, suffix;

    if (!argument_string(r, c->arg[0], &suffix))
        return false;
    *c->out = str_ends(v.s, suffix.s) ? value_part(v, 0, v.s.n - suffix.s.n) : v;
    return true;
}

// The index of a substring in characters, from a start, or -1.
static bool find_in(struct render *r, struct call *c, bool last, int64_t *index)
{
    struct value what;
    int64_t start, n;
    size_t found = SIZE_MAX, at;

    if (!argument_string(r, c->arg[0], &what) || !argument_int(r, c->arg[1], 0, &start) || !value_length(r, *c->self, &n))
        return false;
    start = start < -n ? 0 : start < 0 ? start + n : start;
    *index = -1;
    if (start > n)
        return true;
    size_t from = char_offset(c->self->s, (size_t)start);
    do {
        at = str_find(str_from_to(c->self->s, from, c->self->s.n), what.s);
        if (at == SIZE_MAX || !render_spend(r, 1))
            break;
        found = from + at;
        from = found + 1;
    } while (last && from <= c->self->s.n && what.s.n);
    if (last && what.s.n == 0)
        *index = n;
    else if (found != SIZE_MAX)
        *index = (int64_t)char_count(str_from_to(c->self->s, 0, found));
    return true;
}

static bool find_method(struct render *r, struct call *c, bool last, bool must)
{
    int64_t index;

    if (!find_in(r, c, last, &index))
        return false;
    if (must && index < 0)
        return render_fail(r, ERR_INPUT, "substring not found");
    *c->out = value_int(index);
    return true;
}

static bool method_find(struct render *r, struct call *c)
{
    return find_method(r, c, false, false);
}

static bool method_rfind(struct render *r, struct call *c)
{
    return find_method(r, c, true, false);
}

static bool method_index(struct render *r, struct call *c)
{
    return find_method(r, c, false, true);
}

static bool method_rindex(struct render *r, struct call *c)
{
    return find_method(r, c, true, true);
}

static bool method_count(struct render *r, struct call *c)
{
    struct value what;
    int64_t n = 0;
    struct str text = c->self->s;

    if (!argument_string(r, c->arg[0], &what) || !value_length(r, *c->self, &n))
        return false;
    *c->out = value_int(n + 1);
    if (what.s.n == 0)
        return true;
    for (n = 0;; n++) {
        size_t found = str_find(text, what.s);
        if (found == SIZE_MAX || !render_spend(r, 1))
            break;
        text = str_from_to(text, found + what.s.n, text.n);
    }
    *c->out = value_int(n);
    return true;
}

static bool partition(struct render *r, struct call *c, bool from_right)
{
    struct split how = { .separator = *c->arg[0], .limit = 1, .from_right = from_right };
    struct value parts, text = *c->self;
    struct value out[3] = { value_part(text, 0, 0), value_part(text, 0, 0), value_part(text, 0, 0) };

    if (!argument_string(r, c->arg[0], &how.separator) || !string_split(r, text, &how, &parts) ||
        !value_list_new(r, LIST_TUPLE, 3, c->out))
        return false;
    if (parts.list->n == 2) {
        out[0] = parts.list->at[0];
        out[1] = how.separator;
        out[1].safe |= text.safe;
        out[2] = parts.list->at[1];
    } else {
        out[from_right ? 2 : 0] = text;
    }
    memcpy(c->out->list->at, out, sizeof out);
    return true;
}

static bool method_partition(struct render *r, struct call *c)
{
    return partition(r, c, false);
}

static bool method_rpartition(struct render *r, struct call *c)
{
    return partition(r, c, true);
}

static bool pad_method(struct render *r, struct call *c, int where)
{
    int64_t width, n;

    if (!argument_int(r, c->arg[0], 0, &width) || !value_length(r, *c->self, &n))
        return false;
    int64_t pad = width > n ? width - n : 0, left = where < 0 ? 0 : where > 0 ? pad : pad / 2 + (pad & width & 1);
    return string_pad(r, *c->self, left, pad - left, c->out);
}

static bool method_ljust(struct render *r, struct call *c)
{
    return pad_method(r, c, -1);
}

static bool method_rjust(struct render *r, struct call *c)
{
    return pad_method(r, c, 1);
}

static bool method_center(struct render *r, struct call *c)
{
    return pad_method(r, c, 0);
}

// isdigit and its kin: every character is of the kind, and there is one.
static bool all_are(struct call *c, bool (*is)(uint32_t code))
{
    bool all = c->self->s.n > 0;

    for (size_t at = 0; at < c->self->s.n && all;)
        all = is(char_next(c->self->s, &at));
    *c->out = value_bool(all);
    return true;
}

static bool is_letter_or_digit(uint32_t code)
{
    return char_is_letter(code) || char_is_digit(code);
}

static bool method_isdigit(struct render *r, struct call *c)
{
    return render_spend(r, 1) && all_are(c, char_is_digit);
}

static bool method_isalpha(struct render *r, struct call *c)
{
    return render_spend(r, 1) && all_are(c, char_is_letter);
}

static bool method_isalnum(struct render *r, struct call *c)
{
    return render_spend(r, 1) && all_are(c, is_letter_or_digit);
}

static bool method_isspace(struct render *r, struct call *c)
{
    return render_spend(r, 1) && all_are(c, char_is_space);
}

static bool method_isupper(struct render *r, struct call *c)
{
    *c->out = value_bool(string_has_case(c->self->s, true));
    return render_spend(r, 1);
}

static bool method_islower(struct render *r, struct call *c)
{
    *c->out = value_bool(string_has_case(c->self->s, false));
    return render_spend(r, 1);
}

static bool method_get(struct render *r, struct call *c)
{
    if (!value_dict_get(r, c->self->dict, *c->arg[0], c->out))
        return false;
    if (c->out->kind == VALUE_ABSENT)
        *c->out = c->arg[1]->kind == VALUE_ABSENT ? VALUE_OF_NONE : *c->arg[1];
    return true;
}

static bool method_items(struct render *r, struct call *c)
{
    return value_dict_items(r, c->self->dict, LIST_PLAIN, c->out);
}

static bool method_keys(struct render *r, struct call *c)
{
    struct list items;

    if (!value_items(r, *c->self, &items) || !value_list_new(r, LIST_PLAIN, 0, c->out))
        return false;
    *c->out->list = items;
    return true;
}

static bool method_values(struct render *r, struct call *c)
{
    if (!value_list_new(r, LIST_PLAIN, c->self->dict->n, c->out))
        return false;
    for (size_t i = 0; i < c->self->dict->n; i++)
        c->out->list->at[i] = c->self->dict->at[i].value;
    return true;
}

static bool method_copy(struct render *r, struct call *c)
{
    *c->out = *c->self; // it cannot change, so it is its own copy
    return render_spend(r, 1);
}

static bool method_unsafe(struct render *r, struct call *c)
{
    return render_fail(r, ERR_INPUT, "changing a %s in place is not allowed", value_type_name(*c->self));
}

static bool method_append(struct render *r, struct call *c)
{
    struct list *list = c->self->list;

    if (!list->grows)
        return method_unsafe(r, c);
    if (list->n >= list->capacity) {
        size_t capacity = list->n < 4 ? 8 : 2 * list->n;
        struct value *more = render_spend(r, list->n / 4) ? render_alloc(r, capacity, sizeof *more) : NULL;
        if (!more)
            return false;
        memcpy(more, list->at, list->n * sizeof *more);
        list->at = more;
        list->capacity = capacity;
    }
    list->at[list->n++] = *c->arg[0];
    *c->out = VALUE_OF_NONE;
    return render_spend(r, 1);
}

static bool method_list_copy(struct render *r, struct call *c)
{
    if (!value_list_new(r, LIST_PLAIN, c->self->list->n, c->out))
        return false;
    memcpy(c->out->list->at, c->self->list->at, c->self->list->n * sizeof *c->out);
    c->out->list->grows = true;
    return true;
}

static bool method_list_index(struct render *r, struct call *c)
{
    for (size_t i = 0; i < c->self->list->n; i++) {
        bool same;
        if (!value_equal(r, c->self->list->at[i], *c->arg[0], &same))
            return false;
        if (same) {
            *c->out = value_int((int64_t)i);
            return true;
        }
    }
    return render_fail(r, ERR_INPUT, "the value is not in the list");
}

static bool method_list_count(struct render *r, struct call *c)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->self->list->n; i++) {
        bool same;
        if (!value_equal(r, c->self->list->at[i], *c->arg[0], &same))
            return false;
        n += same;
    }
    *c->out = value_int(n);
    return true;
}

static bool method_cycle(struct render *r, struct call *c)
{
    if (c->raw->n == 0 || c->raw->n_keywords)
        return render_fail(r, ERR_INPUT, "no items for cycling given");
    *c->out = c->raw->at[c->self->loop->index % c->raw->n];
    return true;
}

static bool method_changed(struct render *r, struct call *c)
{
    struct loop *loop = c->self->loop;
    struct value now;
    bool same = false;

    if (!value_list_new(r, LIST_TUPLE, c->raw->n, &now))
        return false;
    if (c->raw->n)
        memcpy(now.list->at, c->raw->at, c->raw->n * sizeof now);
    if (loop->changed.kind == VALUE_LIST && !value_equal(r, loop->changed, now, &same))
        return false;
    loop->changed = now;
    *c->out = value_bool(!same);
    return true;
}

static const struct builtin string_methods[] = {
    { "strip", "chars?", method_strip },
    { "lstrip", "chars?", method_lstrip },
    { "rstrip", "chars?", method_rstrip },
    { "split", "sep? maxsplit?", method_split },
    { "rsplit", "sep? maxsplit?", method_rsplit },
    { "splitlines", "keepends?", method_splitlines },
    { "startswith", "prefix", method_startswith },
    { "endswith", "suffix", method_endswith },
    { "replace", "old new count?", method_replace },
    { "join", "iterable", method_join },
    { "format", "*", method_format },
    { "upper", "", method_upper },
    { "lower", "", method_lower },
    { "title", "", method_title },
    { "capitalize", "", method_capitalize },
    { "swapcase", "", method_swapcase },
    { "find", "sub start?", method_find },
    { "rfind", "sub start?", method_rfind },
    { "index", "sub start?", method_index },
    { "rindex", "sub start?", method_rindex },
    { "count", "sub", method_count },
    { "partition", "sep", method_partition },
    { "rpartition", "sep", method_rpartition },
    { "removeprefix", "prefix", method_removeprefix },
    { "removesuffix", "suffix", method_removesuffix },
    { "ljust", "width", method_ljust },
    { "rjust", "width", method_rjust },
    { "center", "width", method_center },
    { "isdigit", "", method_isdigit },
    { "isdecimal", "", method_isdigit },
    { "isnumeric", "", method_isdigit },
    { "isalpha", "", method_isalpha },
    { "isalnum", "", method_isalnum },
    { "isspace", "", method_isspace },
    { "isupper", "", method_isupper },
    { "islower", "", method_islower },
};

static const struct builtin dict_methods[] = {
    { "get", "key default?", method_get }, { "items", "", method_items },        { "keys", "", method_keys },
    { "values", "", method_values },       { "copy", "", method_copy },          { "pop", "*", method_unsafe },
    { "update", "*", method_unsafe },      { "setdefault", "*", method_unsafe }, { "clear", "*", method_unsafe },
    { "popitem", "*", method_unsafe },     { "fromkeys", "*", method_unsafe },
};

static const struct builtin list_methods[] = {
    { "index", "value", method_list_index }, { "count", "value", method_list_count }, { "copy", "", method_list_copy },
    { "append", "item", method_append },     { "extend", "*", method_unsafe },        { "insert", "*", method_unsafe },
    { "pop", "*", method_unsafe },           { "remove", "*", method_unsafe },        { "reverse", "*", method_unsafe },
    { "sort", "*", method_unsafe },          { "clear", "*", method_unsafe },
};

static const struct builtin loop_methods[] = { { "cycle", "*", method_cycle }, { "changed", "*", method_changed } };

#define FIND(table) builtin_find(table, sizeof table / sizeof *table, name)

const struct builtin *template_method_find(const struct value *self, struct str name)
{
    switch (self->kind) {
    case VALUE_STRING:
        return FIND(string_methods);
    case VALUE_DICT:
        return FIND(dict_methods);
    case VALUE_LIST:
        return self->list->kind == LIST_GENERATOR ? NULL : FIND(list_methods);
    case VALUE_LOOP:
        return FIND(loop_methods);
    default:
        return NULL;
    }
}
