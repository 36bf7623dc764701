// random.h - unpredictable random numbers, for ids, seeds and salts.
#pragma once
#include <stdint.h>

uint64_t random_u64(void);
