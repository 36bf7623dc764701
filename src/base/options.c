// options.c - see options.h: values from the command line, the environment and the config file.
//
// Sources are applied from the weakest to the strongest, so that the last one wins; a list or a row of
// numbers from a stronger source replaces the weaker one's, while one source may add to itself. The words of
// a table are short and few: everything here is a linear search.
#include "base/options.h"
#include <ctype.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/file.h"

enum source { SOURCE_PRESET, SOURCE_FILE, SOURCE_ENV, SOURCE_FLAG };

struct options_reader {
    const struct option_input *input;
    unsigned char *values;
    struct option_operands *operands;
    struct arena *arena;
    struct err *err;
    enum source list_source[256]; // by option: who filled the list so far
};

// How the user wrote it, for messages: "--threads", "INGOT_THREADS", "threads in /home/.../config".
struct spelling {
    const char *text;
    enum source source;
};

// ---- words ------------------------------------------------------------------------------------------------

// Takes the next word off a list separated by spaces; false at the end.
static bool word_next(const char **list, struct str *word)
{
    const char *at = *list + strspn(*list, " ");
    size_t n = strcspn(at, " ");

    *word = (struct str){ at, n };
    *list = at + n;
    return n > 0;
}

static bool words_have(const char *list, struct str wanted)
{
    struct str word;

    while (word_next(&list, &word)) {
        if (str_eq(word, wanted))
            return true;
    }
    return false;
}

struct str option_key(const struct option *option)
{
    const char *flags = option->flags;
    struct str word;

    while (word_next(&flags, &word)) {
        if (str_starts(word, STR("--")))
            return str_from_to(word, 2, word.n);
    }
    return (struct str){ NULL, 0 };
}

