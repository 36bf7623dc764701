// hazard.c - which commands must wait for earlier ones, by byte range.
//
// Two commands conflict when one writes a byte that the other touches. Ranges are compared, not buffers: the
// pages of all layers may share one buffer.
#include "device/tape_internal.h"

static bool operands_overlap(const struct operand *a, const struct operand *b)
{
    return a->buffer && b->buffer && (a->writes || b->writes) && a->buffer->host == b->buffer->host &&
           a->buffer->native == b->buffer->native && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

bool hazard_between(const struct command *a, const struct command *b)
{
    for (uint32_t i = 0; i < a->n_operands; i++)
        for (uint32_t j = 0; j < b->n_operands; j++)
            if (operands_overlap(&a->operands[i], &b->operands[j]))
                return true;
    return false;
}

uint32_t hazard_mark(struct command *commands, uint32_t n)
{
    uint32_t since = 0, n_waits = 0; // commands [since, i) may still be running

    for (uint32_t i = 0; i < n; i++) {
        commands[i].barrier = false;
        for (uint32_t j = since; j < i && !commands[i].barrier; j++)
            commands[i].barrier = hazard_between(&commands[j], &commands[i]);
        if (commands[i].barrier) {
            since = i;
            n_waits++;
        }
    }
    return n_waits;
}
