/* The keys of a case of mla: attention's, of which it takes some. */
#ifndef KGEN_CHECK_MLA_CASE_H
#define KGEN_CHECK_MLA_CASE_H

#include "attn_case.h"

typedef kgen__attn_case kgen__mla_case;

#endif