void option_env_name(const struct option *option, char *name, size_t n)
{
    struct str key = option_key(option);

    snprintf(name, n, "INGOT_%.*s", STR_ARG(key));
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

// Number of single-letter changes, swaps of neighbours counted as one; words longer than the table are far
// from everything.
static size_t distance(struct str a, struct str b)
{
    size_t d[34][34];

    if (a.n > 32 || b.n > 32)
        return 99;
    for (size_t i = 0; i <= a.n; i++) {
        for (size_t j = 0; j <= b.n; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a.at[i - 1] != b.at[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a.at[i - 1] == b.at[j - 2] && a.at[i - 2] == b.at[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[a.n][b.n];
}

struct str option_nearest(struct str word, const char *candidates)
{
    struct str best = { "", 0 }, candidate;
    size_t least = word.n < 5 ? 2 : 1 + word.n / 3;

    while (word_next(&candidates, &candidate)) {
        size_t d = distance(word, candidate);
        if (d < least && d < candidate.n) {
            least = d;
            best = candidate;
        }
    }
    return best;
}

// Option number `index` of a verb over all its groups; NULL after the last.
static const struct option *option_at(const struct option_verb *verb, size_t index)
{
    for (size_t g = 0; g < OPTION_MAX_GROUPS && verb->groups[g]; g++) {
        for (const struct option *o = verb->groups[g]->options; o->flags; o++) {
            if (index-- == 0)
                return o;
        }
    }
    return NULL;
}

// ---- values -----------------------------------------------------------------------------------------------

static bool wrong_value(struct options_reader *r, struct spelling s, const char *found, const char *expected)
{
    return err_set(r->err, ERR_INPUT, "%s: found '%.80s', expected %s", s.text, found, expected);
}

static bool wrong_number(struct options_reader *r, const struct option *o, struct spelling s,
                         const char *found)
{
    char expected[96];
    const char *kind = o->type == OPTION_FLOAT ? "a number" : "a whole number";

    if (o->min == 0 && o->max == 0)
        snprintf(expected, sizeof expected, "%s%s", kind,
                 o->type == OPTION_FLOAT ? ""
                 : o->type == OPTION_U32 ? " from 0 to 4294967295"
                                         : " from 0 to 18446744073709551615");
    else
        snprintf(expected, sizeof expected, "%s from %.10g to %.10g", kind, o->min, o->max);
    if (o->choices)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), ", or %s", o->choices);
    return wrong_value(r, s, found, expected);
}

static bool in_range(const struct option *o, double value)
{
    return (o->min == 0 && o->max == 0) || (value >= o->min && value <= o->max);
}

static bool set_u64(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    uint64_t v, limit = o->type == OPTION_U32 ? UINT32_MAX : UINT64_MAX;

    if (o->choices && words_have(o->choices, str_from(text)))
        v = limit;
    else if (!str_to_u64(str_from(text), &v) || v > limit || !in_range(o, (double)v))
        return wrong_number(r, o, s, text);
    if (o->type == OPTION_U32)
        *(uint32_t *)(void *)(r->values + o->offset) = (uint32_t)v;
    else
        *(uint64_t *)(void *)(r->values + o->offset) = v;
    return true;
}

static bool set_float(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    double v;

    if (!str_to_f64(str_from(text), &v) || v != v || v > 3e38 || v < -3e38 || !in_range(o, v))
        return wrong_number(r, o, s, text);
    *(float *)(void *)(r->values + o->offset) = (float)v;
    return true;
}

static bool set_flag(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    bool *flag = (bool *)(r->values + o->offset);

    if (words_have("true 1 on yes", str_from(text)))
        *flag = true;
    else if (words_have("false 0 off no", str_from(text)))
        *flag = false;
    else
        return wrong_value(r, s, text, "true or false");
    return true;
}

static bool wrong_choice(struct options_reader *r, const struct option *o, struct spelling s,
                         const char *text)
{
    char expected[256];

    snprintf(expected, sizeof expected, "one of: %s", o->choices);
    return wrong_value(r, s, text, expected);
}

static bool set_choice(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    if (!words_have(o->choices, str_from(text)) || strchr(text, ' '))
        return wrong_choice(r, o, s, text);
    *(const char **)(void *)(r->values + o->offset) = text;
    return true;
}

static bool too_many(struct options_reader *r, struct spelling s)
{
    return err_set(r->err, ERR_INPUT, "%s: at most %d values are allowed", s.text, OPTION_MAX_LISTED);
}

static bool list_add(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    struct option_list *list = (struct option_list *)(void *)(r->values + o->offset);

    if (!list->at && !(list->at = arena_alloc_array(r->arena, OPTION_MAX_LISTED, sizeof *list->at)))
        return err_memory(r->err, "options");
    if (list->n == OPTION_MAX_LISTED)
        return too_many(r, s);
    if (o->choices && (!words_have(o->choices, str_from(text)) || strchr(text, ' ')))
        return wrong_choice(r, o, s, text);
    list->at[list->n++] = text;
    return true;
}

static bool list_add_all(struct options_reader *r, const struct option *o, struct spelling s,
                         const char *text)
{
    if (!str_ends(str_from(o->value), STR(",...")))
        return list_add(r, o, s, text);
    for (;;) {
        size_t n = strcspn(text, ",");
        struct str piece = arena_str(r->arena, (struct str){ text, n });
        if (!piece.at)
            return err_memory(r->err, "options");
        if (!list_add(r, o, s, piece.at))
            return false;
        if (!text[n])
            return true;
        text += n + 1;
    }
}

static bool numbers_add(struct options_reader *r, const struct option *o, struct spelling s, const char *text)
{
    struct option_numbers *numbers = (struct option_numbers *)(void *)(r->values + o->offset);

    if (!numbers->at && !(numbers->at = arena_alloc_array(r->arena, OPTION_MAX_LISTED, sizeof *numbers->at)))
        return err_memory(r->err, "options");
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        uint64_t v;
        if (!str_to_u64((struct str){ at, n }, &v) || v > UINT32_MAX || !in_range(o, (double)v))
            return wrong_number(r, o, s, text);
        if (numbers->n == OPTION_MAX_LISTED)
            return too_many(r, s);
        numbers->at[numbers->n++] = (uint32_t)v;
        at += n;
        if (!*at)
            return true;
    }
}

// A stronger source starts its list anew.
static void list_renew(struct options_reader *r, const struct option *o, size_t index, enum source source)
{
    if (index >= sizeof r->list_source / sizeof *r->list_source || r->list_source[index] == source)
        return;
    r->list_source[index] = source;
    if (o->type == OPTION_LIST)
        ((struct option_list *)(void *)(r->values + o->offset))->n = 0;
    else
        ((struct option_numbers *)(void *)(r->values + o->offset))->n = 0;
}

static bool set_value(struct options_reader *r, size_t index, struct spelling s, const char *text)
{
    const struct option *o = option_at(r->input->verb, index);

    if (!*text && o->value && (!strncmp(o->value, "FILE", 4) || !strcmp(o->value, "DIR")))
        return wrong_value(r, s, text, o->value);
    switch (o->type) {
    case OPTION_FLAG:
        return set_flag(r, o, s, text);
    case OPTION_STRING:
        *(const char **)(void *)(r->values + o->offset) = text;
        return true;
    case OPTION_U32:
    case OPTION_U64:
        return set_u64(r, o, s, text);
    case OPTION_FLOAT:
        return set_float(r, o, s, text);
    case OPTION_CHOICE:
        return set_choice(r, o, s, text);
    case OPTION_LIST:
        list_renew(r, o, index, s.source);
        return list_add_all(r, o, s, text);
    case OPTION_NUMBERS:
        list_renew(r, o, index, s.source);
        return numbers_add(r, o, s, text);
    case OPTION_FOREIGN:
        break;
    }
    return false;
}

static bool foreign_add(struct options_reader *r, const struct option *o, struct spelling s,
                        const char *value)
{
    struct option_operands *operands = r->operands;
    bool fine = !o->preset || (o->choices && value && words_have(o->choices, str_from(value)));

    if (!fine)
        return err_set(r->err, ERR_INPUT, "%s%s%.40s: ingot has no %s", s.text,
                       o->choices && value ? " " : "", o->choices && value ? value : "", o->preset);
    if (operands->n_foreign < OPTION_MAX_LISTED) {
        operands->foreign[operands->n_foreign].flag = arena_str(r->arena, str_from(s.text)).at;
        operands->foreign[operands->n_foreign++].why = o->help;
    }
    return true;
}

// ---- sources ----------------------------------------------------------------------------------------------

static bool read_presets(struct options_reader *r)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(r->input->verb, i)); i++) {
        if (o->preset && o->type != OPTION_FOREIGN &&
            !set_value(r, i, (struct spelling){ o->flags, SOURCE_PRESET }, o->preset))
            return false;
    }
    return true;
}

