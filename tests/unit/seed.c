/* One way to draw the seed of a test program, print it, and take it again. */
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "check/check.h"

uint64_t test_seed(void) {
    const char *given = getenv("KGEN_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : kgen__seed_fresh();
    print_message("KGEN_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}
