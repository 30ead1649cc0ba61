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
    kgen_family_id family; /* that of the kernel                             */
    void *workspace; /* kgen_workspace_size bytes, 256-byte aligned, prepared
                        once by kgen_workspace_init; NULL where the size is 0 */
    size_t workspace_bytes;
    union {
        kgen_attn_args attn;
        kgen_gdn_args gdn;
        kgen_scatter_args scatter;
        kgen_kv_write_args kv_write;
        kgen_kv_gather_args kv_gather;
    };
} kgen_args;

#ifdef __cplusplus
}
#endif
#endif
