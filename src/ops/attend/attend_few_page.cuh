// attend_few_page.cuh - a page of K and V in a warp's registers, as words of mma.m16n8k16, for
// attend_few.cuh.
//
// Lane 4 g + t reads words as they lie in memory: which token or dim is which row of a fragment is free, if
// both sides agree. K [dims, tokens]: tokens 2 g and 2 g + 1 of four dims in 16. V [dims, tokens]: tokens 4 t
// to 4 t + 3 of two dims in 16. No number is rounded: F16 stays so, BF16 and the integers of Q8_0 are bf16.
#pragma once
#include "device/cuda/pages.cuh"
#include "ops/attend/attend_cuda.h"

// What a kernel is for. PARTS: warps that share a page. THREADS: of a block.
template <u32 KEY, u32 VALUE, u32 PARTS, u32 THREADS, u32 FORMAT, bool LATENT> struct few_shape {
    static constexpr u32 key = KEY, value = VALUE, parts = PARTS, threads = THREADS, format = FORMAT,
                         warps = THREADS / 32,
                         slots = warps / PARTS,              // pages that a block takes at once
        steps = KEY / PARTS / 16,                            // of a warp: of 16 dims of a key
        rows = VALUE / PARTS / 16,                           // of 16 dims of a value
        words = FORMAT == KV_Q8_0 ? 2 : 4;                   // of a lane in 16 dims of a page
    static constexpr bool hands_on = false,                  // results become words (device/cuda/words.cuh)
        latent = LATENT,                                     // values are the first dims of the keys
        bf16 = FORMAT != KV_F16;                             // what is multiplied
    static constexpr f32 divide = FORMAT == KV_F16 ? 64 : 1; // of queries, as fp16 ends at 65,504
};

template <class S> struct few_page { // a lane's numbers of a page as they lie there
    u32 k[S::steps][S::words], v[S::rows][S::words];
    uint2 k_scales[S::format == KV_Q8_0 ? S::steps : 1];          // of tokens 4 t ..., by 16 dims
    uint2 v_scales[S::format == KV_Q8_0 ? (S::rows + 1) / 2 : 1]; // by 32
};

// ---- pages

static __device__ __forceinline__ u32 page_part(u32 n_parts)
{
    return threadIdx.x / 32 % n_parts;
}

// Words of a page are read at constant distances from one place a lane.
template <class S>
static __device__ __forceinline__ void load_keys(const struct attend_params &p, struct few_page<S> &page,
                                                 u32 number, u32 kv)
{
    constexpr u32 line = PAGE_TOKENS * (S::format == KV_F16 ? 2 : 4), // bytes; of BF16 two dims, of Q8_0 four
        lines = S::format == KV_F16    ? 16
                : S::format == KV_BF16 ? 8
                                       : 4; // of 16 dims
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, part = page_part(S::parts);
    const u8 *head = (const u8 *)p.k_pages +
                     page_place(&p.args.pages, number, kv) * page_head_bytes(S::format, S::key),
             *at = head + (part * S::steps * lines + t) * line + g * (S::format == KV_F16 ? 4 : 8);

#pragma unroll
    for (u32 s = 0; s < S::steps; s++) {
#pragma unroll
        for (u32 i = 0; i < S::words; i++)
            if (S::format == KV_F16) {
                page.k[s][i] = __ldcg((const u32 *)(at + (s * lines + 4 * i) * line));
            } else if (i % 2 == 0) {
                uint2 two = __ldcg((const uint2 *)(at + (s * lines + 2 * i) * line));
                page.k[s][i] = two.x;
                page.k[s][i + 1] = two.y;
            }
        if (S::format == KV_Q8_0)
            page.k_scales[S::format == KV_Q8_0 ? s : 0] = __ldcg(
                (const uint2 *)(head + PAGE_TOKENS * S::key + (part * S::steps + s) / 2 * PAGE_TOKENS * 2) +
                t);
    }
}

template <class S>
static __device__ __forceinline__ void put_four(struct few_page<S> &page, u32 r, const uint4 &four)
{
    page.v[r][0] = four.x;
    page.v[r][1] = four.y;
    page.v[r][S::words - 2] = four.z;
    page.v[r][S::words - 1] = four.w;
}

