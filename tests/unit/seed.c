/* One way to draw the seed of a test program, print it and take it again; one to read the level. */
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"

uint64_t test_seed(void) {
    const char *given = getenv("KGEN_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : kgen__seed_fresh();
    print_message("KGEN_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

int test_level(void) {
    const char *text = getenv("KGEN_TEST_LEVEL");
    if (text && strcmp(text, "fast") == 0) return LEVEL_FAST;
    return text && strcmp(text, "full") == 0 ? LEVEL_FULL : LEVEL_NORMAL;
}

int test_is_sanitized(void) {
    const char *text = getenv("KGEN_CPU_SANITIZE");
    return text && strcmp(text, "1") == 0;
}

int test_takes(uint64_t seed, uint64_t i, int plain, int sanitized) {
    uint64_t one_in = (uint64_t)(test_is_sanitized() ? sanitized : plain);
    return test_level() == LEVEL_FULL || (seed % one_in + i) % one_in == 0;
}
