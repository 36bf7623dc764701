// objc.h - the part of Objective-C and Metal that ingot uses, from plain C, loaded at run time. methods.def
// has one line per method.
//
// No Apple header is needed to build and no framework to start. objc_load opens Metal.framework (which brings
// libobjc and Foundation with it), or the library that INGOT_METAL names. A method call is objc_msgSend cast
// to the method's own type, as Objective-C compilers do it. The caller releases objects from methods named
// new and copy; all others belong to the autorelease pool. Types and numbers are those of the arm64 interface
// (BOOL is bool, NSUInteger unsigned long).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

typedef void *objc_id;  // a handle: an object or a class
typedef void *objc_sel; // a handle: a selector
typedef unsigned long ns_uint;
typedef long ns_int;

struct mtl_size {
    ns_uint width, height, depth;
};
struct ns_range {
    ns_uint location, length;
};

enum {
    MTL_STORAGE_SHARED = 0 << 4, // MTLResourceStorageModeShared
    MTL_STORAGE_PRIVATE = 2 << 4,
    MTL_DISPATCH_CONCURRENT = 1,   // MTLDispatchTypeConcurrent
    MTL_BARRIER_BUFFERS = 1,       // MTLBarrierScopeBuffers
    MTL_STATUS_ERROR = 5,          // MTLCommandBufferStatusError
    MTL_TYPE_UINT = 33,            // MTLDataTypeUInt
    MTL_FAMILY_APPLE7 = 1007,      // MTLGPUFamilyApple7: M1
    MTL_FAMILY_METAL3 = 5001,      // MTLGPUFamilyMetal3
    MTL_LANGUAGE_3_0 = 3 << 16,    // MTLLanguageVersion3_0
    MTL_MATH_SAFE = 0,             // MTLMathModeSafe
    MPS_FLOAT16 = 0x10000000 | 16, // MPSDataTypeFloat16
    MPS_FLOAT32 = 0x10000000 | 32, // MPSDataTypeFloat32
    BLOCK_IS_GLOBAL = 1 << 28,     // of a block's flags: it is not copied
};

// A block with one object as its argument, in the compilers' layout.
struct objc_block {
    const void *isa;
    int flags, reserved;
    void (*invoke)(struct objc_block *block, objc_id argument);
    const struct objc_block_shape *shape;
    void *arg; // for our function
};
struct objc_block_shape {
    unsigned long reserved, bytes;
};

// Each line: result, name, parameters.
#define OBJC_FUNCTIONS(F)                             \
    F(void, objc_msgSend, (void))                     \
    F(objc_id, objc_getClass, (const char *name))     \
    F(objc_sel, sel_registerName, (const char *name)) \
    F(void *, objc_autoreleasePoolPush, (void))       \
    F(void, objc_autoreleasePoolPop, (void *pool))    \
    F(objc_id, MTLCreateSystemDefaultDevice, (void))  \
    F(objc_id, MTLCopyAllDevices, (void))

// Filled once by objc_load.
struct objc {
#define OBJC_FIELD(result, name, parameters) result(*name) parameters;
    OBJC_FUNCTIONS(OBJC_FIELD)
#undef OBJC_FIELD
    const void *global_block; // _NSConcreteGlobalBlock
    struct mtl_selectors {
#define M(result, name, ...) objc_sel name;
#include "device/metal/methods.def"
#undef M
    } selectors;
};
extern struct objc objc;

#define M(result, name, selector, parameters, types, ...)         \
    static inline result mtl_##name parameters                    \
    {                                                             \
        objc_sel S = objc.selectors.name;                         \
        return ((result(*) types)objc.objc_msgSend)(__VA_ARGS__); \
    }
#include "device/metal/methods.def"
#undef M

// Loads the frameworks. False with a reason where there are none.
bool objc_load(struct err *err);
// Loads Metal Performance Shaders too; objc_getClass then knows their classes.
bool objc_load_mps(struct err *err);
static inline objc_id objc_new(const char *class)
{
    return mtl_new(objc.objc_getClass(class));
}
static inline objc_id objc_string(const char *text)
{
    return mtl_string(objc.objc_getClass("NSString"), text);
}
// What an NSError says; "unknown error" for nil.
const char *objc_error(objc_id error);
