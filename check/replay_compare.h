/* The check of a captured launch: what it must leave, region by region. */
#ifndef KGEN_CHECK_REPLAY_COMPARE_H
#define KGEN_CHECK_REPLAY_COMPARE_H

#include "check_family.h"

typedef struct kgen__replay_check {
    const kgen_capture *capture;
    const kgen__check_family *family;
    kgen__data *data;         /* tensors as the reference takes them */
    kgen__answer answer;      /* of all families but ... */
    kgen__attn_answer attn;   /* ... this one */
    unsigned char **memory;   /* by region, allocated */
    unsigned char **expected; /* in them: what must be there, where ... */
    unsigned char **loose;    /* ... this is 0; else a tolerance decides */
} kgen__replay_check;

/* Inputs on the host; kgen__replay_check_free, also after a failure. */
kgen_status kgen__replay_check_make(kgen__replay_check *check, const kgen_capture *capture,
                                    kgen_error *err);
/* KGEN_E_ARG: the inputs lead out of their tensors. */
kgen_status kgen__replay_check_sound(const kgen__replay_check *check, kgen_error *err);
/* 0: there are strides that the references do not walk. */
int kgen__replay_check_can(const kgen__replay_check *check);
/* Once; then `look` at as many outcomes as there are. */
kgen_status kgen__replay_check_answer(kgen__replay_check *check, kgen_error *err);
/* outcome: by region. KGEN_E_MISMATCH with the message in *result. */
kgen_status kgen__replay_check_look(kgen__check_result *result, kgen__replay_check *check,
                                    unsigned char *const *outcome, kgen_error *err);
void kgen__replay_check_free(kgen__replay_check *check);

#endif
