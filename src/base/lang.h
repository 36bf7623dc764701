// lang.h - the words that C, CUDA C++ and MSL share, so that argument structs and block layouts are written
// once.
#pragma once
#if defined(__METAL_VERSION__)
#include <metal_stdlib>
typedef uchar u8;
typedef char i8;
typedef ushort u16;
typedef uint u32;
typedef int i32;
typedef ulong u64;
typedef float f32;
#define STATIC_ASSERT(condition) static_assert(condition, #condition)
#define SHARED_INLINE            inline
#else
#include <stdint.h>
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef float f32;
// An address in a GPU's memory, as a kernel's argument.
#if defined(__CUDACC__)
#define DEVICE_AT(type) type *
#else
#define DEVICE_AT(type) u64
#endif
#if defined(__CUDACC__)
#define STATIC_ASSERT(condition) static_assert(condition, #condition)
#define SHARED_INLINE            static __host__ __device__ inline
#else
#define HOST_C                   1
#define STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#define SHARED_INLINE            static inline
#endif
#endif
