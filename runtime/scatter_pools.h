/* Pools of kv_compact that are given by address. */
#ifndef KGEN_RUNTIME_SCATTER_POOLS_H
#define KGEN_RUNTIME_SCATTER_POOLS_H

#include "context.h"

/* As kgen__launcher.addresses. */
kgen_status kgen__scatter_addresses(int *tensor, size_t *bytes, const kgen_kernel *kernel,
                                    const kgen_args *args, kgen_error *err);

#endif
