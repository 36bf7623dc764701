// real_gpu.c - on a Mac, in place of the emulator: its knobs turn nothing, and all read 0.
#include "metal_emu.h"

void emu_set(const char *name, long value)
{
    (void)name;
    (void)value;
}

long emu_get(const char *name)
{
    (void)name;
    return 0;
}

void emu_on_misuse(void (*handler)(const char *message))
{
    (void)handler;
}
