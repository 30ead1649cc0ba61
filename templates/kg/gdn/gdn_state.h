// A head's state among lanes. In memory `long` elements are contiguous: K of
// them (vk) or V (kv). LANES lanes share such a row, 16 bytes each; the sum over
// K stays inside a wave.
#pragma once
#include "kg/gdn/gdn_num.h"

namespace kg {

constexpr bool VK = STATE_LAYOUT == STATE_VK;
constexpr int STATE_BYTES = bytes_of(STATE_DTYPE);
constexpr int VEC = 16 / STATE_BYTES; // elements of a load
constexpr int LOADS = HAS_STEP ? ELEMENTS / VEC : 1;
constexpr int ROW_LANES = HAS_STEP ? LANES : 1;
constexpr int ROWS = WAVE / ROW_LANES; // rows that a wave loads at once
constexpr int CHUNKS = VK ? (HAS_STEP ? K_DIM / (LANES * VEC) : 1) : LOADS * ROWS / K_DIM;
constexpr int KN = VK ? CHUNKS * VEC : K_DIM / ROWS; // k of a lane
constexpr int VN = LOADS * VEC / KN;                 // v of a lane
constexpr int PASS_V = VK ? WAVES * VN * ROWS : WAVES * CHUNKS * ROW_LANES * VEC;
constexpr int PASSES = HAS_STEP ? V_BLOCK / PASS_V : 1;
constexpr int AHEAD = PASSES > 1 ? 2 : 1; // parts of the state held at once
static_assert(PASSES % AHEAD == 0, "passes come in pairs");
static_assert(!HAS_STEP || (PASSES * PASS_V == V_BLOCK && KN * VN == ELEMENTS),
              "lanes, elements and waves do not cut the head");
// Lanes that hold different k of the same v differ in these bits.
constexpr int K_LOW = VK ? 1 : ROW_LANES, K_HIGH = VK ? ROW_LANES : WAVE;

// Which of the lane's v and k element `e` of load `l` is.
constexpr int v_of(int l, int e) { return VK ? l / CHUNKS : l % CHUNKS * VEC + e; }
constexpr int k_of(int l, int e) { return VK ? l % CHUNKS * VEC + e : l / CHUNKS; }

// Lane's numbers: of the row inside a load, of the 16 bytes inside the row.
KG_DEV int row_lane() { return (int)lane_id() / ROW_LANES; }
KG_DEV int piece_lane() { return (int)lane_id() % ROW_LANES; }
// 0 in one lane of those that hold the same v.
KG_DEV int k_lane() { return VK ? piece_lane() : row_lane(); }
// 0 in one lane of those of a wave that hold the same k.
KG_DEV int v_lane() { return VK ? row_lane() : piece_lane(); }

// The lane's j-th v, of the workgroup's values; the lane's i-th k.
KG_DEV int v_index(int wave, int pass, int j) {
    int first = pass * PASS_V + wave * (PASS_V / WAVES);
    if constexpr (VK) return first + j * ROWS + row_lane();
    return first + (j / VEC * ROW_LANES + piece_lane()) * VEC + j % VEC;
}
KG_DEV int k_index(int i) {
    if constexpr (VK) return (i / VEC * ROW_LANES + piece_lane()) * VEC + i % VEC;
    return i * ROWS + row_lane();
}

KG_DEV void unpack(float (&x)[VEC], const u32 (&w)[4]) {
    KG_UNROLL for (int i = 0; i < VEC; i++) {
        u32 word = w[i * STATE_BYTES / 4];
        x[i] =
            STATE_BYTES == 4 ? float_of(word) : decode<STATE_DTYPE>(word >> i % 2 * 16 & 0xffffu);
    }
}
KG_DEV void pack(u32 (&w)[4], const float (&x)[VEC]) {
    KG_UNROLL for (int i = 0; i < 4; i++) {
        if constexpr (STATE_BYTES == 4)
            w[i] = bits_of(x[i]);
        else
            w[i] = pack_state(x[2 * i % VEC], x[(2 * i + 1) % VEC]);
    }
}

// One token keeps the words as they came; more are computed on in float.
struct words_t {
    u32 word[LOADS][4];
};
struct floats_t {
    float x[LOADS][VEC];
};
template <bool PACKED> struct tile_of {
    typedef floats_t type;
};
template <> struct tile_of<true> {
    typedef words_t type;
};
typedef tile_of<TOKENS == 1 && !REPLAY && STATE_BYTES == 2>::type tile_t;

KG_DEV void get(float (&x)[VEC], const words_t &tile, int l) { unpack(x, tile.word[l]); }
KG_DEV void set(words_t &tile, int l, const float (&x)[VEC]) { pack(tile.word[l], x); }
KG_DEV void get_words(u32 (&w)[4], const words_t &tile, int l) {
    KG_UNROLL for (int i = 0; i < 4; i++) w[i] = tile.word[l][i];
}
KG_DEV void set_words(words_t &tile, int l, const u32 (&w)[4]) {
    KG_UNROLL for (int i = 0; i < 4; i++) tile.word[l][i] = w[i];
}

KG_DEV void get(float (&x)[VEC], const floats_t &tile, int l) {
    KG_UNROLL for (int e = 0; e < VEC; e++) x[e] = tile.x[l][e];
}
KG_DEV void set(floats_t &tile, int l, const float (&x)[VEC]) {
    KG_UNROLL for (int e = 0; e < VEC; e++) tile.x[l][e] = x[e];
}
KG_DEV void get_words(u32 (&w)[4], const floats_t &tile, int l) { pack(w, tile.x[l]); }
KG_DEV void set_words(floats_t &tile, int l, const u32 (&w)[4]) { unpack(tile.x[l], w); }

// Bytes from a head's first element to load `l` of the lane.
KG_DEV u32 load_offset(int wave, int split, int pass, int l) {
    int v = split * V_BLOCK + v_index(wave, pass, v_of(l, 0)), k = k_index(k_of(l, 0));
    return (u32)(VK ? v * K_DIM + k : k * V_DIM + v) * STATE_BYTES;
}

KG_DEV u8 *head_state(void *base, i64 elements, int hv) {
    return (u8 *)base + (elements + (i64)hv * V_DIM * K_DIM) * STATE_BYTES;
}

KG_DEV void load_tile(words_t &tile, const u8 *head, int wave, int split, int pass) {
    KG_UNROLL for (int l = 0; l < LOADS; l++)
        load_plain(tile.word[l], head + load_offset(wave, split, pass, l));
}

KG_DEV void clear_tile(words_t &tile) {
    KG_UNROLL for (int l = 0; l < LOADS; l++) KG_UNROLL for (int i = 0; i < 4; i++)
        tile.word[l][i] = 0;
}

KG_DEV void take_words(tile_t &tile, const words_t &loaded) {
    KG_UNROLL for (int l = 0; l < LOADS; l++) set_words(tile, l, loaded.word[l]);
}

KG_DEV void store_tile(u8 *head, const tile_t &tile, int wave, int split, int pass) {
    KG_UNROLL for (int l = 0; l < LOADS; l++) {
        u32 w[4];
        get_words(w, tile, l);
        store_words(head + load_offset(wave, split, pass, l), w);
    }
}

// The state as a pool of STATE_DTYPE would give it back.
KG_DEV void round_tile(tile_t &tile) {
    KG_UNROLL for (int l = 0; l < LOADS; l++) {
        u32 w[4];
        get_words(w, tile, l);
        set_words(tile, l, w);
    }
}

} // namespace kg
