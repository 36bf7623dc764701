// msl_sync.hpp - barriers, atomics, simdgroup functions and simdgroup matrices, on top of the run time's rendezvous.
//
// The order in which a reduction adds its lanes follows the schedule, since MSL promises none. A simdgroup_matrix holds two
// elements a lane. Which ones is nobody's business: thread_elements() is not offered, and the place of a lane can be shuffled.
#pragma once
#include "msl_math.hpp"

#define MSL_CONVERGENT __attribute__((convergent))
#define MSL_UNCHECKED __attribute__((no_sanitize("thread")))

namespace msl {
// The same functions as in msl_run.h, with what the optimiser must know: do not move, merge or copy a meeting.
__attribute__((convergent, noduplicate, nomerge)) int meet(uint32_t, void (*)(msl_simd *, int)) __asm__("msl_meet_simd");
__attribute__((convergent, noduplicate, nomerge)) void simdgroup_wait(uint32_t) __asm__("msl_meet_simdgroup_barrier");
__attribute__((convergent, noduplicate, nomerge)) void threadgroup_wait(uint32_t) __asm__("msl_meet_threadgroup_barrier");
} // namespace msl

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
MSL_CONVERGENT MSL_INLINE void threadgroup_barrier(mem_flags f) { msl::threadgroup_wait((uint32_t)f); }
MSL_CONVERGENT MSL_INLINE void simdgroup_barrier(mem_flags f) { msl::simdgroup_wait((uint32_t)f); }

enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
#define MSL_ATOMIC(name, result)                                                                                         \
    template <class T, class U> MSL_UNCHECKED inline T atomic_fetch_##name##_explicit(volatile atomic<T> *a, U u, memory_order) \
    {                                                                                                                    \
        T v = (T)u, o, n;                                                                                                \
        msl_check_atomic(a, sizeof(T));                                                                                  \
        __atomic_load(&a->value, &o, __ATOMIC_RELAXED);                                                                  \
        do n = (T)(result); while (!__atomic_compare_exchange(&a->value, &o, &n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
        return o;                                                                                                        \
    }
MSL_ATOMIC(add, o + v) MSL_ATOMIC(sub, o - v) MSL_ATOMIC(max, o > v ? o : v) MSL_ATOMIC(min, o < v ? o : v)
MSL_ATOMIC(or, o | v) MSL_ATOMIC(and, o & v) MSL_ATOMIC(xor, o ^ v)
template <class T, class U> MSL_UNCHECKED inline T atomic_exchange_explicit(volatile atomic<T> *a, U u, memory_order)
{ T v = (T)u, o; msl_check_atomic(a, sizeof(T)); __atomic_exchange(&a->value, &v, &o, __ATOMIC_RELAXED); return o; }
template <class T, class U> MSL_UNCHECKED inline void atomic_store_explicit(volatile atomic<T> *a, U u, memory_order)
{ T v = (T)u; msl_check_atomic(a, sizeof(T)); __atomic_store(&a->value, &v, __ATOMIC_RELAXED); }
template <class T> MSL_UNCHECKED inline T atomic_load_explicit(const volatile atomic<T> *a, memory_order)
{ T o; msl_check_atomic(a, sizeof(T)); __atomic_load(&a->value, &o, __ATOMIC_RELAXED); return o; }
template <class T>
MSL_UNCHECKED inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *a, T *expected, T desired, memory_order, memory_order)
{
    msl_check_atomic(a, sizeof(T));
    return __atomic_compare_exchange(&a->value, expected, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
} // namespace metal

namespace msl {
enum op : uint32_t { SUM = 1, PRODUCT, MAX, MIN, AND, OR, XOR, EXCHANGE, MULTIPLY };

template <class T> MSL_UNCHECKED MSL_INLINE T &slot(msl_simd *s, int parity, uint32_t lane) { return *(T *)s->slot[parity][lane]; }

template <op O, class T> MSL_INLINE T combine(T a, T b)
{
    return O == SUM ? (T)(a + b) : O == PRODUCT ? (T)(a * b) : O == MAX ? metal::max(a, b) : metal::min(a, b);
}
template <op O> MSL_INLINE uint combine_bits(uint a, uint b) { return O == AND ? a & b : O == OR ? a | b : a ^ b; }

template <op O, class T, bool Bits> struct reduction {
    template <class U> MSL_INLINE static U two(U a, U b, std::false_type) { return combine<O>(a, b); }
    template <class U> MSL_INLINE static U two(U a, U b, std::true_type) { return (U)combine_bits<O>((uint)a, (uint)b); }
    MSL_UNCHECKED static void finish(msl_simd *s, int parity)
    {
        uint32_t active = s->active[parity], first = (uint32_t)__builtin_ctz(active), flip = 0;
        if (msl_settings.schedule == MSL_REVERSE)
            flip = 31;
        else if (msl_settings.schedule == MSL_RANDOM)
            flip = msl_settings.seed & 31;
        if (active == ~0u)
            first = flip;
        T r = slot<T>(s, parity, first);
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t lane = k ^ flip;
            if (lane != first && (active >> lane & 1))
                r = two(r, slot<T>(s, parity, lane), std::integral_constant<bool, Bits>());
        }
        *(T *)s->result[parity] = r;
    }
};
template <op O, bool Bits, class T> MSL_CONVERGENT MSL_UNCHECKED MSL_INLINE T reduce(T v)
{
    msl_simd *s = msl_self->simd;
    slot<T>(s, s->parity, msl_self->lane) = v;
    int parity = meet(O | sizeof(T) << 8, &reduction<O, T, Bits>::finish);
    return *(T *)s->result[parity];
}

// Hands v to the others; returns the parity under which slots and the active mask can be read.
template <class T> MSL_CONVERGENT MSL_UNCHECKED MSL_INLINE int exchange(const T &v)
{
    static_assert(sizeof(T) <= MSL_SLOT_BYTES, "value too large for a simdgroup function");
    msl_simd *s = msl_self->simd;
    slot<T>(s, s->parity, msl_self->lane) = v;
    return meet(EXCHANGE | sizeof(T) << 8, nullptr);
}
template <class T> MSL_UNCHECKED MSL_INLINE T take(int parity, uint32_t from)
{
    msl_simd *s = msl_self->simd;
    if (from >= 32 || !(s->active[parity] >> from & 1))
        msl_fail("shuffle reads lane %u, which does not take part", from);
    return slot<T>(s, parity, from);
}
template <op O, class T> MSL_CONVERGENT MSL_UNCHECKED MSL_INLINE T prefix(T v, T start, uint32_t n)
{
    msl_simd *s = msl_self->simd;
    int parity = exchange(v);
    T r = start;
    for (uint32_t lane = 0; lane < n; lane++)
        if (s->active[parity] >> lane & 1)
            r = combine<O>(r, slot<T>(s, parity, lane));
    return r;
}
} // namespace msl

namespace metal {
#define MSL_SIMD template <class T> MSL_CONVERGENT MSL_INLINE T
MSL_SIMD simd_sum(T v) { return msl::reduce<msl::SUM, false>(v); }
MSL_SIMD simd_product(T v) { return msl::reduce<msl::PRODUCT, false>(v); }
MSL_SIMD simd_max(T v) { return msl::reduce<msl::MAX, false>(v); }
MSL_SIMD simd_min(T v) { return msl::reduce<msl::MIN, false>(v); }
MSL_SIMD simd_and(T v) { return msl::reduce<msl::AND, true>(v); }
MSL_SIMD simd_or(T v) { return msl::reduce<msl::OR, true>(v); }
MSL_SIMD simd_xor(T v) { return msl::reduce<msl::XOR, true>(v); }
MSL_CONVERGENT MSL_INLINE bool simd_all(bool b) { return msl::reduce<msl::AND, true>((uint)b); }
MSL_CONVERGENT MSL_INLINE bool simd_any(bool b) { return msl::reduce<msl::OR, true>((uint)b); }
MSL_SIMD simd_shuffle(T v, ushort lane) { return msl::take<T>(msl::exchange(v), lane); }
MSL_SIMD simd_broadcast(T v, ushort lane) { return msl::take<T>(msl::exchange(v), lane); }
MSL_SIMD simd_shuffle_xor(T v, ushort mask) { return msl::take<T>(msl::exchange(v), msl_self->lane ^ mask); }
MSL_SIMD simd_shuffle_down(T v, ushort n)
{ int p = msl::exchange(v); uint32_t from = msl_self->lane + n; return from < 32 ? msl::take<T>(p, from) : v; }
MSL_SIMD simd_shuffle_up(T v, ushort n)
{ int p = msl::exchange(v); uint32_t from = msl_self->lane - n; return from < 32 ? msl::take<T>(p, from) : v; }
MSL_SIMD simd_shuffle_rotate_down(T v, ushort n) { return msl::take<T>(msl::exchange(v), (msl_self->lane + n) & 31); }
MSL_SIMD simd_shuffle_rotate_up(T v, ushort n) { return msl::take<T>(msl::exchange(v), (msl_self->lane - n) & 31); }
MSL_SIMD simd_broadcast_first(T v)
{ int p = msl::exchange(v); return msl::take<T>(p, (uint32_t)__builtin_ctz(msl_self->simd->active[p])); }
MSL_SIMD simd_prefix_inclusive_sum(T v) { return msl::prefix<msl::SUM>(v, T(0), msl_self->lane + 1); }
MSL_SIMD simd_prefix_exclusive_sum(T v) { return msl::prefix<msl::SUM>(v, T(0), msl_self->lane); }
struct simd_vote {
    typedef uint64_t vote_t;
    uint64_t bits;
    MSL_INLINE explicit simd_vote(uint64_t b = 0) : bits(b) {}
    MSL_INLINE explicit operator vote_t() const { return bits; }
    MSL_INLINE bool all() const { return bits == 0xffffffffu; }
    MSL_INLINE bool any() const { return bits != 0; }
};
MSL_CONVERGENT MSL_INLINE simd_vote simd_ballot(bool b)
{ return simd_vote(msl::reduce<msl::OR, true>(b ? 1u << msl_self->lane : 0u)); }
MSL_CONVERGENT MSL_INLINE bool simd_is_first()
{ int p = msl::exchange(0u); return (uint32_t)__builtin_ctz(msl_self->simd->active[p]) == msl_self->lane; }

template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "simdgroup matrices are 8x8");
    T e[2];
    simdgroup_matrix() = default;
    MSL_INLINE explicit simdgroup_matrix(T s) // a diagonal matrix
    { for (int i = 0; i < 2; i++) e[i] = row(msl_self->place) == col(msl_self->place, i) ? s : T(0); }
    static MSL_INLINE uint row(uint place) { return (place >> 2 & 4) + (place >> 1 & 3); }
    static MSL_INLINE uint col(uint place, int i) { return (place >> 3 & 1) * 4 + (place & 1) * 2 + (uint)i; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C = R> MSL_INLINE simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v)
{ simdgroup_matrix<T, R, C> m; m.e[0] = m.e[1] = v; return m; }

template <class T> MSL_INLINE ulong matrix_at(int i, ulong per_row, vec<ulong, 2> origin, bool transpose)
{
    typedef simdgroup_matrix<T, 8, 8> M;
    ulong r = M::row(msl_self->place), c = M::col(msl_self->place, i);
    return transpose ? (c + origin.y) * per_row + r + origin.x : (r + origin.y) * per_row + c + origin.x;
}
template <class T>
MSL_CONVERGENT MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *from, ulong per_row = 8,
                                              vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false)
{ for (int i = 0; i < 2; i++) m.e[i] = from[matrix_at<T>(i, per_row, origin, transpose)]; }
template <class T>
MSL_CONVERGENT MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *to, ulong per_row = 8,
                                               vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false)
{ for (int i = 0; i < 2; i++) to[matrix_at<T>(i, per_row, origin, transpose)] = m.e[i]; }

