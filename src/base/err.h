// err.h - operating errors: one code and one line of text that says what was found, what was expected, what
// to do.
//
// A function that can fail returns bool (or NULL) and fills a struct err given by the caller. A bug is a
// CHECK, which stays on in release builds: it prints the place and aborts. A parser never CHECKs on input.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum err_code {
    ERR_NONE,
    ERR_INPUT,       // a file or request holds something that is not allowed
    ERR_NOT_FOUND,   // no such file, model, tensor, key
    ERR_IO,          // the system refused a read, write, map
    ERR_MEMORY,      // no memory
    ERR_LIMIT,       // a stated limit was reached: context, pages, queue
    ERR_UNSUPPORTED, // valid, but not something this build can do
    ERR_CANCELLED,   // the caller asked to stop
    ERR_NUMERIC,     // NaN or infinity in a result
    ERR_DEVICE,      // the device failed
    ERR_TIMEOUT,     // a deadline passed
};

struct err {
    enum err_code code;
    char message[504];
};

#if defined(__GNUC__)
#define PRINTF_LIKE(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define PRINTF_LIKE(format_at, args_at)
#endif

// Fills err and returns false, so that `return err_set(...)` ends a function. err may be NULL. The message is
// one line: control characters of what it quotes become '?'.
bool err_set(struct err *err, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);

// Puts "prefix: " before the message, for example the file's name. Returns false.
bool err_prefix(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

// What a message calls an option of the engine: a library's user reads the field, "n_context"; the program's
// user reads the flag, "-c", since the program says its flags when it begins, before there are threads.
struct err_option {
    const char *field, *flag;
};
void err_options_set(const struct err_option *flags); // ends with field NULL
const char *err_option(const char *field);

static inline bool err_memory(struct err *err, const char *what)
{
    return err_set(err, ERR_MEMORY, "out of memory for %s", what);
}

_Noreturn void check_failed(const char *file, int line, const char *what);

// For conditions that only a bug in this program makes false. The file's base name identifies it: file names
// are unique.
#ifdef __FILE_NAME__
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE_NAME__, __LINE__, #condition))
#else
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
#endif
