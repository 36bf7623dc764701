// quantize_plan.h - what a quantized file will hold: each tensor's source, name and format. Private to
// quantize and random_model.
#pragma once
#include "base/arena.h"
#include "format/gguf_write.h"
#include "model_tools/quantize/quantize.h"
#include "models/model.h"

enum quantize_role { ROLE_VALUE, ROLE_DOWN, ROLE_OUTPUT };

struct quantize_mix {
    const char *name;
    uint32_t file_type; // general.file_type
    enum quant base;
    enum {
        MIX_PLAIN,
        MIX_SMALL,
        MIX_MEDIUM,
        MIX_EXPERTS
    } more;              // which layers, or experts, get another format
    enum quant roles[3]; // else by what they do: enum quantize_role
};
const struct quantize_mix *quantize_mix_find(const char *name); // NULL: no such type

struct quantize_entry {
    struct file_tensor from;            // name, shape, bytes
    struct str name;                    // in the output
    enum quant format;                  // in the output
    const struct joined_tensor *joined; // whose parts follow one another; NULL: from.data has all
    bool overridden;                    // the user chose the format
    uint32_t paired_heads; // rows are reordered within this many heads, so that neighbours rotate together;
                           // 0: they stay
};

struct quantize_plan {
    struct arena *arena;
    struct quantize_entry *entries;
    size_t n, capacity;
    size_t n_quantized, n_fallback;
};
bool quantize_plan_add(struct quantize_plan *plan, const struct quantize_entry *entry, struct err *err);
// Gives every entry its format by the mix, from names (GGUF's) and shapes.
void quantize_plan_formats(struct quantize_plan *plan, const struct quantize_mix *mix);
// Then those that the user names. False: a pattern or type is wrong, or matches nothing.
bool quantize_plan_override(struct quantize_plan *plan, const struct quantize_override *overrides, size_t n,
                            struct err *err);
void quantize_plan_release(struct quantize_plan *plan);

// Safetensors only: entries under GGUF names, and GGUF keys for the configuration and the tokeniser.
bool quantize_convert(struct quantize_plan *plan, struct gguf_writer *w, const struct model_file *file,
                      struct err *err);