static bool read_environment(struct options_reader *r)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(r->input->verb, i)); i++) {
        char name[96];
        option_env_name(o, name, sizeof name);
        const char *value = getenv(name);
        if (value && *value && o->type != OPTION_FOREIGN &&
            !set_value(r, i, (struct spelling){ name, SOURCE_ENV }, value))
            return false;
    }
    return true;
}

static size_t option_by_key(const struct option_verb *verb, struct str key)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(verb, i)); i++) {
        if (o->type != OPTION_FOREIGN && str_eq(option_key(o), key))
            return i;
    }
    return SIZE_MAX;
}

static bool unknown_key(struct options_reader *r, const char *path, struct str key)
{
    struct buf all = { 0 };
    const struct option *o;

    for (size_t v = 0; v < r->input->program->n_verbs; v++) {
        for (size_t i = 0; (o = option_at(&r->input->program->verbs[v], i)); i++) {
            buf_str(&all, option_key(o));
            buf_text(&all, " ");
        }
    }
    struct str near = option_nearest(key, all.at ? all.at : "");
    if (near.n)
        err_set(r->err, ERR_INPUT, "%s: '%.*s' is not an option; is '%.*s' meant?", path, STR_ARG(key),
                STR_ARG(near));
    else
        err_set(r->err, ERR_INPUT, "%s: '%.*s' is not an option of any verb", path, STR_ARG(key));
    buf_free(&all);
    return false;
}

static struct str trimmed(struct str s)
{
    while (s.n && isspace((unsigned char)s.at[0]))
        s = str_from_to(s, 1, s.n);
    while (s.n && isspace((unsigned char)s.at[s.n - 1]))
        s.n--;
    return s;
}

static bool read_line(struct options_reader *r, const char *path, size_t number, struct str line)
{
    const struct option_program *program = r->input->program;
    const char *equals = line.n ? memchr(line.at, '=', line.n) : NULL;

    if (line.n == 0 || line.at[0] == '#')
        return true;
    if (!equals)
        return err_set(r->err, ERR_INPUT, "%s: line %zu: found '%.*s', expected key = value", path, number,
                       STR_ARG(line));
    struct str key = trimmed((struct str){ line.at, (size_t)(equals - line.at) });
    struct str value = trimmed((struct str){ equals + 1, (size_t)(line.at + line.n - equals - 1) });
    size_t index = option_by_key(r->input->verb, key);
    bool known = index != SIZE_MAX;
    for (size_t v = 0; v < program->n_verbs && !known; v++)
        known = option_by_key(&program->verbs[v], key) != SIZE_MAX;
    if (!known)
        return unknown_key(r, path, key);
    if (index == SIZE_MAX)
        return true;
    struct str copy = arena_str(r->arena, value);
    char *where = arena_printf(r->arena, "%s: line %zu: %.*s", path, number, STR_ARG(key));
    if (!copy.at || !where)
        return err_memory(r->err, "options");
    return set_value(r, index, (struct spelling){ where, SOURCE_FILE }, copy.at);
}

