// NVIDIA sm_90 through NVRTC: ids, barriers, cross-lane, loads, fences,
// conversions.
#pragma once
#include "kg/core/num_soft.h"

namespace kg {

KG_DEV u32 thread_id() { return threadIdx.x; }
KG_DEV u32 lane_id() { return threadIdx.x % WAVE; }
KG_DEV u32 wave_id() { return __shfl_sync(0xffffffffu, threadIdx.x / WAVE, 0); }
KG_DEV u32 group_id() { return blockIdx.x; }

KG_DEV i32 uniform(i32 x) { return x; }
// Hides a value from the optimiser: keeps loop-invariant LDS reads in the loop.
KG_DEV u32 opaque(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}

KG_DEV u32 opaque_uniform(u32 x) { return opaque(x); }
template <class T> KG_DEV const T &reread(const T &x) { return x; }

// The same for an address: what it was made of is not computed again at each use.
KG_DEV const u8 *settled(const u8 *p) {
    asm volatile("" : "+l"(p));
    return p;
}

KG_DEV void order_here() {}
template <class T> KG_DEV void touch(const T &) {}
KG_DEV void barrier() { __syncthreads(); }
// Of all workgroups of the cluster.
KG_DEV void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;"
                 :
                 :
                 : "memory");
}
// The same in two steps, which order no memory: nobody waits for what was stored.
KG_DEV void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");
}
KG_DEV void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" : : : "memory"); }
KG_DEV void cluster_meet() {
    cluster_arrive();
    cluster_wait();
}
// Where the cluster's workgroup number `rank` has what `p` is here.
KG_DEV u32 peer_address(const u8 *p, u32 rank) {
    u32 x;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(x)
        : "r"((u32)__cvta_generic_to_shared(p)), "r"(rank));
    return x;
}
KG_DEV void load_peer(float (&out)[4], const u8 *p, u32 rank) {
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
                 : "r"(peer_address(p, rank))
                 : "memory");
}
KG_DEV void load_peer(float (&out)[2], const u8 *p, u32 rank) {
    asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];"
                 : "=f"(out[0]), "=f"(out[1])
                 : "r"(peer_address(p, rank))
                 : "memory");
}
// Counts the bytes that others store here; one thread begins, before it says that it has arrived.
KG_DEV void arrivals_begin(u64 *count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                 "fence.mbarrier_init.release.cluster;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(count))
                 : "memory");
}
// `bytes` for the turn'th time, modulo 2.
KG_DEV void await_arrivals(u64 *count, u32 bytes, u32 turn) {
    u32 at = (u32)__cvta_generic_to_shared(count), done = 0;
    if (thread_id() == 0)
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;"
                     :
                     : "r"(at), "r"(bytes)
                     : "memory");
    while (!done)
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(at), "r"(turn)
                     : "memory");
}
// Counted where it is stored.
KG_DEV void send_peer(const float (&x)[4], const u8 *p, u32 rank, const u64 *count) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1,%2,%3,%4}, [%5];"
                 :
                 : "r"(peer_address(p, rank)), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]),
                   "r"(peer_address((const u8 *)count, rank))
                 : "memory");
}
KG_DEV void send_peer(const float (&x)[2], const u8 *p, u32 rank, const u64 *count) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
                 "[%0], {%1,%2}, [%3];"
                 :
                 : "r"(peer_address(p, rank)), "f"(x[0]), "f"(x[1]),
                   "r"(peer_address((const u8 *)count, rank))
                 : "memory");
}
// Fences are cumulative here: the one around the atomic, after a barrier,
// covers what the whole workgroup wrote.
KG_DEV void release_device() {}
KG_DEV void acquire_device() {}
// What was there before. KIND: as PTX has it.
#define KG_ATOMIC_ADD(NAME, TYPE, KIND, REGISTER)  \
    KG_DEV TYPE NAME(TYPE *p, TYPE x) {            \
        TYPE before;                               \
        asm volatile("atom." KIND " %0, [%1], %2;" \
                     : "=" REGISTER(before)        \
                     : "l"(p), REGISTER(x)         \
                     : "memory");                  \
        return before;                             \
    }
KG_ATOMIC_ADD(atomic_add, u64, "acq_rel.gpu.global.add.u64", "l")
KG_DEV void atomic_or(i32 *p, i32 x) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" : : "l"(p), "r"(x) : "memory");
}

