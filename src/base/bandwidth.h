// bandwidth.h - measures the speed at which this machine reads its memory: the limit of decoding one
// sequence.
#pragma once
#include <stdbool.h>

// Bytes per second of n_threads reading a block far larger than the caches, the best of many short passes; 0
// without memory. About half a second.
double bandwidth_read(unsigned n_threads);
