// device_limits.h - what a device can do at best, measured: the yardstick of a profile.
//
// Every limit is what ingot's own kernels reach on a shape that suits them: one row times a large matrix for
// reading, many rows for arithmetic, a chain of tiny commands for what a command costs at least. They are
// tapes like a model's. So 100 % is what these kernels can do, and less than a data sheet says.
#pragma once
#include "device/device.h"

struct device_limits {
    double read_bytes, operations; // per second; 0: not measured
    double command_ns;
};

// format: of the matrices. n_threads: of a processor, whose memory is read without a product. Takes a second,
// and up to 600 MB for a moment.
bool device_limits_probe(struct device *d, enum quant format, unsigned n_threads,
                         struct device_limits *limits, struct err *err);
