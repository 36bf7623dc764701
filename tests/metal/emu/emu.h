// emu.h - the emulated Objective-C runtime and Metal, from the inside.
//
// Enough of both that src/device/metal runs unchanged: objects with retain counts, selectors, autorelease
// pools, a few Foundation classes, and the compute part of Metal, whose kernels run on msl_run. It is
// stricter than the real thing: misuse that a Mac may let pass, or that its validation layer reports, ends
// here in emu_misuse. x86-64 Linux only; for tests only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../run/msl_library.h"
#include "metal_emu.h"

typedef unsigned long ns_uint;
typedef long ns_int;
typedef const char *selector;

struct emu_object {
    struct emu_class *isa;
    int n_retains; // EMU_DEAD once it is gone
};
enum { EMU_DEAD = -0x5ead };

struct method {
    const char *name; // of a class method: with a leading +
    void *function;
    selector name_interned;
};
struct emu_class {
    struct emu_object object;
    const char *name;
    struct emu_class *super;
    struct method *methods; // ends with a NULL name
    size_t bytes;
    void (*destroy)(void *object);
    bool is_private; // behind a protocol: objc_getClass does not know it
};

// A class with its table of methods. The struct's first field is a struct emu_object.
#define EMU_CLASS(class_name, super_class, type, destroyer, hidden, ...)        \
    static struct method methods_##class_name[] = { __VA_ARGS__, { 0, 0, 0 } }; \
    struct emu_class class_##class_name = { .object = { 0, 1 },                 \
                                            .name = #class_name,                \
                                            .super = super_class,               \
                                            .methods = methods_##class_name,    \
                                            .bytes = sizeof(type),              \
                                            .destroy = destroyer,               \
                                            .is_private = hidden };             \
    __attribute__((constructor)) static void register_##class_name(void)        \
    {                                                                           \
        emu_class_register(&class_##class_name);                                \
    }
#define METHOD(name, function)      \
    {                               \
        name, (void *)(function), 0 \
    }

// emu_objc.c
void emu_class_register(struct emu_class *class);
void *emu_new(struct emu_class *class); // owned by the caller
void *emu_retain(void *object);
void emu_release(void *object);
void *emu_autorelease(void *object);
bool emu_is_dead(const void *object);
bool emu_responds(struct emu_object *object, selector s);
selector sel_registerName(const char *name);
void *objc_getClass(const char *name);
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);
void *emu_find(struct emu_object *object, selector s); // for the trampoline
void emu_array_destroy(void *object);
extern struct emu_class class_NSObject;

// emu_knobs.c: settings and counters by name. METAL_EMU="check=1,seed=3" in the environment sets them at the
// start.
struct emu_knobs {
    long check, fast, schedule, seed, threads, shuffle, delay_us, max_threads, family, residency, memory_mb,
        page, fail_command_buffer;
    // counted
    long objects, buffers, libraries, compiled, pipelines, command_buffers, encoders, dispatches, barriers,
        blits, misuses;
};
extern struct emu_knobs emu_knobs;
void emu_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
void emu_count(long *counter, long n);

// emu_foundation.c
struct string {
    struct emu_object object;
    char *text;
};
struct emu_array {
    struct emu_object object;
    void **items;
    ns_uint n_items;
};
struct url {
    struct emu_object object;
    char *path;
};
void *emu_string(const char *text);       // owned by the caller
void *emu_array(void **items, ns_uint n); // owned by the caller, retains
// autoreleased
void emu_error(void **error, long code, const char *format, ...) __attribute__((format(printf, 3, 4)));
extern struct emu_class class_NSString, class_NSURL, class_NSArray;

