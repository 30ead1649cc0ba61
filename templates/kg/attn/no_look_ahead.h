// Where nothing is on its way before queries are there.
#pragma once
#include "kg/attn/softmax.h"

namespace kg {

struct ring_t {};
KG_DEV ring_t look_ahead(const segment_t &, const head_t &, const keys_t &, u8 *, int) {
    return ring_t{};
}

} // namespace kg
