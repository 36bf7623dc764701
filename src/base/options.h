// options.h - one table per verb gives flags, environment names, the config file, help, man page and shell
// completion.
//
// An option is named by its flags, "-t --threads". Its first long flag gives the environment name,
// INGOT_THREADS, and the key of the config file, threads. A flag wins over the environment, that over the
// file, that over the default. The config file is --config FILE, INGOT_CONFIG, or ~/.config/ingot/config:
// lines of "key = value", # starts a comment. A key that some verb knows is ignored by the others; one that
// no verb knows is an error.
// Values go into the caller's struct by offset. Every message is one line that names the flag, key or
// variable, what was found and what was expected. The environment is read in options.c and nowhere else.
#pragma once
#include <stddef.h>
#include "base/arena.h"
#include "base/str.h"

enum option_type {
    OPTION_FLAG,   // bool; no value on the command line, true or false elsewhere
    OPTION_STRING, // const char *
    OPTION_U32,    // uint32_t
    OPTION_U64,    // uint64_t
    OPTION_FLOAT,  // float
    OPTION_CHOICE, // const char *, one of `choices`
    OPTION_LIST,   // struct option_list of strings; may be given more than once. Comma-separated when `value`
                   // ends in ",..."
    OPTION_NUMBERS, // struct option_numbers; comma-separated, may be given more than once
    OPTION_FOREIGN, // another program's flag, on the command line alone; see below
};

// Users paste the command lines of llama.cpp. A foreign flag either changes nothing here, and help says why,
// or is refused: preset names what ingot does not have ("ingot has no PRESET"), and choices are the values
// that are accepted all the same. `value` is NULL: none follows; "N": one does; "[N]": one does if it is
// among the choices.

struct option_list {
    const char **at;
    size_t n;
};

struct option_numbers {
    uint32_t *at;
    size_t n;
};

struct option {
    const char *flags; // all spellings, separated by spaces
    enum option_type type;
    size_t offset;      // in the struct of values
    const char *value;  // its name in help: "N", "FILE"
    const char *preset; // the default, as it would be typed; NULL: zero
    double min, max;    // numbers; both 0: any
    // separated by spaces; of a number: words that stand for the greatest one, such as -1
    const char *choices;
    const char *help;
};

struct option_group {
    const char *title;            // NULL: foreign flags, which help and completion leave out
    const struct option *options; // ends with flags == NULL
};

enum { OPTION_MAX_GROUPS = 16, OPTION_MAX_LISTED = 64 };

struct option_verb {
    const char *name;
    const char *operands; // "FILE", "[TEXT]", or NULL: none are allowed
    const char *summary;  // one line
    // more for help and man page: behaviour, examples. Paragraphs are separated by empty lines
    const char *text;
    const struct option_group *groups[OPTION_MAX_GROUPS];
};

struct option_program {
    const char *name, *version, *summary, *text;
    const struct option_verb *verbs;
    size_t n_verbs;
};

struct option_input {
    const struct option_program *program;
    const struct option_verb *verb;
    int argc; // what follows the verb
    char **argv;
};

struct option_operands {
    const char *at[OPTION_MAX_LISTED];
    size_t n;
    struct {
        const char *flag, *why;
    } foreign[OPTION_MAX_LISTED]; // flags that were given and change nothing
    size_t n_foreign;
};

// Fills values (zeroed before) from all sources. A wrong flag or value gives ERR_INPUT; a config file that
// cannot be read, ERR_IO. Strings live in the arena or in argv.
bool options_read(const struct option_input *input, void *values, struct option_operands *operands,
                  struct arena *arena, struct err *err);

// One value while the program runs, by the option's key ("top-k"). Wrong ones change nothing and give
// ERR_INPUT.
struct option_change {
    const struct option_verb *verb;
    const char *key, *value;
};
bool options_change(const struct option_change *change, void *values, struct arena *arena, struct err *err);
// All values of a verb, one a line: "top-k 40".
void options_show(const struct option_verb *verb, const void *values, struct buf *out);
void options_keys(const struct option_verb *verb, struct buf *out); // separated by spaces

// NULL: none
const struct option_verb *option_verb_find(const struct option_program *program, const char *name);
// The candidate (separated by spaces) nearest to a mistyped word, or an empty str when none is near.
struct str option_nearest(struct str word, const char *candidates);
// "INGOT_REPEAT_PENALTY" of "--repeat-penalty".
void option_env_name(const struct option *option, char *name, size_t n);
// The option's first long flag without dashes: its key in the config file.
struct str option_key(const struct option *option);

// Help texts, all from the tables, in lines of at most `width` columns where words allow.
void options_help_program(const struct option_program *program, size_t width, struct buf *out);
void options_help_verb(const struct option_program *program, const struct option_verb *verb, size_t width,
                       struct buf *out);
void options_man(const struct option_program *program, struct buf *out);
// shell: "bash", "zsh" or "fish".
bool options_completion(const struct option_program *program, const char *shell, struct buf *out,
                        struct err *err);

// Places from the environment: XDG_STATE_HOME/ingot/NAME or ~/.local/state/ingot/NAME, the folder made if
// need be. False without HOME.
bool options_state_path(const char *name, char *path, size_t n);
// The same with XDG_CACHE_HOME or ~/.cache, for what can be found out again.
bool options_cache_path(const char *name, char *path, size_t n);
// The folder of models by name and their hub, by the variables of Hugging Face's programs: HF_HUB_CACHE,
// HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE. False
// when none of them nor HOME names a folder.
struct options_hub {
    char cache[4096], token_path[4096], token[512], endpoint[512];
    bool offline;
};
bool options_hub(struct options_hub *hub);
// A folder for large temporary files: TMPDIR, else /var/tmp, which unlike /tmp is hardly ever in memory.
void options_temporary_folder(char path[4096]);
bool options_terminal_is_dumb(void);   // TERM is unset or "dumb"
bool options_terminal_has_style(void); // it is not, and NO_COLOR is unset: dim text may be written
const char *options_pager(void);       // PAGER, or less
// How many processes mpirun or another launcher of MPI has started, and which of them this is; 1 without one.
uint32_t options_ranks(uint32_t *rank);
void options_library_preset(const char *variable, const char *value); // unless it is set; for libraries
const char *options_cpu_isa(void);       // INGOT_CPU_ISA: the widest instructions of kernels; NULL when unset
const char *options_metal_library(void); // INGOT_METAL: what stands in for Apple's frameworks; NULL as above
