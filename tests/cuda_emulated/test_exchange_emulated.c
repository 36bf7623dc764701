// test_exchange_emulated.c - test_exchange_cuda on emulated GPUs, each on a thread of its own: their kernels
// wait for each other.
#define EMULATED_GPUS 3
#include "../device/test_exchange_cuda.c"
