/* The files of templates/, embedded as bytes by cmake/embed.cmake. */
#ifndef KGEN_GEN_TEMPLATES_H
#define KGEN_GEN_TEMPLATES_H

#include <stddef.h>

typedef struct kgen__template {
    const char *name;          /* relative to templates/: "attn.hip", "kg/attn/mma.h" */
    const unsigned char *text; /* followed by a NUL that `size` does not count */
    size_t size;
} kgen__template;

extern const kgen__template kgen__templates[]; /* in name order */
extern const size_t kgen__template_count;

#endif
