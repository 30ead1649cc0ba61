/* What the check knows of a family: the keys of its cases, its tensors, what
 * they hold, and how outputs are compared. A family is <family>_*.c and one
 * row of <kgen/families.def>; parsing, memory, launches and replays are common. */
#ifndef KGEN_CHECK_CHECK_FAMILY_H
#define KGEN_CHECK_CHECK_FAMILY_H

#include <stddef.h>

#include "check.h"

typedef enum kgen__key_kind {
    KGEN__KEY_INTEGER,
    KGEN__KEY_DECIMAL,
    KGEN__KEY_WORD,  /* int32_t, an index into words */
    KGEN__KEY_SPANS, /* a term for each sequence */
    KGEN__KEY_SEED,
} kgen__key_kind;

typedef struct kgen__case_key {
    const char *name;
    size_t offset; /* in kgen__case */
    kgen__key_kind kind;
    int32_t low, high; /* of integers, and of terms */
    double initial;
    const char *const *words; /* ends with NULL */
    const char *list;         /* of the words, for messages */
} kgen__case_key;

enum { KGEN__CASE_LENGTH_MAX = 1 << 24 };

/* Rows of a family's keys: `field` is in its part of kgen__case. */
#define KGEN__CASE_AT(family, field) offsetof(kgen__case, family.field)
#define KGEN__CASE_SEQS(low, initial) \
    {                                 \
        "seqs",                       \
        offsetof(kgen__case, seqs),   \
        KGEN__KEY_INTEGER,            \
        low,                          \
        KGEN__CASE_SEQS_MAX,          \
        initial,                      \
        NULL,                         \
        NULL}
