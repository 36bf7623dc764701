// adapted.h - what adapters add to products in the same command, for the plain loops: see lora.h.
#pragma once
#include "device/cpu/cpu.h"
#include "ops/lora/lora.h"

struct adapted {
    const struct cpu_call *call;
    const struct adapted_args *args;
    uint32_t operands; // of the command: where those of the adapters begin
    uint32_t rows;     // enum tensor_rows
};
// Writes row r's h of all targets to the workspace; in: the row that the products read.
void adapted_down_plain(const struct adapted *a, uint32_t r, const float *in);
// Adds what follows from it to outputs [first, first + n) of a target.
struct adapted_outputs {
    uint32_t target, first, n;
    float *out;
};
void adapted_up_plain(const struct adapted *a, uint32_t r, const struct adapted_outputs *to);
