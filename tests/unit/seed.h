/* The seed of a test program: fresh, printed, and KGEN_TEST_SEED gives it back. */
#ifndef KGEN_TESTS_UNIT_SEED_H
#define KGEN_TESTS_UNIT_SEED_H

#include <stdint.h>

uint64_t test_seed(void); /* once, in main */

#endif
