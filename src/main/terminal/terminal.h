// terminal.h - the terminal itself: its size and styles, what a chat changes about it, and what must not
// reach it.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Bytes of the control character at the front of the text, 0: none. Newlines and tabs are none.
size_t terminal_control_bytes(const char *at, size_t n);
// Takes control characters, newlines and tabs out of a word from a model's file before it goes to a terminal.
// Returns text.
const char *terminal_clean(char *text);

// Modes that a chat sets. They are restored however the program ends.
void terminal_paste_in_brackets(bool on);
void terminal_echo(bool on); // typed characters are shown
void terminal_restore(void); // system calls alone: a signal's handler may call it

// Before and after dimmed text; "" where there is no terminal or it has no styles.
const char *terminal_dim(int fd);
const char *terminal_plain(int fd);
size_t terminal_columns(int fd); // 80 when fd is no terminal
size_t terminal_rows(int fd);    // 24