static bool read_config(struct options_reader *r, const char *path)
{
    struct buf text = { 0 };
    size_t number = 1, from = 0;
    bool ok = file_read(&text, path, (size_t)1 << 20, r->err);

    while (ok && from < text.n) {
        const char *end = memchr(text.at + from, '\n', text.n - from);
        size_t to = end ? (size_t)(end - text.at) : text.n;
        ok = read_line(r, path, number++, trimmed((struct str){ text.at + from, to - from }));
        from = to + 1;
    }
    buf_free(&text);
    return ok;
}

// The file named by a flag or by the environment must be there; the usual place need not be.
static bool find_config(struct options_reader *r)
{
    const struct option_input *in = r->input;
    const char *named = getenv("INGOT_CONFIG"), *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char path[4096];

    for (int i = 0; i < in->argc && strcmp(in->argv[i], "--") != 0; i++) {
        if (!strncmp(in->argv[i], "--config=", 9))
            named = in->argv[i] + 9;
        else if (!strcmp(in->argv[i], "--config") && i + 1 < in->argc)
            named = in->argv[i + 1];
    }
    if (named && *named)
        return read_config(r, named);
    if (base && *base)
        snprintf(path, sizeof path, "%s/ingot/config", base);
    else if (home && *home)
        snprintf(path, sizeof path, "%s/.config/ingot/config", home);
    else
        return true;
    return !file_exists(path) || read_config(r, path);
}

static size_t option_by_flag(const struct option_verb *verb, struct str flag)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(verb, i)); i++) {
        if (words_have(o->flags, flag))
            return i;
    }
    return SIZE_MAX;
}

static struct str without_dashes(struct str flag)
{
    while (flag.n && flag.at[0] == '-')
        flag = str_from_to(flag, 1, flag.n);
    return flag;
}

// A hint only from one whole word to another: of two letters every flag is a neighbour.
static bool unknown_flag(struct options_reader *r, struct str flag)
{
    const struct option_program *program = r->input->program;
    const struct option *o;
    struct buf all = { 0 };

    for (size_t i = 0; (o = option_at(r->input->verb, i)); i++)
        buf_printf(&all, "%.*s ", o->type == OPTION_FOREIGN ? 0 : (int)option_key(o).n, option_key(o).at);
    struct str name = without_dashes(flag);
    struct str near = name.n > 2 ? option_nearest(name, all.at ? all.at : "") : (struct str){ "", 0 };
    if (near.n)
        err_set(r->err, ERR_INPUT, "unknown flag %.*s; is --%.*s meant?", STR_ARG(flag), STR_ARG(near));
    else
        err_set(r->err, ERR_INPUT, "unknown flag %.*s; '%s help %s' lists what there is", STR_ARG(flag),
                program->name, r->input->verb->name);
    buf_free(&all);
    return false;
}

static bool takes_value(const struct option *o, const char *next)
{
    if (o->type == OPTION_FLAG || !o->value)
        return false;
    return o->value[0] != '[' || (next && words_have(o->choices, str_from(next)));
}

// Reads the flag at argv[*at] and its value, and moves *at behind them.
static bool read_flag(struct options_reader *r, int *at)
{
    const struct option_input *in = r->input;
    const char *argument = in->argv[*at];
    const char *equals = !strncmp(argument, "--", 2) ? strchr(argument, '=') : NULL;
    struct str flag = { argument, equals ? (size_t)(equals - argument) : strlen(argument) };
    size_t index = option_by_flag(in->verb, flag);
    char spelled[64];

    ++*at;
    if (index == SIZE_MAX)
        return unknown_flag(r, flag);
    const struct option *o = option_at(in->verb, index);
    snprintf(spelled, sizeof spelled, "%.*s", STR_ARG(flag));
    const char *value = equals ? equals + 1 : NULL;
    if (!equals && takes_value(o, *at < in->argc ? in->argv[*at] : NULL)) {
        if (*at >= in->argc)
            return err_set(r->err, ERR_INPUT, "%s: a value is missing: %s %s", spelled, spelled, o->value);
        value = in->argv[(*at)++];
    }
    struct spelling s = { spelled, SOURCE_FLAG };
    return o->type == OPTION_FOREIGN ? foreign_add(r, o, s, value)
                                     : set_value(r, index, s, value ? value : "true");
}

