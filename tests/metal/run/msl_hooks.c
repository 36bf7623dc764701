// msl_hooks.c - what clang's sanitizers call from translated kernels. Their own libraries are not linked.
//
// -fsanitize=thread: a function for each load and store. -fsanitize=alignment,bounds,...: a function where
// such a check fails; the linker gives these names in front of which __wrap_ stands, as a test may itself be
// built with the sanitizer.
#include <string.h>
#include "msl_run.h"

#define HOOK(name, n, is_read, is_write)    \
    void __tsan_##name##n(const void *at);  \
    void __tsan_##name##n(const void *at)   \
    {                                       \
        if (is_read)                        \
            msl_check_access(at, n, false); \
        if (is_write)                       \
            msl_check_access(at, n, true);  \
    }
#define IGNORE(name, ...)   \
    void name(__VA_ARGS__); \
    void name(__VA_ARGS__)  \
    {                       \
    }

// clang-format off
HOOK(read, 1, true, false)
HOOK(write, 1, false, true)
HOOK(read_write, 1, true, true)
HOOK(unaligned_read, 1, true, false)
HOOK(unaligned_write, 1, false, true)
HOOK(unaligned_read_write, 1, true, true)
HOOK(volatile_read, 1, true, false)
HOOK(volatile_write, 1, false, true)
HOOK(read, 2, true, false)
HOOK(write, 2, false, true)
HOOK(read_write, 2, true, true)
HOOK(unaligned_read, 2, true, false)
HOOK(unaligned_write, 2, false, true)
HOOK(unaligned_read_write, 2, true, true)
HOOK(volatile_read, 2, true, false)
HOOK(volatile_write, 2, false, true)
HOOK(read, 4, true, false)
HOOK(write, 4, false, true)
HOOK(read_write, 4, true, true)
HOOK(unaligned_read, 4, true, false)
HOOK(unaligned_write, 4, false, true)
HOOK(unaligned_read_write, 4, true, true)
HOOK(volatile_read, 4, true, false)
HOOK(volatile_write, 4, false, true)
HOOK(read, 8, true, false)
HOOK(write, 8, false, true)
HOOK(read_write, 8, true, true)
HOOK(unaligned_read, 8, true, false)
HOOK(unaligned_write, 8, false, true)
HOOK(unaligned_read_write, 8, true, true)
HOOK(volatile_read, 8, true, false)
HOOK(volatile_write, 8, false, true)
HOOK(read, 16, true, false)
HOOK(write, 16, false, true)
HOOK(read_write, 16, true, true)
HOOK(unaligned_read, 16, true, false)
HOOK(unaligned_write, 16, false, true)
HOOK(unaligned_read_write, 16, true, true)
HOOK(volatile_read, 16, true, false)
HOOK(volatile_write, 16, false, true)
IGNORE(__tsan_init, void)
IGNORE(__tsan_func_entry, __attribute__((unused)) void *caller)
IGNORE(__tsan_func_exit, void)
// clang-format on

void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);

void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    return __tsan_memmove(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    msl_check_access(from, bytes, false);
    msl_check_access(to, bytes, true);
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes)
{
    msl_check_access(to, bytes, true);
    return memset(to, value, bytes);
}

struct hook_place { // in front of what every such function is given
    const char *file;
    uint32_t line, column;
};
#define FAULT(name, what)                                                    \
    void __wrap___ubsan_handle_##name(const struct hook_place *at);          \
    void __wrap___ubsan_handle_##name(const struct hook_place *at)           \
    {                                                                        \
        const char *slash = strrchr(at->file, '/');                          \
        msl_fail("%s:%u: %s", slash ? slash + 1 : at->file, at->line, what); \
    }
// clang-format off
FAULT(type_mismatch_v1, "the address is no multiple of its type's alignment")
FAULT(out_of_bounds, "index outside of an array")
FAULT(divrem_overflow, "division by zero")
FAULT(shift_out_of_bounds, "shift by more bits than there are")
