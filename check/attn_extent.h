/* What lengths, offsets and the block table say of one sequence, bounded as a
 * launch bounds them: <kgen/attn_args.h>. */
#ifndef KGEN_CHECK_ATTN_EXTENT_H
#define KGEN_CHECK_ATTN_EXTENT_H

#include "check_family.h"

typedef struct kgen__attn_extent {
    int64_t start, count; /* queries, perhaps more than t; none where they lead out of q */
    int64_t keys;         /* none where they lead out of the table */
    int32_t wrong;        /* bits of kgen_attn_error */
    int64_t shared;       /* cascade=1: keys that are read where sequence `leader` has them */
    int64_t leader;
} kgen__attn_extent;

kgen__attn_extent kgen__attn_extent_of(const kgen_attn_spec *spec, const kgen_attn_args *args,
                                       int64_t seq);
/* The page numbers of a sequence: elements of `table`. */
typedef struct kgen__attn_pages {
    const kgen_tensor *table; /* NULL: they are first, first + 1 ... */
    int64_t first, count;     /* none where they lead out of a flat table */
} kgen__attn_pages;

/* Sequences; page numbers of phases without pages are the keys' own. */
int64_t kgen__attn_seqs(const kgen_attn_args *args);
kgen__attn_pages kgen__attn_pages_of(const kgen_attn_args *args, int64_t seq);
/* Entry `column` of them. */
int64_t kgen__attn_page(const kgen_attn_args *args, int64_t seq, int64_t column);
/* Entry `index` of cu_seqlens_q, as a launch takes it. */
int64_t kgen__attn_offset(const kgen_attn_args *args, int64_t index);
/* -1: none */
int64_t kgen__attn_window(const kgen_attn_spec *spec, const kgen_attn_args *args);
/* The first key that the query at `position` sees behind the kept ones, of which there
 * are so many. */
int64_t kgen__attn_first(const kgen_attn_spec *spec, const kgen_attn_args *args, int64_t position);
int64_t kgen__attn_kept(const kgen_attn_spec *spec, const kgen_attn_args *args);

/* The keys first .. end - 1 that `token`, at `position` of a sequence of `keys`, sees;
 * end <= first where it sees none. */
typedef struct kgen__attn_sight {
    int64_t first, end;
} kgen__attn_sight;
kgen__attn_sight kgen__attn_sight_of(const kgen_attn_spec *spec, const kgen_attn_args *args,
                                     int64_t seq, int64_t token, int64_t position, int64_t keys);

/* phase=tree: the mask of token `i` of a sequence; where a key stands, of `extent`; and
 * whether the token sees it. */
uint64_t kgen__attn_mask(const kgen_attn_args *args, int64_t seq, int64_t i);
int64_t kgen__attn_place(const kgen_attn_spec *spec, const kgen_attn_args *args,
                         const kgen__attn_extent *extent, int64_t seq, int64_t key);
int kgen__attn_in_tree(const kgen_attn_spec *spec, const kgen_attn_args *args,
                       const kgen__attn_extent *extent, int64_t seq, int64_t i, int64_t key);

#endif
