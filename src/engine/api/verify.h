// verify.h - checks every command of the tapes against the plain loops, and prints tapes.
#pragma once
#include "base/sha256.h"
#include "device/tape.h"
#include "engine/engine.h"

// The error of one command, and the limit of its operation (verify.c).
struct verify_finding {
    uint32_t stage, rank, command; // rank: of those that have a part of every layer; else 0
    const char *label, *name;
    double error, limit; // normalised squared errors; a finding is bad when error > limit
};
// Called for every command in order; false stops.
typedef bool verify_on_command(void *arg, const struct verify_finding *finding);

enum verify_against {
    VERIFY_PLAIN,  // the plain loops on the CPU
    VERIFY_VENDOR, // the same device with the vendor's matrix products
};

struct verification {
    enum verify_against against;
    uint32_t n_rows;        // of the step, 1 to n_batch
    const uint32_t *tokens; // [n_rows], or NULL: scattered ones
    verify_on_command *on_command;
    void *arg;
    uint32_t n_bad; // result: commands beyond their limit
};

// Loads the model twice, on the device of `options` and on the reference, and plays one step on both, command
// by command.
bool engine_verify(const struct ingot_engine_options *options, struct verification *v, struct err *err);

// A hash of the weights that does not depend on devices, in hexadecimal; of large tensors a sample counts.
bool engine_model_hash(const struct ingot_engine *engine, char hash[SHA256_HEX_BYTES], struct err *err);

// Prints the sealed tapes of all stages, their barriers and scratch, and the device's counters: --trace.
void engine_trace(const struct ingot_engine *engine, FILE *to);
