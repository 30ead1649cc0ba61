// Where nothing is on its way before queries are there, and all waves go the same way.
#pragma once
#include "kg/attn/attn_run.h"

namespace kg {

struct ring_t {};
KG_DEV ring_t look_ahead(const segment_t &, const head_t &, const keys_t &, u8 *, int) {
    return ring_t{};
}

KG_DEV int park_of(u8 *, int wave) { return wave; }

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void enter(args_t a, u8 *lds) {
    run<SEGMENT>(a, lds);
}

} // namespace kg
