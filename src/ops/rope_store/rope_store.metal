// rope_store.metal - the operation as defined in rope_store.h: a simdgroup takes one head of one row.
#include "ops/rope_store/heads.metalh"

kernel void rope_store(constant struct rope_store_args &args [[buffer(0)]],
                       constant struct step &step [[buffer(1)]], device f32 *q [[buffer(2)]],
                       device f32 *k [[buffer(3)]], device const f32 *v [[buffer(4)]],
                       device const f32 *q_norm [[buffer(5)]], device const f32 *k_norm [[buffer(6)]],
                       device const f32 *angles [[buffer(7)]], device uchar *k_pages [[buffer(8)]],
                       device uchar *v_pages [[buffer(9)]], device const u32 *table [[buffer(10)]],
                       uint3 at [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]])
{
    struct heads h;
    h.args = &args;
    h.step = &step;
    h.q = q;
    h.k = k;
    h.v = v;
    h.q_norm = q_norm;
    h.k_norm = k_norm;
    h.angles = angles;
    h.k_pages = k_pages;
    h.v_pages = v_pages;
    h.table = table;
    head_store(h, at.y, at.x * HEADS_IN_GROUP + thread_index / 32, thread_index % 32);
}
