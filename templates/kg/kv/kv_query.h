// Queries rotated, out of place or in place. A lane has 16 elements of a head:
// both halves of its pairs, so that nobody else reads what it writes.
#pragma once
#include "kg/kv/kv_rope.h"

namespace kg {

constexpr int Q_UNITS = HEAD_DIM / 16;

constexpr int EIGHT = 2 * X_BYTES; // words of eight elements

KG_DEV void load_eight(float (&out)[8], const u8 *p) {
    u32 w[EIGHT];
    KG_UNROLL for (int i = 0; i < EIGHT; i += 4) {
        u32 line[4];
        load_line(line, p + i * 4);
        KG_UNROLL for (int j = 0; j < 4; j++) w[i + j] = line[j];
    }
    unpack_words(out, w);
}

KG_DEV void store_eight(u8 *p, const float (&x)[8]) {
    u32 w[EIGHT];
    pack_words(w, x);
    KG_UNROLL for (int i = 0; i < EIGHT; i += 4) {
        u32 line[4] = {w[i], w[i + 1], w[i + 2], w[i + 3]};
        store_line(p + i * 4, line);
    }
}

KG_DEV void write_queries(args_t a, u32 group) {
    u32 place = group * (u32)THREADS + thread_id(), task = place / Q_UNITS;
    int unit = (int)(place % Q_UNITS), row = (int)divide(task, a.by_q_heads);
    int head = (int)(task - (u32)row * (u32)a.q_heads);
    if (row >= a.rows) return;
    bool turns = unit * 16 < ROPE_DIM, halves = ROPE == ROPE_NEOX && turns;
    int low = halves ? unit * 8 : unit * 16, high = halves ? low + ROPE_HALF : low + 8;
    const u8 *from = (const u8 *)a.q + (row * a.q_row + head * a.q_head);
    u8 *to = (u8 *)a.q_out + (row * a.q_out_row + head * a.q_out_head);
    i64 position = position_of(a, row);
    float x[8], y[8];
    load_eight(x, from + low * X_BYTES);
    load_eight(y, from + high * X_BYTES);
    if (turns && position >= 0) {
        if constexpr (ROPE == ROPE_NEOX) {
            rotate_halves(x, y, a, position, low);
        } else {
            rotate_pairs(x, a, position, low / 2);
            rotate_pairs(y, a, position, high / 2);
        }
    }
    KG_UNROLL for (int i = 0; i < 8 && position < 0; i++) x[i] = y[i] = 0;
    store_eight(to + low * X_BYTES, x);
    store_eight(to + high * X_BYTES, y);
}

} // namespace kg
