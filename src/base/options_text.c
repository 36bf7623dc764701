// options_text.c - the options as text for users and shells: help, man page, completion. See options.h.
//
// All of it is written from the tables, so that nothing is missing: a test looks for every flag in every
// text.
#include "base/options.h"

enum {
    HELP_COLUMN = 30, // where a flag's text begins
    HELP_LEAST = 24,  // columns left for it at least
};

// ---- help -------------------------------------------------------------------------------------------------

// Columns of a text, and where it has arrived on its line.
struct text_page {
    struct buf *out;
    size_t width, at;
};

// Appends words, continued at `column` on new lines.
static void wrap(struct text_page *p, const char *text, size_t column)
{
    while (*text) {
        size_t n = strcspn(text, " "), gap = strspn(text + n, " ");
        buf_append(p->out, text, n);
        p->at += n;
        text += n + gap;
        if (gap && *text && p->at + gap + strcspn(text, " ") > p->width && p->at > column) {
            buf_printf(p->out, "\n%*s", (int)column, "");
            p->at = column;
        } else if (*text) {
            buf_printf(p->out, "%*s", (int)gap, "");
            p->at += gap;
        }
    }
    buf_text(p->out, "\n");
    p->at = 0;
}

// Lines of running text, wrapped; lines that begin with a space are examples and stay as they are.
static void paragraphs(struct text_page *p, const char *text)
{
    struct buf line = { 0 };

    while (*text) {
        size_t n = strcspn(text, "\n");
        line.n = 0;
        buf_append(&line, text, n);
        if (*text == ' ' || n == 0)
            buf_printf(p->out, "%s\n", line.at ? line.at : "");
        else
            wrap(p, line.at ? line.at : "", 0);
        text += n + (text[n] == '\n');
    }
    buf_free(&line);
}

// "-t, --threads N"
static void flags_print(const struct option *o, struct buf *out)
{
    for (const char *c = o->flags; *c; c++)
        buf_text(out, *c == ' ' ? ", " : (char[2]){ *c, 0 });
    if (o->type != OPTION_FLAG && o->value)
        buf_printf(out, " %s", o->value);
}

static void details_print(const struct option *o, struct buf *out)
{
    buf_text(out, o->help);
    if (o->type == OPTION_CHOICE)
        buf_printf(out, "; one of: %s", o->choices);
    if (o->preset && *o->preset)
        buf_printf(out, " (default %s)", o->preset);
}

static void help_option(const struct option *o, struct text_page *p)
{
    struct buf text = { 0 };
    size_t column = p->width < HELP_COLUMN + HELP_LEAST ? 6 : HELP_COLUMN;

    buf_text(&text, "  ");
    flags_print(o, &text);
    buf_str(p->out, buf_as_str(&text));
    if (text.n + 2 > column)
        buf_printf(p->out, "\n%*s", (int)column, "");
    else
        buf_printf(p->out, "%*s", (int)(column - text.n), "");
    p->at = column;
    text.n = 0;
    details_print(o, &text);
    wrap(p, text.at ? text.at : "", column);
    buf_free(&text);
}

const struct option_verb *option_verb_find(const struct option_program *program, const char *name)
{
    for (size_t i = 0; i < program->n_verbs; i++) {
        if (!strcmp(program->verbs[i].name, name))
            return &program->verbs[i];
    }
    return NULL;
}

void options_help_verb(const struct option_program *program, const struct option_verb *verb, size_t width,
                       struct buf *out)
{
    struct text_page p = { out, width, 0 };

    buf_printf(out, "usage: %s %s%s%s%s\n\n", program->name, verb->name, verb->groups[0] ? " [flags]" : "",
               verb->operands ? " " : "", verb->operands ? verb->operands : "");
    wrap(&p, verb->summary, 0);
    if (verb->text) {
        buf_text(out, "\n");
        paragraphs(&p, verb->text);
    }
    for (size_t g = 0; g < OPTION_MAX_GROUPS && verb->groups[g]; g++) {
        if (!verb->groups[g]->title)
            continue;
        buf_printf(out, "\n%s\n", verb->groups[g]->title);
        for (const struct option *o = verb->groups[g]->options; o->flags; o++)
            help_option(o, &p);
    }
    buf_text(out, "\n");
    wrap(&p,
         "Every flag is also an environment name (--top-k: INGOT_TOP_K) and a key of the config file (top-k "
         "= 40).",
         0);
}

