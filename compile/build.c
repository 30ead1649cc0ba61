/* Jobs -> entries: look in the cache, compile what is missing in parallel,
 * read its resources, gate, publish. */
#include "unit.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A failed allocation in uthash is a failed job, not an exit. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->key_known = 0)
#include <uthash.h>

enum {
    LOCK_POLL_MS = 250,
    LOCK_POLL_LEAST_MS = 100,
    LOCK_POLL_SHARE = 16,
    CANCEL_POLL_MS = 50,
    HEARTBEAT_MS = 1000,
    TARGETS_MAX = 64
};

typedef enum step { STEP_WAITING, STEP_RUNNING, STEP_TWIN, STEP_DONE } step;

typedef struct work {
    const kgen_job *job;
    kgen_job_result *result;
    kgen_source source;
    const kgen_toolchain *toolchain; /* NULL: none, or not looked for */
    const char *const *flags;
    char spec[KGEN_SPEC_LINE_MAX];
    kgen_key key;
    int key_known;
    UT_hash_handle hh;
    struct work *twin; /* an earlier job with the same key */
    step step;
    int retried, lock;     /* lock: what kgen_cache_lock gave */
    int64_t lock_deadline; /* 0: not waited for yet */
    kgen__child *child;    /* STEP_RUNNING */
} work;

typedef struct build {
    kgen_cache *cache;
    kgen_build_options options;
    work *list, *by_key;
    size_t count, done;
    int workers, running;
    int cancelled, published;
    int64_t next_beat;
    work *slot_work[KGEN__CHILDREN_MAX];
    signed char toolchain_state[TARGETS_MAX]; /* 0 not looked for, 1 found, -1 not found */
    /* Not cleared: what a slot or a state speaks of was written, and a look-up has no time for
     * half a megabyte. */
    kgen_toolchain toolchains[TARGETS_MAX];
    kgen_error toolchain_errors[TARGETS_MAX];
    kgen__child slots[KGEN__CHILDREN_MAX];
} build;

/* ---- key ---- */

kgen_status kgen_job_key(kgen_key *out, const kgen_job *job, kgen_error *err) {
    kgen_toolchain toolchain;
    kgen_source source = {0};
    KGEN_TRY(kgen_toolchain_find(&toolchain, job->target, err));
    KGEN_TRY(kgen_source_name(&source, &job->spec, job->target, err));
    kgen__wanted wanted = {.source = &source,
                           .toolchain = &toolchain,
                           .flags = kgen_target_flags(job->target, toolchain.compiler)};
    kgen__wanted_key(&wanted);
    *out = wanted.key;
    kgen_source_free(&source);
    return KGEN_OK;
}

/* Once a build for each target: looking may start a program. */
static kgen_status toolchain_for(build *b, const kgen_target *target, const kgen_toolchain **out,
                                 kgen_error *err) {
    size_t i = 0;
    while (i < kgen_target_count() && kgen_target_at(i) != target) i++;
    if (i == kgen_target_count() || i >= TARGETS_MAX)
        return kgen_fail(err, KGEN_E_TARGET, "target: not one of kgen_target_at()");
    if (b->toolchain_state[i] == 0) {
        kgen_status status =
            kgen__toolchain_find(&b->toolchains[i], target, b->cache, &b->toolchain_errors[i]);
        b->toolchain_state[i] = status == KGEN_OK ? 1 : -1;
    }
    if (b->toolchain_state[i] < 0)
        return kgen_fail(err, b->toolchain_errors[i].status, "%s", b->toolchain_errors[i].text);
    *out = &b->toolchains[i];
    return KGEN_OK;
}

/* ---- results ---- */

static void finish(build *b, work *w, kgen_outcome outcome) {
    kgen_cache_unlock(w->lock, &w->key);
    w->lock = KGEN_LOCK_NONE;
    w->step = STEP_DONE;
    w->result->outcome = outcome;
    kgen_source_free(&w->source);
    b->done++;
    if (b->options.progress)
        b->options.progress(w->result, w->job, b->done, b->count, b->options.user);
}

static void fail(build *b, work *w) { finish(b, w, KGEN_JOB_FAILED); }

