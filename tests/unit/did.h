/* Calls that must work: the test fails with what they say. */
#ifndef KGEN_TESTS_UNIT_DID_H
#define KGEN_TESTS_UNIT_DID_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <kgen/kgen.h>

static kgen_error did; /* of DO */

#define DO(call)                                                    \
    do {                                                            \
        did.text[0] = 0;                                            \
        if ((call) != KGEN_OK) fail_msg("%s: %s", #call, did.text); \
    } while (0)

#endif
