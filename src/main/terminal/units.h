// units.h - numbers for people.
#pragma once
#include <stdint.h>

// "1.4 GiB"; returns text.
const char *units_bytes(uint64_t bytes, char text[16]);