/* Once it was cancelled it stays so. */
static int is_cancelled(build *b) {
    if (!b->cancelled && b->options.cancel) b->cancelled = b->options.cancel(b->options.user) != 0;
    return b->cancelled;
}

static void fail_cancelled(build *b, work *w) {
    kgen_fail(&w->result->error, KGEN_E_CANCELLED, "cancelled; %zu of %zu were done", b->done,
              b->count);
    fail(b, w);
}

static kgen__wanted wanted_of(const build *b, const work *w) {
    return (kgen__wanted){.cache = b->cache,
                          .source = &w->source,
                          .toolchain = w->toolchain,
                          .flags = w->flags,
                          .key = w->key,
                          .allow_spills = b->options.allow_spills};
}

/* 1: the job is done. near_only: before the lock is taken, so that one process of a machine
 * asks a server. */
static int find_cached(build *b, work *w, int near_only) {
    kgen__wanted wanted = wanted_of(b, w);
    wanted.how =
        (near_only ? KGEN_GET_NEAR : 0) |
        (b->options.code_only || (b->options.fresh_code_only && w->lock_deadline) ? KGEN_GET_CODE
                                                                                  : 0);
    kgen_error why;
    if (!b->cache || !kgen__lookup(&wanted, &w->result->entry, &why)) return 0;
    if (!w->result->entry) {
        kgen_fail(&w->result->error, why.status, "%.400s: %s, %s", why.text, w->spec,
                  w->job->target->name);
        fail(b, w);
        return 1;
    }
    if (w->toolchain) kgen__lookup_note(&wanted);
    finish(b, w, KGEN_JOB_CACHED);
    return 1;
}

/* The first layer that is refused: it may have had the kernel. */
static void refused_layer(const build *b, char *out, size_t size) {
    kgen_cache_layer layer;
    out[0] = 0;
    for (size_t i = 0; b->cache && !out[0] && kgen_cache_layer_at(b->cache, i, &layer); i++)
        if (*layer.why) snprintf(out, size, "; refused: %.300s", layer.why);
}

static void count_miss(const build *b, const work *w) {
    kgen__wanted wanted = wanted_of(b, w);
    if (b->cache) kgen__lookup_missed(&wanted);
}

static void fail_not_cached(build *b, work *w) {
    char refused[320];
    count_miss(b, w);
    refused_layer(b, refused, sizeof refused);
    kgen_fail(&w->result->error, KGEN_E_NOT_CACHED, "%.400s: not in the cache for %s%s", w->spec,
              w->job->target->name, refused);
    fail(b, w);
}

/* No key without a compiler. What was compiled before needs none. */
static void settle_without_compiler(build *b, work *w, const kgen_error *why) {
    if (find_cached(b, w, 0)) return;
    if (b->options.offline || b->options.only_cached) {
        fail_not_cached(b, w);
        return;
    }
    kgen_fail(&w->result->error, why->status, "%s", why->text);
    count_miss(b, w);
    fail(b, w);
}

/* With a key: cached, a twin, or left to be compiled. */
static void settle_by_key(build *b, work *w) {
    w->flags = kgen_target_flags(w->job->target, w->toolchain->compiler);
    kgen__wanted wanted = wanted_of(b, w);
    kgen__wanted_key(&wanted);
    w->key = wanted.key;
    if (b->cache) HASH_FIND(hh, b->by_key, &w->key, sizeof w->key, w->twin);
    if (w->twin) {
        w->step = STEP_TWIN;
        return;
    }
    w->key_known = 1;
    HASH_ADD(hh, b->by_key, key, sizeof w->key, w);
    if (!w->key_known) {
        kgen_fail(&w->result->error, KGEN_E_NOMEM, "table of %zu jobs", b->count);
        fail(b, w);
    } else if (!find_cached(b, w, !b->options.only_cached) && b->options.only_cached) {
        fail_not_cached(b, w);
    }
}

/* Keys, and settles what needs no compiler. */
static void prepare(build *b, work *w) {
    kgen_error none = {0};
    if (is_cancelled(b)) {
        fail_cancelled(b, w);
    } else if (kgen_source_name(&w->source, &w->job->spec, w->job->target, &w->result->error) !=
               KGEN_OK) {
        fail(b, w);
    } else {
        kgen_spec_print(w->spec, &w->source.spec);
        if (b->options.offline || toolchain_for(b, w->job->target, &w->toolchain, &none) != KGEN_OK)
            settle_without_compiler(b, w, &none);
        else
            settle_by_key(b, w);
    }
}

