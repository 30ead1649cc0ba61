/* What a test program is given: its seed, and how much there is to do. */
#ifndef KGEN_TESTS_UNIT_SEED_H
#define KGEN_TESTS_UNIT_SEED_H

#include <stdint.h>

/* Fresh, printed; KGEN_TEST_SEED gives it back. Once, in main. */
uint64_t test_seed(void);

enum { LEVEL_FAST, LEVEL_NORMAL, LEVEL_FULL };

/* KGEN_TEST_LEVEL: ./run test --fast, nothing, --full. */
int test_level(void);

/* Kernels and programs are sanitized, and ten times as slow. */
int test_is_sanitized(void);

/* Whether this run takes number i of many: one in `sanitized` or one in `plain` of
 * them, others in the next run; --full takes all. */
int test_takes(uint64_t seed, uint64_t i, int plain, int sanitized);

#endif
