// random_keys.h - keys of a model's file that begin with its architecture.
#pragma once
#include "format/gguf_write.h"

void random_key_u32(struct gguf_writer *w, const char *arch, const char *part, uint32_t value);
void random_key_f32(struct gguf_writer *w, const char *arch, const char *part, float value);
void random_key_bool(struct gguf_writer *w, const char *arch, const char *part, bool value);
void random_key_str(struct gguf_writer *w, const char *arch, const char *part, struct str value);
void random_key_i32s(struct gguf_writer *w, const char *arch, const char *part, const int32_t *values,
                     uint32_t n);