void options_help_program(const struct option_program *program, size_t width, struct buf *out)
{
    struct text_page p = { out, width, 0 };

    buf_printf(out, "%s %s: %s\n\nusage: %s VERB [flags]\n\n", program->name, program->version,
               program->summary, program->name);
    for (size_t v = 0; v < program->n_verbs; v++) {
        buf_printf(out, "  %-11s ", program->verbs[v].name);
        p.at = 14;
        wrap(&p, program->verbs[v].summary, 14);
    }
    buf_text(out, "\n");
    paragraphs(&p, program->text);
}

// ---- man page ---------------------------------------------------------------------------------------------

// Text for roff: backslashes and hyphens are escaped, a line does not begin with a control character, an
// empty line is .PP, and lines that begin with a space stay lines of their own.
static void roff(struct buf *out, const char *text)
{
    bool line_start = true, example = false;

    for (const char *c = text; *c; c++) {
        if (line_start && example)
            buf_text(out, ".fi\n");
        example = example && !line_start;
        if (line_start && *c == '\n') {
            buf_text(out, ".PP\n");
            continue;
        }
        if (line_start && (*c == '.' || *c == '\''))
            buf_text(out, "\\&");
        if (line_start && *c == ' ') {
            buf_text(out, ".nf\n\\ ");
            line_start = false;
            example = true;
            continue;
        }
        if (*c == '\\' || *c == '-')
            buf_text(out, "\\");
        if (*c == '\\')
            buf_text(out, "e");
        else
            buf_append(out, c, 1);
        line_start = *c == '\n';
    }
    buf_text(out, line_start ? "" : "\n");
    buf_text(out, example ? ".fi\n" : "");
}

static void man_option(const struct option *o, struct buf *out)
{
    struct buf text = { 0 };
    char env[96];

    flags_print(o, &text);
    buf_text(out, ".TP\n.B ");
    roff(out, text.at ? text.at : "");
    text.n = 0;
    details_print(o, &text);
    option_env_name(o, env, sizeof env);
    buf_printf(&text, ". %s", env);
    roff(out, text.at ? text.at : "");
    buf_free(&text);
}

static void man_verb(const struct option_program *program, const struct option_verb *verb, struct buf *out)
{
    if (!verb->groups[0])
        return;
    buf_printf(out, ".SH %s %s %s\n", program->name, verb->name, verb->operands ? verb->operands : "");
    roff(out, verb->summary);
    if (verb->text) {
        buf_text(out, ".PP\n");
        roff(out, verb->text);
    }
    for (size_t g = 0; g < OPTION_MAX_GROUPS && verb->groups[g]; g++) {
        if (!verb->groups[g]->title)
            continue;
        buf_printf(out, ".SS %s\n", verb->groups[g]->title);
        for (const struct option *o = verb->groups[g]->options; o->flags; o++)
            man_option(o, out);
    }
}

// How each verb is called, and in a line what for.
static void man_overview(const struct option_program *program, struct buf *out)
{
    buf_printf(out, ".SH SYNOPSIS\n.B %s\n.I verb\n[flags] [operands]\n.SH DESCRIPTION\n", program->name);
    roff(out, program->text);
    buf_text(out, ".SS Verbs\n");
    for (size_t v = 0; v < program->n_verbs; v++) {
        const struct option_verb *verb = &program->verbs[v];
        buf_printf(out, ".TP\n.B %s %s\n", verb->name, verb->operands ? verb->operands : "");
        roff(out, verb->summary);
    }
}

static void man_foreign(const struct option_group *group, struct buf *out)
{
    struct buf text = { 0 };

    for (const struct option *o = group->options; o->flags; o++) {
        text.n = 0;
        flags_print(o, &text);
        buf_text(out, ".TP\n.B ");
        roff(out, text.at ? text.at : "");
        text.n = 0;
        if (o->preset)
            buf_printf(&text, "ingot has no %s", o->preset);
        if (o->choices && o->preset)
            buf_printf(&text, "; fine with: %s", o->choices);
        if (!o->preset)
            buf_printf(&text, "changes nothing: %s", o->help);
        roff(out, text.at ? text.at : "");
    }
    buf_free(&text);
}

