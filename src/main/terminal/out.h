// out.h - stdout: what a verb found, and nothing else.
//
// A closed stdout ends the program's work quietly; a full disk is an error. On a terminal, control characters
// that a model writes are dropped, so that its text cannot drive the terminal.
#pragma once
#include "base/err.h"
#include "base/str.h"

enum out_state {
    OUT_OPEN,
    OUT_CLOSED,
    OUT_FAILED
}; // closed: the reader has left; failed: the system refused a write

void out_write(const char *bytes, size_t n); // buffered
void out_flush(void);
void out_text(const char *text);
void out_printf(const char *format, ...) PRINTF_LIKE(1, 2);
// Text that a model wrote: see above.
void out_model_text(const char *bytes, size_t n);
// A long text: through a program such as a pager when stdout is a terminal and the text does not fit on it,
// or when the program formats it (man). Without such a program the text is written as it is.
void out_page(const char *program, struct str text);
enum out_state out_state(void);
// Flushes. STATUS_OK, or STATUS_ERROR with a line on stderr when the output could not be written.
int out_finish(void);
