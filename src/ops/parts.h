// parts.h - operations that are others in turn: each of their parts is a command as it would be recorded.
#pragma once
#include "device/tape.h"

#define MOST_PARTS 6
enum { NO_OPERAND = -1 };

// The parts of a command, in turn; returns their number. 0: the command is no such operation. A part without
// operands is left out by who plays them.
uint32_t parts_of(const struct command *whole, struct command parts[MOST_PARTS]);

// A part's operands: those of the whole with the numbers from[0..n), or NO_OPERAND. Its arguments are zero.
struct command part_of(const struct command *whole, uint16_t op, const char *name, const int *from,
                       uint8_t n);
