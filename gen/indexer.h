/* What the launcher must know of the indexer's kernels. */
#ifndef KGEN_GEN_INDEXER_H
#define KGEN_GEN_INDEXER_H

#include <kgen/spec.h>

/* "decode" */
const char *kgen__indexer_op_name(const kgen_indexer_spec *spec);
/* Columns that a workgroup goes through at once, of a resolved spec. */
int32_t kgen__indexer_group_keys(const kgen_indexer_spec *spec, const kgen_target *target);

#endif
