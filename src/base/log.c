// log.c - see log.h. The level and the sink are process-wide: they are set by main, or by the program that
// uses the library.
#include "base/log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

static atomic_int highest_level = LOG_WARN;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *current_sink;
static void *current_arg;

void log_sink_set(log_sink *sink, void *arg)
{
    pthread_mutex_lock(&sink_lock);
    current_sink = sink;
    current_arg = arg;
    pthread_mutex_unlock(&sink_lock);
}

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
    level = level == LOG_NOTICE ? LOG_INFO : level;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pthread_mutex_lock(&sink_lock);
    if (current_sink)
        current_sink(current_arg, (int)level, tag, line);
    else
        fprintf(stderr, "%s %s: %s\n", names[level], tag, line);
    pthread_mutex_unlock(&sink_lock);
}
