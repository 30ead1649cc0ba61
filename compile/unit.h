/* Shared by the files behind <kgen/build.h>; not for anybody else.
 *
 *   flags.c      which flags                 elf.c      reads ELF files, trusting nothing
 *   toolchain.c  which compiler              codeobj.c  resources of a code object, the gate
 *   unit.c       one source -> code object   pool.c     child processes
 *   cached.c     what the cache has of a job
 *   worker_count.c  how many processes at once
 *   build.c      jobs -> entries */
#ifndef KGEN_COMPILE_UNIT_H
#define KGEN_COMPILE_UNIT_H

#include <kgen/build.h>

#include <elf.h>
#include <sys/types.h>

/* ---- elf.c: a view of the caller's bytes; every read is bounds-checked ---- */

typedef struct kgen__elf {
    const uint8_t *data;
    size_t size;
    Elf64_Ehdr header;
} kgen__elf;

typedef struct kgen__section {
    Elf64_Shdr header;
    const char *name;    /* "" when it has none */
    const uint8_t *data; /* NULL: no bytes in the file */
} kgen__section;

/* These return 1 for found, 0 for not there or malformed. */
int kgen__elf_open(kgen__elf *out, const void *data, size_t size);
int kgen__elf_section_named(const kgen__elf *elf, const char *name, kgen__section *out);
int kgen__elf_symbol(const kgen__elf *elf, const char *name, Elf64_Sym *out, unsigned *index);
int kgen__elf_note(const kgen__elf *elf, const char *owner, uint32_t type, const uint8_t **desc,
                   size_t *size);
/* The first string of the dynamic section under `tag` (DT_NEEDED, DT_RUNPATH) that starts with
 * `prefix`; it lies in the file. */
int kgen__elf_dynamic(const kgen__elf *elf, int64_t tag, const char *prefix, const char **name);

/* ---- codeobj.c ---- */

/* Reads what the compiler says about `symbol`. workgroup_size: what the code
 * was written for, 0 when unknown. launch_lds: that a launch gives it beside what the
 * code says. Hostile bytes give KGEN_E_COMPILE. */
kgen_status kgen__inspect(kgen_resources *out, const kgen_target *target, const char *symbol,
                          int32_t workgroup_size, int32_t launch_lds, const void *code,
                          size_t code_size, kgen_error *err);
/* KGEN_E_COMPILE unless it is a code object of this AMD target. */
kgen_status kgen__amd_object_check(const kgen__elf *elf, const kgen_target *target,
                                   kgen_error *err);
/* KGEN_E_BUDGET for what the target cannot launch, for scratch, and for more than 8 registers that
 * spilled into others. groups: that a compute unit is to hold at once, which bounds registers; 0:
 * unknown. */
kgen_status kgen__gate(const kgen_resources *resources, const kgen_target *target,
                       int32_t workgroup_size, int32_t groups, int allow_spills, kgen_error *err);

/* ---- temp.c ---- */

typedef struct kgen__temp {
    char path[512]; /* "": none */
    int lock;       /* held while the folder is in use */
} kgen__temp;

kgen_status kgen__temp_make(kgen__temp *temp, kgen_error *err);
/* Safe on a zeroed struct. */
void kgen__temp_remove(kgen__temp *temp);

/* ---- pool.c ---- */
/* Of a clock that nobody sets. */
int64_t kgen__now_ms(void);

typedef enum kgen__end { KGEN__EXITED, KGEN__SIGNALLED, KGEN__TIMED_OUT } kgen__end;

/* One child process in a folder of its own, which is removed with it. */
typedef struct kgen__child {
    kgen__temp temp; /* after kgen__child_prepare */
    kgen__end end;
    int code;  /* exit status or signal */
    char *log; /* what it wrote to stderr, NUL-terminated */
    size_t log_size;
    uint32_t ms;
    int index; /* the caller's */
    pid_t pid; /* 0: not running */
    int fd;    /* its stderr; -1 after its end */
    int timeout_s;
    int64_t start_ms;
} kgen__child;

enum { KGEN__CHILDREN_MAX = 256, KGEN__ARGS_MAX = 96 };

