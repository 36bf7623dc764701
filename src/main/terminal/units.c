// units.c - see units.h.
#include "main/terminal/units.h"
#include <stdio.h>

const char *units_bytes(uint64_t bytes, char text[16])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1023.95 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}