// Values with pages of their own. F16: of token 4 t + r % 4 eight dims. BF16: of two tokens four dims. Q8_0:
// of four tokens two dims.
template <class S>
static __device__ __forceinline__ void load_own_values(const u8 *head, struct few_page<S> &page)
{
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = page_part(S::parts) * S::rows * 16;
    const u8 *at = S::format == KV_F16    ? head + (4 * t * S::value + first + 8 * g) * 2
                   : S::format == KV_BF16 ? head + (2 * t * S::value + first + 4 * g) * 4
                                          : head + (t * S::value + first + 4 * g) * 4;

#pragma unroll
    for (u32 r = 0; r < S::rows; r++) {
        if (S::format == KV_Q8_0) {
            uint2 two = __ldcg((const uint2 *)(at + r / 2 * 32 * 4 + r % 2 * 8));
            page.v[r][0] = two.x;
            page.v[r][1] = two.y;
        } else {
            put_four<S>(
                page, r,
                __ldcg((const uint4 *)(at + (S::format == KV_F16 ? (r % 4 * S::value + r / 4 * 64) * 2
                                                                 : (r % 2 * S::value + r / 2 * 32) * 4))));
        }
    }
}

// Values that are the first dims of the keys, in lines of 16 tokens. F16: dims 2 g and 2 g + 1 of 16. Q8_0:
// four dims in 32.
template <class S>
static __device__ __forceinline__ void load_key_values(const u8 *head, struct few_page<S> &page)
{
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = page_part(S::parts) * S::rows * 16;
    const u8 *at = S::format == KV_F16    ? head + (first + 2 * g) * PAGE_TOKENS * 2 + t * 8
                   : S::format == KV_BF16 ? head + (first / 2 + g) * PAGE_TOKENS * 4 + t * 16
                                          : head + (first / 4 + g) * PAGE_TOKENS * 4 + t * 16;

#pragma unroll
    for (u32 r = 0; r < S::rows; r++) {
        if (S::format == KV_F16) {
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                uint2 two = __ldcg((const uint2 *)(at + (r * 16 + i) * PAGE_TOKENS * 2));
                page.v[r][(2 * i) % S::words] = two.x;
                page.v[r][(2 * i + 1) % S::words] = two.y;
            }
        } else if (S::format == KV_BF16) {
            put_four<S>(page, r, __ldcg((const uint4 *)(at + r * 8 * PAGE_TOKENS * 4)));
        } else if (r % 2 == 0) {
            uint4 four = __ldcg((const uint4 *)(at + r * 4 * PAGE_TOKENS * 4));
            page.v[r][0] = four.x;
            page.v[r][1] = four.y;
            page.v[(r + 1) % S::rows][0] = four.z;
            page.v[(r + 1) % S::rows][1] = four.w;
        }
    }
}

template <class S>
static __device__ __forceinline__ void load_values(const struct attend_params &p, struct few_page<S> &page,
                                                   u32 number, u32 kv)
{
    constexpr u32 dims = S::latent ? S::key : S::value;
    const u8 *at = (const u8 *)(S::latent ? p.k_pages : p.v_pages) +
                   page_place(&p.args.pages, number, kv) * page_head_bytes(S::format, dims);
    u32 t = threadIdx.x % 4, first = page_part(S::parts) * S::rows * 16;

    if (S::latent)
        load_key_values<S>(at, page);
    else
        load_own_values<S>(at, page);
#pragma unroll
    for (u32 r = 0; r < S::rows; r += 2)
        if (S::format == KV_Q8_0)
            page.v_scales[S::format == KV_Q8_0 ? r / 2 : 0] =
                __ldcg((const uint2 *)(at + PAGE_TOKENS * dims +
                                       (first + r * 16) / KV_Q8_0_BLOCK * PAGE_TOKENS * 2) +
                       t);
}

// ---- numbers

template <bool BF16> static __device__ __forceinline__ u32 two_numbers(f32 low, f32 high)
{
    __nv_bfloat162 b = __floats2bfloat162_rn(low, high);
    __half2 h = __floats2half2_rn(low, high);
    return BF16 ? *(u32 *)&b : *(u32 *)&h;
}
// Two numbers as 16 bits each, and as such what the rounding lost.
template <bool BF16> static __device__ __forceinline__ uint2 two_parts(f32 low, f32 high)
{
    u32 rounded = two_numbers<BF16>(low, high);
    float2 back = BF16 ? make_float2(__uint_as_float(rounded << 16), __uint_as_float(rounded & 0xffff0000))
                       : __half22float2(*(__half2 *)&rounded);
    return make_uint2(rounded, two_numbers<BF16>(low - back.x, high - back.y));
}

