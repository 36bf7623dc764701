// msl.h - included by every .metal file: the language, the step, and reductions over a threadgroup. Not for
// C.
//
// The language is Metal 3.0 (M1 and later): no bfloat, 32 lanes to a simdgroup. Sources are compiled one by
// one, with fast math off; where less precision is enough a kernel says fast:: itself. #include lines are
// expanded when ingot is built (tools/msl_flatten), so a file may include any header with shared parts. Lines
// between #ifdef HOST_C and #endif are left out.
#pragma once
#include "base/lang.h"
#include "device/step.h"
using namespace metal;

// Before a loop over an array that must live in registers: a loop that is not unrolled puts the array into
// memory.
#define UNROLL _Pragma("clang loop unroll(full)")

inline u32 n_rows_of(constant struct step &s, u32 rows)
{
    return rows == ROWS_STEP ? s.n_rows : s.n_outputs;
}

// The sum over a threadgroup of up to 1024 threads, the same in every thread. room: 32 floats.
inline f32 threadgroup_sum(f32 v, threadgroup f32 *room, u32 thread_index, u32 n_threads)
{
    u32 lane = thread_index % 32, group = thread_index / 32, n_groups = (n_threads + 31) / 32;

    v = simd_sum(v);
    if (lane == 0)
        room[group] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    v = simd_sum(lane < n_groups ? room[lane] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return v;
}

inline f32 norm_factor(f32 sum_of_squares, u32 n_cols, f32 eps)
{
    return 1.0f / sqrt(sum_of_squares / f32(n_cols) + eps);
}
