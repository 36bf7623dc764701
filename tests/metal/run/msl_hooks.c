// msl_hooks.c - the functions that clang's -fsanitize=thread calls for each access. libtsan, whose names these are, is not linked.
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
