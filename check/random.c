/* Random numbers that are the same on every machine: integers only, and normal
 * numbers as a sum of uniforms, so that a seed repeats a run to the bit. */
#include "check.h"

#include <sys/random.h>
#include <time.h>

uint64_t kgen__seed_fresh(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)time(NULL);
    seed &= 0xffffffffu;
    return seed ? seed : 1;
}

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void kgen__rng_seed(kgen__rng *rng, uint64_t seed, uint64_t stream) {
    uint64_t state = seed;
    state = splitmix(&state) ^ (stream * 0xd1342543de82ef95u);
    for (int i = 0; i < 4; i++) rng->state[i] = splitmix(&state);
}

static uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

/* xoshiro256** */
uint64_t kgen__rng_next(kgen__rng *rng) {
    uint64_t *s = rng->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

int64_t kgen__rng_range(kgen__rng *rng, int64_t low, int64_t high) {
    if (high <= low) return low;
    return low + (int64_t)(kgen__rng_next(rng) % (uint64_t)(high - low + 1));
}

double kgen__rng_uniform(kgen__rng *rng) { return (double)(kgen__rng_next(rng) >> 11) * 0x1p-53; }

/* Four uniforms: no library function, so the same bits everywhere. */
double kgen__rng_normal(kgen__rng *rng) {
    uint64_t bits = kgen__rng_next(rng);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) sum += (int64_t)((bits >> (16 * i)) & 0xffff);
    return ((double)sum / 65536.0 - 2.0) * 1.7320508;
}
