/* The rows of <kgen/<family>_args.def>, and the check of a launch against them:
 * one for all families. What rows can not say is said by the family's file. */
#ifndef KGEN_RUNTIME_ARGS_ROWS_H
#define KGEN_RUNTIME_ARGS_ROWS_H

#include <stddef.h>

#include <kgen/args.h>

#include "checks.h"

enum {
    KGEN__SIZES_MAX = 40,
    KGEN__BOUND_MAX = 40,
    KGEN__NUMBERS_MAX = 12,
    KGEN__AT_ONCE = 4,
    KGEN__MORE = 0x40, /* on a size: at least as many */
    KGEN__NO_TAG = -1,
};

/* How a size is known; see attn_args.def. */
typedef enum kgen__size_from {
    KGEN__SIZE_FOUND,
    KGEN__SIZE_LONG,
    KGEN__SIZE_GIVEN,
    KGEN__SIZE_DERIVED,
} kgen__size_from;

typedef struct kgen__size_row {
    const char *letters, *doc;
    kgen__size_from from;
} kgen__size_row;

typedef struct kgen__type {
    enum { KGEN__TYPE_FIXED, KGEN__TYPE_KEY, KGEN__TYPE_EITHER, KGEN__TYPE_WIDE } rule;
    size_t at;    /* in the spec; FIXED: the type itself */
    size_t other; /* EITHER: in the spec; WIDE: the value that is i64 */
} kgen__type;

/* Flags of a row; see attn_args.def. */
enum {
    KGEN__ROW_FIRST = 1 << 0,
    KGEN__ROW_OPTIONAL = 1 << 1,
    KGEN__ROW_BY_LAYOUT = 1 << 2,
    KGEN__ROW_WORDS = 1 << 3,
    KGEN__ROW_PIECES = 1 << 4,
    KGEN__ROW_LINES = 1 << 5,
    KGEN__ROW_LOOSE = 1 << 6,
    KGEN__ROW_APART = 1 << 7,
    KGEN__ROW_JOINED = 1 << 8,
    KGEN__ROW_SQUEEZED = 1 << 9,
    KGEN__ROW_FORM = 1 << 10, /* not the tensor's first row */
    KGEN__ROW_IN_PLACE = 1 << 11,
};

/* A tensor, or another form of it. */
typedef struct kgen__row {
    const char *name, *doc;
    size_t offset; /* in the family's arguments */
    uint32_t when;
    int32_t id, tag; /* tag: where it is in the spec, or KGEN__NO_TAG */
    kgen__type type;
    kgen_use use;
    int32_t rank, free, flags;
    uint8_t dims[KGEN_TENSOR_RANK_MAX];
    size_t pointer; /* as in kgen__place, where a family has no table of places */
} kgen__row;

typedef enum kgen__number_rule {
    KGEN__NUMBER_ANY,
    KGEN__NUMBER_ABOVE_0,
    KGEN__NUMBER_NOT_BELOW_0,
    KGEN__NUMBER_BELOW_0,
    KGEN__NUMBER_NOT_0,
    KGEN__NUMBER_RANGE,
} kgen__number_rule;

typedef struct kgen__number_row {
    const char *name, *type, *doc;
    size_t offset, size;
    uint32_t when;
    struct {
        kgen__number_rule rule;
        int64_t low, high;
    } bound;
    size_t pointer; /* where it goes in the packed arguments, plus 1; 0: nowhere */
} kgen__number_row;

/* Where a tensor goes in the kernel's packed arguments; 0: nowhere. Strides of
 * `bytes` are counted in bytes, the others in elements. */
typedef struct kgen__place {
    size_t pointer, strides[3];
    int bytes;
} kgen__place;

typedef struct kgen__args_rows {
    size_t args_bytes;
    const kgen__size_row *sizes;
    const char *const *whens; /* what the bits of `when` stand for */
    const kgen__row *rows;
    const kgen__number_row *numbers;
    const kgen__place *places; /* by id */
    int size_count, when_count, row_count, number_count;
    uint32_t (*conditions)(const kgen_spec *spec);
    void (*given)(int64_t *size, const kgen_spec *spec);
    /* Sizes that numbers say, once they are packed; or NULL. */
    void (*counted)(int64_t *size, const void *packed);
    /* Where a row goes, instead of `places`; or NULL. */
    kgen__place (*place_of)(const kgen__row *row);
    int forward; /* no stride may be negative */
    /* After the rows of FIRST: fills the sizes that are derived. */
    kgen_status (*derive)(int64_t *size, const kgen_spec *spec, kgen_error *err);
} kgen__args_rows;