/* Seconds that a child may take; wanted_s 0: the default. */
int kgen__child_timeout(int wanted_s);
kgen_status kgen__child_prepare(kgen__child *child, int timeout_s, kgen_error *err);
/* Runs argv in the folder with a scrubbed environment; stdin is the file
 * "request" there, stdout "reply". libraries: LD_LIBRARY_PATH, may be "". */
kgen_status kgen__child_start(kgen__child *child, char *const *argv, const char *libraries,
                              kgen_error *err);
/* Waits until one of `children` has ended, at most wait_ms (-1: no bound).
 * NULL entries and those without a process are passed over. -1: none ended. */
int kgen__children_wait(kgen__child *const *children, int count, int wait_ms);
/* Kills it if it runs; removes the folder. Safe on a zeroed struct. */
void kgen__child_free(kgen__child *child);
kgen_status kgen__file_write(const char *folder, const char *name, const void *data, size_t size,
                             kgen_error *err);
/* *out: free() it; one NUL follows the bytes. */
kgen_status kgen__file_read(const char *folder, const char *name, uint8_t **out, size_t *size,
                            kgen_error *err);

/* ---- worker_count.c ---- */
int kgen__default_workers(void);
/* At most `most`, and what the limits in this folder of a control group allow. */
int kgen__group_workers(const char *group, int most);

/* ---- unit.c ---- */

#define KGEN__PROGRAM "kgen_kernel.hip" /* fixed: it is in every code object's messages */

/* One source text to compile, or machine code to disassemble. Pointers are the
 * caller's. */
typedef struct kgen__unit {
    const kgen_toolchain *toolchain;
    const char *const *flags; /* NULL-terminated */
    const char *source;
    size_t source_size;
    const char *spec; /* for messages */
    const char *arch; /* for messages */
    int timeout_s;    /* 0: 300 */
    const char *isa;  /* NULL: compile. Else the source is machine code of this isa, and
                       * toolchain->path is libamd_comgr's */
} kgen__unit;

kgen_status kgen__unit_start(kgen__child *child, const kgen__unit *unit, kgen_error *err);
/* After the child has ended. *crashed: it died by a signal of its own. *code: free() it. */
kgen_status kgen__unit_finish(const kgen__unit *unit, kgen__child *child, uint8_t **code,
                              size_t *size, int *crashed, kgen_error *err);
/* Both, waiting in between, with the one retry after a crash. */
kgen_status kgen__compile(const kgen__unit *unit, uint8_t **code, size_t *size, uint32_t *ms,
                          kgen_error *err);
/* First line that `program --version` prints. */
kgen_status kgen__program_version(const char *program, char *line, size_t line_size,
                                  kgen_error *err);

/* ---- cached.c ---- */

/* One job in the cache. toolchain NULL: there is no compiler. */
typedef struct kgen__wanted {
    kgen_cache *cache;
    const kgen_source *source;
    const kgen_toolchain *toolchain;
    const char *const *flags; /* of the toolchain */
    kgen_key key;             /* with a toolchain */
    int allow_spills, how;    /* how: of kgen_cache_get_as */
} kgen__wanted;

void kgen__wanted_key(kgen__wanted *wanted);
/* 1: *out is what the cache has, or *err says why it must not be used: the gate of a
 * build is also the gate of a hit. 0: nothing; *out is NULL. */
int kgen__lookup(const kgen__wanted *wanted, kgen_entry **out, kgen_error *err);
/* It is not there: why is counted. */
void kgen__lookup_missed(const kgen__wanted *wanted);
/* The entry of this key is what the compiler of today makes. */
void kgen__lookup_note(const kgen__wanted *wanted);

/* ---- toolchain.c ---- */

/* out: the libamd_comgr that belongs to this hipRTC. */
kgen_status kgen__toolchain_comgr(char out[1024], const kgen_toolchain *tc, kgen_error *err);
/* cache: knows which clang has compiled for which target before; may be NULL. */
kgen_status kgen__toolchain_clang(kgen_toolchain *out, const kgen_target *target, kgen_cache *cache,
                                  kgen_error *err);
kgen_status kgen__toolchain_find(kgen_toolchain *out, const kgen_target *target, kgen_cache *cache,
                                 kgen_error *err);

#endif
