/* Values and words that the parameters of both kv families allow. */
#ifndef KGEN_GEN_KV_PARAMS_H
#define KGEN_GEN_KV_PARAMS_H

#include "param_rows.h"

static const int32_t head_dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512};
static const int32_t turn_counts[] = {1, 2, 4};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const int32_t small_pages[] = {1, 2, 4, 8};
static const kgen_domain domain_PAGE = LIST_AND_RANGE(small_pages, 16, 65536, 16);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_TURNS = LIST(turn_counts);
static const kgen_domain domain_OCC = RANGE(1, 16, 1);

static const kgen_symbol symbols_none[] = {{NULL, 0}};
SYMBOLS(auto0, {"auto", 0});
SYMBOLS(x_dtype, {"bf16", KGEN_DTYPE_BF16}, {"fp16", KGEN_DTYPE_FP16});
SYMBOLS(kv_dtype, {"bf16", KGEN_DTYPE_BF16}, {"fp16", KGEN_DTYPE_FP16}, {"fp8", KGEN_DTYPE_FP8},
        {"e4m3fn", KGEN_DTYPE_E4M3FN}, {"e4m3fnuz", KGEN_DTYPE_E4M3FNUZ}, {"e5m2", KGEN_DTYPE_E5M2},
        {"i8", KGEN_DTYPE_I8});
SYMBOLS(layout, {"nhd", KGEN_LAYOUT_NHD}, {"hnd", KGEN_LAYOUT_HND},
        {"shuffle", KGEN_LAYOUT_SHUFFLE}, {"xpacked", KGEN_LAYOUT_XPACKED});
SYMBOLS(page, {"x16", KGEN_PAGE_X16});

#endif
