// log.c - see log.h. The level is process-wide: it is set once by main.
#include "base/log.h"
#include <stdarg.h>
#include <stdatomic.h>

static atomic_int highest_level = LOG_WARN;

void log_level_set(enum log_level highest)
{
    atomic_store(&highest_level, (int)highest);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&highest_level, memory_order_relaxed);
}

void log_line(enum log_level level, const char *tag, const char *format, ...)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    char line[1024];

    if (!log_enabled(level))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "%s %s: %s\n", names[level], tag, line);
}
