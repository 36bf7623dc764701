// emu_knobs.c - what a test can set and ask, and where misuse is reported.
#include "emu.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct emu_knobs emu_knobs = {
    .max_threads = 1024, .family = 1009, .residency = 1, .memory_mb = 16384, .page = 4096
};
static void (*misuse_handler)(const char *message);

static const struct knob {
    const char *name;
    long *value;
} knobs[] = {
    { "check", &emu_knobs.check },
    { "fast", &emu_knobs.fast },
    { "schedule", &emu_knobs.schedule },
    { "seed", &emu_knobs.seed },
    { "threads", &emu_knobs.threads },
    { "shuffle", &emu_knobs.shuffle },
    { "delay_us", &emu_knobs.delay_us },
    { "max_threads", &emu_knobs.max_threads },
    { "family", &emu_knobs.family },
    { "residency", &emu_knobs.residency },
    { "memory_mb", &emu_knobs.memory_mb },
    { "page", &emu_knobs.page },
    { "fail_command_buffer", &emu_knobs.fail_command_buffer },
    { "objects", &emu_knobs.objects },
    { "buffers", &emu_knobs.buffers },
    { "libraries", &emu_knobs.libraries },
    { "compiled", &emu_knobs.compiled },
    { "pipelines", &emu_knobs.pipelines },
    { "command_buffers", &emu_knobs.command_buffers },
    { "encoders", &emu_knobs.encoders },
    { "dispatches", &emu_knobs.dispatches },
    { "barriers", &emu_knobs.barriers },
    { "blits", &emu_knobs.blits },
    { "misuses", &emu_knobs.misuses },
};

static long *knob_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        if (strlen(knobs[i].name) == bytes && !memcmp(knobs[i].name, name, bytes))
            return knobs[i].value;
    fprintf(stderr, "metal-emu: no knob is named '%.*s'\n", (int)bytes, name);
    abort();
}

static void settings_follow(void)
{
    msl_settings.schedule = (int)emu_knobs.schedule;
    msl_settings.seed = (uint32_t)emu_knobs.seed;
    msl_settings.workers = (uint32_t)emu_knobs.threads;
    msl_settings.shuffle_matrices = emu_knobs.shuffle != 0;
}

void emu_set(const char *name, long value)
{
    *knob_find(name, strlen(name)) = value;
    settings_follow();
}

long emu_get(const char *name)
{
    return __atomic_load_n(knob_find(name, strlen(name)), __ATOMIC_RELAXED);
}

void emu_count(long *counter, long n)
{
    __atomic_add_fetch(counter, n, __ATOMIC_RELAXED);
}

void emu_on_misuse(void (*handler)(const char *message))
{
    misuse_handler = handler;
}

void emu_misuse(const char *format, ...)
{
    char message[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    emu_count(&emu_knobs.misuses, 1);
    if (misuse_handler) {
        misuse_handler(message);
        return;
    }
    fprintf(stderr, "metal-emu: %s\n", message);
    abort();
}

// A program that is linked with the emulator finds it without being told.
__attribute__((constructor)) static void library_announce(void)
{
    Dl_info info;

    if (dladdr((void *)library_announce, &info) && info.dli_fname)
        setenv("INGOT_METAL", info.dli_fname, 0);
}

__attribute__((constructor)) static void environment_read(void)
{
    const char *at = getenv("METAL_EMU");

    while (at && *at) {
        const char *equal = strchr(at, '=');
        char *end;
        if (!equal) {
            fprintf(stderr, "metal-emu: METAL_EMU: name=number expected, found '%s'\n", at);
            abort();
        }
        *knob_find(at, (size_t)(equal - at)) = strtol(equal + 1, &end, 10);
        at = *end == ',' ? end + 1 : end;
        if (end == equal + 1)
            break;
    }
    settings_follow();
}
