/* The files of tuning/rows/, embedded by cmake/embed.c. */
#ifndef KGEN_TUNING_SHIPPED_H
#define KGEN_TUNING_SHIPPED_H

#include <stddef.h>

typedef struct kgen__shipped_file {
    const char *name;
    const unsigned char *text; /* followed by a NUL that `size` does not count */
    size_t size;
} kgen__shipped_file;

extern const kgen__shipped_file kgen__shipped[]; /* in name order */
extern const size_t kgen__shipped_count;

#endif
