/* The clock: one kernel over all sets of a workload in a captured graph. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "workload_family.h"

/* A replay is so long that starting it is nothing beside it, or has as many
 * launches as a graph may. */
static const double REPLAY_US = 2000;
enum { LAUNCHES_MAX = 1024 };

struct kgen__timer {
    kgen__workload *work;
    const kgen_kernel *kernel;
    kgen_graph *graph;
    void *workspace; /* its own: what one kernel leaves there no other finds */
    size_t workspace_bytes;
    int launches;
};

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static kgen_status launch(const kgen__timer *t, int set, kgen_error *err) {
    kgen_args args;
    kgen_args_room room;
    kgen__workload_args(&args, &room, t->work, set);
    args.workspace = t->workspace;
    args.workspace_bytes = t->workspace_bytes;
    return kgen_launch(t->kernel, &args, t->work->stream, err);
}

static kgen_status make_workspace(kgen__timer *t, kgen_error *err) {
    kgen__workload *work = t->work;
    KGEN_TRY(kgen_workspace_size(t->kernel, &work->args, &t->workspace_bytes, err));
    if (t->workspace_bytes == 0) return KGEN_OK;
    KGEN_TRY(kgen_memory_alloc(work->ctx, &t->workspace, t->workspace_bytes, err));
    return kgen_workspace_init(work->ctx, t->workspace, t->workspace_bytes, work->stream, err);
}

/* Every set `rounds` times; what was captured before is dropped. */
static kgen_status capture(kgen__timer *t, int rounds, kgen_error *err) {
    kgen_stream stream = t->work->stream;
    kgen_status status = KGEN_OK;
    kgen_graph_free(t->graph);
    t->graph = NULL;
    t->launches = rounds * t->work->sets;
    KGEN_TRY(kgen_graph_begin(t->work->ctx, stream, err));
    for (int i = 0; i < t->launches && status == KGEN_OK; i++)
        status = launch(t, i % t->work->sets, err);
    kgen_status ended = kgen_graph_end(t->work->ctx, stream, &t->graph, err);
    return status != KGEN_OK ? status : ended;
}

/* One round says how many rounds are long enough. The first replay is left out:
 * it also uploads the graph. */
static kgen_status make_graph(kgen__timer *t, kgen_error *err) {
    double us;
    KGEN_TRY(capture(t, 1, err));
    KGEN_TRY(kgen__timer_sample(&us, t, err));
    KGEN_TRY(kgen__timer_sample(&us, t, err));
    double rounds = ceil(REPLAY_US / (us * t->work->sets));
    int most = LAUNCHES_MAX / t->work->sets;
    if (rounds < 2 || most < 2) return KGEN_OK;
    KGEN_TRY(capture(t, rounds < most ? (int)rounds : most, err));
    return kgen__timer_sample(&us, t, err);
}

kgen_status kgen__timer_make(kgen__timer **out, kgen__workload *work, const kgen_kernel *kernel,
                             kgen_error *err) {
    kgen__timer *t = calloc(1, sizeof *t);
    if (!t) return kgen_fail(err, KGEN_E_NOMEM, "timer: out of memory");
    t->work = work;
    t->kernel = kernel;
    kgen_status status = make_workspace(t, err);
    if (status == KGEN_OK) status = launch(t, 0, err);
    if (status == KGEN_OK) status = kgen_stream_sync(work->ctx, work->stream, err);
    if (status == KGEN_OK) status = make_graph(t, err);
    if (status == KGEN_OK)
        *out = t;
    else
        kgen__timer_free(t);
    return status;
}

void kgen__timer_free(kgen__timer *timer) {
    if (!timer) return;
    kgen_graph_free(timer->graph);
    if (timer->workspace) kgen_memory_free(timer->work->ctx, timer->workspace);
    free(timer);
}

kgen_status kgen__timer_sample(double *us, kgen__timer *timer, kgen_error *err) {
    double start = now_us();
    KGEN_TRY(kgen_graph_launch(timer->graph, timer->work->stream, err));
    KGEN_TRY(kgen_stream_sync(timer->work->ctx, timer->work->stream, err));
    *us = (now_us() - start) / timer->launches;
    return KGEN_OK;
}