/* ---- single flight: saves work, is never needed ---- */

/* Nobody compiles a kernel for longer than this. */
static int64_t lock_wait_ms(const build *b) {
    return 1000 * (int64_t)kgen__child_timeout(b->options.timeout_s);
}

/* The longer the wait, the rarer the question: where nobody wakes the one that waits, it comes
 * late by a 32nd of what it waited for, on the average. */
static int lock_poll_ms(const build *b) {
    int64_t now = kgen__now_ms(), longest = LOCK_POLL_LEAST_MS;
    int64_t most = b->options.cancel ? CANCEL_POLL_MS : LOCK_POLL_MS;
    for (size_t i = 0; i < b->count; i++) {
        const work *w = &b->list[i];
        if (w->step != STEP_WAITING || !w->lock_deadline) continue;
        int64_t poll = (now - (w->lock_deadline - lock_wait_ms(b))) / LOCK_POLL_SHARE;
        if (poll > longest) longest = poll;
    }
    return (int)(longest < most ? longest : most);
}

/* Another process had the lock when it was last asked, and nobody has to wait for ever. */
static int is_held_up(const build *b, const work *w) {
    return w->lock_deadline && w->lock == KGEN_LOCK_BUSY && kgen__now_ms() < w->lock_deadline &&
           kgen_cache_is_locked(b->cache, &w->key);
}

/* 1: go on and compile. 0: another process is at it; ask again later. */
static int take_lock(const build *b, work *w) {
    if (w->lock < 0 && b->cache) w->lock = kgen_cache_lock(b->cache, &w->key);
    if (w->lock != KGEN_LOCK_BUSY) return 1;
    if (w->lock_deadline == 0) w->lock_deadline = kgen__now_ms() + lock_wait_ms(b);
    return kgen__now_ms() >= w->lock_deadline;
}

/* All that waited find the lock free at once, and a look takes a while: nobody takes it for
 * that. What is not there is looked for again, with the lock. */
static int find_after_wait(build *b, work *w) {
    return w->lock_deadline && w->lock < 0 && !w->retried && find_cached(b, w, 1);
}

/* ---- compiling ---- */

static kgen__unit unit_of(const build *b, const work *w) {
    return (kgen__unit){.toolchain = w->toolchain,
                        .flags = w->flags,
                        .source = w->source.text,
                        .source_size = w->source.size,
                        .spec = w->spec,
                        .arch = w->job->target->name,
                        .timeout_s = b->options.timeout_s};
}

static void start(build *b, work *w) {
    kgen_error *err = &w->result->error;
    int slot = 0;
    while (b->slot_work[slot]) slot++;
    memset(err, 0, sizeof *err); /* of a first attempt */
    if (kgen_source_write(&w->source, err) != KGEN_OK) {
        fail(b, w);
        return;
    }
    kgen__unit unit = unit_of(b, w);
    kgen__child *child = &b->slots[slot];
    kgen_status status = kgen__child_prepare(child, unit.timeout_s, err);
    if (status == KGEN_OK) status = kgen__unit_start(child, &unit, err);
    if (status != KGEN_OK) {
        kgen__child_free(child);
        fail(b, w);
        return;
    }
    w->step = STEP_RUNNING;
    w->child = child;
    b->slot_work[slot] = w;
    b->running++;
}

static kgen_entry *new_entry(work *w, const kgen_resources *resources, uint32_t ms, uint8_t *code,
                             size_t code_size) {
    kgen_entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->key = w->key;
    snprintf(e->spec, sizeof e->spec, "%s", w->spec);
    snprintf(e->target, sizeof e->target, "%s", w->job->target->name);
    snprintf(e->symbol, sizeof e->symbol, "%s", w->source.symbol);
    e->resources = *resources;
    e->record.compile_ms = ms;
    e->record.unix_time = (uint64_t)time(NULL);
    const char *id = strchr(w->toolchain->id, '=');
    snprintf(e->record.toolchain, sizeof e->record.toolchain, "%s%s%.12s", w->toolchain->name,
             id ? " " : "", id ? id + 1 : "");
    e->code = code;
    e->code_size = code_size;
    e->source = w->source.text;
    e->source_size = w->source.size;
    w->source.text = NULL;
    return e;
}

