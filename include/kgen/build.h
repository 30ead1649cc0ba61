/* Source -> code object: toolchains, the kgen-cc helper pool, the resource
 * gate. No GPU is needed. */
#ifndef KGEN_BUILD_H
#define KGEN_BUILD_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kgen_compiler {
    KGEN_TOOLCHAIN_HIPRTC, /* AMD targets */
    KGEN_TOOLCHAIN_CLANG,  /* AMD targets where no hipRTC is found; cpu targets */
    KGEN_TOOLCHAIN_NVRTC,  /* sm_90 */
} kgen_compiler;

typedef struct kgen_toolchain {
    kgen_compiler compiler;
    char name[64];     /* "hiprtc 7.2", "clang 19.1", "nvrtc 13.0" */
    char id[160];      /* build-ids, or those and version text; in the key; never a path */
    char path[1024];   /* library or program */
    char loader[1024]; /* dynamic loader to start kgen-cc through, or "" */
    char libs[1024];   /* library path for that loader, or "" */
} kgen_toolchain;

/* Searched in this order: $KGEN_ROCM_PATH, /opt/rocm, the system's libhiprtc,
 * the prefix made by `run setup` ($KGEN_ROCM_PREFIX or the one compiled in).
 * KGEN_E_TOOLCHAIN says what was looked for and what to do. */
KGEN_API kgen_status kgen_toolchain_find(kgen_toolchain *out, const kgen_target *target,
                                         kgen_error *err);

typedef struct kgen_job {
    kgen_spec spec;
    const kgen_target *target;
} kgen_job;

typedef enum kgen_outcome {
    KGEN_JOB_BUILT,  /* compiled now */
    KGEN_JOB_CACHED, /* was there */
    KGEN_JOB_FAILED,
} kgen_outcome;

typedef struct kgen_job_result {
    kgen_outcome outcome;
    kgen_error error;  /* outcome FAILED; BUILT: why the entry could not be saved */
    kgen_entry *entry; /* not NULL unless FAILED; kgen_entry_free */
} kgen_job_result;

typedef struct kgen_build_options {
    size_t size;      /* sizeof(kgen_build_options) */
    int workers;      /* 0: cores, bounded by memory */
    int timeout_s;    /* a kernel; 0: 300 */
    int allow_spills; /* 1: the gate reports but does not fail */
    int only_cached;  /* 1: what is not cached is KGEN_E_NOT_CACHED, not compiled */
    void (*progress)(const kgen_job_result *result, const kgen_job *job, size_t done, size_t total,
                     void *user); /* may be NULL */
    /* May be NULL; asked about 20 times a second. Not 0: compilers are ended, and
     * jobs that are not done are KGEN_E_CANCELLED. */
    int (*cancel)(void *user);
    void *user;
    /* May be NULL; about once a second: what runs here, and what another process compiles. */
    void (*heartbeat)(size_t running, size_t waiting, void *user);
    int offline;   /* 1: no compiler is looked for. An entry is what the last build with one made */
    int code_only; /* 1: entries that were cached come without their source, which takes time */
    /* 1: those that another process compiled meanwhile do, so that of many that waited for it
     * the last is done soon after the first. */
    int fresh_code_only;
} kgen_build_options;

/* Without a compiler, what was compiled before is found all the same (kgen_cache_get_made);
 * KGEN_E_TOOLCHAIN is for the rest. A hit that spills is KGEN_E_BUDGET as a compilation is.
 *
 * Builds what is not cached, in parallel helper processes, and publishes it.
 * results[count] is always filled; the return value is KGEN_OK when no job
 * failed, else the status of the first failed job. A failed cache publish
 * does not fail the job. cache NULL: everything is compiled, nothing is kept. Thread-safe. */
KGEN_API kgen_status kgen_build(kgen_cache *cache, const kgen_job *jobs, size_t count,
                                const kgen_build_options *options, kgen_job_result *results,
                                kgen_error *err);
/* The key that kgen_build would use. */
KGEN_API kgen_status kgen_job_key(kgen_key *out, const kgen_job *job, kgen_error *err);
/* The kernel's instructions, "<offset in hex>: <instruction>" a line: the
 * libamd_comgr beside hipRTC reads them, in a helper process. *text: free().
 * KGEN_E_UNSUPPORTED: not an AMD target. KGEN_E_TOOLCHAIN: no hipRTC. The code
 * is not trusted: KGEN_E_COMPILE when it is no code object of entry->target. */
KGEN_API kgen_status kgen_disassemble(char **text, const kgen_entry *entry, kgen_error *err);
/* 1: the machine code and the constants beside it are the same bytes. Comments
 * and names of a source may differ between two such objects, the kernel's too. */
KGEN_API int kgen_code_same(const kgen_entry *a, const kgen_entry *b);
/* Is an entry what it says? Its code object is read again: format, architecture, symbol,
 * registers, LDS, kernel arguments, spills. *current: 1 when its source is what this version
 * writes for its spec. KGEN_E_COMPILE: no code object; KGEN_E_MISMATCH: they differ;
 * KGEN_E_BUDGET: it spills. */
KGEN_API kgen_status kgen_entry_examine(const kgen_entry *entry, int *current, kgen_error *err);
/* Compiles it again, where this version and the compiler found are those that made it (else
 * *rebuilt is 0). KGEN_E_MISMATCH: the code is not the same bytes. */
KGEN_API kgen_status kgen_entry_rebuild(const kgen_entry *entry, int *rebuilt, kgen_error *err);
/* Ordered compiler flags for a target, NULL-terminated static array; the same
 * list is in the key. */
KGEN_API const char *const *kgen_target_flags(const kgen_target *target, kgen_compiler compiler);

#ifdef __cplusplus
}
#endif
#endif
