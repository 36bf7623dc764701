// cuda_driver.h - the emulated driver, for tests.
#pragma once
#include "device/cuda/driver.h"

extern const struct driver cuda_driver_emulated;
// 1, or more before the first is opened: they reach each other's memory, and what is launched on each runs on
// a thread of its own.
extern int cuda_driver_devices;
const char *cuda_driver_error(void); // of the last launch
