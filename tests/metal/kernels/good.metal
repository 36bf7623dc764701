// good.metal - kernels without a fault: one for each thing that the run time must get right and the checker
// must let pass.
#include <metal_stdlib>
using namespace metal;

constant uint SCALE [[function_constant(0)]];
constant bool HAS_SCALE = is_function_constant_defined(SCALE);
constant float FACTOR = HAS_SCALE ? float(SCALE) : 1.0f;

#define ARGUMENTS                                                                              \
    device float *out [[buffer(0)]], device const float *in [[buffer(1)]],                     \
        device atomic_uint *count [[buffer(2)]], uint t [[thread_index_in_threadgroup]],       \
        uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]], \
        uint group [[threadgroup_position_in_grid]]

kernel void turned(ARGUMENTS)
{
    threadgroup float room[64];

    room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = room[63 - t] * FACTOR;
}

kernel void summed(ARGUMENTS)
{
    out[group * 64 + t] = simd_sum(in[t]) + simd_max(in[t]) + simd_shuffle_xor(in[t], 1);
}

kernel void in_turns(ARGUMENTS) // the same room used again needs a second barrier
{
    threadgroup float room[64];

    for (uint i = 0; i < 4; i++) {
        room[t] = in[t] + float(i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[group * 64 + t] = room[(t + i) % 64];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

kernel void inside_a_simdgroup(ARGUMENTS)
{
    threadgroup float room[64];

    room[t] = in[t];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = room[simd * 32 + 31 - lane];
}

kernel void in_turns_inside_a_simdgroup(ARGUMENTS) // read by others, then written, then read again
{
    threadgroup float room[64];

    room[t] = in[t];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float v = room[simd * 32 + (lane ^ 1)];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    v += room[t];
    room[t] = v;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = room[t] - room[simd * 32 + (lane ^ 1)];
}

kernel void some_lanes(ARGUMENTS)
{
    float v = 0.0f;

    if (lane < 7)
        v = simd_sum(1.0f);
    out[group * 64 + t] = v;
}

kernel void counted(ARGUMENTS)
{
    atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
    out[group * 64 + t] = in[t];
}

kernel void through_device_memory(ARGUMENTS)
{
    out[group * 64 + t] = in[t];
    threadgroup_barrier(mem_flags::mem_device);
    float v = out[group * 64 + 63 - t];
    threadgroup_barrier(mem_flags::mem_device);
    out[group * 64 + t] = v;
}

kernel void bytes_of_words(ARGUMENTS) // the same memory in words and in bytes; each byte has its own writer
{
    threadgroup uint room[16];
    threadgroup uchar *bytes = (threadgroup uchar *)room;

    if (t < 16)
        room[t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bytes[t] = uchar(t);
    bytes[t] += uchar(1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = float(room[t / 4] >> t % 4 * 8 & 255) - 1.0f;
}

kernel void product(ARGUMENTS) // 8x8: in times its transpose
{
    simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

    simdgroup_load(a, in, 8);
    simdgroup_load(b, in, 8, ulong2(0, 0), true);
    simdgroup_multiply_accumulate(c, a, b, c);
    if (simd == 0)
        simdgroup_store(c, out + group * 64, 8);
}

template <typename T> kernel void converted(ARGUMENTS, threadgroup T *room [[threadgroup(0)]])
{
    float4 v = float4(in[t], 2.0f, in[t] * 0.5f, 0.0f);
    v.xz = v.zx;
    room[t] = T(v.x + v.w);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = float(room[t ^ 1]);
}
template [[host_name("converted_half")]] kernel void converted<half>(ARGUMENTS, threadgroup half *room
                                                                     [[threadgroup(0)]]);
template [[host_name("converted_float")]] kernel void converted<float>(ARGUMENTS, threadgroup float *room
                                                                       [[threadgroup(0)]]);