/* What one kernel wants, settled when it is loaded: its rows, FIRST ones first, those of
 * BY_LAYOUT last, and the tensors and numbers that it was built without. */
typedef struct kgen__bound {
    const kgen__row *row;
    uint64_t head, head_mask; /* dtype and layout as a tensor holds them; what of it counts */
    uint32_t offset;          /* in the family's arguments */
    uint32_t align;           /* bytes less one, of the address */
    int64_t step_align;       /* elements less one, of the free strides */
    int64_t shares;           /* -1: elements may coincide; 0: it is written */
    int32_t tag;
    kgen_dtype dtype;
    uint8_t rank, free, bytes, more; /* more: a bit for each size that is a least one */
    uint8_t dims[KGEN_TENSOR_RANK_MAX], forward, strides;
    uint8_t is_optional;
    uint8_t lead; /* dimensions in front of those below */
    /* The dense dimensions of sizes that the spec says: what they are, and elements from
       the first to the last of them. */
    int64_t shape[KGEN_TENSOR_RANK_MAX], stride[KGEN_TENSOR_RANK_MAX], last;
    uint16_t to, stride_to[3]; /* in the packed arguments, plus 1; 0: nowhere */
    uint8_t unit;              /* that packed strides are counted in */
} kgen__bound;

typedef struct kgen__bound_number {
    const kgen__number_row *row;
    uint32_t offset, pointer;
    uint8_t is_wide, held; /* held: the kernel uses it */
    uint64_t low, span;    /* bits that need no second look: low .. low + span */
} kgen__bound_number;

typedef struct kgen__binding {
    const kgen__args_rows *rows;
    int first, checked, count, absent, apart; /* checked: in front of those of BY_LAYOUT */
    uint32_t conditions;
    uint8_t apart_at[KGEN__BOUND_MAX]; /* the rows of APART */
    uint8_t index_of[KGEN__BOUND_MAX]; /* of rows, by id, where a family has them */
    kgen__bound bound[KGEN__BOUND_MAX];
    const kgen__row *without[KGEN__BOUND_MAX];
    uint32_t without_at[KGEN__BOUND_MAX]; /* where their addresses are; the last again, to
                                             a multiple of KGEN__AT_ONCE */
    kgen__bound_number numbers[KGEN__NUMBERS_MAX];
    int number_count;
    uint64_t learned; /* a bit for each size that a tensor may say, up to 2^31-1 */
    int64_t size[KGEN__SIZES_MAX];
} kgen__binding;

kgen_dtype kgen__args_type(const kgen__type *type, const kgen_spec *spec);
void kgen__args_bind(kgen__binding *binding, const kgen__args_rows *rows, const kgen_spec *spec);

/* Checks `args`, the family's, and packs what has a place; `size` has room for
 * KGEN__SIZES_MAX. Shapes of BY_LAYOUT are left to the caller. */
kgen_status kgen__args_take(void *packed, int64_t *size, const kgen__binding *binding,
                            const kgen_spec *spec, const void *args, kgen_error *err);

/* Not 0: a tensor is given that the kernel was built without. Without a branch for each:
 * most tensors of a family are not a kernel's. */
static inline uintptr_t kgen__args_present(const kgen__binding *b, const void *args) {
    uintptr_t given = 0;
    for (int i = 0; i < b->absent; i += KGEN__AT_ONCE)
        for (int k = 0; k < KGEN__AT_ONCE; k++)
            given |= (uintptr_t)*(void *const *)((const char *)args + b->without_at[i + k]);
    return given;
}

/* at: the memory of each tensor. 1: that of the i-th, which is written, meets only itself. */
static inline int kgen__args_apart(const kgen__binding *b, const kgen__stretch *at, int i) {
    const kgen__stretch written = at[i];
    int met = 0;
    for (int j = 0; j < b->checked; j++)
        met += (written.end > at[j].first) & (at[j].end > written.first);
    return met <= 1;
}

/* Of kernels of a spec; of arguments, by their tags: NULL if there is none. */
const kgen__args_rows *kgen__args_rows_of(const kgen_spec *spec);
const kgen__args_rows *kgen__args_rows_in(const kgen_args *args);

/* The row of the tensor at that place of the arguments for kernels of that spec;
 * NULL: they have none. */
const kgen__row *kgen__args_row(const kgen__args_rows *rows, const kgen_spec *spec, size_t offset);

#endif
