// sample_metal.h - the geometry of the sampling kernels of the Metal device. Shared by C and MSL.
#pragma once
#include "ops/sample/sample.h"

#define SCAN_THREADS 256u
#define DRAW_THREADS 512u // with 1024 a thread has 104 registers of 16 bits, and sample_draw spills
#define MOST_PARTS   64u  // threadgroups that scan one row of logits

struct sample_metal_args {
    struct sample_args sample;
    u32 n_parts, reserved;
};
STATIC_ASSERT(sizeof(struct sample_metal_args) == 24);

struct sample_part { // of one threadgroup: the best of its part of a row's logits
    f32 logit;
    u32 id;
    u32 invalid, any; // a NaN or infinity; a number
};