// Each group once, though several verbs have it.
static void man_foreigns(const struct option_program *program, struct buf *out)
{
    const struct option_group *seen[OPTION_MAX_GROUPS] = { 0 };
    size_t n = 0;

    for (size_t v = 0; v < program->n_verbs; v++) {
        for (size_t g = 0; g < OPTION_MAX_GROUPS && program->verbs[v].groups[g]; g++) {
            const struct option_group *group = program->verbs[v].groups[g];
            bool known = group->title != NULL || n == OPTION_MAX_GROUPS;
            for (size_t i = 0; i < n; i++)
                known = known || seen[i] == group;
            if (known)
                continue;
            seen[n++] = group;
            man_foreign(group, out);
        }
    }
}

void options_man(const struct option_program *program, struct buf *out)
{
    buf_printf(out, ".TH INGOT 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- %s\n", program->name, program->version,
               program->name, program->summary);
    man_overview(program, out);
    for (size_t v = 0; v < program->n_verbs; v++)
        man_verb(program, &program->verbs[v], out);
    buf_text(out, ".SH ENVIRONMENT\nEvery flag has a name in the environment, given beside it. A flag wins "
                  "over the environment, "
                  "the environment over the config file.\n.SH FILES\n.TP\n.B ~/.config/ingot/config\n"
                  "Lines of key = value, where a key is a long flag without its dashes; # starts a comment.\n"
                  ".TP\n.B ~/.local/state/ingot/history\nLines typed in a chat.\n"
                  ".SH FLAGS OF LLAMA.CPP\nThese are taken from a pasted command line too; with \\-v each "
                  "says what it changes.\n");
    man_foreigns(program, out);
    buf_text(out, ".SH EXIT STATUS\n0: done; 1: an error; 2: wrong usage; "
                  "130: ended by Ctrl\\-C, SIGTERM or SIGHUP.\n");
}

// ---- completion -------------------------------------------------------------------------------------------

static const struct option_group *group_at(const struct option_verb *verb, size_t g)
{
    return g < OPTION_MAX_GROUPS ? verb->groups[g] : NULL;
}

// Calls `each` for every option of a verb.
static void each_option(const struct option_verb *verb, struct buf *out,
                        void (*each)(const struct option_verb *, const struct option *, struct buf *))
{
    for (size_t g = 0; group_at(verb, g); g++) {
        for (const struct option *o = group_at(verb, g)->title ? group_at(verb, g)->options : NULL;
             o && o->flags; o++)
            each(verb, o, out);
    }
}

// What may follow a flag; NULL: anything. Of a number the choices are only some of what it may be.
static const char *words_of(const struct option *o)
{
    return o->type == OPTION_CHOICE || o->type == OPTION_LIST ? o->choices : NULL;
}

static void bash_flags(const struct option_verb *verb, const struct option *o, struct buf *out)
{
    (void)verb;
    buf_printf(out, " %s", o->flags);
}

// A case branch for the words that may follow a flag: "    run,--kv) words="auto f16" ;;"
static void bash_choices(const struct option_verb *verb, const struct option *o, struct buf *out)
{
    const char *at = o->flags;

    if (!words_of(o))
        return;
    buf_text(out, "    ");
    while (*at) {
        size_t n = strcspn(at, " ");
        buf_printf(out, "%s,%.*s", verb->name, (int)n, at);
        at += n + strspn(at + n, " ");
        buf_text(out, *at ? "|" : "");
    }
    buf_printf(out, ") words=\"%s\" ;;\n", o->choices);
}

static void verb_names(const struct option_program *program, struct buf *out)
{
    for (size_t v = 0; v < program->n_verbs; v++)
        buf_printf(out, "%s%s", v ? " " : "", program->verbs[v].name);
}

static void completion_bash(const struct option_program *program, struct buf *out)
{
    buf_text(
        out,
        "# bash completion for ingot, written from its option table\n"
        "_ingot() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
        "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"");
    verb_names(program, out);
    buf_text(out, "\"\n    else\n    case ${COMP_WORDS[1]},$before in\n    help,*) words=\"");
    verb_names(program, out);
    buf_text(out, "\" ;;\n    completion,*) words=\"bash zsh fish\" ;;\n");
    for (size_t v = 0; v < program->n_verbs; v++)
        each_option(&program->verbs[v], out, bash_choices);
    buf_text(out, "    *) case ${COMP_WORDS[1]} in\n");
    for (size_t v = 0; v < program->n_verbs; v++) {
        buf_printf(out, "        %s) words=\"", program->verbs[v].name);
        each_option(&program->verbs[v], out, bash_flags);
        buf_text(out, "\" ;;\n");
    }
    buf_text(out, "        esac\n        [[ $word == -* ]] || words= ;;\n    esac\n    fi\n"
                  "    [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\n"
                  "complete -o default -F _ingot ingot\n");
}

// Text inside single quotes of a shell, without what zsh reads in a description.
static void quoted(struct buf *out, const char *text, const char *escaped)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            buf_text(out, "'\\''");
        else if (strchr(escaped, *c))
            buf_printf(out, "\\%c", *c);
        else
            buf_append(out, c, 1);
    }
}

