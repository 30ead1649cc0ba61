// Long queries by way of LDS, others as they are.
#pragma once
#include "kg/attn/buffer_lines.h"
#include "kg/attn/direct.h"
#include "kg/attn/no_look_ahead.h"
#include "kg/attn/output.h"

namespace kg {

KG_DEV void walk(column_t &m, column_t &l, values_t &o, q_frag_t &q, args_t a, const segment_t &g,
                 const role_t &role, head_t &head, const keys_t &keys, const u8 *queries, u8 *lds,
                 int wave, const ring_t &) {
    if constexpr (BUFFERED)
        attend_buffered(m, l, o, q, a, g, role, head, keys, lds + LDS_STAGE, wave,
                        block_end_of(a, g, role));
    else
        attend(m, l, o, q, a, g, role, head, keys, queries);
}

} // namespace kg
