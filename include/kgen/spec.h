/* A spec says which kernel: family, shapes, types, layout, features. Batch
 * size, lengths, page counts and scale values are never in it.
 *
 * One line is the spec everywhere (command, cases, cache entries, messages):
 *   attn:phase=decode,q=bf16,kv=fp8,d=128,g=8,page=16,layout=nhd */
#ifndef KGEN_SPEC_H
#define KGEN_SPEC_H

#include "target.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kgen_dtype {
    KGEN_DTYPE_NONE = 0,
    KGEN_DTYPE_BF16 = 1,
    KGEN_DTYPE_FP16 = 2,
    KGEN_DTYPE_E4M3FN = 3,   /* OCP, max 448 */
    KGEN_DTYPE_E4M3FNUZ = 4, /* max 240, 0x80 is the one NaN */
    KGEN_DTYPE_E5M2 = 5,     /* OCP */
    KGEN_DTYPE_FP8 = 6,      /* in specs only: the architecture's own e4m3 */
    KGEN_DTYPE_F32 = 7,
    KGEN_DTYPE_I32 = 8,
    KGEN_DTYPE_I64 = 9,
    KGEN_DTYPE_U8 = 10, /* a byte: flags of 0 and 1, words of 8 bits */
    KGEN_DTYPE_U16 = 11,
    KGEN_DTYPE_I8 = 12, /* quantised caches */
    KGEN_DTYPE_I4 = 13, /* the same: two values, + 8 each, a byte, the first in its low half */
    KGEN_DTYPE_COUNT
} kgen_dtype;

/* NHD [NB][page][Hkv][D]   HND [NB][Hkv][page][D]
 * SHUFFLE  K [NB][Hkv][D/x][page][x]  V [NB][Hkv][page/x][Dv][x]
 * XPACKED  K [NB][Hkv][D/x][page][x]  V [NB][Hkv][Dv][page]
 * with x = 16 bytes / element size.
 *
 * Rows of the GDN in-projection, with G = Hv/Hk:
 * INTERLEAVED  Hk groups of [q:K | k:K | v:G*V | z:G*V]; ba: Hk of [b:G | a:G]
 * FLAT         [q_all | k_all | v_all | z_all]; ba: [b_all | a_all]
 * PRESPLIT     x [q_all | k_all | v_all], z, b and a are tensors of their own
 * Recurrent state of a slot: VK [Hv][V][K]   KV [Hv][K][V]
 * Convolution state of a slot: SD [time][channel]   DS [channel][time] */
typedef enum kgen_layout {
    KGEN_LAYOUT_NONE = 0,
    KGEN_LAYOUT_NHD = 1,
    KGEN_LAYOUT_HND = 2,
    KGEN_LAYOUT_SHUFFLE = 3,
    KGEN_LAYOUT_XPACKED = 4,
    KGEN_ROWS_INTERLEAVED = 5,
    KGEN_ROWS_FLAT = 6,
    KGEN_ROWS_PRESPLIT = 7,
    KGEN_STATE_VK = 8,
    KGEN_STATE_KV = 9,
    KGEN_CONV_SD = 10,
    KGEN_CONV_DS = 11,
    KGEN_LAYOUT_COUNT
} kgen_layout;

/* NONE: no descale. HEAD: one per tensor [1], per head [Hkv] or per sequence
 * and head [S][Hkv]. TOKEN: per cached token and head, [NB][page][Hkv] or
 * [NB][Hkv][page]. The shape passed at launch is the shape that is read. ROW:
 * as TOKEN, one value for all heads of a token (kv_write). IGNORE: may be given,
 * of any shape, and is not read (attn). BLOCK: one per 128 dims of a value,
 * [NB][page][Hkv][Dv/128]; keys have none (kv_write, kv_gather). */
typedef enum kgen_descale {
    KGEN_DESCALE_AUTO = 0,
    KGEN_DESCALE_NONE = 1,
    KGEN_DESCALE_HEAD = 2,
    KGEN_DESCALE_TOKEN = 3,
    KGEN_DESCALE_ROW = 4,
    KGEN_DESCALE_IGNORE = 5,
    KGEN_DESCALE_BLOCK = 6,
} kgen_descale;

