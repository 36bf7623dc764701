// fail.c - see fail.h. stdout is flushed first, so that the error stands behind what came before it.
#include "main/terminal/fail.h"
#include <stdarg.h>
#include "main/terminal/out.h"

int fail(const char *message)
{
    out_flush();
    fprintf(stderr, "ingot: %s\n", message);
    return STATUS_ERROR;
}

int fail_status(int status, const char *format, ...)
{
    va_list args;

    out_flush();
    fputs("ingot: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}
