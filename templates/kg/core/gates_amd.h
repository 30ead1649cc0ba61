// A barrier is of all waves there.
#pragma once
#include "kg/core/machine.h"

namespace kg {

template <int THREADS> KG_DEV void meet_at(int) {
    static_assert(THREADS == KG_WORKGROUP, "no fewer");
    barrier();
}

} // namespace kg
