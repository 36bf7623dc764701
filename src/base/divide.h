// divide.h - division that rounds up, for the grids, tiles and splits that host code plans.
#pragma once
#include <stdint.h>

static inline uint32_t divide_up(uint64_t a, uint32_t b)
{
    return (uint32_t)((a + b - 1) / b);
}
