// trellis_hopper.cu - a product of one row with codes of the codebook MUL1, for Hopper; see trellis.h.
//
// Computes what trellis.cu does, by its parts (trellis_kernel.cuh). Bound by integer products and dot
// products, and nearly by issuing instructions (bench/results/2026-11-28-trellis.md).
//
//   grid: (walkers, splits); with 2, 4 or 8 splits, these are a cluster
//
// Epilogue: a ninth warp adds up what the others leave in shared memory while they go on. The splits' sums go
// to the cluster's first block, whose ninth warp adds them in their order and turns the outputs back; of
// other numbers of splits they meet in memory, as in trellis.cu.
// Images of other architectures hold no such kernel.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm/cuda/pipeline.cuh"
#include "ops/trellis/trellis_kernel.cuh"

// An address in the shared memory of another block of the cluster.
static __device__ __forceinline__ u32 place_in(u32 rank, u32 at)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}
static __device__ __forceinline__ void store_in(u32 rank, u32 at, const f32 (&v)[4])
{
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(place_in(rank, at)), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
}
static __device__ __forceinline__ void arrive_in(u32 rank, u32 barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(place_in(rank, barrier))
                 : "memory");
}
static __device__ __forceinline__ void wait_for_cluster(u32 barrier, u32 parity)
{
    asm volatile("{\n\t.reg .pred p;\n"
                 "again:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "\t@!p bra again;\n\t}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

template <u32 BITS, u32 CLUSTER> struct trellis_row : trellis_kernel<BITS, true, 1> {
    typedef trellis_kernel<BITS, true, 1> kernel;
    using kernel::p, kernel::all, kernel::ring, kernel::records, kernel::lane, kernel::warp, kernel::m,
        kernel::column, kernel::block_out, kernel::n_blocks, kernel::sums, kernel::source, kernel::stride,
        kernel::left, kernel::to, kernel::words, kernel::stage;
    typedef typename kernel::record record;

    // A stage of the ring is a block of columns, two quads: one wait, one address and one test for both.
    static constexpr bool PAIRS = trellis_pairs(BITS);
    static constexpr u32 QUAD = kernel::STAGE, STAGE = 2 * QUAD;

    u32 ahead;           // the block of all matrices' outputs of which stages are fetched
    u32 numbers, scales; // where this lane's activations and the scale of the first block of columns lie

    // Blocks of outputs take turns with two of each: the warps' sums are empty, those of the cluster's other
    // blocks have met or were read.
    u32 empty, met, read;
    f32 (*others)[EXL3_BLOCK]; // [2][CLUSTER - 1]

    __device__ __forceinline__ trellis_row(const struct trellis_params &params, u32 *shared)
        : kernel(params, shared + TRELLIS_HOPPER_BARRIER_WORDS)
    {
        empty = shared_place(shared);
        met = empty + 16;
        read = empty + 32;
        others = all + 2 * TRELLIS_SHARERS;
        if constexpr (BITS != 5)              // 3,368 GB/s where 3,617
            warp = __shfl_sync(~0u, warp, 0); // so the compiler sees that branches on it do not diverge
        ring = (u32 *)(others + 2 * (CLUSTER - 1)) + warp * trellis_hopper_depth(BITS) * QUAD / 4;
        if (threadIdx.x < 2) {
            barrier_begin(empty + threadIdx.x * 8, 1);
            barrier_begin(met + threadIdx.x * 8, CLUSTER > 1 ? 32 * (CLUSTER - 1) : 1);
            barrier_begin(read + threadIdx.x * 8, 1);
            show_barriers();
        }
        if constexpr (CLUSTER > 1)
            asm volatile("barrier.cluster.arrive;" ::: "memory");
    }
    static __device__ __forceinline__ void barriers_meet()
    {
        if constexpr (CLUSTER > 1)
            asm volatile("barrier.cluster.wait;" ::: "memory");
        else
            __syncthreads();
    }
    // By the eight warps that multiply.
    static __device__ __forceinline__ void rows_meet()
    {
        asm volatile("bar.sync 1, %0;" ::"n"(TRELLIS_WARPS * 32) : "memory");
    }
    // Stages follow each other without a gap, through all blocks of outputs that this one walks.
    __device__ __forceinline__ void begin_pairs()
    {
        to = shared_place(ring + lane / 8 * kernel::PITCH + lane % 8 * 4);
        keep(to);
        words = shared_place(ring + lane % 4 * kernel::PITCH + lane / 4 * 4 * BITS);
        keep(words);
        numbers = shared_place(records + lane % 4 * record::LANE_WORDS);
        keep(numbers);
        scales = shared_place(records + record::SCALES);
        keep(scales);
        stage = 0;
        fetch_of(blockIdx.x);
        fetch_pair(0);
    }
    __device__ __forceinline__ u32 n_quads() const
    {
        return this->end_quad() - this->first_quad();
    }
    __device__ __forceinline__ void fetch_of(u32 block)
    {
        u32 first = this->first_quad(), n = n_quads();

        ahead = block;
        this->fetch_from(first / 2 * 2, block);
        left = n > 0 ? (i32)((first % 2 + n + 1) / 2) : 0;
    }
    __device__ __forceinline__ void fetch_pair(u32 at)
    {
        if (left == 0 && ahead + gridDim.x < p.blocks_out)
            fetch_of(ahead + gridDim.x);
        const u32 *second = (const u32 *)((const u8 *)source + stride);
        if (left > 0) {
#pragma unroll
            for (u32 i = 0; i < kernel::ROW_WORDS / 32; i++)
                copy_to(to + at + i * 128, source + i * 32);
#pragma unroll
            for (u32 i = 0; i < kernel::ROW_WORDS / 32; i++)
                copy_to(to + at + QUAD + i * 128, second + i * 32);
        }
        copies_close();
        source = (const u32 *)((const u8 *)second + stride);
        left--;
    }
    // As `multiply`, with one wait for two quads. Only the first and the last block of columns may have one
    // that is another warp's.
    __device__ __forceinline__ void multiply_pairs()
    {
        u32 first = this->first_quad(), last = n_quads() - 1, at = numbers + first / 2 * record::WORDS * 4,
            scale_at = scales + first / 2 * record::WORDS * 4;
        i32 quad = n_quads() > 0 ? -(i32)(first % 2) : 0; // 0: the first that is this warp's

        keep(last);
#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++)
            sums[i][0][0] = sums[i][0][2] = 0;
#pragma unroll 1
        for (; quad <= (i32)last; quad += 2) {
            i32 own[TRELLIS_TILES][1][4] = {};
            copies_wait<0>();
            __syncwarp(); // all have read the stage before
            fetch_pair(stage ^ STAGE);
            if ((u32)quad < last) {
                this->step_of_row(words + stage, at, own);
                this->step_of_row(words + stage + QUAD, at + record::QUAD_WORDS * 4, own);
            } else {
                u32 second = quad < 0;
                this->step_of_row(words + stage + second * QUAD, at + second * record::QUAD_WORDS * 4, own);
            }
            stage ^= STAGE;
            u32 word[1];
            shared_words(scale_at, word);
            f32 scale = __uint_as_float(word[0]);
            at += record::WORDS * 4;
            scale_at += record::WORDS * 4;
#pragma unroll
            for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
                for (u32 j = 0; j < 4; j += 2)
                    sums[i][0][j] = __fmaf_rn((f32)own[i][0][j], scale, sums[i][0][j]);
        }
    }
    __device__ __forceinline__ void multiply_all()
    {
        const struct trellis_matrix *turned = nullptr;
        u32 turn = 0;

        for (column = blockIdx.x; column < p.blocks_out; column += gridDim.x, turn++) {
            block_out = column;
            m = trellis_matrix_of(p, block_out);
            if (m != turned) {
                if (turn > 0) // nobody reads the ones before
                    wait_for_stage(empty + (turn - 1) % 2 * 8, (turn - 1) / 2 & 1);
                rows_meet();
                this->take_rows();
                rows_meet();
                turned = m;
            }
            if constexpr (PAIRS)
                multiply_pairs();
            else {
                this->multiply();
                if (column + gridDim.x < p.blocks_out)
                    this->begin_fetching(column + gridDim.x);
            }
            leave_sums(turn);
        }
    }
    __device__ __forceinline__ void leave_sums(u32 turn)
    {
        if (turn >= 2)
            wait_for_stage(empty + turn % 2 * 8, turn / 2 - 1 & 1);
        this->store_sums(all + turn % 2 * TRELLIS_SHARERS);
        __syncwarp();
        asm volatile("bar.arrive %0, %1;" ::"r"(2 + turn % 2), "n"(TRELLIS_HOPPER_THREADS + 0) : "memory");
    }

    // By the ninth warp: the sums of four outputs a lane.
    __device__ __forceinline__ void take_sums(u32 turn, f32 (&v)[4])
    {
        asm volatile("bar.sync %0, %1;" ::"r"(2 + turn % 2), "n"(TRELLIS_HOPPER_THREADS + 0) : "memory");
        f32 offset = 0;
#pragma unroll 4
        for (u32 b = 0; b < n_blocks; b++)
            offset += ((const f32 *)records)[b * kernel::record::WORDS + kernel::record::OFFSETS];
        v[0] = v[1] = v[2] = v[3] = offset;
        add_rows(all + turn % 2 * TRELLIS_SHARERS, TRELLIS_SHARERS, v);
        __syncwarp();
        if (lane == 0)
            leave_stage(empty + turn % 2 * 8);
    }
    __device__ __forceinline__ void add_rows(const f32 (*rows)[EXL3_BLOCK], u32 n, f32 (&v)[4])
    {
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            float4 of = *(const float4 *)(rows[i] + 4 * lane);
            v[0] += of.x;
            v[1] += of.y;
            v[2] += of.z;
            v[3] += of.w;
        }
    }
    // Whether v then has all splits' sums.
    __device__ __forceinline__ bool meet_in_cluster(u32 turn, f32 (&v)[4])
    {
        f32(*of_turn)[EXL3_BLOCK] = others + turn % 2 * (CLUSTER - 1);
        u32 rank = blockIdx.y;

        if (rank > 0) {
            if (turn >= 2)
                wait_for_cluster(read + turn % 2 * 8, turn / 2 - 1 & 1);
            store_in(0, shared_place(of_turn[rank - 1] + 4 * lane), v);
            arrive_in(0, met + turn % 2 * 8);
            return false;
        }
        wait_for_cluster(met + turn % 2 * 8, turn / 2 & 1);
        add_rows(of_turn, CLUSTER - 1, v);
        __syncwarp();
        // a block that stores no more may have ended
        if (column + 2 * gridDim.x < p.blocks_out && lane > 0 && lane < CLUSTER)
            arrive_in(lane, read + turn % 2 * 8);
        return true;
    }
    __device__ __forceinline__ bool meet_in_memory(f32 (&v)[4])
    {
        u32 n_out = p.blocks_out * EXL3_BLOCK, before = 0;
        f32 *at = p.partial + column * EXL3_BLOCK + 4 * lane;

        __stcg((float4 *)(at + (u64)blockIdx.y * n_out), make_float4(v[0], v[1], v[2], v[3]));
        __threadfence();
        __syncwarp();
        if (lane == 0)
            before = atomicAdd(p.arrived + column, 1u);
        if (__shfl_sync(~0u, before, 0) + 1 < p.n_splits)
            return false;
        __threadfence();
        v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll 8
        for (u32 s = 0; s < p.n_splits; s++) {
            float4 of = __ldcg((const float4 *)(at + (u64)s * n_out));
            v[0] += of.x;
            v[1] += of.y;
            v[2] += of.z;
            v[3] += of.w;
        }
        if (lane == 0)
            p.arrived[column] = 0;
        return true;
    }
    __device__ __forceinline__ void finish_all()
    {
        u32 turn = 0;

        for (column = blockIdx.x; column < p.blocks_out; column += gridDim.x, turn++) {
            f32 v[4];
            block_out = column;
            m = trellis_matrix_of(p, block_out);
            take_sums(turn, v);
            if (CLUSTER > 1 ? meet_in_cluster(turn, v) : p.n_splits == 1 || meet_in_memory(v))
                trellis_write(m, block_out, 0, v);
        }
    }
    __device__ __forceinline__ void run()
    {
        if (warp<TRELLIS_WARPS &&this->n_rows> 0) {
            if constexpr (PAIRS)
                begin_pairs();
            else
                this->begin_fetching(blockIdx.x);
            this->prepare();
        }
        barriers_meet();
        wait_for_inputs();
        if (this->n_rows == 0)
            return;
        if (warp < TRELLIS_WARPS)
            multiply_all();
        else
            finish_all();
    }
};

#define TRELLIS_KERNEL(bits, name, cluster)                                                                 \
    extern "C" __global__ void __launch_bounds__(TRELLIS_HOPPER_THREADS, 2) __cluster_dims__(1, cluster, 1) \
        trellis_hopper_##bits##name(const __grid_constant__ struct trellis_params p)                        \
    {                                                                                                       \
        struct trellis_row<bits, cluster> row(p, (u32 *)trellis_shared);                                    \
        row.run();                                                                                          \
    }
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, , 1)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, _2, 2)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, _4, 4)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, _8, 8)
#endif
