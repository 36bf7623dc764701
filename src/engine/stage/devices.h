// devices.h - the devices of an engine, as the options name them.
#pragma once
#include "device/device.h"
#include "ingot.h"

enum { MAX_DEVICES = 8 };

struct devices {
    struct device *at[MAX_DEVICES]; // [n], in the order of their names
    uint32_t n;
};

// For verify: cpu:plain without the operations that other CPUs record as their parts.
#define DEVICE_PLAIN_PARTS "cpu:plain:parts"
// Opens "cuda:0,cpu", or one device; NULL is "auto". A name given twice opens the device twice: each has its
// own threads or stream. After an error the caller closes what is open.
bool devices_open(struct devices *d, const struct ingot_engine_options *options, struct err *err);
void devices_close(struct devices *d);
// Computes with the loops that define every operation, activations in fp32.
bool devices_is_plain(const struct device *d);
// Of the host: two such devices share its memory. On Apple's machines the GPU does, too.
bool devices_share_memory(const struct device *a, const struct device *b);