template <class D, class A, class B, class C> struct multiplication {
    struct operands { A a[2]; B b[2]; C c[2]; };
    MSL_UNCHECKED static void finish(msl_simd *s, int parity)
    {
        typedef simdgroup_matrix<float, 8, 8> M;
        float a[8][8], b[8][8], c[8][8];
        if (s->active[parity] != ~0u)
            msl_fail("simdgroup matrix function with %d of 32 lanes", __builtin_popcount(s->active[parity]));
        for (uint lane = 0; lane < 32; lane++) {
            const operands &o = msl::slot<operands>(s, parity, lane);
            uint place = s->lanes[lane].place, r = M::row(place), q = M::col(place, 0);
            for (uint i = 0; i < 2; i++) {
                a[r][q + i] = (float)o.a[i];
                b[r][q + i] = (float)o.b[i];
                c[r][q + i] = (float)o.c[i];
            }
        }
        for (int i = 0; i < 8; i++)
            for (int k = 0; k < 8; k++)
                for (int j = 0; j < 8; j++)
                    c[i][j] += a[i][k] * b[k][j];
        float *out = (float *)s->result[parity];
        for (uint lane = 0; lane < 32; lane++) {
            uint place = s->lanes[lane].place;
            out[lane * 2] = c[M::row(place)][M::col(place, 0)];
            out[lane * 2 + 1] = c[M::row(place)][M::col(place, 1)];
        }
    }
};
template <class D, class A, class B, class C>
MSL_UNCHECKED MSL_CONVERGENT MSL_INLINE void
simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                              const simdgroup_matrix<B, 8, 8> &b, const simdgroup_matrix<C, 8, 8> &c)
{
    typedef multiplication<D, A, B, C> M;
    msl_simd *s = msl_self->simd;
    typename M::operands &o = msl::slot<typename M::operands>(s, s->parity, msl_self->lane);
    for (int i = 0; i < 2; i++) {
        o.a[i] = a.e[i];
        o.b[i] = b.e[i];
        o.c[i] = c.e[i];
    }
    int parity = msl::meet(msl::MULTIPLY | sizeof(typename M::operands) << 8, &M::finish);
    float *out = (float *)s->result[parity] + msl_self->lane * 2;
    d.e[0] = (D)out[0];
    d.e[1] = (D)out[1];
}
template <class D, class A, class B>
MSL_CONVERGENT MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                                  const simdgroup_matrix<B, 8, 8> &b)
{ simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0))); }
} // namespace metal
