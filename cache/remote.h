/* The remote layer: entries on an HTTP server, as bazel's remote caches have them.
 *
 *   /cas/<SHA-256 of a file>  the file: an entry
 *   /ac/<key>                 an ActionResult that names that file by digest and size
 *
 * Nothing is believed: the file has to have the digest, and be a sound entry of the key. */
#ifndef KGEN_CACHE_REMOTE_H
#define KGEN_CACHE_REMOTE_H

#include "layer.h"

enum { KGEN__ANSWER_MAX = 4096, KGEN__SHA256 = 32, KGEN__HTTP_FAILED = 0 };

/* ---- remote_answer.c: an ActionResult (protocol buffers) ------------------------- */
typedef struct kgen__answer {
    uint8_t digest[KGEN__SHA256];
    uint64_t size;
} kgen__answer;

/* Returns the bytes written. */
size_t kgen__answer_put(uint8_t out[KGEN__ANSWER_MAX], const kgen__answer *answer);
/* 0: no answer that names a file. */
int kgen__answer_take(kgen__answer *out, const uint8_t *bytes, size_t size);

/* ---- remote_http.c: libcurl, loaded when it is first needed ----------------------- */
typedef struct kgen__http kgen__http;

/* base: http://host/path or https://..., a name and a password in it are for the server. */
kgen_status kgen__http_open(kgen__http **out, const char *base, kgen_error *err);
void kgen__http_close(kgen__http *http);

typedef struct kgen__http_call {
    const char *folder, *name; /* <base>/<folder>/<name> */
    const uint8_t *put;        /* NULL: a GET */
    size_t size;               /* of `put`; of a GET the most that is taken, then what came */
    uint8_t *got;              /* of a GET: `size` bytes of room */
    long limit_ms;
    char why[128]; /* it failed */
} kgen__http_call;

/* The status of the answer, or KGEN__HTTP_FAILED. Thread-safe. */
int kgen__http_run(kgen__http *http, kgen__http_call *call);

/* ---- remote.c ---------------------------------------------------------------------- */
typedef struct kgen__remote kgen__remote;
extern const kgen__layer_ops kgen__remote_ops; /* read-only */
extern const kgen__layer_ops kgen__remote_write_ops;
/* With KGEN_CACHE_REMOTE_TIMEOUT. `stats` outlives it. */
kgen_status kgen__remote_open(kgen__remote **out, const char *url, kgen_cache_stats *stats,
                              kgen_error *err);
/* Asks for an entry that is not there. KGEN_OK: the server answers. */
kgen_status kgen__remote_test(kgen__remote *remote, kgen_error *err);

#endif
