// log.h - one line per event, to stderr; stdout carries results only.
#pragma once
#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_level_set(enum log_level highest); // default LOG_WARN
bool log_enabled(enum log_level level);
// "level tag: message". The tag is the folder that speaks: "load", "place", "cpu".
void log_line(enum log_level level, const char *tag, const char *format, ...) PRINTF_LIKE(3, 4);
