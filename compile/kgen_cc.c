/* kgen-cc: the helper process around a compiler or a disassembler. It links
 * nothing but the C library, so it also runs under the dynamic loader of another
 * prefix, and a crash of the compiler ends it and nothing else.
 *
 *   kgen-cc <memory MiB> <cpu seconds> <folder>                one request
 *   kgen-cc <memory MiB> <cpu seconds> <folder> program args   runs program
 *
 * Both limit themselves first and work in <folder>. Formats: kgen_cc.h. Exit
 * status: 0 when a reply was written (a compile error is a reply too). */
#include "kgen_cc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* hipRTC and NVRTC differ in their names only. */
typedef struct api_names {
    const char *create, *compile, *log_size, *log, *code_size, *code, *error_text;
} api_names;

#define API_NAMES(lib, CODE)                                                                    \
    {lib "CreateProgram",   lib "CompileProgram", lib "GetProgramLogSize", lib "GetProgramLog", \
     lib "Get" CODE "Size", lib "Get" CODE,       lib "GetErrorString"}

static const api_names names[KGEN__CC_COMPILERS] = {
    [KGEN__CC_HIPRTC] = API_NAMES("hiprtc", "Code"),
    [KGEN__CC_NVRTC] = API_NAMES("nvrtc", "CUBIN"),
};

typedef struct api {
    int (*create)(void **program, const char *source, const char *name, int headers,
                  const char **header_texts, const char **header_names);
    int (*compile)(void *program, int count, const char **options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *log);
    int (*code_size)(void *program, size_t *size);
    int (*code)(void *program, char *code);
    const char *(*error_text)(int result);
} api;

typedef struct request {
    uint32_t library; /* kgen__cc_library */
    uint32_t flag_count;
    uint32_t source_size;
    char *path, *name, *source;
    char **flags;
} request;

static int read_all(void *out, size_t size) { return fread(out, 1, size, stdin) == size; }

static int read_u32(uint32_t *out) { return read_all(out, sizeof *out); }

static char *read_bytes(uint32_t *size) {
    if (!read_u32(size) || *size > KGEN__CC_MAX_BYTES) return NULL;
    char *bytes = malloc((size_t)*size + 1);
    if (!bytes || !read_all(bytes, *size)) return NULL;
    bytes[*size] = 0;
    return bytes;
}

static char *read_string(void) {
    uint32_t size;
    return read_bytes(&size);
}

/* The process ends with its one request: nothing is freed. */
static int read_request(request *in) {
    uint32_t magic;
    if (!read_u32(&magic) || magic != KGEN__CC_MAGIC) return 0;
    if (!read_u32(&in->library) || in->library >= KGEN__CC_LIBRARIES) return 0;
    if (!(in->path = read_string()) || !(in->name = read_string())) return 0;
    if (!read_u32(&in->flag_count) || in->flag_count > KGEN__CC_MAX_FLAGS) return 0;
    in->flags = calloc((size_t)in->flag_count + 1, sizeof *in->flags);
    if (!in->flags) return 0;
    for (uint32_t i = 0; i < in->flag_count; i++)
        if (!(in->flags[i] = read_string())) return 0;
    in->source = read_bytes(&in->source_size);
    return in->source != NULL;
}

static int write_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n <= 0) return 0;
        at += n;
        size -= (size_t)n;
    }
    return 1;
}

static int reply(int fd, kgen__cc_status status, const char *log, const char *code,
                 size_t code_size) {
    uint32_t head[4] = {KGEN__CC_MAGIC, (uint32_t)status, (uint32_t)strlen(log),
                        (uint32_t)code_size};
    int ok = write_all(fd, head, sizeof head) && write_all(fd, log, head[2]) &&
             write_all(fd, code, code_size);
    return ok ? 0 : 1;
}

/* memcpy: ISO C has no cast between void * and a function. */
static int resolve(void *slot, void *library, const char *name) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int load(api *out, const request *in) {
    const api_names *n = &names[in->library];
    void *library = dlopen(in->path, RTLD_NOW | RTLD_LOCAL);
    return library && resolve(&out->create, library, n->create) &&
           resolve(&out->compile, library, n->compile) &&
           resolve(&out->log_size, library, n->log_size) && resolve(&out->log, library, n->log) &&
           resolve(&out->code_size, library, n->code_size) &&
           resolve(&out->code, library, n->code) &&
           resolve(&out->error_text, library, n->error_text);
}

static char *program_log(const api *a, void *program) {
    size_t size = 0;
    if (a->log_size(program, &size) != 0) size = 0;
    char *log = calloc(1, size + 1);
    if (log && size) a->log(program, log);
    return log;
}

static int no_library(int fd) {
    const char *why = dlerror();
    return reply(fd, KGEN__CC_NO_LIBRARY, why ? why : "a symbol is missing", NULL, 0);
}

static int compile(int fd, const request *in) {
    api a;
    if (!load(&a, in)) return no_library(fd);
    void *program = NULL;
    int result = a.create(&program, in->source, in->name, 0, NULL, NULL);
    if (result != 0) return reply(fd, KGEN__CC_ERROR, a.error_text(result), NULL, 0);
    result = a.compile(program, (int)in->flag_count, (const char **)in->flags);
    char *log = program_log(&a, program);
    if (!log) return 1;
    if (result != 0) return reply(fd, KGEN__CC_ERROR, *log ? log : a.error_text(result), NULL, 0);
    size_t size = 0;
    result = a.code_size(program, &size);
    char *code = size && size <= KGEN__CC_MAX_BYTES ? malloc(size) : NULL;
    if (result == 0 && code) result = a.code(program, code);
    if (result != 0 || !code) return reply(fd, KGEN__CC_ERROR, a.error_text(result), NULL, 0);
    return reply(fd, KGEN__CC_OK, log, code, size);
}