// What order nothing, but reach the device.
KG_ATOMIC_ADD(atomic_count, u32, "relaxed.gpu.global.add.u32", "r")
KG_ATOMIC_ADD(atomic_count, u64, "relaxed.gpu.global.add.u64", "l")
#undef KG_ATOMIC_ADD
KG_DEV u32 returned(u32 x) { return x; }
KG_DEV u32 atomic_load(const u32 *p) {
    u32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
// What was written before it was counted is there for who sees the count, after a barrier.
KG_DEV u64 atomic_load(const u64 *p) {
    u64 x;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
// Of a counter while others come: some 70 microseconds.
constexpr int POLLS = 100;
constexpr u32 FEWEST_TOGETHER = 24; // workgroups that wait for each other
KG_DEV void atomic_store(u32 *p, u32 x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(x) : "memory");
}

KG_DEV u32 shuffle(u32 x, u32 from) { return __shfl_sync(0xffffffffu, x, from); }
// One lane's, the same for all.
KG_DEV u32 read_lane(u32 x, u32 lane) { return shuffle(x, lane); }
// The greatest of a wave, of numbers that are not negative.
KG_DEV float max_lanes(float x) {
    return __builtin_bit_cast(float, __reduce_max_sync(0xffffffffu, __builtin_bit_cast(u32, x)));
}
KG_DEV bool any(bool x) { return __any_sync(0xffffffffu, x); }
KG_DEV u64 ballot(bool x) { return __ballot_sync(0xffffffffu, x); }

// Sums over the lanes that differ in bits LOW .. HIGH/2 of their number; every
// lane gets the sum.
template <int LOW, int HIGH, int N> KG_DEV void sum_lanes(float (&x)[N]) {
    KG_UNROLL for (int mask = LOW; mask < HIGH; mask *= 2) KG_UNROLL for (int i = 0; i < N; i++)
        x[i] += __shfl_xor_sync(0xffffffffu, x[i], mask);
}

KG_DEV u32 wave_sum(u32 x) { return __reduce_add_sync(0xffffffffu, x); }
KG_DEV u32 wave_max(u32 x) { return __reduce_max_sync(0xffffffffu, x); }
// Of a lane and those of the wave below it.
KG_DEV u32 sum_below(u32 x) {
    KG_UNROLL for (u32 m = 1; m < WAVE; m *= 2) {
        u32 below = __shfl_up_sync(0xffffffffu, x, m);
        x += lane_id() >= m ? below : 0;
    }
    return x;
}

KG_DEV u32 first_bit(u64 x) { return (u32)__ffsll((i64)x) - 1; } // x is not 0
KG_DEV u32 last_bit(u64 x) { return 63 - (u32)__clzll((i64)x); }
KG_DEV u32 bit_count(u64 x) { return (u32)__popcll((i64)x); }

KG_DEV float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KG_DEV float log2(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KG_DEV float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KG_DEV float rsqrt(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KG_DEV float fmax(float a, float b) { return ::fmaxf(a, b); }
KG_DEV float fmin(float a, float b) { return ::fminf(a, b); }
KG_DEV float fma(float a, float b, float c) { return ::fmaf(a, b, c); }

// Keys and values are read once: keep them out of the way of what is reused.
KG_DEV void load_words(u32 (&out)[4], const u8 *p) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p));
}
KG_DEV void load_words(u32 (&out)[2], const u8 *p) {
    asm volatile("ld.global.nc.L2::128B.v2.u32 {%0,%1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "l"(p));
}
KG_DEV void load_words(u32 (&out)[1], const u8 *p) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(out[0]) : "l"(p));
}
// What other workgroups of this launch wrote, after acquire_device: past L1.
KG_DEV void load_shared(float (&out)[4], const float *p) {
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
                 : "l"(p));
}
KG_DEV void load_shared(float (&out)[2], const float *p) {
    KG_UNROLL for (int i = 0; i < 2;
                   i++) asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(out[i]) : "l"(p + i));
}
template <class T> KG_DEV T load(const T *p) { return *p; }
KG_DEV void store_words(float *p, const float (&x)[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
// What several waves of a workgroup read.
KG_DEV void load_near(u32 (&out)[4], const u8 *p) {
    asm volatile("ld.global.nc.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p));
}
KG_DEV void load_near(u32 (&out)[2], const u8 *p) { load_words(out, p); }
KG_DEV void load_near(u32 (&out)[1], const u8 *p) { load_words(out, p); }
// What a launch reads and writes as much of: not through the read-only path, and
// without hints, which cost 2 % and more there.
KG_DEV void load_plain(u32 (&out)[4], const u8 *p) {
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p)
                 : "memory");
}
KG_DEV void load_plain(u32 (&out)[2], const u8 *p) {
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "l"(p)
                 : "memory");
}
KG_DEV void store_words(u8 *p, const u32 (&x)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
KG_DEV void store_words(u8 *p, const u32 (&x)[2]) {
    asm volatile("st.global.v2.u32 [%0], {%1,%2};" : : "l"(p), "r"(x[0]), "r"(x[1]) : "memory");
}
template <class T> KG_DEV void store(T *p, T x) { *p = x; }

KG_DEV void store_shared(float *p, const float (&x)[4]) { store_words(p, x); }
KG_DEV void store_shared(float *p, float a, float b) {
    store(p, a);
    store(p + 1, b);
}

// bytes of (b, a) picked by `select`; 0..3 from a, 4..7 from b. In nibbles here.
KG_DEV u32 byte_perm(u32 a, u32 b, u32 select) {
    u32 nibbles =
        (select & 7) | (select >> 4 & 0x70) | (select >> 8 & 0x700) | (select >> 12 & 0x7000);
    return __byte_perm(a, b, nibbles);
}

// The larger of each 16 bits, without signs.
KG_DEV u32 max_pair(u32 a, u32 b) {
    u32 x;
    asm("max.u16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

KG_DEV u32 pack_f16(float a, float b) {
    u32 x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(b), "f"(a));
    return x;
}
KG_DEV float f16_to_f32(u32 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x));
    return y;
}
KG_DEV u32 pack_bf16(float a, float b) {
    u32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(b), "f"(a));
    return x;
}
KG_DEV u32 pack_bf16_numbers(float a, float b) { return pack_bf16(a, b); }

} // namespace kg
