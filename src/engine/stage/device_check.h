// device_check.h - a question to a device whose answer is known: does it still compute right?
//
// A product of a small matrix of integers with a row of integers, which every device computes without
// rounding: in int8, fp16, bf16 and fp32 alike. It finds a device that is lost, one whose kernels do nothing,
// and memory that comes back changed; not an error in a kernel that it does not use.
#pragma once
#include "device/tape.h"

enum { DEVICE_CHECK_ROWS = 40, DEVICE_CHECK_COLS = 512, DEVICE_CHECK_BYTES = DEVICE_CHECK_ROWS * 4 };

struct device_check {
    struct device *device; // borrowed; NULL: not made
    struct tape *tape;
    struct weight weight;
    struct buffer in, out, step;
    void *blocks; // of the weight
};

bool device_check_create(struct device_check *c, struct device *d, struct err *err);
void device_check_release(struct device_check *c); // zeroed is allowed
// Asks, and waits for the answer: 0.1 ms on a processor. A wrong answer is ERR_DEVICE and names the device.
// No step of the device is on its way whose results are still wanted.
bool device_check_run(struct device_check *c, struct err *err);
float device_check_answer(uint32_t row); // the right one