// Four integers as bf16, two in a word: 128 and the lower bits, less 128 or, where it is negative, 256.
static __device__ __forceinline__ uint2 four_integers(u32 word)
{
    u32 out[2];

#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 wide = __byte_perm(word, 0, i ? 0x4342 : 0x4140), bits = (wide & 0x007f007f) | 0x43004300,
            less = (wide & 0x00800080) | 0x43004300;
        __nv_bfloat162 v = __hsub2(*(__nv_bfloat162 *)&bits, *(__nv_bfloat162 *)&less);
        out[i] = *(u32 *)&v;
    }
    return make_uint2(out[0], out[1]);
}

static __device__ __forceinline__ void four_scales(const uint2 &v, f32 (&out)[4])
{
    float2 a = __half22float2(*(const __half2 *)&v.x), b = __half22float2(*(const __half2 *)&v.y);

    out[0] = a.x;
    out[1] = a.y;
    out[2] = b.x;
    out[3] = b.y;
}

// The dim in 16 of a lane's i-th number of keys.
template <u32 FORMAT> static __device__ __forceinline__ u32 key_dim(u32 t, u32 i)
{
    return FORMAT == KV_F16 ? t + 4 * i : FORMAT == KV_BF16 ? i / 2 * 8 + 2 * t + i % 2 : 4 * t + i;
}

// Of 16 dims of token 2 g + which: the fragment's words.
template <class S>
static __device__ __forceinline__ uint2 key_words(const struct few_page<S> &page, u32 s, u32 which)
{
    const u32(&k)[S::words] = page.k[s];

    if (S::format == KV_Q8_0)
        return four_integers(k[which]);
    if (S::format == KV_BF16)
        return make_uint2(k[which], k[(2 + which) % S::words]);
    u32 pick = which ? 0x7632 : 0x5410;
    return make_uint2(__byte_perm(k[0], k[1], pick), __byte_perm(k[2 % S::words], k[3 % S::words], pick));
}

// The even one of the two dims that a lane has of 16 dims of values: the rows g and g + 8 of a fragment.
template <class S> static __device__ __forceinline__ u32 value_dim(u32 r, u32 g)
{
    if (S::format == KV_Q8_0 || (S::format == KV_BF16 && !S::latent))
        return r / 2 * 32 + 4 * g + r % 2 * 2;
    return S::latent ? r * 16 + 2 * g : r / 4 * 64 + 8 * g + r % 4 * 2;
}

// The fragment of these 16 dims. masks: of tokens 4 t and 4 t + 1, 4 t + 2 and 4 t + 3 those that are seen,
// since a weight of zero does not select.
template <class S>
static __device__ __forceinline__ void value_words(const struct few_page<S> &page, u32 r,
                                                   const u32 (&masks)[2], u32 (&a)[4])
{
    constexpr u32 last = S::words - 1;

    if (S::format == KV_Q8_0) {
        u32 x[2] = { page.v[r][0], page.v[r][1] };
        if (S::latent) { // words of a token: to words of a dim
            const u32 *v[2] = { page.v[r / 2 * 2], page.v[(r / 2 * 2 + 1) % S::rows] };
            u32 pick = r % 2 ? 0x7362 : 0x5140, low = __byte_perm(v[0][0], v[0][1], pick),
                high = __byte_perm(v[1][0], v[1][1], pick);
            x[0] = __byte_perm(low, high, 0x5410);
            x[1] = __byte_perm(low, high, 0x7632);
        }
        uint2 even = four_integers(x[0]), odd = four_integers(x[1]);
        a[0] = even.x;
        a[1] = odd.x;
        a[2] = even.y;
        a[3] = odd.y;
        return;
    }
    if (S::format == KV_F16 && S::latent) {
        a[0] = page.v[r][0];
        a[1] = page.v[r][last - 1];
        a[2] = page.v[r][1];
        a[3] = page.v[r][last];
    } else if (S::format == KV_BF16 && !S::latent) {
        a[0] = page.v[r / 2 * 2][r % 2 * 2 % S::words];
        a[1] = page.v[r / 2 * 2][(r % 2 * 2 + 1) % S::words];
        a[2] = page.v[(r / 2 * 2 + 1) % S::rows][r % 2 * 2 % S::words];
        a[3] = page.v[(r / 2 * 2 + 1) % S::rows][(r % 2 * 2 + 1) % S::words];
    } else { // a word has two dims of a token
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 from = i / 2 * 2;
            u32 x = S::latent ? page.v[r][from % S::words]
                              : page.v[(r / 4 * 4 + from) % S::rows][r % 4 % S::words],
                y = S::latent ? page.v[r][(from + 1) % S::words]
                              : page.v[(r / 4 * 4 + from + 1) % S::rows][r % 4 % S::words];
            a[i] = __byte_perm(x, y, i % 2 ? 0x7632 : 0x5410);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        a[i] &= masks[i / 2];
}
