// signals.h - Ctrl-C, SIGPIPE, SIGTERM, SIGHUP, and SIGBUS (a mapped model file that was cut short).
#pragma once
#include <stdbool.h>

// SIGTERM and SIGHUP leave at once, with the status of Ctrl-C.
void signals_install(void);
void signals_name_file(const char *path); // for the message of SIGBUS; NULL: none
// How often Ctrl-C was pressed since signals_clear_interrupts. The second press leaves the program at once,
// unless held: a line editor has to restore the terminal first.
unsigned signals_interrupts(void);
bool signals_none(void);       // no press since then
bool signals_go_on(void *arg); // the same, as a callback of the engine; arg is not read
void signals_clear_interrupts(void);
void signals_hold_interrupts(bool hold);
// From now on Ctrl-C, however often, and SIGTERM ask the work to end: half a file must not stay behind.
void signals_end_work(void);
