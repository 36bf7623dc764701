// terminal.h - the two streams: results on stdout, everything else on stderr. And Ctrl-C.
//
// A closed stdout ends the program's work quietly; a full disk is an error. On a terminal, control characters
// that a model writes are dropped, so that its text cannot drive the terminal. Animation only where stderr is
// a terminal.
#pragma once
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

enum out_state { OUT_OPEN, OUT_CLOSED, OUT_FAILED }; // nobody reads any more | the system refused a write

void out_write(const char *bytes, size_t n); // buffered
void out_flush(void);
void out_text(const char *text);
void out_printf(const char *format, ...) PRINTF_LIKE(1, 2);
// Text that a model wrote: see above.
void out_model_text(const char *bytes, size_t n);
// Takes such characters out of a word from a model's file, newlines and tabs too, before it goes to a
// terminal. Returns text.
const char *terminal_clean(char *text);
// A long text: through a program such as a pager when stdout is a terminal and it does not fit on it, or when
// the program turns it into what people read (man). As it is when there is no such program.
void out_page(const char *program, struct str text);
enum out_state out_state(void);
// Flushes. STATUS_OK, or STATUS_ERROR with a line on stderr when the output could not be written.
int out_finish(void);

// "ingot: message" on stderr; returns STATUS_ERROR.
int fail(const char *message);
int fail_status(int status, const char *format, ...) PRINTF_LIKE(2, 3); // the same with any status
#define fail_usage(...) fail_status(STATUS_USAGE, __VA_ARGS__)

// Installs the handlers: Ctrl-C, SIGPIPE, SIGBUS (a mapped model file that was cut short).
void signals_install(void);
void signals_name_file(const char *path); // for the message of SIGBUS; NULL: none
// How often Ctrl-C was pressed since interrupts_clear. The second press leaves the program at once, unless
// held: a line editor has to put the terminal back first.
unsigned interrupts(void);
void interrupts_clear(void);
void interrupts_hold(bool held);
// From now on Ctrl-C, however often, and SIGTERM ask the work to end: half a file must not stay behind.
void interrupts_end_work(void);

// What a chat changes about the terminal. Whatever ends the program puts it back.
void terminal_paste_in_brackets(bool on);
void terminal_echo(bool on); // whether what is typed is shown
// Before and after text of less weight; "" where there is no terminal or it has no styles.
const char *terminal_dim(int fd);
const char *terminal_plain(int fd);
size_t terminal_columns(int fd); // 80 when fd is no terminal

// "1.4 GiB"; returns text.
const char *bytes_text(uint64_t bytes, char text[16]);

// A bar on stderr, drawn at most 10 times a second, and only on a terminal.
struct progress {
    const char *what;
    uint64_t last_ns;
    bool drawn;
};
// A callback of the engine: arg is the bar, and Ctrl-C is the end of the work.
bool progress_callback(void *arg, uint64_t done, uint64_t total);
void progress_end(struct progress *p); // wipes the bar
