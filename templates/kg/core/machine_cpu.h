// The cpu device: every lane is a fiber of the engine. Wave-wide operations go
// through the wave's exchange scratch.
#pragma once
#include "kg/core/num_soft.h"

// The engine's ABI, repeated by hand: generated text includes nothing.
struct kg_cpu_lane {
    unsigned thread, lane, wave, group, groups, block;
    unsigned char *lds;
    unsigned char *exchange;
    u64 *named;
};
struct kg_cpu_ops {
    kg_cpu_lane *(*self)(void);
    void (*wave_sync)(void);
    void (*barrier)(void);
    void (*cluster_barrier)(void);
    unsigned char *(*peer_lds)(unsigned rank);
    void (*await)(const u64 *gate, unsigned parity);
    void (*copy)(void *to, const void *from, unsigned bytes);
    void (*copies_end)(void);
    void (*copies_done)(unsigned groups);
    void (*all_copies_done)(void);
    void (*later)(void (*run)(const void *what), const void *what, unsigned bytes);
};
static const kg_cpu_ops *kg_ops;
extern "C" __attribute__((visibility("default"))) void kg_cpu_bind(const kg_cpu_ops *ops) {
    kg_ops = ops;
}

namespace kg {

constexpr int EXCHANGE_WORDS = 64; // of a lane
constexpr int ERRAND_BYTES = 64;   // KG_CPU_ERRAND

KG_DEV u32 thread_id() { return kg_ops->self()->thread; }
KG_DEV u32 lane_id() { return kg_ops->self()->lane; }
KG_DEV u32 wave_id() {
    if (IS_SM90) kg_ops->wave_sync(); // there a shuffle: all lanes must ask
    return kg_ops->self()->wave;
}
KG_DEV u32 group_id() { return kg_ops->self()->group; }

KG_DEV i32 uniform(i32 x) { return x; }
KG_DEV u32 opaque(u32 x) { return x; }
KG_DEV const u8 *settled(const u8 *p) { return p; }

KG_DEV u32 opaque_uniform(u32 x) { return x; }
template <class T> KG_DEV const T &reread(const T &x) { return x; }

// Two numbers, which some lanes compute at once.
typedef float pair_t __attribute__((ext_vector_type(2)));
KG_DEV pair_t pair_of(float x) { return pair_t{x, x}; }

KG_DEV void order_here() {}
template <class T> KG_DEV void touch(const T &) {}
KG_DEV void barrier() { kg_ops->barrier(); }
KG_DEV void cluster_barrier() { kg_ops->cluster_barrier(); }
KG_DEV void cluster_arrive() {}
KG_DEV void cluster_wait() { kg_ops->cluster_barrier(); }
KG_DEV void cluster_meet() { kg_ops->cluster_barrier(); }
// What the cluster's workgroup number `rank` has where this one has `p`.
template <int N> KG_DEV void load_peer(float (&out)[N], const u8 *p, u32 rank) {
    __builtin_memcpy(out, kg_ops->peer_lds(rank) + (p - kg_ops->self()->lds), sizeof out);
}
// What others send is there when all have come.
KG_DEV void arrivals_begin(u64 *) {}
KG_DEV void await_arrivals(u64 *, u32, u32) { kg_ops->cluster_barrier(); }
template <int N> KG_DEV void send_peer(const float (&x)[N], const u8 *p, u32 rank, const u64 *) {
    __builtin_memcpy(kg_ops->peer_lds(rank) + (p - kg_ops->self()->lds), x, sizeof x);
}
KG_DEV void release_device() { __atomic_thread_fence(__ATOMIC_RELEASE); }
KG_DEV void acquire_device() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
KG_DEV u64 atomic_add(u64 *p, u64 x) { return __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL); }
template <class T> KG_DEV T atomic_count(T *p, T x) {
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}
KG_DEV u32 returned(u32 x) { return x; }
KG_DEV u32 atomic_load(const u32 *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
KG_DEV u64 atomic_load(const u64 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
constexpr int POLLS = 20000000;    // some of the time that a workgroup takes
constexpr u32 FEWEST_TOGETHER = 3; // there are few
KG_DEV void atomic_store(u32 *p, u32 x) { __atomic_store_n(p, x, __ATOMIC_RELAXED); }
KG_DEV void atomic_or(i32 *p, i32 x) { __atomic_fetch_or(p, x, __ATOMIC_RELAXED); }

// Publishes `count` words of this lane; lane l's lie at the returned pointer +
// l * EXCHANGE_WORDS until the lane calls exchange_done.
KG_DEV const u32 *exchange(const u32 *words, int count) {
    kg_cpu_lane *self = kg_ops->self();
    u32 *all = (u32 *)self->exchange;
    for (int i = 0; i < count; i++) all[self->lane * EXCHANGE_WORDS + i] = words[i];
    kg_ops->wave_sync();
    return all;
}
KG_DEV void exchange_done() { kg_ops->wave_sync(); }

KG_DEV u32 shuffle(u32 x, u32 from) {
    u32 got = exchange(&x, 1)[from * EXCHANGE_WORDS];
    exchange_done();
    return got;
}
// See kg/attn/mma_cdna4.h: a lane asks for some of a row's sixteen numbers and gets as many of a
// column.
template <class T> KG_DEV void turn_rows(u32 (&out)[2], const u8 *lds) {
    constexpr u32 NUMBERS = 8 / sizeof(T), LANES = 16 / NUMBERS; // of a row
    constexpr u32 STRIDE = 4 / sizeof(T) * EXCHANGE_WORDS;
    u32 mine[2], lane = lane_id();
    __builtin_memcpy(mine, lds, 8);
    const T *all = (const T *)exchange(mine, 2);
    T column[NUMBERS];
    for (u32 row = 0; row < NUMBERS; row++)
        column[row] =
            all[(lane / 16 * 16 + row * LANES + lane % 16 / NUMBERS) * STRIDE + lane % NUMBERS];
    exchange_done();
    __builtin_memcpy(out, column, 8);
}
KG_DEV void read_turned(u32 (&out)[2], const u8 *lds) { turn_rows<u16>(out, lds); }
KG_DEV void read_turned_codes(u32 (&out)[2], const u8 *lds) { turn_rows<u8>(out, lds); }
template <int FURTHER> KG_DEV void copy_pieces(u8 *lds, const u8 *p) {
    kg_ops->copy(lds + lane_id() * 16, p + FURTHER, 16);
}
KG_DEV void meet_wave() { kg_ops->wave_sync(); }
KG_DEV void pieces_come() {
    kg_ops->all_copies_done();
    meet_wave(); // a lane reads what others of its wave asked for
}
KG_DEV u32 read_lane(u32 x, u32 lane) { return shuffle(x, lane); }
KG_DEV u64 ballot(bool x) {
    u32 word = x;
    u64 bits = 0;
    const u32 *all = exchange(&word, 1);
    for (int l = 0; l < WAVE; l++) bits |= (u64)all[l * EXCHANGE_WORDS] << l;
    exchange_done();
    return bits;
}
KG_DEV bool any(bool x) { return ballot(x) != 0; }

// Sums over the lanes that differ in bits LOW .. HIGH/2 of their number; every
// lane gets the sum.
template <int LOW, int HIGH, int N> KG_DEV void sum_lanes(float (&x)[N]) {
    static_assert(N <= EXCHANGE_WORDS, "more than a lane can publish");
    if (LOW >= HIGH) return;
    u32 words[N], rest = kg_ops->self()->lane & ~(u32)(HIGH - LOW);
    for (int i = 0; i < N; i++) words[i] = bits_of(x[i]);
    const u32 *all = exchange(words, N);
    for (int i = 0; i < N; i++) {
        x[i] = 0;
        for (u32 l = 0; l < HIGH; l += LOW)
            x[i] += float_of(all[(rest | l) * EXCHANGE_WORDS + (u32)i]);
    }
    exchange_done();
}

// The greatest of a wave.
KG_DEV float max_lanes(float x) {
    for (u32 mask = 1; mask < WAVE; mask *= 2)
        x = __builtin_fmaxf(x, float_of(shuffle(bits_of(x), lane_id() ^ mask)));
    return x;
}

// Of a lane and those of the wave below it.
KG_DEV u32 sum_below(u32 x) {
    const u32 *all = exchange(&x, 1);
    u32 sum = 0, lane = lane_id();
    for (u32 l = 0; l <= lane; l++) sum += all[l * EXCHANGE_WORDS];
    exchange_done();
    return sum;
}
KG_DEV u32 wave_sum(u32 x) { return read_lane(sum_below(x), WAVE - 1); }
KG_DEV u32 wave_max(u32 x) {
    for (u32 mask = 1; mask < WAVE; mask *= 2) {
        u32 other = shuffle(x, lane_id() ^ mask);
        x = x > other ? x : other;
    }
    return x;
}

KG_DEV u32 first_bit(u64 x) { return (u32)__builtin_ctzll(x); } // x is not 0
KG_DEV u32 last_bit(u64 x) { return 63 - (u32)__builtin_clzll(x); }
KG_DEV u32 bit_count(u64 x) { return (u32)__builtin_popcountll(x); }

KG_DEV float exp2(float x) { return __builtin_exp2f(x); }
KG_DEV float log2(float x) { return __builtin_log2f(x); }
KG_DEV float rcp(float x) { return 1.0f / x; }
KG_DEV float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
KG_DEV float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
KG_DEV float fmin(float a, float b) { return __builtin_fminf(a, b); }
KG_DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

template <int N> KG_DEV void load_words(u32 (&out)[N], const u8 *p) {
    for (int i = 0; i < N; i++) out[i] = ((const u32 *)p)[i];
}
template <int N> KG_DEV void load_shared(float (&out)[N], const float *p) {
    for (int i = 0; i < N; i++) out[i] = p[i];
}
template <class T> KG_DEV T load(const T *p) { return *p; }
KG_DEV void store_words(float *p, const float (&x)[4]) {
    for (int i = 0; i < 4; i++) p[i] = x[i];
}
template <int N> KG_DEV void load_plain(u32 (&out)[N], const u8 *p) { load_words(out, p); }
template <int N> KG_DEV void load_near(u32 (&out)[N], const u8 *p) { load_words(out, p); }
template <int N> KG_DEV void store_words(u8 *p, const u32 (&x)[N]) {
    for (int i = 0; i < N; i++) ((u32 *)p)[i] = x[i];
}
template <class T> KG_DEV void store(T *p, T x) { *p = x; }
KG_DEV void store_shared(float *p, const float (&x)[4]) { store_words(p, x); }
KG_DEV void store_shared(float *p, float a, float b) { p[0] = a, p[1] = b; }

KG_DEV u32 byte_perm(u32 a, u32 b, u32 select) {
    u64 both = (u64)b << 32 | a;
    u32 out = 0;
    for (int i = 0; i < 4; i++) out |= (u32)(both >> (select >> 8 * i & 7) * 8 & 255) << 8 * i;
    return out;
}

KG_DEV u32 max_pair(u32 a, u32 b) {
    u32 low = (a & 0xffffu) > (b & 0xffffu) ? a : b, high = a >> 16 > b >> 16 ? a : b;
    return (low & 0xffffu) | (high & 0xffff0000u);
}

KG_DEV float f16_to_f32(u32 x) { return f16_to_f32_soft(x); }
KG_DEV u32 pack_f16(float a, float b) { return f16_soft(a) | f16_soft(b) << 16; }
KG_DEV u32 pack_bf16(float a, float b) { return pack_bf16_soft(a, b); }
KG_DEV u32 pack_bf16_numbers(float a, float b) {
    if constexpr (CONVERTS_BF16) return pack_bf16_soft(a, b);
    return round_to_upper(a) >> 16 | (round_to_upper(b) & 0xffff0000u);
}
KG_DEV u32 pack_bf16_near(float a, float b) {
    if constexpr (CONVERTS_BF16) return pack_bf16_soft(a, b);
    return near_upper(a) >> 16 | (near_upper(b) & 0xffff0000u);
}

} // namespace kg
