// parts.h - operations that are others in turn: each of their parts is a command as it would be recorded.
#pragma once
#include "device/tape.h"

enum { NO_OPERAND = -1 };

// A part's operands: those of the whole with the numbers from[0..n), or NO_OPERAND. Its arguments are zero.
struct command part_of(const struct command *whole, uint16_t op, const char *name, const int *from,
                       uint8_t n);
