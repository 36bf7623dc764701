// random_keys.c - see random_keys.h.
#include "model_tools/random/random_keys.h"
#include <stdio.h>

struct random_key {
    char name[96];
};

static struct random_key key_of(const char *arch, const char *part)
{
    struct random_key key;

    snprintf(key.name, sizeof key.name, "%s.%s", arch, part);
    return key;
}

void random_key_u32(struct gguf_writer *w, const char *arch, const char *part, uint32_t value)
{
    gguf_write_u32(w, key_of(arch, part).name, value);
}

void random_key_f32(struct gguf_writer *w, const char *arch, const char *part, float value)
{
    gguf_write_f32(w, key_of(arch, part).name, value);
}

void random_key_bool(struct gguf_writer *w, const char *arch, const char *part, bool value)
{
    gguf_write_bool(w, key_of(arch, part).name, value);
}

void random_key_str(struct gguf_writer *w, const char *arch, const char *part, struct str value)
{
    gguf_write_str(w, key_of(arch, part).name, value);
}

void random_key_i32s(struct gguf_writer *w, const char *arch, const char *part, const int32_t *values,
                     uint32_t n)
{
    gguf_write_i32s(w, key_of(arch, part).name, values, n);
}
