// adapters.h - the LoRA adapters of an engine, what they add to a stage's weights, and which of them a
// request has.
//
// All adapters that were named when the engine was opened are in memory; a sequence has a scale for each, 0
// for those that it does not use. The scales of a sequence lie beside its page table, so that a tape says
// nothing of who uses what, and one step serves sequences with different adapters.
#pragma once
#include "base/sha256.h"
#include "device/device.h"
#include "ingot.h"
#include "models/binding/adapter.h"

struct stage;

enum { MOST_ADAPTERS = 64 };

struct adapters {
    struct named_adapter {
        struct adapter inner;
        char name[64];
        float scale; // with which requests have it
    } * at;          // [n]
    uint32_t n;
};

bool adapters_open(struct adapters *s, const struct model *m, const struct ingot_engine_options *options,
                   struct err *err);
void adapters_close(struct adapters *s); // a zeroed one is allowed
// Bytes of their matrices beside those of m, their model or a part of it (models/split), and the ranks of all
// together of the matrix that has most.
uint64_t adapters_bytes(const struct adapters *s, const struct model *m);
uint32_t adapters_most_ranks(const struct adapters *s, const struct model *m);

// *scales: [n], by adapter; NULL: the request uses none. Free with mem_free.
bool adapters_take(const struct adapters *s, const struct ingot_request_options *o, float **scales,
                   struct err *err);
// A key of these scales and of the adapters' numbers; zero where no adapter is used.
bool adapters_key(const struct adapters *s, const float *scales, struct sha256 *key, struct err *err);
// The root of pages that were made with them, from that of the salt: no other adapters find these pages.
static inline struct sha256 adapters_root(struct sha256 root, const struct sha256 *key)
{
    for (size_t i = 0; i < sizeof root.at; i++)
        root.at[i] ^= key->at[i];
    return root;
}

// Gives the stage's weights what adapters add to their products. Called once, when all weights are there.
bool adapters_attach(struct stage *s, const struct adapters *all, struct err *err);
void adapters_detach(struct stage *s);
// Whether the tape adds to every weight that adapters want to change.
bool adapters_are_recorded(const struct stage *s, const struct tape *t, struct err *err);
// Tells the device the scales of a slot, and those of the ranks beside it. scales NULL: the sequence uses
// none.
bool adapters_write(struct stage *s, uint32_t slot, const float *scales, struct err *err);
