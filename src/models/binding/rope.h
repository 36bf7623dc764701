// rope.h - the tables of angles of RoPE: what files say of them, and the frequencies that follow.
#pragma once
#include "format/model_file.h"

// ROPE_LONG (Ding et al., 2024): frequencies divided by a list, of two: one for contexts up to the original,
// one beyond.
enum rope_scaling_type { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG, ROPE_NONE };
enum { MODEL_ROPES = 2 }; // tables of angles at most

struct rope_config {
    float base;
    uint32_t n_dims;             // rotated dimensions of a head; 0: there is no such table
    uint32_t n_turning;          // pairs that turn, the first of them; 0: all
    enum rope_scaling_type type; // ROPE_NONE: angles of 0, which rotate nothing
    float factor;                // how far the context is extended
    float low, high;             // Llama 3: wavelengths between original/high and original/low are blended
    float beta_fast, beta_slow;  // YaRN: rotations over the original context between which to blend
    float mscale, mscale_all;    // YaRN as DeepSeek has it: see rope_yarn_factor; 0: absent
    float attention; // YaRN, long: factor on cosine and sine; 0: that of mscale over mscale_all, or of 1
    uint32_t original_context;
    bool truncate; // YaRN: the blend begins and ends at whole pairs
};

// Frequencies of the rotated pairs, [n_dims / 2], and the factor on cosine and sine. divisors: of each
// frequency, or NULL.
void rope_frequencies(const struct rope_config *r, const float *divisors, float *frequencies, float *scale);
// YaRN's 0.1 m ln(factor) + 1, or 1 where the context is not stretched.
float rope_yarn_factor(const struct rope_config *r, float m);
// Where a table's numbers are: those of `part` win, an object in config.json's rope_parameters, or NULL.
struct rope_source {
    const struct model_file *file;
    const char *arch, *part;
};
bool rope_config_read(struct rope_config *r, const struct rope_source *from, struct err *err);