static void zsh_flags(const struct option_verb *verb, const struct option *o, struct buf *out)
{
    const char *at = o->flags;

    (void)verb;
    while (*at) {
        size_t n = strcspn(at, " ");
        buf_printf(out, " \\\n            '%s%.*s[",
                   o->type == OPTION_LIST || o->type == OPTION_NUMBERS ? "*" : "", (int)n, at);
        quoted(out, o->help, "[]:\\");
        buf_text(out, "]");
        if (words_of(o))
            buf_printf(out, ":%s:(%s)", o->value, o->choices);
        else if (o->type != OPTION_FLAG)
            buf_printf(out, ":%s:%s", o->value, strcmp(o->value, "FILE") != 0 ? "" : "_files");
        buf_text(out, "'");
        at += n + strspn(at + n, " ");
    }
}

static void completion_zsh(const struct option_program *program, struct buf *out)
{
    buf_text(out, "#compdef ingot\n# zsh completion for ingot, written from its option table\n_ingot() {\n"
                  "    local -a verbs\n    verbs=(\n");
    for (size_t v = 0; v < program->n_verbs; v++) {
        buf_printf(out, "        '%s:", program->verbs[v].name);
        quoted(out, program->verbs[v].summary, ":\\");
        buf_text(out, "'\n");
    }
    buf_text(out,
             "    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n"
             "    local verb=${words[2]}\n    shift words\n    (( CURRENT-- ))\n    case $verb in\n"
             "    help) _describe verb verbs ;;\n    completion) _values shell bash zsh fish ;;\n");
    for (size_t v = 0; v < program->n_verbs; v++) {
        if (!program->verbs[v].groups[0])
            continue;
        buf_printf(out, "    %s)\n        _arguments", program->verbs[v].name);
        each_option(&program->verbs[v], out, zsh_flags);
        buf_text(out, " \\\n            '*:file:_files' ;;\n");
    }
    buf_text(out, "    esac\n}\n_ingot \"$@\"\n");
}

static void fish_flags(const struct option_verb *verb, const struct option *o, struct buf *out)
{
    const char *at = o->flags;

    buf_printf(out, "complete -c ingot -n '__fish_seen_subcommand_from %s'", verb->name);
    while (*at) {
        size_t n = strcspn(at, " ");
        bool is_long = n > 2 && at[1] == '-';
        buf_printf(out, " %s %.*s",
                   is_long  ? "-l"
                   : n == 2 ? "-s"
                            : "-o",
                   (int)(n - 1 - is_long), at + 1 + is_long);
        at += n + strspn(at + n, " ");
    }
    if (words_of(o))
        buf_printf(out, " -x -a '%s'", o->choices);
    else if (o->type != OPTION_FLAG)
        buf_text(out, " -r");
    buf_text(out, " -d '");
    quoted(out, o->help, "\\");
    buf_text(out, "'\n");
}

static void completion_fish(const struct option_program *program, struct buf *out)
{
    buf_text(out, "# fish completion for ingot, written from its option table\n");
    for (size_t v = 0; v < program->n_verbs; v++) {
        buf_printf(out, "complete -c ingot -n __fish_use_subcommand -f -a %s -d '", program->verbs[v].name);
        quoted(out, program->verbs[v].summary, "\\");
        buf_text(out, "'\n");
    }
    buf_text(out, "complete -c ingot -n '__fish_seen_subcommand_from completion' -x -a 'bash zsh fish'\n");
    for (size_t v = 0; v < program->n_verbs; v++)
        each_option(&program->verbs[v], out, fish_flags);
}

bool options_completion(const struct option_program *program, const char *shell, struct buf *out,
                        struct err *err)
{
    if (!strcmp(shell, "bash"))
        completion_bash(program, out);
    else if (!strcmp(shell, "zsh"))
        completion_zsh(program, out);
    else if (!strcmp(shell, "fish"))
        completion_fish(program, out);
    else
        return err_set(err, ERR_INPUT, "completion: found '%.40s', expected bash, zsh or fish", shell);
    return true;
}
