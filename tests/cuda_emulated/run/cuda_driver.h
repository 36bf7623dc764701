// cuda_driver.h - the emulated driver, for tests.
#pragma once
#include "device/cuda/driver.h"

extern const struct driver cuda_driver_emulated;
const char *cuda_driver_error(void); // of the last launch
