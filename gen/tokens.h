/* What a compiler sees of a source text: its tokens. Templates have no raw strings. */
#ifndef KGEN_GEN_TOKENS_H
#define KGEN_GEN_TOKENS_H

#include <stddef.h>

/* Starts as {.at = text, .end = behind it}. */
typedef struct kgen__tokens {
    const char *at, *end;
    int in_directive, words; /* of the directive, so far */
    int ended;               /* a directive, before the token read last */
} kgen__tokens;

/* The next token and its length; 0 at the end. Comments, blank space and #line marks are none. */
size_t kgen__tokens_next(kgen__tokens *r, const char **token);
size_t kgen__token_length(const char *p, const char *end);
/* As names of constants do, in every locale. */
int kgen__is_capital(char c);
/* `#define F(x)` has arguments, `#define F (x)` has a value: there a blank counts. */
int kgen__tokens_touch(const kgen__tokens *r);

#endif
