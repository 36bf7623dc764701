// testing.h - what every test includes: cmocka, and a few helpers.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/err.h"

// Expects failure with a message that contains `part`.
#define assert_fails(call, err, part)                                             \
    do {                                                                          \
        (err)->code = 0;                                                          \
        (err)->message[0] = 0;                                                    \
        assert_false(call);                                                       \
        assert_int_not_equal((err)->code, 0);                                     \
        if (!strstr((err)->message, part))                                        \
            fail_msg("message '%s' does not contain '%s'", (err)->message, part); \
    } while (0)

#define assert_ok(call, err)                           \
    do {                                               \
        if (!(call))                                   \
            fail_msg("%s: %s", #call, (err)->message); \
    } while (0)

// A command for the shell, which must succeed.
static inline void shell(const char *format, ...) PRINTF_LIKE(1, 2);
static inline void shell(const char *format, ...)
{
    char command[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command))
        fail_msg("failed: %s", command);
}