/* Takes `code` over. */
static kgen_status accept(build *b, work *w, uint32_t ms, uint8_t *code, size_t size) {
    kgen_error *err = &w->result->error, gate;
    kgen_resources resources;
    const kgen_target *target = w->job->target;
    int32_t lanes = w->source.workgroup_size;
    kgen_status status = kgen__inspect(&resources, target, w->source.symbol, lanes,
                                       w->source.lds_bytes, code, size, err);
    if (status == KGEN_OK &&
        kgen__gate(&resources, target, lanes, kgen_spec_occupancy(&w->source.spec),
                   b->options.allow_spills, &gate) != KGEN_OK)
        status = kgen_fail(err, gate.status, "%.400s: %s, %s", gate.text, w->spec, target->name);
    const kgen_source source = w->source; /* its text moves into the entry */
    kgen_entry *entry = NULL;
    if (status == KGEN_OK && !(entry = new_entry(w, &resources, ms, code, size)))
        status = kgen_fail(err, KGEN_E_NOMEM, "entry of %zu bytes", size);
    if (!entry) {
        free(code);
        return status;
    }
    w->result->entry = entry;
    kgen__wanted wanted = wanted_of(b, w);
    wanted.source = &source;
    if (b->cache && kgen_cache_put(b->cache, entry, err) == KGEN_OK) {
        kgen__lookup_note(&wanted);
        b->published = 1;
    }
    return KGEN_OK;
}

static void collect(build *b, int slot) {
    work *w = b->slot_work[slot];
    kgen__child *child = w->child;
    kgen__unit unit = unit_of(b, w);
    uint8_t *code;
    size_t size;
    int crashed;
    kgen_status status = kgen__unit_finish(&unit, child, &code, &size, &crashed, &w->result->error);
    if (status == KGEN_OK) status = accept(b, w, child->ms, code, size);
    kgen__child_free(child);
    b->slot_work[slot] = NULL;
    b->running--;
    w->child = NULL;
    if (crashed && !w->retried) {
        w->retried = 1;
        w->step = STEP_WAITING;
        return;
    }
    finish(b, w, status == KGEN_OK ? KGEN_JOB_BUILT : KGEN_JOB_FAILED);
}

/* Fills the free slots. 1: a job waits for another process. */
static int start_some(build *b) {
    int waiting = 0;
    for (size_t i = 0; i < b->count && b->running < b->workers; i++) {
        work *w = &b->list[i];
        if (w->step != STEP_WAITING) continue;
        if (is_held_up(b, w))
            waiting = 1;
        else if (find_after_wait(b, w))
            continue;
        else if (!take_lock(b, w))
            waiting = 1;
        else if (w->retried || !find_cached(b, w, 0)) { /* another one may have been faster */
            if (!w->retried) count_miss(b, w);
            start(b, w);
        }
    }
    return waiting;
}

static int unfinished(const build *b) {
    for (size_t i = 0; i < b->count; i++)
        if (b->list[i].step == STEP_WAITING || b->list[i].step == STEP_RUNNING) return 1;
    return 0;
}

/* Ends what runs, and fails all that is not done. */
static void cancel_all(build *b) {
    for (int i = 0; i < b->workers; i++) {
        if (!b->slot_work[i]) continue;
        kgen__child_free(&b->slots[i]);
        b->slot_work[i] = NULL;
    }
    b->running = 0;
    for (size_t i = 0; i < b->count; i++) {
        work *w = &b->list[i];
        if (w->step == STEP_WAITING || w->step == STEP_RUNNING) fail_cancelled(b, w);
    }
}

static size_t count_waiting(const build *b) {
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++)
        count += b->list[i].step == STEP_WAITING && b->list[i].lock_deadline != 0;
    return count;
}

static void beat(build *b) {
    int64_t now = kgen__now_ms();
    if (!b->options.heartbeat || now < b->next_beat) return;
    if (b->next_beat) b->options.heartbeat((size_t)b->running, count_waiting(b), b->options.user);
    b->next_beat = now + HEARTBEAT_MS;
}

