/* What a kernel of gdn needs of a target. A function that may be asked while tuning keys are open
 * says what it takes them for. */
#ifndef KGEN_GEN_GDN_NEEDS_H
#define KGEN_GEN_GDN_NEEDS_H

#include <kgen/spec.h>

enum {
    KGEN__GDN_MOST_BLOCKS = 8, /* workgroups of a head */
    KGEN__GDN_FEW_TOKENS = 8,  /* above as many, their inputs are most of what a lane holds */
    KGEN__GDN_ELEMENT_COUNTS = 9,
};

/* Elements of the state that a lane may hold at a time, ascending. */
extern const int32_t kgen__gdn_element_counts[KGEN__GDN_ELEMENT_COUNTS];

/* Of the state, in 16 bytes. */
static inline int32_t kgen__gdn_vec_of(const kgen_gdn_spec *s) {
    return 16 / kgen_dtype_size((kgen_dtype)s->state);
}

/* --- how a head is cut ---------------------------------------------------- */

/* The fewest elements a lane can hold. */
int32_t kgen__gdn_least_elements(const kgen_gdn_spec *s, const kgen_target *target);
/* Workgroups, waves, lanes and elements divide the head; nothing is said of what is open. */
kgen_status kgen__gdn_tile_fits(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err);

/* --- LDS and registers ---------------------------------------------------- */

/* The fewest workgroups of a head whose tokens fit into LDS; normed heads stay whole. */
int32_t kgen__gdn_least_blocks(const kgen_gdn_spec *s, const kgen_target *target);
/* With as few waves and as many workgroups of a head as it takes, where those are open. */
kgen_status kgen__gdn_lds_fits(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err);
/* Of a lane, as a choice counts them. */
int32_t kgen__gdn_registers(const kgen_gdn_spec *s, const kgen_target *target);
/* Those that a lane needs at least; nothing is said of what is open. */
kgen_status kgen__gdn_registers_fit(const kgen_gdn_spec *s, const kgen_target *target,
                                    kgen_error *err);

#endif
