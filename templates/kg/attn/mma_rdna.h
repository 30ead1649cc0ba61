// What the WMMA of gfx11 and gfx12 share.
#pragma once
#include "kg/attn/mma_words.h"

namespace kg {

// The compiler would prepare the operands of many tiles at once, and move the
// products behind the next branch while their lane exchanges stay before it;
// this register file cannot hold that. So tile by tile, where written.
KG_DEV acc_t where_written(acc_t c) {
    asm volatile("" : "+v"(c));
    __builtin_amdgcn_sched_barrier(0);
    return c;
}

} // namespace kg