/* ---- comgr ---- */

/* amd_comgr.h, as far as it is used. Not its actions: their numbers differ by
 * release, and some builds lack the one that disassembles. */
typedef struct comgr_info {
    uint64_t handle;
} comgr_info;

typedef uint64_t comgr_read(uint64_t from, char *to, uint64_t size, void *user);
typedef void comgr_print(const char *instruction, void *user);
typedef void comgr_annotate(uint64_t address, void *user);

typedef struct comgr {
    int (*create)(const char *isa, comgr_read *read, comgr_print *print, comgr_annotate *annotate,
                  comgr_info *info);
    int (*disassemble)(comgr_info info, uint64_t address, void *user, uint64_t *size);
    int (*status_string)(int status, const char **text);
} comgr;

static int load_comgr(comgr *out, const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library && resolve(&out->create, library, "amd_comgr_create_disassembly_info") &&
           resolve(&out->disassemble, library, "amd_comgr_disassemble_instruction") &&
           resolve(&out->status_string, library, "amd_comgr_status_string");
}

/* An address is an offset in the code. */
typedef struct listing {
    const char *code;
    uint64_t size;
    FILE *out;
} listing;

static uint64_t read_code(uint64_t from, char *to, uint64_t size, void *user) {
    const listing *l = user;
    if (from >= l->size) return 0;
    if (size > l->size - from) size = l->size - from;
    memcpy(to, l->code + from, size);
    return size;
}

static void print_instruction(const char *text, void *user) {
    const listing *l = user;
    fputs(text + strspn(text, " \t"), l->out);
}

static void print_target(uint64_t address, void *user) {
    const listing *l = user;
    fprintf(l->out, " // %" PRIx64, address);
}

/* "<offset>: <instruction>" a line; what is no instruction is a number. */
static void print_listing(const comgr *c, comgr_info info, listing *l) {
    for (uint64_t at = 0, size; at < l->size; at += size) {
        uint32_t word = 0;
        fprintf(l->out, "%6" PRIx64 ": ", at);
        size = 0;
        if (c->disassemble(info, at, l, &size) != 0 || size == 0) {
            size = read_code(at, (char *)&word, sizeof word, l);
            fprintf(l->out, ".long 0x%08" PRIx32, word);
        }
        fputc('\n', l->out);
    }
}

static int disassemble(int fd, const request *in) {
    comgr c;
    comgr_info info;
    char *text = NULL;
    size_t size = 0;
    const char *why = NULL;
    if (!load_comgr(&c, in->path)) return no_library(fd);
    int status = c.create(in->name, read_code, print_instruction, print_target, &info);
    if (status != 0) {
        c.status_string(status, &why);
        return reply(fd, KGEN__CC_ERROR, why ? why : "unknown error", NULL, 0);
    }
    listing l = {in->source, in->source_size, open_memstream(&text, &size)};
    if (!l.out) return 1;
    print_listing(&c, info, &l);
    if (fclose(l.out) != 0 || size > KGEN__CC_MAX_BYTES)
        return reply(fd, KGEN__CC_ERROR, "the text is too long", NULL, 0);
    return reply(fd, KGEN__CC_OK, "", text, size);
}

/* ---- the process ---- */

static void limit(int resource, rlim_t value) {
    struct rlimit old;
    if (getrlimit(resource, &old) != 0) return;
    if (old.rlim_max != RLIM_INFINITY && old.rlim_max < value) value = old.rlim_max;
    struct rlimit now = {value, value};
    setrlimit(resource, &now);
}

/* Compilers start programs of their own, all of one process group. */
static void end_all(int signal_number) {
    (void)signal_number;
    kill(0, SIGKILL);
}

/* No life after the parent, and none after the time, for what only sleeps takes none of
 * the processor. */
static void follow_parent(unsigned seconds) {
    if (getpgrp() != getpid()) setpgid(0, 0);
    signal(SIGTERM, end_all);
    signal(SIGALRM, end_all);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    alarm(seconds);
}

/* Limits, and nothing of the parent kept: not its open files (a GPU driver's
 * among them). */
static int confine(const char *memory_mib, const char *cpu_seconds, const char *folder) {
    follow_parent((unsigned)strtoul(cpu_seconds, NULL, 10));
#ifdef SYS_close_range
    syscall(SYS_close_range, 3u, ~0u, 0u);
#endif
    limit(RLIMIT_AS, (rlim_t)strtoull(memory_mib, NULL, 10) << 20);
    limit(RLIMIT_CPU, (rlim_t)strtoull(cpu_seconds, NULL, 10));
    limit(RLIMIT_FSIZE, (rlim_t)KGEN__CC_MAX_BYTES * 4);
    limit(RLIMIT_CORE, 0);
    return chdir(folder) == 0;
}

/* Stays beside the program to end it, and ends as it ends. */
static int run(char **argv) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execv(argv[0], argv);
        _exit(KGEN__CC_EXIT_NO_PROGRAM);
    }
    if (child < 0) return KGEN__CC_EXIT_USAGE;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return KGEN__CC_EXIT_USAGE;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("kgen-cc is started by kgen; it is not a command for people\n", stderr);
        return KGEN__CC_EXIT_USAGE;
    }
    if (!confine(argv[1], argv[2], argv[3])) return KGEN__CC_EXIT_USAGE;
    if (argc > 4) return run(argv + 4);
    /* Compilers print to stdout at times; the reply must stay whole. */
    int fd = dup(STDOUT_FILENO);
    request in = {0};
    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || !read_request(&in))
        return KGEN__CC_EXIT_USAGE;
    return in.library == KGEN__CC_COMGR ? disassemble(fd, &in) : compile(fd, &in);
}
