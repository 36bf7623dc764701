// msl.hpp - what `#include <metal_stdlib>` means here, and how a kernel's arguments reach it. Included first by translated kernels.
#pragma once
#include "msl_sync.hpp"

// A threadgroup variable: the same memory for all threads of the group. The generator numbers those of a kernel.
#define MSL_VARIABLE(slot, name, type) type &name = *(type *)msl_threadgroup_variable(slot, #name, sizeof(type), alignof(type))

namespace msl {
MSL_INLINE void *argument(const msl_group *g, msl_binding b)
{
    return b.source == MSL_THREADGROUP ? (void *)g->threadgroup[b.index] : g->buffers[b.index];
}
MSL_INLINE msl_uint3 value(const msl_group *g, const msl_lane *l, int source)
{
    switch (source) {
    case MSL_THREAD_POSITION_IN_GRID:
        return { g->position.x * g->dispatch_threads.x + l->position.x, g->position.y * g->dispatch_threads.y + l->position.y,
                 g->position.z * g->dispatch_threads.z + l->position.z };
    case MSL_THREADGROUP_POSITION_IN_GRID: return g->position;
    case MSL_THREAD_POSITION_IN_THREADGROUP: return l->position;
    case MSL_THREADS_PER_THREADGROUP: return g->threads;
    case MSL_DISPATCH_THREADS_PER_THREADGROUP: return g->dispatch_threads;
    case MSL_THREADGROUPS_PER_GRID: return g->groups;
    case MSL_THREADS_PER_GRID: return g->grid;
    case MSL_THREAD_INDEX_IN_THREADGROUP: return { l->index, 0, 0 };
    case MSL_THREAD_INDEX_IN_SIMDGROUP: return { l->lane, 0, 0 };
    case MSL_SIMDGROUP_INDEX_IN_THREADGROUP: return { l->simd->index, 0, 0 };
    case MSL_SIMDGROUPS_PER_THREADGROUP: return { (g->n_threads + 31) / 32, 0, 0 };
    default: return { 32, 0, 0 };
    }
}
template <class T> struct pass;
template <class T> struct pass<T *> {
    static T *get(const msl_group *g, const msl_lane *, msl_binding b) { return (T *)argument(g, b); }
};
template <class T> struct pass<T &> {
    static T &get(const msl_group *g, const msl_lane *, msl_binding b) { return *(T *)argument(g, b); }
};
#define MSL_PASS(S)                                                                                                      \
    template <> struct pass<S> {                                                                                         \
        static S get(const msl_group *g, const msl_lane *l, msl_binding b) { return (S)value(g, l, b.source).x; }        \
    };                                                                                                                   \
    template <> struct pass<metal::vec<S, 2>> {                                                                          \
        static metal::vec<S, 2> get(const msl_group *g, const msl_lane *l, msl_binding b)                                \
        { msl_uint3 v = value(g, l, b.source); return metal::vec<S, 2>((S)v.x, (S)v.y); }                                \
    };                                                                                                                   \
    template <> struct pass<metal::vec<S, 3>> {                                                                          \
        static metal::vec<S, 3> get(const msl_group *g, const msl_lane *l, msl_binding b)                                \
        { msl_uint3 v = value(g, l, b.source); return metal::vec<S, 3>((S)v.x, (S)v.y, (S)v.z); }                        \
    };
MSL_PASS(uint) MSL_PASS(ushort)

template <class T> struct size_of_reference { static constexpr uint32_t bytes = 0; };
template <class T> struct size_of_reference<T &> { static constexpr uint32_t bytes = sizeof(T); };

template <class... A> struct signature {
    static const uint32_t *least_bytes()
    {
        static const uint32_t bytes[] = { size_of_reference<A>::bytes..., 0 };
        return bytes;
    }
    template <size_t... I>
    MSL_UNCHECKED static void spread(const msl_kernel *k, const msl_group *g, const msl_lane *l, std::index_sequence<I...>)
    {
        ((void (*)(A...))k->function)(pass<A>::get(g, l, k->bindings[I])...);
    }
    MSL_UNCHECKED static void call(const msl_kernel *k, const msl_group *g, const msl_lane *l)
    {
        spread(k, g, l, std::index_sequence_for<A...>());
    }
};
template <class... A, size_t N>
inline msl_kernel kernel(const char *name, void (*f)(A...), const msl_binding (&b)[N], const int *constants, uint32_t max_threads)
{
    static_assert(N == sizeof...(A) + 1, "one binding for each parameter");
    return { name, &signature<A...>::call, (void (*)())f, b, signature<A...>::least_bytes(), constants, (int)sizeof...(A), max_threads };
}
} // namespace msl

#define is_function_constant_defined(name) msl_defined_##name
#ifdef MSL_CHECKED
extern "C" const int msl_checked = 1;
#endif
