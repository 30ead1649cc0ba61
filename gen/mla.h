/* What the runtime must know of the shape of mla's kernels. */
#ifndef KGEN_GEN_MLA_H
#define KGEN_GEN_MLA_H

#include "attn.h"

/* `spec` must be resolved for `target`. */
kgen__attn_geometry kgen__mla_geometry_of(const kgen_mla_spec *spec, const kgen_target *target);

#endif
