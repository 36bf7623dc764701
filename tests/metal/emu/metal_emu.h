// metal_emu.h - what a test can ask of the emulated Metal, beyond Metal. The knobs are listed in emu_knobs.c
// and docs/metal.md.
#pragma once

void emu_set(const char *name, long value);
long emu_get(const char *name);
// Misuse of the interface. Without a handler the process ends with the message.
void emu_on_misuse(void (*handler)(const char *message));
