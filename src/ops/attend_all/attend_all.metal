// attend_all.metal - the operation as defined in attend_all.h: a threadgroup takes a row and a head.
//
// Keys come in chunks whose scores lie in threadgroup memory; running max and running sum (online softmax)
// join the chunks. A thread sums the values of some dims. Simple before fast: no key is shared between rows.
#include "device/metal/msl.h"
#include "ops/attend_all/attend_all.h"

enum { ALL_CHUNK = 1024, ALL_THREADS = 128, ALL_DIMS = 8 }; // dims of a thread: head_dim is at most 1,024

static f32 largest_of_all(f32 v, threadgroup f32 *room, u32 thread_index)
{
    v = simd_max(v);
    if (thread_index % 32 == 0)
        room[thread_index / 32] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    v = simd_max(room[thread_index % (ALL_THREADS / 32)]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return v;
}

// The row behind the last one of the slot of `row`, whose rows begin at `first`.
static u32 rows_end(constant struct step &step, u32 row, u32 first)
{
    u32 slot = step_slots(&step)[row], low = row + 1, high = step.n_rows;

    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (step_slots(&step)[middle] == slot && step_positions(&step)[middle] == middle - first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

kernel void attend_all(constant struct attend_all_args &args [[buffer(0)]],
                       constant struct step &step [[buffer(1)]], device const f32 *q [[buffer(2)]],
                       device const f32 *k [[buffer(3)]], device const f32 *v [[buffer(4)]],
                       device f32 *out [[buffer(5)]], uint3 at [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup f32 weights[ALL_CHUNK];
    threadgroup f32 room[32];
    u32 row = at.x, offset = at.y * args.head_dim, stride = args.n_kv_heads * args.head_dim;
    f32 row_max = 0.0f, row_sum = 0.0f, sum[ALL_DIMS] = { 0.0f };

    if (row >= step.n_rows)
        return;
    u32 first = row - step_positions(&step)[row], last = rows_end(step, row, first);
    if (args.reach > 0) {
        first = max(first, row - min(row, args.reach));
        last = min(last, row + 1 + min(args.reach, last - row));
    }
    q += u64(row) * args.n_heads * args.head_dim + offset;
    out += u64(row) * args.n_heads * args.head_dim + offset;
    k += at.y / (args.n_heads / args.n_kv_heads) * args.head_dim;
    v += at.y / (args.n_heads / args.n_kv_heads) * args.head_dim;
    for (u32 base = first; base < last; base += ALL_CHUNK) {
        u32 n = min(u32(ALL_CHUNK), last - base);
        f32 chunk_max = -3.4e38f, part = 0.0f;
        for (u32 j = thread_index; j < n; j += ALL_THREADS) {
            device const f32 *key = k + u64(base + j) * stride;
            f32 score = 0.0f;
            for (u32 d = 0; d < args.head_dim; d++)
                score += q[d] * key[d];
            weights[j] = score * args.scale;
            chunk_max = max(chunk_max, weights[j]);
        }
        chunk_max = largest_of_all(chunk_max, room, thread_index);
        f32 new_max = base == first ? chunk_max : max(row_max, chunk_max),
            rescale = base == first ? 0.0f : exp(row_max - new_max);
        for (u32 j = thread_index; j < n; j += ALL_THREADS) {
            weights[j] = exp(weights[j] - new_max);
            part += weights[j];
        }
        row_sum = row_sum * rescale + threadgroup_sum(part, room, thread_index, ALL_THREADS);
        for (u32 i = 0; i < ALL_DIMS; i++) {
            u32 d = thread_index + i * ALL_THREADS;
            f32 s = sum[i] * rescale;
            for (u32 j = 0; j < n && d < args.head_dim; j++)
                s += weights[j] * v[u64(base + j) * stride + d];
            sum[i] = s;
        }
        row_max = new_max;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (u32 i = 0; i < ALL_DIMS; i++)
        if (thread_index + i * ALL_THREADS < args.head_dim)
            out[thread_index + i * ALL_THREADS] = sum[i] / row_sum;
}
