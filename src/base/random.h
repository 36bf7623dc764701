// random.h - random numbers that nobody can guess, for ids, seeds and salts.
#pragma once
#include <stdint.h>

uint64_t random_u64(void);
