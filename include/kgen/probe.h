/* Parts of the runtime by themselves, so that `kgen bench --host` can time what
 * lies around them. Nothing that serves needs this. */
#ifndef KGEN_PROBE_H
#define KGEN_PROBE_H

#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks and packs `args` once, then makes the driver call of kgen_launch
 * `count` times. */
KGEN_API kgen_status kgen_probe_launch(const kgen_kernel *kernel, const kgen_args *args,
                                       kgen_stream stream, int count, kgen_error *err);
/* What the driver took to load the kernel, of the time of kgen_prepare. */
KGEN_API double kgen_probe_load_us(const kgen_kernel *kernel);
/* Loads an entry of the context's architecture and unloads it. It is loaded anew
 * also where a kernel of the context came from it. */
KGEN_API kgen_status kgen_probe_load(kgen_context *ctx, const kgen_entry *entry, kgen_error *err);

#ifdef __cplusplus
}
#endif
#endif
