// err.c - see err.h.
#include "base/err.h"
#include <stdarg.h>
#include <string.h>

// A message may quote a file's text. It stays one line, and no byte of it can steer a terminal: C0 controls,
// DEL, and C1 controls, which UTF-8 writes as c2 80 to c2 9f.
static void hide_controls(char *text)
{
    for (char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c, next = (unsigned char)c[1];
        bool c1 = byte == 0xc2 && next >= 0x80 && next <= 0x9f;

        if (byte < 0x20 || byte == 0x7f || c1)
            *c = '?';
        if (c1)
            *++c = '?';
    }
}

bool err_set(struct err *err, enum err_code code, const char *format, ...)
{
    if (!err)
        return false;
    va_list args;
    va_start(args, format);
    err->code = code;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    hide_controls(err->message);
    return false;
}

bool err_prefix(struct err *err, const char *format, ...)
{
    if (!err)
        return false;
    char before[sizeof err->message], after[sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(before, sizeof before, format, args);
    va_end(args);
    memcpy(after, err->message, sizeof after);
    size_t n = strlen(before);
    if (n > sizeof err->message / 2)
        n = sizeof err->message / 2;
    snprintf(err->message, sizeof err->message, "%.*s: %.*s", (int)n, before,
             (int)(sizeof err->message - n - 3), after);
    hide_controls(err->message);
    return false;
}

static const struct err_option *flags_of_program;

void err_options_set(const struct err_option *flags)
{
    flags_of_program = flags;
}

const char *err_option(const char *field)
{
    for (const struct err_option *o = flags_of_program; o && o->field; o++)
        if (!strcmp(o->field, field))
            return o->flag;
    return field;
}

_Noreturn void check_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "ingot: %s:%d: this must hold: %s (a bug in ingot; please report it)\n", file, line,
            what);
    abort();
}
