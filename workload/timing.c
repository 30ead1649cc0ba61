/* The median of samples and how far it can be trusted. */
#include <math.h>
#include <stdlib.h>

#include "workload.h"

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many samples to leave out at each end. Whatever the distribution, the
 * number of samples below the median is binomial(count, 1/2): samples k and
 * count - 1 - k enclose it but with probability 2 P(at most k below). */
static int outside(int count) {
    double below = 0;
    int k = 0;
    for (; k < count / 2; k++) {
        below +=
            exp(lgamma(count + 1.0) - lgamma(k + 1.0) - lgamma(count - k + 1.0) - count * log(2.0));
        if (2 * below > 0.05) break;
    }
    return k > 0 ? k - 1 : 0;
}

void kgen__timing_of(kgen__timing *out, double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, compare);
    int k = outside(count);
    *out = (kgen__timing){.us = (samples[(count - 1) / 2] + samples[count / 2]) / 2,
                          .low = samples[k],
                          .high = samples[count - 1 - k],
                          .best = samples[0],
                          .samples = count};
}
