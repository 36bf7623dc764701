// fail.h - errors: one line on stderr, and the exit status.
#pragma once
#include "base/err.h"
#include "main/settings.h"

// Prints "ingot: message"; returns STATUS_ERROR.
int fail(const char *message);
int fail_status(int status, const char *format, ...) PRINTF_LIKE(2, 3); // the same with any status
#define fail_usage(...) fail_status(STATUS_USAGE, __VA_ARGS__)