#define KGEN__CASE_SEED {"seed", offsetof(kgen__case, seed), KGEN__KEY_SEED, 0, 0, 0, NULL, NULL}
#define KGEN__CASE_INTEGER(family, name, field, low, high, initial) \
    {#name, KGEN__CASE_AT(family, field), KGEN__KEY_INTEGER, low, high, initial, NULL, NULL}
#define KGEN__CASE_DECIMAL(family, name, field, initial) \
    {#name, KGEN__CASE_AT(family, field), KGEN__KEY_DECIMAL, 0, 0, initial, NULL, NULL}
#define KGEN__CASE_SPANS(family, name, field, high) \
    {#name, KGEN__CASE_AT(family, field), KGEN__KEY_SPANS, 0, high, 0, NULL, NULL}
#define KGEN__CASE_WORD(family, name, field, words, list) \
    {#name, KGEN__CASE_AT(family, field), KGEN__KEY_WORD, 0, 0, 0, words, list}

/* What families refuse alike: a page that x16 has not; query tokens that a kernel does
 * not take; rows behind those of a phase with one token a sequence. */
kgen_status kgen__settle_page(int32_t of_spec, int32_t page, kgen_error *err);
kgen_status kgen__settle_tokens(const kgen__span *lens, int32_t seqs, int32_t least, int32_t most,
                                kgen_error *err);
kgen_status kgen__settle_tail(int32_t tail, const char *phase, kgen_error *err);

typedef struct kgen__check_family {
    const kgen__case_key *keys;
    int32_t key_count;

    /* The term of a list that was not given; 0: it has to be. */
    int (*implied)(kgen__span *out, const kgen__case *c, const kgen__case_key *key);
    /* Contradictions between values that are fine by themselves. */
    kgen_status (*settle)(const kgen__case *c, kgen_error *err);
    kgen_status (*random)(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                          int64_t budget, kgen_error *err);
    /* The run-time part of the line of a spec that came alone. */
    void (*alone)(char *out, size_t size, const kgen_spec *spec, int heads);

    /* Shapes and strides of the tensors (rank 0: not used), and of slots what
     * is not 0: view_of, offset before the guard, size if more than the tensor. */
    kgen_status (*shape)(kgen__data *data, kgen_error *err);
    kgen_status (*fill)(kgen__data *data, uint64_t seed, kgen_error *err);
    kgen_status (*refill)(kgen__data *data, kgen__rng *rng, kgen_error *err);
    /* What a launch must leave; *answer is zeroed, kgen__answer_free also after a
     * failure. NULL: the family has a `compare` of its own. */
    kgen_status (*answer)(kgen__answer *answer, const kgen__data *data, kgen_error *err);
    kgen_status (*compare)(kgen__check_result *result, const kgen__data *data, kgen_error *err);

    /* Of inputs that nobody made here (args in host memory, accepted by a launch):
     * KGEN_E_ARG for numbers that lead a kernel and its reference out of a
     * tensor. NULL where the family bounds them all itself. */
    kgen_status (*sound)(const kgen_spec *spec, const kgen_args *args, kgen_error *err);
    /* Rows of the batch, where the reference does not see them itself. */
    int64_t (*rows)(const kgen_args *args, const kgen_spec *spec);
} kgen__check_family;

#define KGEN_FAMILY(name, NAME) extern const kgen__check_family kgen__check_family_##name;
#include <kgen/families.def>

/* NULL when `family` is out of range. */
const kgen__check_family *kgen__check_family_of(kgen_family_id family);

/* ---- tensors --------------------------------------------------------------- */

kgen_tensor kgen__tensor_strided(kgen_dtype dtype, int32_t rank, const int64_t *shape,
                                 const int64_t *stride);
/* Strides from the last dimension to the first; between two of dimension i, pad[i]
 * elements more than they hold. */
void kgen__tensor_pad(kgen_tensor *t, const int64_t *pad);
/* From the first to the last element; 0 without elements. */
size_t kgen__tensor_bytes(const kgen_tensor *t);
int64_t kgen__int_load(const kgen_tensor *t, int64_t index);
void kgen__int_store(const kgen_tensor *t, int64_t index, int64_t value);
/* Fills a slot with codes that must not be read, or with finite ones. */
void kgen__slot_cover(kgen__data *data, int slot, kgen__rng *rng, int poison);
/* What INOUT slots hold now is what a launch finds. */
void kgen__data_remember(kgen__data *data);

/* Makes each tensor that kernels of the spec take what its row says: type, layout, a
 * dense shape, and the slot's role. Sizes that the spec says need no letters here. A
 * tensor whose shape is that of a layout keeps rank 0; absent: a bit for each tensor
 * that the case goes without. */
kgen_status kgen__data_shape(kgen__data *data, const kgen_arg_size *sizes, size_t count,
                             uint64_t absent, kgen_error *err);

/* ---- inputs of captured launches ------------------------------------------------ */

#define KGEN__SOUND(condition, ...)                                       \
    do {                                                                  \
        if (!(condition)) return kgen_fail(err, KGEN_E_ARG, __VA_ARGS__); \
    } while (0)

/* Offsets of `count` sequences: within 0 .. rows, never falling, and at most
 * `most` apart. */
kgen_status kgen__sound_offsets(const char *name, const kgen_tensor *t, int64_t count, int64_t rows,
                                int64_t most, kgen_error *err);

/* ---- drawing ---------------------------------------------------------------- */

static inline int32_t kgen__pick(kgen__rng *rng, const int32_t *values, size_t count) {
    return values[kgen__rng_range(rng, 0, (int64_t)count - 1)];
}

#define KGEN__PICK(rng, ...)                        \
    kgen__pick(rng, (const int32_t[]){__VA_ARGS__}, \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static inline int kgen__chance(kgen__rng *rng, int64_t in_eight) {
    return kgen__rng_range(rng, 0, 7) < in_eight;
}

/* A parameter of a random spec: `often` of 8 draws take one of the values, the
 * rest keep the first. */
typedef struct kgen__choice {
    size_t offset; /* in kgen_spec */
    int32_t often;
    int32_t count;
    const int32_t *values;
} kgen__choice;

/* clang-format off */
#define KGEN__CHOICE(field, often, ...)                                    \
    {offsetof(kgen_spec, field), often,                                    \
     sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__}}
/* clang-format on */

/* Draws until a spec is valid; `finish` (or NULL) sets what depends on others. */
kgen_status kgen__random_spec(kgen_spec *spec, const kgen__choice *choices, size_t count,
                              void (*finish)(kgen_spec *, kgen__rng *), kgen__rng *rng,
                              const kgen_target *target, kgen_error *err);

/* ---- comparing ---------------------------------------------------------------- */

/* An answer where everything stays as it is until something is expected of it,
 * and arguments in `room` whose INOUT tensors are what a launch finds. Also after a
 * failure: kgen__answer_free. */
kgen_status kgen__answer_make(kgen__answer *answer, kgen_args *before, kgen_args_room *room,
                              const kgen__data *data, kgen_error *err);
/* Error in tolerances; infinity where no error is allowed. */
double kgen__error_ratio(double got, double want, double tolerance);

#endif
