// log.h - one line per event, to stderr or to the program's own function; stdout carries results only.
#pragma once
#include "base/err.h"

// LOG_NOTICE: an info line that every level shows, such as where a server listens.
enum log_level { LOG_NOTICE = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_level_set(enum log_level highest); // default LOG_WARN
// Where lines go from now on; NULL: stderr. One thread at a time is in the sink, and none is when this
// returns. The sink logs nothing.
typedef void log_sink(void *arg, int level, const char *tag, const char *message);
void log_sink_set(log_sink *sink, void *arg);
bool log_enabled(enum log_level level);
// "level tag: message". The tag is the folder that speaks: "load", "place", "cpu".
void log_line(enum log_level level, const char *tag, const char *format, ...) PRINTF_LIKE(3, 4);
