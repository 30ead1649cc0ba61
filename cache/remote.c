/* The layer of an HTTP server. It may only save time: a look-up ends when a compilation would
 * have ended, and a server that fails is left alone for a while. */
#define _GNU_SOURCE
#include "remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

enum {
    LIMIT_MS = 300, /* the fastest compilations take about as long */
    LIMIT_MS_MAX = 60000,
    ATTEMPTS = 3,
    FAILURES_MAX = 3, /* in a row; then the server is left alone */
    PAUSE_MS = 30000,
    JITTER_MS = 20,
    HTTP_OK = 200,
    HTTP_NOT_FOUND = 404,
    HTTP_BUSY = 429,
};

struct kgen__remote {
    kgen__http *http;
    kgen_cache_stats *stats;
    int64_t given_ms;     /* of a publication */
    int64_t limit_ms;     /* of a look-up: that, or what compiling takes; atomic */
    int64_t paused_until; /* atomic */
    int failures;         /* in a row; atomic */
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- open, close --------------------------------------------------------------------- */

static kgen_status take_limit(int64_t *out, kgen_error *err) {
    const char *text = secure_getenv("KGEN_CACHE_REMOTE_TIMEOUT");
    char *end;
    *out = LIMIT_MS;
    if (!text || !*text) return KGEN_OK;
    long given = strtol(text, &end, 10);
    if (*end || given < 1 || given > LIMIT_MS_MAX)
        return kgen_fail(err, KGEN_E_ARG,
                         "KGEN_CACHE_REMOTE_TIMEOUT=%.40s: milliseconds, 1 to %d, expected", text,
                         LIMIT_MS_MAX);
    *out = given;
    return KGEN_OK;
}

kgen_status kgen__remote_open(kgen__remote **out, const char *url, kgen_cache_stats *stats,
                              kgen_error *err) {
    int64_t limit;
    KGEN_TRY(take_limit(&limit, err));
    kgen__remote *remote = calloc(1, sizeof *remote);
    if (!remote) return kgen_fail(err, KGEN_E_NOMEM, "no memory");
    kgen_status status = kgen__http_open(&remote->http, url, err);
    if (status != KGEN_OK) {
        free(remote);
        return status;
    }
    remote->stats = stats;
    remote->given_ms = remote->limit_ms = limit;
    *out = remote;
    return KGEN_OK;
}

static void remote_close(void *self) {
    kgen__remote *remote = self;
    kgen__http_close(remote->http);
    free(remote);
}

/* ---- whether to ask -------------------------------------------------------------------- */

static int is_paused(const kgen__remote *remote) {
    return now_ms() < __atomic_load_n(&remote->paused_until, __ATOMIC_RELAXED);
}

static void note_failure(kgen__remote *remote) {
    kgen__count(&remote->stats->remote_failures);
    if (__atomic_add_fetch(&remote->failures, 1, __ATOMIC_RELAXED) < FAILURES_MAX) return;
    __atomic_store_n(&remote->failures, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&remote->paused_until, now_ms() + PAUSE_MS, __ATOMIC_RELAXED);
}

static void note_success(kgen__remote *remote) {
    __atomic_store_n(&remote->failures, 0, __ATOMIC_RELAXED);
}

/* What was compiled here says how long the next look-up may take. */
static void learn_limit(kgen__remote *remote, uint32_t compile_ms) {
    int64_t known = __atomic_load_n(&remote->limit_ms, __ATOMIC_RELAXED);
    if (compile_ms > 0 && compile_ms < known)
        __atomic_store_n(&remote->limit_ms, compile_ms, __ATOMIC_RELAXED);
}

static int64_t deadline_of(const kgen__remote *remote) {
    return now_ms() + __atomic_load_n(&remote->limit_ms, __ATOMIC_RELAXED);
}

/* ---- calls ----------------------------------------------------------------------------- */

static int is_worth_a_retry(int status) {
    return status == KGEN__HTTP_FAILED || status >= 500 || status == HTTP_BUSY;
}

/* Many processes that failed at once do not come back at once. */
static void wait_a_little(int attempt) {
    int64_t ms = (int64_t)randombytes_uniform(JITTER_MS * (uint32_t)attempt) + 1;
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static int run_call(kgen__remote *remote, kgen__http_call *call, int64_t deadline) {
    size_t room = call->size;
    int status = KGEN__HTTP_FAILED;
    for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
        int64_t left = deadline - now_ms();
        if (left <= 0) break;
        call->limit_ms = (long)left;
        call->size = room;
        status = kgen__http_run(remote->http, call);
        if (!is_worth_a_retry(status)) break;
        if (attempt < ATTEMPTS) wait_a_little(attempt);
    }
    return status;
}

/* ---- get -------------------------------------------------------------------------------- */

/* 1: *out is the file that the answer names, free() it. */
static int get_file(kgen__remote *remote, uint8_t **out, const kgen__answer *answer,
                    int64_t deadline) {
    char hex[2 * KGEN__SHA256 + 1];
    uint8_t digest[KGEN__SHA256];
    sodium_bin2hex(hex, sizeof hex, answer->digest, sizeof answer->digest);
    kgen__http_call call = {
        .folder = "cas", .name = hex, .size = (size_t)answer->size, .got = malloc(answer->size)};
    if (call.got && run_call(remote, &call, deadline) == HTTP_OK && call.size == answer->size) {
        crypto_hash_sha256(digest, call.got, call.size);
        if (memcmp(digest, answer->digest, sizeof digest) == 0) {
            *out = call.got;
            return 1;
        }
    }
    free(call.got);
    return 0;
}

/* *out stays NULL for a miss. 0: the server failed, or lies. */
static int look_up(kgen__remote *remote, kgen_entry **out, const kgen_key *key) {
    uint8_t room[KGEN__ANSWER_MAX], *file;
    char hex[KGEN_KEY_HEX];
    kgen__answer answer;
    int64_t deadline = deadline_of(remote);
    kgen_key_hex(hex, key);
    kgen__http_call call = {.folder = "ac", .name = hex, .size = sizeof room, .got = room};
    int status = run_call(remote, &call, deadline);
    if (status == HTTP_NOT_FOUND) return 1;
    if (status != HTTP_OK || !kgen__answer_take(&answer, room, call.size) ||
        !get_file(remote, &file, &answer, deadline))
        return 0;
    kgen__verdict verdict = kgen__entry_decode(out, file, (size_t)answer.size, key);
    free(file);
    return verdict == KGEN__GOOD || verdict == KGEN__OTHER;
}

static kgen_status remote_get(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                              kgen_error *err) {
    kgen__remote *remote = self;
    (void)code_only, (void)err;
    if (is_paused(remote)) return KGEN_OK;
    if (look_up(remote, out, key))
        note_success(remote);
    else
        note_failure(remote);
    return KGEN_OK;
}

/* ---- put ---------------------------------------------------------------------------------- */

/* The file before the answer that names it. In the time given, however fast kernels compile:
 * it saves others' time. */
static int publish(kgen__remote *remote, const kgen_key *key, const uint8_t *bytes, size_t size) {
    uint8_t text[KGEN__ANSWER_MAX];
    char digest[2 * KGEN__SHA256 + 1], hex[KGEN_KEY_HEX];
    kgen__answer answer = {.size = size};
    int64_t deadline = now_ms() + remote->given_ms;
    crypto_hash_sha256(answer.digest, bytes, size);
    sodium_bin2hex(digest, sizeof digest, answer.digest, sizeof answer.digest);
    kgen_key_hex(hex, key);
    kgen__http_call file = {.folder = "cas", .name = digest, .put = bytes, .size = size};
    kgen__http_call note = {
        .folder = "ac", .name = hex, .put = text, .size = kgen__answer_put(text, &answer)};
    return run_call(remote, &file, deadline) / 100 == 2 &&
           run_call(remote, &note, deadline) / 100 == 2;
}

/* A kernel that the server does not get is no failure: it is in the nearer layers. */
static kgen_status remote_put(void *self, const kgen_entry *entry, kgen_error *err) {
    kgen__remote *remote = self;
    uint8_t *bytes;
    size_t size;
    learn_limit(remote, entry->record.compile_ms);
    if (is_paused(remote)) return KGEN_OK;
    KGEN_TRY(kgen__entry_encode(&bytes, &size, entry, err));
    if (publish(remote, &entry->key, bytes, size))
        note_success(remote);
    else
        note_failure(remote);
    free(bytes);
    return KGEN_OK;
}

/* ---- doctor --------------------------------------------------------------------------------- */

kgen_status kgen__remote_test(kgen__remote *remote, kgen_error *err) {
    uint8_t room[KGEN__ANSWER_MAX];
    kgen_key key;
    char hex[KGEN_KEY_HEX];
    randombytes_buf(key.bytes, sizeof key.bytes);
    kgen_key_hex(hex, &key);
    kgen__http_call call = {.folder = "ac", .name = hex, .size = sizeof room, .got = room};
    int status = run_call(remote, &call, deadline_of(remote));
    if (status == HTTP_NOT_FOUND) return KGEN_OK;
    if (status == KGEN__HTTP_FAILED)
        return kgen_fail(err, KGEN_E_IO, "the server does not answer: %s", call.why);
    return kgen_fail(err, KGEN_E_IO,
                     "the server answers %d to a look-up of what it does not have; 404 expected",
                     status);
}

const kgen__layer_ops kgen__remote_ops = {
    .hits = offsetof(kgen_cache_stats, hits_remote),
    .is_far = 1,
    .get = remote_get,
    .close = remote_close,
};

const kgen__layer_ops kgen__remote_write_ops = {
    .hits = offsetof(kgen_cache_stats, hits_remote),
    .is_far = 1,
    .get = remote_get,
    .put = remote_put,
    .close = remote_close,
};
