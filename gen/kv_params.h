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

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(kv_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2), NAMED("i8", DTYPE_I8),
        NAMED("i4", DTYPE_I4));
SYMBOLS(layout, NAMED("nhd", LAYOUT_NHD), NAMED("hnd", LAYOUT_HND),
        NAMED("shuffle", LAYOUT_SHUFFLE), NAMED("xpacked", LAYOUT_XPACKED));
SYMBOLS(align, VALUE("16", 16), VALUE("4", 4), VALUE("2", 2));
SYMBOLS(page, NAMED("x16", PAGE_X16));

#endif
