/* The files of templates/, cut into pieces and embedded by cmake/embed.c. */
#ifndef KGEN_GEN_TEMPLATES_H
#define KGEN_GEN_TEMPLATES_H

#include <stddef.h>

/* Of a file, up to a line that includes another, or to the end. */
typedef struct kgen__piece {
    const unsigned char *text; /* as it is written into a source */
    size_t size;
    const unsigned char *tokens; /* as they are digested (digest.c) */
    size_t tokens_size;
    int ends_directive;   /* the last token is one of a directive */
    const char *names;    /* that a constant may have and a token has: each once, with its NUL */
    const char *includes; /* NULL: the end */
    int line;             /* behind that */
} kgen__piece;

typedef struct kgen__template {
    const char *name; /* relative to templates/: "attn.hip", "kg/attn/mma.h" */
    const kgen__piece *pieces;
    size_t piece_count;
} kgen__template;

extern const kgen__template kgen__templates[]; /* in name order */
extern const size_t kgen__template_count;

#endif
