/* How a family's arguments become one packed struct. A family is one file
 * <family>_launch.c and one row of <kgen/families.def>. */
#ifndef KGEN_RUNTIME_LAUNCH_H
#define KGEN_RUNTIME_LAUNCH_H

#include "templates/kg/core/workspace_head.h"
#include "context.h"

/* Counters live in a head of fixed size, so that kernels of different shapes
 * can share a workspace without finding each other's sums in them. */
enum {
    KGEN__HEAD_BYTES = sizeof(struct kg_workspace),
    KGEN__COUNTERS =
        sizeof((struct kg_workspace *)0)->arrived / sizeof((struct kg_workspace *)0)->arrived[0],
    KGEN__WORKSPACE_ALIGNMENT = 256,
};

typedef struct kgen__launcher {
    /* What a kernel of that spec wants of its arguments. */
    const kgen__args_rows *(*rows_of)(const kgen_spec *spec);
    size_t packed_bytes; /* at most KGEN__PACKED_MAX */
    /* May be NULL. Fills kernel->counts, once, when the kernel is loaded. */
    void (*settle)(kgen_kernel *kernel);
    kgen_status (*workspace_bytes)(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err);
    /* Checks everything and fills `packed`, which is zero; a grid of 0 launches nothing. */
    kgen_status (*pack)(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err);
    /* May be NULL: each launch takes the long way. `packed` is that of the last launch, whose
     * arguments were the same but for addresses; those that have a place are in it. Adds the
     * others, and checks what depends on them (at: the memory of the binding's tensors). 0: the
     * long way says whether anything is wrong. */
    int (*again)(void *packed, const kgen_kernel *kernel, const kgen_args *args,
                 const kgen__stretch *at);
    /* May be NULL. Of arguments that a launch accepts, the tensor that holds
     * addresses of memory, and the bytes behind each; -1: none does. */
    kgen_status (*addresses)(int *tensor, size_t *bytes, const kgen_kernel *kernel,
                             const kgen_args *args, kgen_error *err);
} kgen__launcher;

#define KGEN_FAMILY(name, NAME) extern const kgen__launcher kgen__launch_##name;
#include <kgen/families.def>

/* The member `addresses` of the kernel's family. */
kgen_status kgen__launch_addresses(int *tensor, size_t *bytes, const kgen_kernel *kernel,
                                   const kgen_args *args, kgen_error *err);

/* What launches of the kernel are checked against; once, when it is loaded. */
void kgen__launch_bind(kgen_kernel *kernel);

/* A number that no launch of this process had before, but 2^32 - 1 launches ago;
 * never 0. */
uint32_t kgen__launch_ticket(void);

kgen_status kgen__check_workspace(const void *memory, size_t bytes, size_t needed, kgen_error *err);

#endif
