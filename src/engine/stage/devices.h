// devices.h - the devices of an engine, as the options name them.
#pragma once
#include "device/device.h"
#include "ingot.h"

enum { MAX_DEVICES = 8 };

struct devices {
    struct device *at[MAX_DEVICES]; // [n], in the order of their names
    uint32_t n;
    struct device *experts; // of the last n_away layers, at most all; or NULL
    uint32_t n_away;
    struct communicator *communicator; // of all of them, where they are ranks of a layer; or NULL
    bool is_found;                     // nobody named them: others of the machine may join
};

// For verify: cpu:plain without the operations that other CPUs record as their parts.
#define DEVICE_PLAIN_PARTS "cpu:plain:parts"
// Opens "cuda:0,cpu", or one device; NULL is "auto". A name given twice opens the device twice: each has its
// own threads or stream. Of n_tensor_parallel ranks: one for each, with its share of the processor's threads;
// those that are named, if they are as many, or n times the one that is; of "auto" and "cuda" the first GPUs
// where there are as many. One GPU for several ranks is refused, and told where its name is given for each.
// After an error the caller closes what is open.
bool devices_open(struct devices *d, const struct ingot_engine_options *options, struct err *err);
void devices_close(struct devices *d);
// The other NVIDIA GPUs, where the first one is there alone. One that cannot be opened is left out, and the
// log says why. A place for the processor stays free.
void devices_add_gpus(struct devices *d);
// The processor: behind the others; for the experts of the last n_away layers, by one of its names.
bool devices_add_cpu(struct devices *d, const struct ingot_engine_options *o, struct err *err);
bool devices_add_experts(struct devices *d, const struct ingot_engine_options *o, struct str name,
                         uint32_t n_away, struct err *err);
void devices_remove(struct devices *d, uint32_t i); // closes it; those behind it move up
void devices_remove_experts(struct devices *d);
// What a device computes like: a CPU's name; of a GPU its kind and model, whichever of the machine's it is.
enum { DEVICE_KIND_BYTES = 160 };
void devices_kind(struct device *d, char kind[DEVICE_KIND_BYTES]);
bool devices_are_alike(struct device *a, struct device *b);
// Computes with the loops that define every operation, activations in fp32.
bool devices_is_plain(const struct device *d);
// The host's memory, where it is none of the devices'; else 0.
uint64_t devices_host_bytes(const struct devices *d);
// Of the host: two such devices share its memory. On Apple's machines the GPU does, too.
bool devices_has_own_memory(const struct device *d);
// The system would give a GPU more memory if asked (Apple's; ingot doctor says how).
bool devices_may_have_more(const struct devices *d);
bool devices_share_memory(const struct device *a, const struct device *b);
