/* A workload: tensors on the device for one spec at one problem size, in several
 * sets that are used in turn so that every launch finds its data in no cache,
 * and the clock that times kernels over it by graph replay.
 *
 * A family is workload_<family>.c and one row of <kgen/families.def>. */
#ifndef KGEN_WORKLOAD_WORKLOAD_H
#define KGEN_WORKLOAD_WORKLOAD_H

#include <kgen/capture.h>
#include <kgen/kgen.h>
#include <kgen/tuning.h>

typedef struct kgen__workload kgen__workload;

/* There are at most 1024 sets: what is small enough is found in the cache all
 * the same. */
typedef struct kgen__workload_options {
    double cold_bytes; /* of all sets together; 0: 1e9. 1: one set, for tests and warm caches */
    uint64_t seed;     /* of the contents; 0: fresh */
} kgen__workload_options;

/* problem: batch at least 1. attn: context, new tokens included, and heads are
 * given. gdn: neither is read. scatter: context is what a request has cached.
 * kv_write: heads 0 is 8. kv_gather: the same; context is the length of a
 * sequence, 0 is 1024. What a launch is given and no spec says: pages of x16 are
 * 16 tokens, a window of rt 1024.
 *
 * KGEN_E_ARG: no such problem. KGEN_E_UNSUPPORTED: no workload of this operation.
 * KGEN_E_NOMEM: the device's memory does not hold it (of the cpu device half of
 * the machine's). *out: kgen__workload_free. options may be NULL. spec: tuning keys
 * do not matter. */
kgen_status kgen__workload_make(kgen__workload **out, kgen_context *ctx, const kgen_spec *spec,
                                const kgen_problem *problem, const kgen__workload_options *options,
                                kgen_error *err);
void kgen__workload_free(kgen__workload *work);

/* The same of a captured launch, each set a copy of all that it found. Tensors
 * that are updated in place go on from launch to launch. The capture outlives
 * the workload. */
kgen_status kgen__workload_replay(kgen__workload **out, kgen_context *ctx,
                                  const kgen_capture *capture,
                                  const kgen__workload_options *options, kgen_error *err);
/* How large the captured launch is: sequences (tokens of the kv families), the
 * mean of their lengths, KV heads. */
void kgen__workload_problem(kgen_problem *out, const kgen_capture *capture);

double kgen__workload_bytes(const kgen__workload *work); /* that a launch must read and write */
double kgen__workload_read_bytes(const kgen__workload *work);
double
kgen__workload_flops(const kgen__workload *work); /* of matrix products; 0: none that matter */
int kgen__workload_sets(const kgen__workload *work);
/* The arguments over set `set` in `room`, workspace not included. */
void kgen__workload_args(kgen_args *args, kgen_args_room *room, const kgen__workload *work,
                         int set);

/* 1: launches of the family mostly read; 0: they write about as much. */
int kgen__workload_reads(kgen_family_id family);
/* The problems of a family where none are asked for. */
size_t kgen__workload_problems(const kgen_problem **problems, kgen_family_id family);
/* heads: of the model; 0: a typical number. Where the spec says, 0 stays. */
int32_t kgen__workload_heads(kgen_family_id family, int32_t heads);

/* ---- the clock ------------------------------------------------------------ */

/* One kernel captured over all sets of a workload, as often as a replay of about
 * 2 ms needs and 1024 launches allow. Many may stand on one workload and be sampled
 * in turn: each has a workspace of its own. */
typedef struct kgen__timer kgen__timer;

/* Launches once and waits before it captures. *out: kgen__timer_free, before the
 * workload's end. One timer of a workload is made or sampled at a time. */
kgen_status kgen__timer_make(kgen__timer **out, kgen__workload *work, const kgen_kernel *kernel,
                             kgen_error *err);
void kgen__timer_free(kgen__timer *timer);
/* One replay: microseconds a launch. */
kgen_status kgen__timer_sample(double *us, kgen__timer *timer, kgen_error *err);

typedef struct kgen__timing {
    double us;        /* median of the samples */
    double low, high; /* 95 % confidence interval of the median; of fewer than
                         6 samples all of them, which is less */
    double best;
    int samples;
} kgen__timing;

/* Order statistics; sorts `samples`. count >= 1. */
void kgen__timing_of(kgen__timing *out, double *samples, int count);

/* Measured limits of the device, by kernels of our own over `bytes` of cold
 * memory: bytes per microsecond of reading, and of copying (read + written).
 * Prepares those kernels: five of them, which a context that may not compile
 * must have in its cache. */
typedef struct kgen__limits {
    double read, copy;
} kgen__limits;
kgen_status kgen__limits_measure(kgen__limits *out, kgen_context *ctx, double bytes,
                                 kgen_error *err);

#endif
