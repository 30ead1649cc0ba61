/* What a kernel of mla needs of a target. Of tuning keys that are open each function says what it
 * takes them for. */
#ifndef KGEN_GEN_MLA_NEEDS_H
#define KGEN_GEN_MLA_NEEDS_H

#include <kgen/spec.h>

/* What one isa gives a workgroup. */
typedef struct kgen__mla_isa {
    int32_t columns; /* query rows of a row tile */
    int32_t keys;    /* of a block */
    int32_t waves;
    int32_t fixed;    /* registers of addresses, conversions, operands */
    int32_t wide;     /* of rows of more than 512 columns, beside them */
    int32_t soft;     /* of conversions in integer arithmetic, beside them */
    int32_t soft_mt;  /* most row tiles with conversions in integer arithmetic, whose
                         constants fill the scalars */
    int32_t matrices; /* rows lie in LDS as matrices (kg/mla/mla_matrices_nvidia.h) */
    int32_t direct;   /* memory brings rows into LDS by itself (kg/mla/mla_direct.h); registers
                         beside those of sums and queries then */
    int32_t many;     /* units: few keys are read by row blocks of fewer rows (mla_suit.c) */
} kgen__mla_isa;

/* The row of a target's isa. */
const kgen__mla_isa *kgen__mla_isa_of(const kgen_target *target);

/* --- what kind of kernel it is -------------------------------------------- */

/* Columns of a key. */
static inline int32_t kgen__mla_width_of(const kgen_mla_spec *s) { return s->latent + s->rope; }
/* 1: rows are cached in 8 bits, of which numbers are made. */
int kgen__mla_has_codes(const kgen_mla_spec *s);
/* 1: two groups of waves take sets in turn. target: or NULL, which has none. */
int kgen__mla_is_paired(const kgen_mla_spec *s, const kgen_target *target);
/* Waves of a third group, which makes numbers of codes; 0: there is none. target: or NULL. */
int32_t kgen__mla_bringers_of(const kgen_mla_spec *s, const kgen_target *target);
/* 1: memory brings rows into LDS by itself. */
int kgen__mla_is_direct(const kgen_mla_spec *s, const kgen_target *target);

/* --- registers and LDS ---------------------------------------------------- */

/* Of LDS, where rows are matrices. */
int32_t kgen__mla_bytes_of_matrices(const kgen_mla_spec *s, const kgen_target *target);
/* Of LDS, of a workgroup. */
int32_t kgen__mla_lds_needed(const kgen_mla_spec *s, const kgen_target *target);
/* What the line itself asks for, with the least of what it leaves open. */
kgen_status kgen__mla_fits(const kgen_mla_spec *s, const kgen_target *target, kgen_error *err);

/* --- the most that fits --------------------------------------------------- */

/* Waves of a workgroup; one row tile and one workgroup where those are open. */
int32_t kgen__mla_waves_of(const kgen_mla_spec *s, const kgen_target *target);
/* 1: registers and LDS go so far; of what is open, with what it will be. */
int kgen__mla_has_tiles(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target);
/* Row tiles, as many as there are rows for. */
int32_t kgen__mla_row_tiles_of(const kgen_mla_spec *s, const kgen_target *target);
/* 1: a unit is to hold two workgroups of so many. */
int kgen__mla_holds_two(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target);

#endif