#define KGEN_PAGE_X16 0   /* page: any multiple of 16, given at launch */
#define KGEN_WINDOW_RT -1 /* window, right: given at launch */
#define KGEN_ALIBI_SQRT 2 /* alibi: the root of the distance */
#define KGEN_CAUSAL_SEQ 2 /* causal: given for each sequence */
#define KGEN_LSE_TH 2     /* lse: [T][Hq], not [Hq][T] */

#define KGEN_FAMILY_HEADER(name) KGEN_QUOTED(name##_spec.h)
#include "families.def"

typedef enum kgen_family_id {
#define KGEN_FAMILY(name, NAME) KGEN_FAMILY_##NAME,
#include "families.def"
    KGEN_FAMILY_COUNT
} kgen_family_id;

typedef struct kgen_spec {
    kgen_family_id family;
    union {
#define KGEN_FAMILY(name, NAME) kgen_##name##_spec name;
#include "families.def"
    };
} kgen_spec;

enum { KGEN_SPEC_LINE_MAX = 512, KGEN_SYMBOL_MAX = 160 };

/* All of these are pure (no files, no clock, no locale) and thread-safe.
 *
 * parse     line -> spec with defaults filled in. Unknown keys and values,
 *           numbers out of bounds (the nearest valid one is named) and
 *           repeated keys are KGEN_E_SPEC; *out is untouched then.
 * print     the canonical line, always NUL-terminated; parse(print(s)) == s.
 * validate  contradictions between fields (KGEN_E_SPEC) and combinations
 *           that no kernel covers on `target` (KGEN_E_UNSUPPORTED).
 *           `target` may be NULL: then only the spec itself is checked.
 * resolve   validate, then replace every auto value: fp8 -> the target's own
 *           kind, tuning values -> the family's choice. Idempotent.
 * symbol    of a resolved spec: the kernel's name, as a profiler shows it. What it
 *           is in words, then ten digits of its line: two specs have two names.
 * lanes     of a workgroup; 0 for a family that does not exist.
 * occupancy workgroups that a compute unit is to hold; the same.
 * cluster   workgroups that read each other's LDS; 0: none does.
 *           These three take a resolved spec. */
KGEN_API kgen_status kgen_spec_parse(kgen_spec *out, const char *line, kgen_error *err);
KGEN_API void kgen_spec_print(char out[KGEN_SPEC_LINE_MAX], const kgen_spec *spec);
KGEN_API kgen_status kgen_spec_validate(const kgen_spec *spec, const kgen_target *target,
                                        kgen_error *err);
KGEN_API kgen_status kgen_spec_resolve(kgen_spec *out, const kgen_spec *spec,
                                       const kgen_target *target, kgen_error *err);
KGEN_API void kgen_spec_symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec);
KGEN_API int32_t kgen_spec_lanes(const kgen_spec *resolved, const kgen_target *target);
KGEN_API int32_t kgen_spec_occupancy(const kgen_spec *resolved);
KGEN_API int32_t kgen_spec_cluster(const kgen_spec *resolved);

/* Two specs as they stand: an auto value equals no value that it may become.
 * equal       1: one family, and one value of every parameter.
 * same_shape  1: equal but for tuning keys.
 * difference  parameters in which they differ; of two families, one more than
 *             the first has. */
KGEN_API int kgen_spec_equal(const kgen_spec *a, const kgen_spec *b);
KGEN_API int kgen_spec_same_shape(const kgen_spec *a, const kgen_spec *b);
KGEN_API int kgen_spec_difference(const kgen_spec *a, const kgen_spec *b);

/* Forgets the tuning keys: each is auto again. */
KGEN_API void kgen_spec_open_tuning(kgen_spec *spec);

/* "attn"; find: unknown names give KGEN_E_SPEC with the list of known ones. */
KGEN_API const char *kgen_family_name(kgen_family_id id);
KGEN_API kgen_status kgen_family_find(kgen_family_id *out, const char *name, kgen_error *err);

/* The parameter table as text, one line a parameter (for `kgen explain`).
 * *out: free() it. */
KGEN_API kgen_status kgen_spec_help(char **out, kgen_family_id family, kgen_error *err);

KGEN_API const char *kgen_dtype_name(kgen_dtype dtype); /* "bf16" */
KGEN_API int kgen_dtype_values(kgen_dtype dtype);       /* of an element: 2 of i4, else 1 */
KGEN_API int kgen_dtype_size(kgen_dtype dtype);         /* bytes, 0 if none */
KGEN_API const char *kgen_layout_name(kgen_layout layout);

#ifdef __cplusplus
}
#endif
#endif
