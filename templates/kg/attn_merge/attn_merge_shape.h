/* Shape of the attn_merge kernels, for gen/, the launcher, predict/ and
 * kg/attn_merge/. Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Elements of a row that a lane takes: 16 bytes of 16-bit types. */
enum { KG_MERGE_DIMS = 8 };

/* Lanes that share a row. */
KG_SHAPE int kg_merge_lanes(int head_dim) { return head_dim / KG_MERGE_DIMS; }
/* Rows of a workgroup of `lanes` at once; lanes that are left over are idle. */
KG_SHAPE int kg_merge_rows(int head_dim, int lanes) { return lanes / kg_merge_lanes(head_dim); }
/* Parts that a lane loads at once. */
KG_SHAPE int kg_merge_batch(int stacked) { return stacked ? 4 : 2; }
