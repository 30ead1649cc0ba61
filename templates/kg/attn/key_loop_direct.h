// Every wave by itself.
#pragma once
#include "kg/attn/direct.h"
#include "kg/attn/no_look_ahead.h"

namespace kg {

KG_DEV void walk(column_t &m, column_t &l, values_t &o, q_frag_t &q, args_t a, const segment_t &g,
                 const role_t &role, head_t &head, const keys_t &keys, const u8 *queries, u8 *lds,
                 int wave, const ring_t &) {
    (void)lds, (void)wave;
    attend(m, l, o, q, a, g, role, head, keys, queries);
}

} // namespace kg
