/* The check of kernels: number formats, random data, double-precision
 * references, cases in text form, and the run that compares. Used by the
 * command, the tests and the bench; built on public headers only. */
#ifndef KGEN_CHECK_CHECK_H
#define KGEN_CHECK_CHECK_H

#include <kgen/capture.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- number formats: bf16, fp16, e4m3fn, e4m3fnuz, e5m2, f32, i8, i4 ----
 *
 * encode rounds to nearest, ties to even. The 8-bit types saturate (infinity
 * too), i8 at +-127, i4 at +-7; the others overflow to infinity. NaN stays NaN, and is 0 as
 * an integer. Pure. */
float kgen__number_decode(kgen_dtype dtype, uint32_t bits);
uint32_t kgen__number_encode(kgen_dtype dtype, double value);
/* index: of i4 that of the value, in load and store. */
/* A code that decodes to NaN, or to infinity where the type has one: `pick`
 * walks through them. Of integers any code. */
uint32_t kgen__number_poison(kgen_dtype dtype, uint32_t pick);
double kgen__number_max(kgen_dtype dtype);
/* Half the spacing of the type's values around `magnitude`: the largest error
 * of one rounding there. */
double kgen__number_half_ulp(kgen_dtype dtype, double magnitude);
double kgen__number_load(kgen_dtype dtype, const void *base, int64_t index);
void kgen__number_store(kgen_dtype dtype, void *base, int64_t index, double value);

/* ---- random numbers: the same on every machine and locale --------------- */
typedef struct kgen__rng {
    uint64_t state[4];
} kgen__rng;

uint64_t kgen__seed_fresh(void); /* below 2^32 and not 0: easy to type again */
void kgen__rng_seed(kgen__rng *rng, uint64_t seed, uint64_t stream);
uint64_t kgen__rng_next(kgen__rng *rng);
int64_t kgen__rng_range(kgen__rng *rng, int64_t low, int64_t high); /* inclusive */
double kgen__rng_uniform(kgen__rng *rng);                           /* [0, 1) */
double kgen__rng_normal(kgen__rng *rng); /* mean 0, variance 1, within 3.5 */

/* ---- the reference of paged attention -----------------------------------
 *
 * Written from the formula in args.h, one row at a time, in double. Keys that
 * no row of a sequence sees are never read. */
typedef struct kgen__attn_answer {
    int64_t tokens, heads, v_dim, seqs;
    double *out;     /* [T][Hq][Dv], not rounded, not saturated */
    double *out_tol; /* how far a right kernel may be from `out` */
    double *out_rms; /* how far it is expected to be */
    double *lse;     /* [Hq][T] */
    double *lse_tol;
    int32_t *claims; /* [T] sequences that write a token, padding included: 0 leaves it as it
                        is; of more, nobody knows which is last */
    int32_t *wrong;  /* [S] bits of kgen_attn_error */
} kgen__attn_answer;

/* spec: resolved. args: tensors in host memory. *answer: kgen__attn_free. */
kgen_status kgen__attn_reference(kgen__attn_answer *answer, const kgen_spec *spec,
                                 const kgen_attn_args *args, kgen_error *err);
void kgen__attn_free(kgen__attn_answer *answer);

/* ---- cases ---------------------------------------------------------------
 *
 * `<spec line> | key=value ...`, one line. Lists (lens, qlens ...) hold a term
 * for each sequence, or one for all; a term is a number or rand:low..high.
 * The keys are the family's. */
enum { KGEN__CASE_LINE_MAX = 24576 };

typedef enum kgen__scale_shape {
    KGEN__SCALE_AUTO = 0, /* the first shape that the spec's descale allows */
    KGEN__SCALE_ONE,      /* [1] */
    KGEN__SCALE_HEAD,     /* [Hkv] */
    KGEN__SCALE_SEQ,      /* [S][Hkv] */
    KGEN__SCALE_TOKEN,    /* [NB][page][Hkv] */
    KGEN__SCALE_HTOKEN,   /* [NB][Hkv][page] */
    KGEN__SCALE_COUNT
} kgen__scale_shape;

/* clang-format off */
#define KGEN_FAMILY_HEADER(name) KGEN_QUOTED(check/name##_case.h)
/* clang-format on */
#include <kgen/families.def>

typedef struct kgen__case {
    kgen_spec spec;
    uint64_t seed; /* 0: none yet */
    int32_t seqs;
    union {
#define KGEN_FAMILY(name, NAME) kgen__##name##_case name;
#include <kgen/families.def>
    };
} kgen__case;

kgen_status kgen__case_parse(kgen__case *out, const char *line, kgen_error *err);
void kgen__case_print(char out[KGEN__CASE_LINE_MAX], const kgen__case *c);
/* Draws every span from the seed; after it low == high everywhere. */
void kgen__case_draw(kgen__case *c, uint64_t seed);
/* A random valid case over the whole grid of specs of a family that `target`
 * (NULL: any) has kernels for. budget, 0 for the family's own: of attn, keys x
 * KV heads x row tiles for 128-wide heads (600); of gdn, tokens x value heads
 * of 128 x 128 (24). */
kgen_status kgen__case_random(kgen__case *out, kgen_family_id family, kgen__rng *rng,
                              const kgen_target *target, int64_t budget, kgen_error *err);
/* A spec alone gets run-time shapes of its own, with about `heads` KV heads
 * where the spec does not say. *c: parsed as any other case. */
kgen_status kgen__case_default(kgen__case *c, const kgen_spec *spec, int heads, kgen_error *err);
/* A case, or a spec alone, which gets such shapes. */
kgen_status kgen__case_read(kgen__case *c, const char *line, kgen_error *err);

/* A cases file: a case or a spec a line, `#` begins a comment. *cases: free(). Errors
 * name the file and the line. */
