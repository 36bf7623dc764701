// take.h - copies tensors of a file to a device, as weights with names of their own.
#pragma once
#include "base/arena.h"
#include "device/device.h"
#include "format/model_file.h"

struct take {
    struct device *device;
    struct arena *names;
    const struct model_file *file; // gives back what the device copied; NULL: the tensors are not in a file
};

// Vectors become fp32. A tensor with more than two dimensions becomes a matrix, its slowest dimensions the
// rows. The caller releases *w, also after a failure.
bool take_tensor(const struct take *k, const struct file_tensor *t, enum weight_use use, struct weight *w,
                 struct err *err);
// A vector that is in no file.
bool take_numbers(const struct take *k, const float *numbers, uint32_t n, const char *name, struct weight *w,
                  struct err *err);
