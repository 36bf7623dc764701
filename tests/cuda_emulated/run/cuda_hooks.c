// cuda_hooks.c - what clang's sanitizers call from kernels. Their own libraries are not linked; the linker
// gives the names of ubsan's functions a prefix, as a test may itself be built with the sanitizer.
#include <string.h>
#include "cuda_run.h"

#define HOOK(name, n, is_read, is_write)     \
    void __tsan_##name##n(const void *at);   \
    void __tsan_##name##n(const void *at)    \
    {                                        \
        if (is_read)                         \
            cuda_check_access(at, n, false); \
        if (is_write)                        \
            cuda_check_access(at, n, true);  \
    }
#define HOOKS(n)                          \
    HOOK(read, n, true, false)            \
    HOOK(write, n, false, true)           \
    HOOK(read_write, n, true, true)       \
    HOOK(unaligned_read, n, true, false)  \
    HOOK(unaligned_write, n, false, true) \
    HOOK(unaligned_read_write, n, true, true)
// clang-format off
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_init(void);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);
// clang-format on

void __tsan_init(void)
{
}

static void range(const void *at, size_t bytes, bool write)
{
    for (size_t i = 0; i < bytes; i++)
        cuda_check_access((const char *)at + i, 1, write);
}

void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    range(from, bytes, false);
    range(to, bytes, true);
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    range(from, bytes, false);
    range(to, bytes, true);
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes)
{
    range(to, bytes, true);
    return memset(to, value, bytes);
}

struct cuda_fault_place { // in front of what every such function is given
    const char *file;
    uint32_t line, column;
};
#define FAULT(name, what)                                                         \
    void __wrap___ubsan_handle_##name(const struct cuda_fault_place *at);         \
    void __wrap___ubsan_handle_##name(const struct cuda_fault_place *at)          \
    {                                                                             \
        const char *slash = strrchr(at->file, '/');                               \
        cuda_run_fail("%s:%u: %s", slash ? slash + 1 : at->file, at->line, what); \
    }
// clang-format off
FAULT(type_mismatch_v1, "the address is no multiple of its type's alignment")
FAULT(out_of_bounds, "index outside of an array")
FAULT(divrem_overflow, "division by zero")
FAULT(shift_out_of_bounds, "shift by more bits than there are")
