/* The rows of <kgen/<family>_args.def>: what a family's arguments consist of. */
#ifndef KGEN_RUNTIME_MEMBERS_H
#define KGEN_RUNTIME_MEMBERS_H

#include <kgen/args.h>

typedef struct kgen__member {
    const char *name; /* NULL ends the list */
    size_t offset;    /* in kgen_args */
    size_t size;
    int is_tensor; /* they come first; else a plain number of 4 or 8 bytes */
    kgen_use use;
} kgen__member;

/* NULL for a family that does not exist. */
const kgen__member *kgen__members(kgen_family_id family);

#endif
