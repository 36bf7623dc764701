// faults.metal - kernels with one fault each, which the run time or its checker must find. test_msl_run.c
// says which by the name.
#include <metal_stdlib>
using namespace metal;

#define ARGUMENTS                                                                                            \
    device float *out [[buffer(0)]], device const float *in [[buffer(1)]], device uint *count [[buffer(2)]], \
        uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],                     \
        uint simd [[simdgroup_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]
#define HERE out[group * 64 + t]

kernel void no_barrier(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    HERE = room[63 - t];
}
kernel void no_barrier_in_a_simdgroup(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    HERE = room[t ^ 1];
}
kernel void simdgroup_barrier_is_too_weak(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    HERE = room[63 - t];
}
kernel void barrier_without_memory(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_none);
    HERE = room[63 - t];
}
kernel void barrier_of_the_wrong_memory(ARGUMENTS)
{
    HERE = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float v = out[group * 64 + 63 - t];
    threadgroup_barrier(mem_flags::mem_device);
    HERE = v;
}
kernel void device_barrier_for_threadgroup_memory(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_device);
    HERE = room[63 - t];
}
kernel void byte_of_a_word(ARGUMENTS)
{
    threadgroup uint room[16];
    threadgroup uchar *bytes = (threadgroup uchar *)room;
    if (t < 16)
        room[t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bytes[t] = uchar(t);
    HERE = float(bytes[63 - t]);
}
kernel void word_of_bytes(ARGUMENTS)
{
    threadgroup uint room[16];
    threadgroup uchar *bytes = (threadgroup uchar *)room;
    bytes[t] = uchar(t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = float(room[t / 4]);
    bytes[63 - t] = 0;
}
kernel void write_after_read(ARGUMENTS)
{
    threadgroup float room[64];
    for (uint i = 0; i < 2; i++) {
        room[t] = in[t];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        HERE = room[63 - t];
    }
}
kernel void all_write_one_place(ARGUMENTS)
{
    threadgroup float room[1];
    room[0] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = room[0];
}
kernel void read_outside(ARGUMENTS)
{
    HERE = in[t + 1];
}
kernel void write_outside(ARGUMENTS)
{
    out[group * 64 + t + 1] = in[t];
}
kernel void read_before_the_start(ARGUMENTS)
{
    HERE = in[int(t) - 1];
}
kernel void threadgroup_outside(ARGUMENTS)
{
    threadgroup float room[64];
    room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = room[t + 1];
}
kernel void misaligned(ARGUMENTS)
{
    HERE = ((device const float4 *)(in + 1))[t / 8].x;
}
kernel void local_array_outside(ARGUMENTS)
{
    float own[4] = { 0.0f, 1.0f, 2.0f, 3.0f };
    HERE = own[t / 8];
}
kernel void shift_by_all_bits(ARGUMENTS)
{
    HERE = float(1u << (t + 1));
}
kernel void division_by_zero(ARGUMENTS)
{
    HERE = float(count[0] / t);
}
kernel void not_initialised(ARGUMENTS)
{
    threadgroup float room[64];
    if (t < 63)
        room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = room[t];
}
kernel void from_the_group_before(ARGUMENTS) // threadgroup memory does not live on
{
    threadgroup float room[64];
    if (group == 0)
        room[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = room[t];
}
kernel void groups_write_one_place(ARGUMENTS)
{
    out[t] = in[t];
}
kernel void groups_exchange(ARGUMENTS)
{
    HERE = in[t];
    threadgroup_barrier(mem_flags::mem_device);
    count[0] = uint(out[(1 - group) * 64]);
}
kernel void plain_counter(ARGUMENTS)
{
    count[0] += 1;
    HERE = in[t];
}
kernel void barrier_in_a_branch(ARGUMENTS)
{
    if (t < 40)
        threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = in[t];
}
kernel void return_before_a_barrier(ARGUMENTS)
{
    if (t == 63)
        return;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HERE = in[t];
}
kernel void two_barriers(ARGUMENTS)
{
    if (simd == 0)
        threadgroup_barrier(mem_flags::mem_threadgroup);
    else
        threadgroup_barrier(mem_flags::mem_device);
    HERE = in[t];
}
kernel void simdgroup_function_in_a_branch(ARGUMENTS)
{
    float v;
    if (lane & 1)
        v = simd_sum(in[t]);
    else
        v = simd_max(in[t]);
    HERE = v;
}
kernel void shuffle_from_nobody(ARGUMENTS)
{
    float v = 0.0f;
    if (lane < 7)
        v = simd_shuffle(in[t], 9);
    HERE = v;
}
kernel void shuffle_from_lane_40(ARGUMENTS)
{
    HERE = simd_shuffle(in[t], ushort(lane + 8));
}
kernel void half_a_matrix(ARGUMENTS)
{
    simdgroup_float8x8 a, b = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    if (lane < 16)
        simdgroup_multiply(a, b, b);
    simdgroup_store(a, out + group * 64, 8);
}
kernel void too_much_threadgroup_memory(ARGUMENTS)
{
    threadgroup float room[5000];
    threadgroup float more[5000];
    room[t] = in[t];
    more[t] = in[t];
    HERE = in[t];
}