static bool read_arguments(struct options_reader *r)
{
    const struct option_input *in = r->input;
    struct option_operands *operands = r->operands;
    bool flags = true;

    for (int at = 0; at < in->argc;) {
        const char *argument = in->argv[at];
        if (flags && !strcmp(argument, "--")) {
            flags = false;
            at++;
        } else if (flags && argument[0] == '-' && argument[1]) {
            if (!read_flag(r, &at))
                return false;
        } else if (!in->verb->operands) {
            return err_set(r->err, ERR_INPUT,
                           "%s: found '%.80s', expected flags only; '%s help %s' lists them", in->verb->name,
                           argument, in->program->name, in->verb->name);
        } else if (operands->n == OPTION_MAX_LISTED) {
            return err_set(r->err, ERR_INPUT, "%s: at most %d operands are allowed", in->verb->name,
                           OPTION_MAX_LISTED);
        } else {
            operands->at[operands->n++] = argument;
            at++;
        }
    }
    return true;
}

bool options_read(const struct option_input *input, void *values, struct option_operands *operands,
                  struct arena *arena, struct err *err)
{
    struct options_reader r = {
        .input = input, .values = values, .operands = operands, .arena = arena, .err = err
    };

    operands->n = operands->n_foreign = 0;
    return read_presets(&r) && find_config(&r) && read_environment(&r) && read_arguments(&r);
}

// ---- values while the program runs ------------------------------------------------------------------------

void options_keys(const struct option_verb *verb, struct buf *out)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(verb, i)); i++)
        buf_printf(out, "%s%.*s", i ? " " : "", STR_ARG(option_key(o)));
}

bool options_change(const struct option_change *change, void *values, struct arena *arena, struct err *err)
{
    const struct option_input input = { .verb = change->verb };
    struct options_reader r = { .input = &input, .values = values, .arena = arena, .err = err };
    size_t index = option_by_key(change->verb, str_from(change->key));
    struct str value = arena_str(arena, str_from(change->value));
    struct buf keys = { 0 };

    if (!value.at)
        return err_memory(err, "the value");
    if (index != SIZE_MAX)
        return set_value(&r, index, (struct spelling){ change->key, SOURCE_FLAG }, value.at);
    options_keys(change->verb, &keys);
    err_set(err, ERR_INPUT, "'%.40s' is no setting; expected one of: %s", change->key,
            keys.at ? keys.at : "");
    buf_free(&keys);
    return false;
}

static void show_whole_number(const struct option *o, uint64_t value, uint64_t greatest, struct buf *out)
{
    if (o->choices && value == greatest)
        buf_printf(out, "%.*s", (int)strcspn(o->choices, " "), o->choices);
    else
        buf_printf(out, "%llu", (unsigned long long)value);
}

static void show_list(const struct option_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->n; i++)
        buf_printf(out, "%s'%s'", i ? " " : "", list->at[i]);
}

static void show_value(const struct option *o, const void *at, struct buf *out)
{
    const struct option_numbers *numbers = at;

    switch (o->type) {
    case OPTION_FLAG:
        buf_text(out, *(const bool *)at ? "true" : "false");
        break;
    case OPTION_STRING:
    case OPTION_CHOICE:
        buf_text(out, *(const char *const *)at ? *(const char *const *)at : "");
        break;
    case OPTION_U32:
        show_whole_number(o, *(const uint32_t *)at, UINT32_MAX, out);
        break;
    case OPTION_U64:
        show_whole_number(o, *(const uint64_t *)at, UINT64_MAX, out);
        break;
    case OPTION_FLOAT:
        buf_printf(out, "%g", (double)*(const float *)at);
        break;
    case OPTION_LIST:
        show_list(at, out);
        break;
    case OPTION_NUMBERS:
        for (size_t i = 0; i < numbers->n; i++)
            buf_printf(out, "%s%u", i ? "," : "", numbers->at[i]);
        break;
    case OPTION_FOREIGN:
        break;
    }
}

void options_show(const struct option_verb *verb, const void *values, struct buf *out)
{
    const struct option *o;

    for (size_t i = 0; (o = option_at(verb, i)); i++) {
        buf_printf(out, "  %-18.*s ", STR_ARG(option_key(o)));
        show_value(o, (const unsigned char *)values + o->offset, out);
        buf_text(out, "\n");
    }
}

