/* The files of templates/, embedded as bytes by cmake/embed.cmake.          */
#ifndef KGEN_GEN_TEMPLATES_H
#define KGEN_GEN_TEMPLATES_H

#include <stddef.h>

typedef struct kgen_template {
    const char *name;          /* relative to templates/: "attn.hip", "kg/mma.h" */
    const unsigned char *text; /* followed by a NUL that `size` does not count   */
    size_t size;
} kgen_template;

extern const kgen_template kgen_templates[]; /* in name order                */
extern const size_t kgen_template_count;

#endif
