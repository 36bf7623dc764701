// angles: out[r][2i] = cos(position of r * frequency[i]) * scale, out[r][2i+1] = sin(...) * scale      (RoPE;
// Su et al., 2021)
//
// Computed once per step and read by every layer. Product and functions in fp32, as the reference does. The
// frequencies carry whatever scaling the model asks for (linear, Llama 3, YaRN); scale is YaRN's attention
// factor, else 1.
#pragma once
#include "base/lang.h"

struct angles_args {
    u32 n_pairs;
    f32 scale;
};
STATIC_ASSERT(sizeof(struct angles_args) == 8);

#ifdef HOST_C
#include "device/tape.h"

struct angles {
    struct tensor out;                // [rows, 2 * n_pairs]
    const struct weight *frequencies; // [n_pairs] fp32, radians per position
    float scale;
};
void op_angles(struct tape *t, struct angles a);
#endif