// ---- places -----------------------------------------------------------------------------------------------

// FOLDER/ingot/NAME, or HOME/below/ingot/NAME.
static bool path_in(const char *base, const char *below, const char *name, char *path, size_t n)
{
    const char *home = getenv("HOME");
    char folder[4096];

    if (base && *base)
        snprintf(folder, sizeof folder, "%s/ingot", base);
    else if (home && *home)
        snprintf(folder, sizeof folder, "%s/%s/ingot", home, below);
    else
        return false;
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(folder, 0755); // it is usually there; the last one decides
        *slash = '/';
    }
    (void)mkdir(folder, 0700);
    return file_is_directory(folder) && (size_t)snprintf(path, n, "%s/%s", folder, name) < n;
}

bool options_state_path(const char *name, char *path, size_t n)
{
    return path_in(getenv("XDG_STATE_HOME"), ".local/state", name, path, n);
}

bool options_cache_path(const char *name, char *path, size_t n)
{
    return path_in(getenv("XDG_CACHE_HOME"), ".cache", name, path, n);
}

// The variable's folder with `below` added; "~/" is the home. False when it is unset or too long.
static bool folder_from(const char *variable, const char *below, char path[4096])
{
    const char *value = getenv(variable), *home = getenv("HOME");
    bool at_home = value && value[0] == '~' && value[1] == '/' && home;

    return value && *value &&
           snprintf(path, 4096, "%s%s%s", at_home ? home : "", value + at_home, below) < 4096;
}

static void text_from(const char *variable, const char *preset, char text[512])
{
    const char *value = getenv(variable);
    snprintf(text, 512, "%s", value && *value && strlen(value) < 512 ? value : preset);
}

bool options_hub(struct options_hub *hub)
{
    char offline[512];

    *hub = (struct options_hub){ 0 };
    text_from("HF_TOKEN", "", hub->token);
    text_from("HF_ENDPOINT", "https://huggingface.co", hub->endpoint);
    text_from("HF_HUB_OFFLINE", "", offline);
    hub->offline = words_have("1 true TRUE True on ON On yes YES Yes", str_from(offline));
    if (!folder_from("HF_TOKEN_PATH", "", hub->token_path) &&
        !folder_from("HF_HOME", "/token", hub->token_path) &&
        !folder_from("XDG_CACHE_HOME", "/huggingface/token", hub->token_path))
        folder_from("HOME", "/.cache/huggingface/token", hub->token_path);
    return folder_from("HF_HUB_CACHE", "", hub->cache) ||
           folder_from("HUGGINGFACE_HUB_CACHE", "", hub->cache) ||
           folder_from("HF_HOME", "/hub", hub->cache) ||
           folder_from("XDG_CACHE_HOME", "/huggingface/hub", hub->cache) ||
           folder_from("HOME", "/.cache/huggingface/hub", hub->cache);
}

void options_temporary_folder(char path[4096])
{
    if (!folder_from("TMPDIR", "", path))
        snprintf(path, 4096, "/var/tmp");
}

bool options_terminal_is_dumb(void)
{
    const char *term = getenv("TERM");
    return !term || !*term || !strcmp(term, "dumb");
}

bool options_terminal_has_style(void)
{
    const char *none = getenv("NO_COLOR");
    return !options_terminal_is_dumb() && !(none && *none);
}

const char *options_pager(void)
{
    const char *pager = getenv("PAGER");
    return pager && *pager ? pager : "less -FRX";
}

static bool read_count(const char *variable, uint32_t *n)
{
    const char *text = getenv(variable);
    uint64_t value;

    if (!text || !str_to_u64(str_from(text), &value) || value > UINT32_MAX)
        return false;
    *n = (uint32_t)value;
    return true;
}

uint32_t options_ranks(uint32_t *rank)
{
    static const char *const names[][2] = { { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
                                            { "PMI_SIZE", "PMI_RANK" } };
    uint32_t n = 1;

    *rank = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (read_count(names[i][0], &n) && read_count(names[i][1], rank))
            return n > 0 ? n : 1;
    *rank = 0;
    return 1;
}

static const char *text_or_null(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

const char *options_cpu_isa(void)
{
    return text_or_null("INGOT_CPU_ISA");
}

void options_library_preset(const char *variable, const char *value)
{
    (void)setenv(variable, value, 0); // without memory it stays unset
}

const char *options_metal_library(void)
{
    return text_or_null("INGOT_METAL");
}
