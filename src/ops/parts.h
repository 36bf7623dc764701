// parts.h - operations that are others in turn: each of their parts is a command as it would be recorded.
#pragma once
#include "device/tape.h"
#include "ops/ops.h"

#define MOST_PARTS 6
enum { NO_OPERAND = -1 };

// The parts of a command, in turn; returns their number. 0: the command is no such operation. A part without
// operands is left out by who plays them.
uint32_t parts_of(const struct command *whole, struct command parts[MOST_PARTS]);

// A part of `whole` with its arguments, as yet without operands.
struct command part_of(const struct command *whole, uint16_t op, const char *name, const void *args,
                       size_t args_bytes);
#define PART_OF(whole, op, args) part_of(whole, OP_##op, #op, &(args), sizeof(args))

// Gives a part its operands: those of the whole with the numbers from[0..n), or none for NO_OPERAND.
void part_operands(struct command *part, const struct command *whole, const int *from, uint8_t n);