/* For another process, where nothing runs here that could end. */
static void await_other(const build *b) {
    for (size_t i = 0; i < b->count; i++) {
        const work *w = &b->list[i];
        if (w->step != STEP_WAITING || !w->lock_deadline) continue;
        kgen_cache_await(b->cache, &w->key, lock_poll_ms(b));
        return;
    }
}

static void compile_all(build *b) {
    kgen__child *children[KGEN__CHILDREN_MAX];
    int poll_ms = b->options.heartbeat ? HEARTBEAT_MS : -1;
    if (b->options.cancel) poll_ms = CANCEL_POLL_MS;
    while (unfinished(b)) {
        if (is_cancelled(b)) {
            cancel_all(b);
            return;
        }
        int waiting = start_some(b);
        for (int i = 0; i < b->workers; i++) children[i] = b->slot_work[i] ? &b->slots[i] : NULL;
        if (!b->running && !waiting) continue;
        int slot = -1;
        if (b->running)
            slot = kgen__children_wait(children, b->workers, waiting ? lock_poll_ms(b) : poll_ms);
        else
            await_other(b);
        if (slot >= 0) collect(b, slot);
        beat(b);
    }
}

/* The same kernel asked for twice: the second one is in the cache by now. */
static void settle_twin(build *b, work *w) {
    if (w->twin->result->outcome == KGEN_JOB_FAILED) {
        w->result->error = w->twin->result->error;
        fail(b, w);
    } else if (!find_cached(b, w, 1)) {
        kgen_fail(&w->result->error, KGEN_E_NOMEM, "%.400s: no memory for a second copy", w->spec);
        fail(b, w);
    }
}

static kgen_status first_failure(const build *b, kgen_error *err) {
    for (size_t i = 0; i < b->count; i++) {
        const kgen_error *e = &b->list[i].result->error;
        if (b->list[i].result->outcome == KGEN_JOB_FAILED)
            return kgen_fail(err, e->status, "%s", e->text);
    }
    return KGEN_OK;
}

static void set_workers(build *b) {
    b->workers = b->options.workers > 0 ? b->options.workers : kgen__default_workers();
    if (b->workers > KGEN__CHILDREN_MAX) b->workers = KGEN__CHILDREN_MAX;
}

/* Nothing could be started: every result says so. */
static kgen_status no_memory(kgen_job_result *results, size_t count, kgen_error *err) {
    for (size_t i = 0; i < count; i++) {
        results[i] = (kgen_job_result){.outcome = KGEN_JOB_FAILED};
        kgen_fail(&results[i].error, KGEN_E_NOMEM, "table of %zu jobs", count);
    }
    return kgen_fail(err, KGEN_E_NOMEM, "table of %zu jobs", count);
}

kgen_status kgen_build(kgen_cache *cache, const kgen_job *jobs, size_t count,
                       const kgen_build_options *options, kgen_job_result *results,
                       kgen_error *err) {
    if (count == 0) return KGEN_OK;
    kgen_build_options taken;
    KGEN_TRY(kgen_struct_take(&taken, sizeof taken, options, "kgen_build_options", err));
    build *b = malloc(sizeof *b);
    if (b) memset(b, 0, offsetof(build, toolchains));
    if (b) b->list = calloc(count, sizeof *b->list);
    if (!b || !b->list) {
        free(b);
        return no_memory(results, count, err);
    }
    b->cache = cache;
    b->count = count;
    b->options = taken;
    for (size_t i = 0; i < count; i++) {
        memset(&results[i], 0, sizeof results[i]);
        b->list[i].job = &jobs[i];
        b->list[i].result = &results[i];
        b->list[i].lock = KGEN_LOCK_NONE;
    }
    for (size_t i = 0; i < count; i++) prepare(b, &b->list[i]);
    if (unfinished(b)) {
        set_workers(b);
        compile_all(b);
    }
    for (size_t i = 0; i < count; i++)
        if (b->list[i].step == STEP_TWIN) settle_twin(b, &b->list[i]);
    HASH_CLEAR(hh, b->by_key);
    if (b->published) (void)kgen_cache_trim(b->cache, NULL); /* a cap is no reason to fail */
    if (b->cache) kgen_cache_note_use(b->cache);
    kgen_status status = first_failure(b, err);
    free(b->list);
    free(b);
    return status;
}
