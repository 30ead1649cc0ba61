/* What a launch takes: the arguments of one family, tagged with it. */
#ifndef KGEN_ARGS_H
#define KGEN_ARGS_H

#include "attn_args.h"
#include "gdn_args.h"
#include "scatter_args.h"
#include "kv_gather_args.h"
#include "kv_write_args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kgen_args {
    kgen_family_id family; /* that of the kernel */
    void *workspace;       /* kgen_workspace_size bytes, 256-byte aligned, prepared
                        once by kgen_workspace_init; NULL where the size is 0 */
    size_t workspace_bytes;
    union {
#define KGEN_FAMILY(name, NAME) kgen_##name##_args name;
#include "families.def"
    };
} kgen_args;

/* What launches do with a tensor. OUT: its old contents are never looked at. */
typedef enum kgen_use { KGEN_USE_IN, KGEN_USE_OUT, KGEN_USE_INOUT } kgen_use;

enum { KGEN_ARGS_TENSORS_MAX = 64 };

/* The tensors of a family's arguments, 0 .. count - 1, in the order of
 * <family>_args.def. Pure; NULL, 0 and KGEN_USE_IN out of range. */
KGEN_API int kgen_args_count(kgen_family_id family);
KGEN_API kgen_tensor *kgen_args_tensor(kgen_args *args, int index);
KGEN_API const char *kgen_args_name(kgen_family_id family, int index);
KGEN_API kgen_use kgen_args_use(kgen_family_id family, int index);

#ifdef __cplusplus
}
#endif
#endif