// emu_device.c, emu_memory.c
struct device_object {
    struct emu_object object;
    long n_bytes;
};
struct buffer_object {
    struct emu_object object;
    unsigned char *at;
    size_t bytes, mapped; // mapped: 0 for memory of the caller
    ns_uint options;
    void *deallocator;
    uint64_t n_uses; // command buffers that are not finished
};
extern struct device_object emu_device;
extern struct emu_class class_MTLBuffer, class_MTLSharedEvent, class_MTLFence, class_MTLResidencySet;
ns_uint buffer_storage(const struct buffer_object *b); // MTLStorageMode

// MTLDevice's methods that emu_memory.c has.
void *buffer_new(void *d, selector s, ns_uint bytes, ns_uint options);
void *buffer_with_bytes(void *d, selector s, const void *from, ns_uint bytes, ns_uint options);
void *buffer_over(void *d, selector s, void *at, ns_uint bytes, ns_uint options, void *deallocator);
void *residency_new(void *d, selector s, void *descriptor, void **error);
void *event_new(void *d, selector s);
void *fence_new(void *d, selector s);
struct event_object;
void event_signal(struct event_object *e, uint64_t value);
void event_wait(struct event_object *e, uint64_t value);

// emu_library.c
struct library_object {
    struct emu_object object;
    struct msl_library *library;
};
struct constants_object {
    struct emu_object object;
    struct msl_value values[64];
    ns_uint types[64];
    int n_values;
};
struct function_object {
    struct emu_object object;
    struct library_object *library;
    const struct msl_kernel *kernel;
    struct msl_value values[64];
    int n_values;
};
struct pipeline_object {
    struct emu_object object;
    struct function_object *function;
    bool whole_simdgroups; // the host has promised that a threadgroup is a multiple of 32 threads
};
void *library_from_source(void *device, selector s, struct string *source, void *options, void **error);
void *pipeline_from_function(void *device, selector s, struct function_object *f, void **error);
void *pipeline_from_descriptor(void *device, selector s, void *descriptor, ns_uint options, void **reflection,
                               void **error);
void *archive_from_descriptor(void *device, selector s, void *descriptor, void **error);
extern struct emu_class class_MTLComputePipelineState;

// emu_commands.c, emu_encoder.c
struct size3 {
    ns_uint width, height, depth;
};
struct emu_range {
    ns_uint location, length;
};
enum command_kind {
    COMMAND_BEGIN,
    COMMAND_DISPATCH,
    COMMAND_BARRIER,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_SIGNAL,
    COMMAND_WAIT,
    COMMAND_CALL
};
struct emu_binding {
    struct buffer_object *buffer;
    size_t offset;
    unsigned char *bytes; // setBytes: a copy
    size_t n_bytes;
};
struct command_record {
    enum command_kind kind;
    struct pipeline_object *pipeline;
    struct emu_binding bound[MSL_BUFFERS];
    size_t threadgroup_bytes[MSL_BUFFERS];
    struct size3 groups, threads, grid;
    bool concurrent;
    struct buffer_object *from, *to;
    size_t from_at, to_at, n_bytes;
    uint8_t value;
    struct event_object *event;
    uint64_t event_value;
    bool (*call)(void *object); // of a library of the vendor
    void *object;
};
struct queue_object;
struct commands_object {
    struct emu_object object;
    struct queue_object *queue;
    struct command_record *records;
    uint32_t n_records, capacity;
    int status; // MTLCommandBufferStatus
    bool retains;
    struct encoder_object *open;
    void **used; // objects bound so far
    uint32_t n_used, used_capacity;
    struct handler_block *handlers[16];
    uint32_t n_handlers;
    void *error;
    double started, ended;
};
struct encoder_object {
    struct emu_object object;
    struct commands_object *commands;
    bool ended, concurrent;
    struct command_record current;
};
void *queue_new(void *device, selector s);
void *encoder_compute(struct commands_object *c, bool concurrent);
void *encoder_blit(struct commands_object *c);
struct command_record *commands_add(struct commands_object *c, enum command_kind kind);
bool commands_are_open(struct commands_object *c, const char *what);
void commands_use(struct commands_object *c, void *object);
