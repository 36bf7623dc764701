// loading.h - opens the engine that the options describe, with a progress bar on a terminal.
#pragma once
#include "ingot.h"
#include "base/err.h"
#include "main/settings.h"

const char *loading_kv_name(enum ingot_kv kv); // as the options spell it
// What is behind the colon of a --lora is a number, or belongs to a file's name. False with a line on stderr.
bool loading_scales_fit(const struct settings *settings);
extern const struct err_option loading_flags[]; // of what loading_options sets
struct ingot_engine_options loading_options(const struct settings *settings);
// Opens the engine with a bar. On failure one line is on stderr and the result is NULL.
struct ingot_engine *loading_open(const struct ingot_engine_options *options);
// The same with the settings' options. n_sequences: 0 keeps the engine's own choice. On failure one line is
// on stderr and the result is NULL.
struct ingot_engine *loading_engine(const struct settings *settings, uint32_t n_sequences);
// The text of -p, the operands (NULL: none) and -f; stdin when none of them is given and it is not a
// terminal. False with a line on stderr; *given: some source was given.
bool loading_prompt(const struct settings *settings, const struct option_operands *operands,
                    struct buf *prompt, bool *given);
