// parts.c - see parts.h.
#include "ops/parts.h"

struct command part_of(const struct command *whole, uint16_t op, const char *name, const int *from, uint8_t n)
{
    struct command part = { .op = op, .name = name, .label = whole->label, .n_operands = n };

    for (uint32_t i = 0; i < n; i++)
        if (from[i] != NO_OPERAND)
            part.operands[i] = whole->operands[from[i]];
    return part;
}
