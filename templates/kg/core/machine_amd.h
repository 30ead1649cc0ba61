// AMD targets: ids, barriers, cross-lane, loads, fences, conversions. Compiler
// builtins only: the same text goes through hipRTC and plain clang.
#pragma once
#include "kg/core/num_soft.h"

namespace kg {

typedef u32 u32x2_t __attribute__((ext_vector_type(2)));
typedef u32 u32x4_t __attribute__((ext_vector_type(4)));
typedef float f32x2_t __attribute__((ext_vector_type(2)));
typedef float f32x4_t __attribute__((ext_vector_type(4)));
#define KG_GLOBAL __attribute__((address_space(1)))

constexpr int waves_per_simd(int workgroups) {
    int waves = workgroups * (KG_WORKGROUP / WAVE) / KG_SIMDS; // of a compute unit
    return waves < 1 ? 1 : waves;
}

KG_DEV u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
KG_DEV u32 lane_id() { return thread_id() % WAVE; }
KG_DEV u32 wave_id() { return __builtin_amdgcn_readfirstlane(thread_id() / WAVE); }
KG_DEV u32 group_id() { return __builtin_amdgcn_workgroup_id_x(); }

KG_DEV i32 uniform(i32 x) { return __builtin_amdgcn_readfirstlane(x); }
// Hides a value from the optimiser: keeps loop-invariant LDS reads in the loop.
KG_DEV u32 opaque(u32 x) {
    asm volatile("" : "+v"(x));
    return x;
}
// The same for a scalar: what is computed from it stays where it is written.
KG_DEV u32 opaque_uniform(u32 x) {
    asm volatile("" : "+s"(x));
    return x;
}

// Addresses made of uniform values are scalar here: nothing to hide.
KG_DEV const u8 *settled(const u8 *p) { return p; }

template <class T> KG_DEV const KG_CONSTANT T &reread(const KG_CONSTANT T &x) {
    const KG_CONSTANT T *p = &x;
    asm volatile("" : "+s"(p));
    return *p;
}

// All lines of the arguments are asked for at once: read where they are needed, each would be
// a miss of its own.
template <class T> KG_DEV void touch(const KG_CONSTANT T &x) {
    u32 all = 0;
    KG_UNROLL for (u32 at = 0; at < sizeof(T); at += 64) all |=
        ((const KG_CONSTANT u32 *)&x)[at / 4];
    asm volatile("" : : "s"(all));
}

// Two numbers, which some lanes compute at once.
typedef float pair_t __attribute__((ext_vector_type(2)));
KG_DEV pair_t pair_of(float x) { return pair_t{x, x}; }

// What is issued before stays before.
KG_DEV void order_here() { __builtin_amdgcn_sched_barrier(0); }

// The fence's own wait for what the wave has in LDS is not to be relied on: hipRTC of ROCm 7.2
// loses it at the head of a loop whose end writes there.
KG_DEV void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    asm volatile(KG_WAIT_LDS : : : "memory");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Of what store_shared writes and load_shared reads. Where each die has an L2 of its own, a
// fence walks all of one, and those of a die's workgroups queue: there these go past it,
// and it is enough that the stores have come to their end.
KG_DEV void release_device() {
    if constexpr (DIES == 1)
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    else
        asm volatile("s_waitcnt vmcnt(0)" : : : "memory");
}
KG_DEV void acquire_device() {
    if constexpr (DIES == 1)
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    else
        asm volatile("" : : : "memory");
}
KG_DEV u64 atomic_add(u64 *p, u64 x) {
    constexpr int ORDER = DIES == 1 ? __ATOMIC_ACQ_REL : __ATOMIC_RELAXED;
    return __hip_atomic_fetch_add(p, x, ORDER, __HIP_MEMORY_SCOPE_AGENT);
}
KG_DEV void atomic_or(i32 *p, i32 x) {
    __hip_atomic_fetch_or(p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// What order nothing, but reach the device.
KG_DEV u32 atomic_count(u32 *p, u32 x) {
    return __hip_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// Of what atomic_count gave: not waited for before this.
KG_DEV u32 returned(u32 x) { return opaque(x); }
KG_DEV u32 atomic_load(const u32 *p) {
    return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// Before acquire_device(), as what follows an atomic_add is.
KG_DEV u64 atomic_load(const u64 *p) {
    return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
constexpr int POLLS = 100;
constexpr u32 FEWEST_TOGETHER = 24;
KG_DEV void atomic_store(u32 *p, u32 x) {
    __hip_atomic_store(p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

KG_DEV u32 shuffle(u32 x, u32 from) { return __builtin_amdgcn_ds_bpermute(from * 4, x); }
// One lane's, the same for all.
KG_DEV u32 read_lane(u32 x, u32 lane) { return (u32)__builtin_amdgcn_readlane((i32)x, (i32)lane); }
KG_DEV bool any(bool x) {
#if KG_WAVE == 64
    return __builtin_amdgcn_ballot_w64(x) != 0;
#else
    return __builtin_amdgcn_ballot_w32(x) != 0;
#endif
}
KG_DEV u64 ballot(bool x) {
#if KG_WAVE == 64
    return __builtin_amdgcn_ballot_w64(x);
#else
    return __builtin_amdgcn_ballot_w32(x);
#endif
}

// Sums over the lanes that differ in bits LOW .. HIGH/2 of their number; every
// lane gets the sum. Within 16 lanes by DPP, without LDS.
template <int CTRL> KG_DEV float dpp(float x) {
    i32 bits = __builtin_bit_cast(i32, x);
    return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(0, bits, CTRL, 15, 15, true));
}
template <int MASK, int LOW> KG_DEV float across(float x) {
    if constexpr (MASK == 1) return dpp<0xb1>(x);              // quad_perm 1 0 3 2
    if constexpr (MASK == 2) return dpp<0x4e>(x);              // quad_perm 2 3 0 1
    if constexpr (MASK == 4 && LOW == 1) return dpp<0x141>(x); // row_half_mirror: quads are equal
    if constexpr (MASK == 8) return dpp<0x128>(x);             // row_ror 8
    return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(u32, x), lane_id() ^ MASK));
}
template <int LOW, int HIGH, int N, int MASK = LOW> KG_DEV void sum_lanes(float (&x)[N]) {
    if constexpr (MASK < HIGH) {
        KG_UNROLL for (int i = 0; i < N; i++) x[i] += across<MASK, LOW>(x[i]);
        sum_lanes<LOW, HIGH, N, MASK * 2>(x);
    }
}

// The greatest of a wave.
template <int MASK = 1> KG_DEV float max_lanes(float x) {
    if constexpr (MASK < WAVE)
        return max_lanes<MASK * 2>(__builtin_fmaxf(x, across<MASK, 1>(x)));
    else
        return x;
}

// Of a lane and those of the wave below it: within 16 lanes by shifts, then of all 16 by what
// the last of them has, which lanes of other rows receive.
template <int CTRL, int ROWS_TO> KG_DEV u32 add_dpp(u32 x, u32 from) {
    return x + (u32)__builtin_amdgcn_update_dpp(0, (i32)from, CTRL, ROWS_TO, 15, false);
}
template <int LANES = WAVE> KG_DEV u32 sum_below(u32 x) {
    x = add_dpp<0x111, 15>(x, x); // row_shr 1
    x = add_dpp<0x112, 15>(x, x);
    x = add_dpp<0x114, 15>(x, x);
    x = add_dpp<0x118, 15>(x, x);
    if constexpr (LANES == 64) {
        x = add_dpp<0x142, 10>(x, x);    // row_bcast 15: to the next 16 lanes
        return add_dpp<0x143, 12>(x, x); // row_bcast 31: to the next 32
    } else {
        u32 other = __builtin_amdgcn_permlanex16(0, x, ~0u, ~0u, false, false);
        return add_dpp<0xe4, 10>(x, other); // quad_perm 0 1 2 3
    }
}
KG_DEV u32 wave_sum(u32 x) { return read_lane(sum_below(x), WAVE - 1); }

KG_DEV u32 first_bit(u64 x) { return (u32)__builtin_ctzll(x); } // x is not 0
KG_DEV u32 last_bit(u64 x) { return 63 - (u32)__builtin_clzll(x); }
// Additions of their own: emulated devices leave out what the instruction would add.
KG_DEV u32 bit_count(u64 x) {
    u32 low = opaque((u32)__builtin_popcount((u32)x));
    return low + opaque((u32)__builtin_popcount((u32)(x >> 32)));
}

KG_DEV float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
KG_DEV float log2(float x) { return __builtin_amdgcn_logf(x); }
KG_DEV float rcp(float x) { return __builtin_amdgcn_rcpf(x); }
KG_DEV float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
KG_DEV float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
KG_DEV float fmin(float a, float b) { return __builtin_fminf(a, b); }
KG_DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// Explicitly global: a flat load would also wait for LDS. load_shared reads what
// other workgroups of this launch wrote, after acquire_device.
KG_DEV void load_words(u32 (&out)[4], const u8 *p) {
    u32x4_t x = *(const KG_GLOBAL u32x4_t *)p;
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
}
KG_DEV void load_words(u32 (&out)[2], const u8 *p) {
    u32x2_t x = *(const KG_GLOBAL u32x2_t *)p;
    out[0] = x.x, out[1] = x.y;
}
KG_DEV void load_words(u32 (&out)[1], const u8 *p) { out[0] = *(const KG_GLOBAL u32 *)p; }
KG_DEV u64 load_past(const float *p) {
    return __hip_atomic_load((const KG_GLOBAL u64 *)p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <int N> KG_DEV void load_shared(float (&out)[N], const float *p) {
    if constexpr (DIES > 1) {
        KG_UNROLL for (int i = 0; i < N; i += 2) {
            u64 pair = load_past(p + i);
            out[i] = float_of((u32)pair), out[i + 1] = float_of((u32)(pair >> 32));
        }
    } else if constexpr (N == 4) {
        f32x4_t x = *(const KG_GLOBAL f32x4_t *)p;
        out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
    } else {
        f32x2_t x = *(const KG_GLOBAL f32x2_t *)p;
        out[0] = x.x, out[1] = x.y;
    }
}
template <class T> KG_DEV T load(const T *p) { return *(const KG_GLOBAL T *)p; }
KG_DEV void store_words(float *p, const float (&x)[4]) {
    f32x4_t v = {x[0], x[1], x[2], x[3]};
    *(KG_GLOBAL f32x4_t *)p = v;
}
KG_DEV void store_past(float *p, float a, float b) {
    u64 pair = (u64)bits_of(b) << 32 | bits_of(a);
    __hip_atomic_store((KG_GLOBAL u64 *)p, pair, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
KG_DEV void store_shared(float *p, const float (&x)[4]) {
    if constexpr (DIES == 1) return store_words(p, x);
    store_past(p, x[0], x[1]);
    store_past(p + 2, x[2], x[3]);
}
KG_DEV void store_shared(float *p, float a, float b) {
    if constexpr (DIES > 1) return store_past(p, a, b);
    *(KG_GLOBAL f32x2_t *)p = f32x2_t{a, b};
}
// What a launch reads and writes as much of.
template <int N> KG_DEV void load_plain(u32 (&out)[N], const u8 *p) { load_words(out, p); }
template <int N> KG_DEV void load_near(u32 (&out)[N], const u8 *p) { load_words(out, p); }
KG_DEV void store_words(u8 *p, const u32 (&x)[4]) {
    u32x4_t v = {x[0], x[1], x[2], x[3]};
    *(KG_GLOBAL u32x4_t *)p = v;
}
KG_DEV void store_words(u8 *p, const u32 (&x)[2]) {
    u32x2_t v = {x[0], x[1]};
    *(KG_GLOBAL u32x2_t *)p = v;
}
template <class T> KG_DEV void store(T *p, T x) { *(KG_GLOBAL T *)p = x; }

// bytes of (b, a) picked by `select`; 0..3 from a, 4..7 from b
KG_DEV u32 byte_perm(u32 a, u32 b, u32 select) { return __builtin_amdgcn_perm(b, a, select); }

typedef u16 u16x2_t __attribute__((ext_vector_type(2)));
KG_DEV u32 max_pair(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(u16x2_t, a),
                                                             __builtin_bit_cast(u16x2_t, b)));
}

typedef _Float16 f16x2_t __attribute__((ext_vector_type(2)));
KG_DEV u32 pack_f16(float a, float b) {
    f16x2_t x = {(_Float16)a, (_Float16)b};
    return __builtin_bit_cast(u32, x);
}

KG_DEV float f16_to_f32(u32 x) { return (float)__builtin_bit_cast(_Float16, (u16)x); }

typedef __bf16 bf16x2_t __attribute__((ext_vector_type(2)));
KG_DEV u32 pack_bf16_native(float a, float b) {
    f32x2_t x = {a, b};
    return __builtin_bit_cast(u32, __builtin_convertvector(x, bf16x2_t));
}
KG_DEV u32 pack_bf16(float a, float b) {
    if constexpr (CONVERTS_BF16) return pack_bf16_native(a, b);
    u32 x = a != a ? SHORT_NAN : round_to_upper(a), y = b != b ? SHORT_NAN : round_to_upper(b);
    return byte_perm(x, y, 0x07060302);
}
// Of numbers, and of NaN that have 16 bits or show elsewhere.
KG_DEV u32 pack_bf16_numbers(float a, float b) {
    if constexpr (CONVERTS_BF16) return pack_bf16_native(a, b);
    return byte_perm(round_to_upper(a), round_to_upper(b), 0x07060302);
}
KG_DEV u32 pack_bf16_near(float a, float b) {
    if constexpr (CONVERTS_BF16) return pack_bf16_native(a, b);
    return byte_perm(near_upper(a), near_upper(b), 0x07060302);
}

} // namespace kg
