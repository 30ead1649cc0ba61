/* What the runtime must know of the scatter kernels' shape. */
#ifndef KGEN_GEN_SCATTER_H
#define KGEN_GEN_SCATTER_H

#include <kgen/spec.h>

/* A workgroup, and how many a compute unit is to hold. */
enum { KGEN__SCATTER_LANES = 256, KGEN__SCATTER_OCCUPANCY = 4 };

/* "spec_prepare" */
const char *kgen__scatter_op_name(const kgen_scatter_spec *spec);

#endif
