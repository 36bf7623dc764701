// latent_store.metal - the operation as defined in latent.h, a threadgroup for each row; and what of
// latent_project is no product.
#include "ops/latent/latent_metal.h"
#include "ops/rope_store/heads.metalh"

// The numbers [from, from + 2 n_pairs) that one pair of angles each rotates: pair i of a row or a head.
static float2 rotated(u32 pairs, device const f32 *in, device const f32 *angles, u32 n_pairs, u32 i)
{
    f32 x = in[pairs == ROPE_ADJACENT ? 2 * i : i], y = in[pairs == ROPE_ADJACENT ? 2 * i + 1 : i + n_pairs];

    return float2(x * angles[2 * i] - y * angles[2 * i + 1], y * angles[2 * i] + x * angles[2 * i + 1]);
}

static void key_store(constant struct page_shape &s, device uchar *page, threadgroup const f32 *key,
                      u32 token, u32 thread_index)
{
    for (u32 d = thread_index; d < s.head_dim; d += LATENT_THREADS) {
        u32 place = page_k_place(s.k_format, token, d);
        if (s.k_format == KV_Q8_0)
            block_store(page, place, page_scale_place(s.head_dim, token, d), key[d], thread_index % 32);
        else
            page_put(s.k_format, page, place, key[d]);
    }
}

// Grid: rows. key: [head_dim].
kernel void latent_store(constant struct latent_store_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                         device const f32 *norm [[buffer(3)]], device const f32 *angles [[buffer(4)]],
                         device uchar *pages [[buffer(5)]], device const u32 *table [[buffer(6)]],
                         threadgroup f32 *key [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup f32 room[32];
    u32 n = args.latent_dims, n_pairs = (args.pages.head_dim - n) / 2, row = at.x;
    f32 squares = 0.0f;

    if (row >= step.n_rows)
        return;
    in += u64(row) * args.pages.head_dim;
    for (u32 d = thread_index; d < n; d += LATENT_THREADS)
        squares += in[d] * in[d];
    f32 factor = norm_factor(threadgroup_sum(squares, room, thread_index, LATENT_THREADS), n, args.eps);
    for (u32 d = thread_index; d < n; d += LATENT_THREADS)
        key[d] = in[d] * factor * norm[d];
    for (u32 i = thread_index; i < n_pairs; i += LATENT_THREADS) {
        float2 both = rotated(args.pairs, in + n, angles + u64(row) * 2 * n_pairs, n_pairs, i);
        key[n + (args.pairs == ROPE_ADJACENT ? 2 * i : i)] = both.x;
        key[n + (args.pairs == ROPE_ADJACENT ? 2 * i + 1 : i + n_pairs)] = both.y;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    u32 position = step_positions(&step)[row];
    u32 page = table[u64(step_slots(&step)[row]) * args.pages.max_pages + position / PAGE_TOKENS];
    key_store(args.pages, pages + page_head_at(args.pages, args.pages.k_format, page, 0), key,
              position % PAGE_TOKENS, thread_index);
}

// Rotates each head's y to its place. Grid: rows.
kernel void latent_rotate(constant struct latent_project_metal_args &args [[buffer(0)]],
                          constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                          device const f32 *angles [[buffer(4)]], device f32 *out [[buffer(6)]],
                          uint3 at [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]])
{
    u32 n_rotated = args.project.n_rotated, n_pairs = n_rotated / 2, row = at.x;

    if (row >= step.n_rows)
        return;
    angles += u64(row) * n_rotated;
    for (u32 i = thread_index; i < args.project.n_heads * n_pairs; i += LATENT_THREADS) {
        u64 head = u64(row) * args.project.n_heads + i / n_pairs;
        device const f32 *from = in + head * (args.project.n_cols + n_rotated) + args.project.n_cols;
        device f32 *to = out + head * (args.project.n_rows + n_rotated) + args.project.n_rows;
        float2 both = rotated(args.project.pairs, from, angles, n_pairs, i % n_pairs);
        u32 pair = i % n_pairs;
        to[args.project.pairs == ROPE_ADJACENT ? 2 * pair : pair] = both.x;
        to[args.project.pairs == ROPE_ADJACENT ? 2 * pair + 1 : pair + n_pairs] = both.y;
    }
}