kgen_status kgen__cases_load(kgen__case **cases, size_t *count, const char *path, kgen_error *err);

/* ---- the data of a case, in host memory ---------------------------------- */
enum { KGEN__SLOT_MAX = KGEN_ARGS_TENSORS_MAX, KGEN__GUARD_BYTES = 256 };

typedef struct kgen__slot {
    unsigned char *bytes;  /* NULL: not used, or a view of another slot */
    unsigned char *before; /* INOUT: what a launch finds */
    size_t size;           /* exact: the last element is the last byte */
    int32_t view_of;       /* slot whose bytes these are */
    size_t offset;         /* of the tensor's first element */
    kgen_use role;         /* all but IN have guards around them */
} kgen__slot;

typedef struct kgen__data {
    kgen__case shape; /* drawn */
    kgen_spec spec;   /* resolved */
    kgen_args args;   /* in `room`; pointers into the slots */
    kgen_args_room room;
    kgen__slot slot[KGEN__SLOT_MAX];
} kgen__data;

/* c: drawn. spec: c's spec, resolved. make sizes every tensor by the lengths
 * of the case; fill writes contents for these lengths from `seed`; refill
 * draws other lengths up to those, and all that may change between replays. */
kgen_status kgen__data_make(kgen__data *data, const kgen__case *c, const kgen_spec *spec,
                            kgen_error *err);
kgen_status kgen__data_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__data_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
void kgen__data_free(kgen__data *data);
/* The tensors of a family's arguments, 0 .. count - 1. */
int kgen__slot_count(const kgen_args *args);
kgen_tensor *kgen__slot_tensor(const kgen_args *args, int slot);
const char *kgen__slot_name(const kgen_args *args, int slot);
/* Outputs and their guards get a pattern that no kernel writes; what is read
 * and written gets its first contents back. */
void kgen__data_poison_outputs(kgen__data *data);

/* Contents for lengths given one by one. */
kgen_status kgen__attn_data_fill(kgen__data *data, const int32_t *lens, const int32_t *qlens,
                                 uint64_t seed, kgen_error *err);

/* ---- comparison and run --------------------------------------------------- */
typedef struct kgen__check_result {
    double max_abs;           /* largest |got - want| */
    double max_ratio;         /* largest error over its tolerance; <= 1 passes */
    double rms_ratio;         /* root mean square over its expectation; <= 1 passes */
    char tensor[16];          /* of the worst element: out, lse, state ... */
    int64_t token, head, dim; /* attn */
    double got, want, tolerance;
    char message[1536]; /* empty when it passed */
} kgen__check_result;

/* The outputs in `data` (and their guards) against the reference. */
kgen_status kgen__data_compare(kgen__check_result *result, const kgen__data *data, kgen_error *err);
kgen_status kgen__attn_compare(kgen__check_result *result, const kgen__data *data,
                               const kgen__attn_answer *answer, kgen_error *err);

/* What a launch must leave of each slot that it may write. */
typedef struct kgen__image {
    unsigned char *bytes; /* the slot, guards included: exact where ... */
    float *tolerance;     /* ... this is below 0, by elements from the offset */
    double *want;         /* elsewhere */
    int64_t count;        /* elements */
    size_t offset;        /* of the first one */
} kgen__image;

typedef struct kgen__answer {
    kgen__image image[KGEN__SLOT_MAX];
} kgen__answer;

/* spec: of `data`, or another one that reads the same tensors.
 * *answer: kgen__answer_free. */
kgen_status kgen__gdn_reference(kgen__answer *answer, const kgen_spec *spec, const kgen__data *data,
                                kgen_error *err);
kgen_status kgen__kv_write_reference(kgen__answer *answer, const kgen__data *data, kgen_error *err);
kgen_status kgen__kv_gather_reference(kgen__answer *answer, const kgen__data *data,
                                      kgen_error *err);
kgen_status kgen__answer_compare(kgen__check_result *result, const kgen__data *data,
                                 const kgen__answer *answer, kgen_error *err);
void kgen__answer_free(kgen__answer *answer);

/* Writes what a launch writes: args in host memory, `rows` of them. */
void kgen__scatter_reference(const kgen_spec *spec, const kgen_scatter_args *args, int64_t rows);

typedef struct kgen__check_options {
    int replays; /* > 0: capture one launch, replay it with other lengths */
} kgen__check_options;

/* Runs a case on the context's device. KGEN_E_MISMATCH: the text ends with the
 * command that reproduces it. A seed of 0 is drawn. options may be NULL. */
kgen_status kgen__check_run(kgen__check_result *result, kgen_context *ctx, const kgen__case *c,
                            const kgen__check_options *options, kgen_error *err);

/* ---- captured launches ------------------------------------------------------ */
typedef struct kgen__replay_options {
    int keep_tuning; /* also on another target */
} kgen__replay_options;

/* By the reference, computed from what the captured launch found: every byte
 * that a launch must leave, of inputs and of memory between them too. */
typedef struct kgen__replay_result {
    int same_bits;     /* the replay left, everywhere, what the capture has */
    int has_reference; /* 0: no reference for these strides; compared bit by bit */
    int captured_right, replay_right;
    kgen__check_result captured, replay; /* messages of what is not */
} kgen__replay_result;

/* Launches a capture again on the context's device. KGEN_E_MISMATCH: the text
 * says which of the two launches is wrong, and where. KGEN_E_ARG: the captured
 * inputs lead out of their tensors; nothing was launched. options may be NULL. */
kgen_status kgen__replay_run(kgen__replay_result *result, kgen_context *ctx,
                             const kgen_capture *capture, const kgen__replay_options *options,
                             kgen_error *err);

#ifdef __cplusplus
}
#endif
#endif
