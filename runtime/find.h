/* From a spec to its prepared kernel: a table that threads read without a lock
 * while one of them, under the context's lock, adds to it. */
#ifndef KGEN_RUNTIME_FIND_H
#define KGEN_RUNTIME_FIND_H

#include <kgen/runtime.h>

typedef struct kgen__finder kgen__finder;

kgen_status kgen__finder_make(kgen__finder **out, kgen_error *err);
/* NULL is a table without kernels. */
kgen_kernel *kgen__finder_get(const kgen__finder *finder, const kgen_spec *spec,
                              const kgen_problem *problem);
/* replace 0: only where no kernel is found yet. One thread at a time, as the next. */
kgen_status kgen__finder_put(kgen__finder *finder, const kgen_spec *spec,
                             const kgen_problem *problem, kgen_kernel *kernel, int replace,
                             kgen_error *err);
/* Nothing leads to this kernel any more; its shapes alone lead to the heir, which
 * has the same, or to none (NULL). */
void kgen__finder_forget(kgen__finder *finder, const kgen_kernel *kernel, kgen_kernel *heir);
/* No thread may read it. */
void kgen__finder_free(kgen__finder *finder);

#endif
