/* One source text -> one code object, and a kernel -> its listing, through kgen-cc. */
#define _GNU_SOURCE
#include "unit.h"
#include "kgen_cc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_MIB "4096" /* of address space, for a compiler */
#define OUTPUT "kgen_kernel.out"

/* ---- where kgen-cc is ---- */

static int usable(char *out, size_t size, const char *folder, const char *rest) {
    int n = snprintf(out, size, "%s%s", folder, rest);
    return n > 0 && (size_t)n < size && access(out, X_OK) == 0;
}

/* Beside a file of this installation, or in the libexec folder next door. */
static int beside(char *out, size_t size, const char *file) {
    char folder[1024];
    if (!file || (size_t)snprintf(folder, sizeof folder, "%s", file) >= sizeof folder) return 0;
    char *slash = strrchr(folder, '/');
    if (!slash) return 0;
    slash[1] = 0;
    return usable(out, size, folder, "kgen-cc") ||
           usable(out, size, folder, "../libexec/kgen/kgen-cc") ||
           usable(out, size, folder, "../bin/kgen-cc"); /* a build tree */
}

static kgen_status find_helper(char *out, size_t size, kgen_error *err) {
    const char *named = secure_getenv("KGEN_CC");
    if (named && *named) {
        if (usable(out, size, named, "")) return KGEN_OK;
        return kgen_fail(err, KGEN_E_TOOLCHAIN,
                         "KGEN_CC=%.300s: not a program; unset it or name kgen-cc", named);
    }
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    if (beside(out, size, self)) return KGEN_OK;
    Dl_info info;
    if (dladdr((void *)(uintptr_t)kgen_toolchain_find, &info) && beside(out, size, info.dli_fname))
        return KGEN_OK;
#ifdef KGEN_LIBEXEC_DIR
    if (usable(out, size, KGEN_LIBEXEC_DIR, "/kgen-cc")) return KGEN_OK;
#endif
    return kgen_fail(err, KGEN_E_TOOLCHAIN,
                     "kgen-cc: neither beside %.300s nor in ../libexec/kgen; install it there or "
                     "set KGEN_CC",
                     self);
}

/* ---- what is sent ---- */

static void put_u32(FILE *f, uint32_t n) { fwrite(&n, sizeof n, 1, f); }

static void put_bytes(FILE *f, const char *data, size_t size) {
    put_u32(f, (uint32_t)size);
    fwrite(data, 1, size, f);
}

static void put_text(FILE *f, const char *text) { put_bytes(f, text, strlen(text)); }

static kgen__cc_library library_of(const kgen__unit *unit) {
    if (unit->isa) return KGEN__CC_COMGR;
    return unit->toolchain->compiler == KGEN_TOOLCHAIN_HIPRTC ? KGEN__CC_HIPRTC : KGEN__CC_NVRTC;
}

static kgen_status write_request(const kgen__child *child, const kgen__unit *unit,
                                 kgen_error *err) {
    char *data = NULL;
    size_t size = 0, flags = 0;
    FILE *f = open_memstream(&data, &size);
    if (!f) return kgen_fail(err, KGEN_E_NOMEM, "request of %zu bytes", unit->source_size);
    while (unit->flags[flags]) flags++;
    put_u32(f, KGEN__CC_MAGIC);
    put_u32(f, library_of(unit));
    put_text(f, unit->toolchain->path);
    put_text(f, unit->isa ? unit->isa : KGEN__PROGRAM);
    put_u32(f, (uint32_t)flags);
    for (size_t i = 0; i < flags; i++) put_text(f, unit->flags[i]);
    put_bytes(f, unit->source, unit->source_size);
    int failed = ferror(f);
    if (fclose(f) != 0 || failed) {
        free(data);
        return kgen_fail(err, KGEN_E_NOMEM, "request of %zu bytes", unit->source_size);
    }
    kgen_status status = kgen__file_write(child->temp.path, "request", data, size, err);
    free(data);
    return status;
}

typedef struct arguments {
    const char *list[KGEN__ARGS_MAX + 1];
    int count;
} arguments;

/* The one over the limit is noticed by start(). */
static void add(arguments *args, const char *text) {
    if (args->count <= KGEN__ARGS_MAX) args->list[args->count++] = text;
}

/* [loader --library-path libs] kgen-cc memory seconds folder, then `rest` */
static kgen_status start(kgen__child *child, const kgen_toolchain *tc, const arguments *rest,
                         kgen_error *err) {
    char helper[1100], seconds[16];
    arguments args = {{0}, 0};
    int own_loader = tc && tc->loader[0];
    KGEN_TRY(find_helper(helper, sizeof helper, err));
    /* Wall time is the limit; this one ends what outlives its parent. */
    snprintf(seconds, sizeof seconds, "%d", child->timeout_s * 2);
    if (own_loader) {
        add(&args, tc->loader);
        add(&args, "--library-path");
        add(&args, tc->libs);
    }
    add(&args, helper);
    add(&args, MEMORY_MIB);
    add(&args, seconds);
    add(&args, child->temp.path);
    for (int i = 0; i < rest->count; i++) add(&args, rest->list[i]);
    if (args.count > KGEN__ARGS_MAX)
        return kgen_fail(err, KGEN_E_INTERNAL, "more than %d compiler arguments", KGEN__ARGS_MAX);
    args.list[args.count] = NULL;
    return kgen__child_start(child, (char *const *)args.list, tc && !own_loader ? tc->libs : "",
                             err);
}

static kgen_status start_clang(kgen__child *child, const kgen__unit *unit, kgen_error *err) {
    arguments args = {{0}, 0};
    KGEN_TRY(kgen__file_write(child->temp.path, "request", "", 0, err));
    KGEN_TRY(
        kgen__file_write(child->temp.path, KGEN__PROGRAM, unit->source, unit->source_size, err));
    add(&args, unit->toolchain->path);
    for (int i = 0; unit->flags[i]; i++) add(&args, unit->flags[i]);
    add(&args, "-fno-crash-diagnostics");
    add(&args, "-o");
    add(&args, OUTPUT);
    add(&args, KGEN__PROGRAM);
    return start(child, unit->toolchain, &args, err);
}

kgen_status kgen__unit_start(kgen__child *child, const kgen__unit *unit, kgen_error *err) {
    const arguments none = {{0}, 0};
    if (unit->source_size > KGEN__CC_MAX_BYTES)
        return kgen_fail(err, KGEN_E_COMPILE, "source of %zu bytes: at most %u", unit->source_size,
                         KGEN__CC_MAX_BYTES);
    if (unit->toolchain->compiler == KGEN_TOOLCHAIN_CLANG) return start_clang(child, unit, err);
    KGEN_TRY(write_request(child, unit, err));
    return start(child, unit->toolchain, &none, err);
}

/* ---- what comes back ---- */

/* The first line with "error", else the first that is not empty. */
static void first_error(const char *log, char *out, size_t size) {
    const char *best = NULL;
    for (const char *line = log; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        int is_error = memmem(line, length, "error", 5) != NULL;
        if (length && (!best || is_error)) best = line;
        if (is_error) break;
        line = end ? end + 1 : NULL;
    }
    snprintf(out, size, "%.*s", best ? (int)strcspn(best, "\n") : 0, best ? best : "");
    /* hipRTC puts the name of a temporary folder in front. */
    char *name = out[0] == '/' ? strstr(out, "/" KGEN__PROGRAM) : NULL;
    if (name) memmove(out, name + 1, strlen(name));
}

static kgen_status compile_error(const kgen__unit *unit, const char *log, kgen_error *err) {
    char line[420];
    first_error(log, line, sizeof line);
    if (unit->isa)
        return kgen_fail(err, KGEN_E_COMPILE, "comgr cannot disassemble for %s: %s", unit->isa,
                         line);
    return kgen_fail(err, KGEN_E_COMPILE, "%s; `kgen source '%s' --arch %s` shows the text",
                     *line ? line : "the compiler failed without a word", unit->spec, unit->arch);
}

static kgen_status helper_error(const kgen__unit *unit, const kgen__child *child, kgen_error *err) {
    char line[420];
    first_error(child->log ? child->log : "", line, sizeof line);
    return kgen_fail(err, KGEN_E_TOOLCHAIN, "%s: its process gave no answer (exit status %d)%s%s",
                     unit->toolchain->name, child->code, *line ? ": " : "", line);
}

static kgen_status killed_error(const kgen__unit *unit, const kgen__child *child, kgen_error *err) {
    char line[320];
    first_error(child->log ? child->log : "", line, sizeof line);
    if (child->end == KGEN__TIMED_OUT)
        return kgen_fail(err, KGEN_E_COMPILE, "%s: stopped after %d s (the time limit): %s, %s",
                         unit->toolchain->name, child->timeout_s, unit->spec, unit->arch);
    return kgen_fail(err, KGEN_E_COMPILE, "%s: killed by signal %d (%s)%s%s: %s, %s",
                     unit->toolchain->name, child->code, strsignal(child->code), *line ? ": " : "",
                     line, unit->spec, unit->arch);
}

typedef struct reply_head {
    uint32_t magic, status, log_size, code_size;
} reply_head;

/* Takes `data` (the reply, NUL-terminated) over. */
static kgen_status read_reply(const kgen__unit *unit, const kgen__child *child, uint8_t *data,
                              size_t size, uint8_t **code, size_t *code_size, kgen_error *err) {
    reply_head head = {0};
    kgen_status status = KGEN_OK;
    if (size >= sizeof head) memcpy(&head, data, sizeof head);
    if (head.magic != KGEN__CC_MAGIC ||
        size != sizeof head + (uint64_t)head.log_size + head.code_size) {
        status = helper_error(unit, child, err);
    } else if (head.status == KGEN__CC_NO_LIBRARY) {
        status = kgen_fail(err, KGEN_E_TOOLCHAIN, "%s: %s", unit->toolchain->name,
                           (char *)data + sizeof head);
    } else if (head.status != KGEN__CC_OK) {
        status = compile_error(unit, (char *)data + sizeof head, err);
    } else {
        /* The NUL behind it too: a listing is text. */
        memmove(data, data + sizeof head + head.log_size, (size_t)head.code_size + 1);
        *code = data;
        *code_size = head.code_size;
        return KGEN_OK;
    }
    free(data);
    return status;
}

static kgen_status finish_clang(const kgen__unit *unit, const kgen__child *child, uint8_t **code,
                                size_t *size, kgen_error *err) {
    if (child->code == KGEN__CC_EXIT_NO_PROGRAM || child->code == KGEN__CC_EXIT_USAGE)
        return helper_error(unit, child, err);
    if (child->code != 0) return compile_error(unit, child->log ? child->log : "", err);
    kgen_error why;
    if (kgen__file_read(child->temp.path, OUTPUT, code, size, &why) == KGEN_OK) return KGEN_OK;
    return kgen_fail(err, KGEN_E_COMPILE, "%s: no object came of it: %s; %s, %s",
                     unit->toolchain->name, why.text, unit->spec, unit->arch);
}

kgen_status kgen__unit_finish(const kgen__unit *unit, kgen__child *child, uint8_t **code,
                              size_t *size, int *crashed, kgen_error *err) {
    uint8_t *data;
    size_t data_size;
    *code = NULL;
    *crashed = child->end == KGEN__SIGNALLED;
    if (child->end != KGEN__EXITED) return killed_error(unit, child, err);
    if (unit->toolchain->compiler == KGEN_TOOLCHAIN_CLANG)
        return finish_clang(unit, child, code, size, err);
    KGEN_TRY(kgen__file_read(child->temp.path, "reply", &data, &data_size, err));
    return read_reply(unit, child, data, data_size, code, size, err);
}

static kgen_status compile_once(const kgen__unit *unit, uint8_t **code, size_t *size, uint32_t *ms,
                                int *crashed, kgen_error *err) {
    kgen__child child;
    kgen__child *one[] = {&child};
    *crashed = 0;
    KGEN_TRY(kgen__child_prepare(&child, unit->timeout_s, err));
    kgen_status status = kgen__unit_start(&child, unit, err);
    if (status == KGEN_OK) {
        kgen__children_wait(one, 1, -1);
        status = kgen__unit_finish(unit, &child, code, size, crashed, err);
        *ms = child.ms;
    }
    kgen__child_free(&child);
    return status;
}

kgen_status kgen__compile(const kgen__unit *unit, uint8_t **code, size_t *size, uint32_t *ms,
                          kgen_error *err) {
    int crashed;
    kgen_status status = compile_once(unit, code, size, ms, &crashed, err);
    return crashed ? compile_once(unit, code, size, ms, &crashed, err) : status;
}

/* ---- disassembly ---- */

/* The toolchain with comgr in the compiler's place: same loader, same folders. */
static kgen_status find_disassembler(kgen_toolchain *out, const kgen_target *target,
                                     kgen_error *err) {
    char comgr[sizeof out->path];
    KGEN_TRY(kgen_toolchain_find(out, target, err));
    if (out->compiler != KGEN_TOOLCHAIN_HIPRTC)
        return kgen_fail(err, KGEN_E_TOOLCHAIN,
                         "%s: disassembling takes libamd_comgr, which comes with hipRTC; there is "
                         "no libhiprtc in $KGEN_ROCM_PATH, /opt/rocm, the system's folders or the "
                         "prefix that `run setup` makes, only %s",
                         target->name, out->name);
    KGEN_TRY(kgen__toolchain_comgr(comgr, out, err));
    snprintf(out->path, sizeof out->path, "%s", comgr);
    return KGEN_OK;
}

/* unit->source: the machine code of the kernel, inside its code object. */
static kgen_status find_kernel(kgen__unit *unit, const kgen_entry *entry, const kgen_target *target,
                               kgen_error *err) {
    kgen__elf elf;
    kgen__section section;
    Elf64_Sym symbol;
    unsigned index;
    if (!kgen__elf_open(&elf, entry->code, entry->code_size))
        return kgen_fail(err, KGEN_E_COMPILE,
                         "code object of %zu bytes: the ELF header is missing or malformed",
                         entry->code_size);
    KGEN_TRY(kgen__amd_object_check(&elf, target, err));
    if (!kgen__elf_symbol(&elf, entry->symbol, &symbol, &index) ||
        !kgen__elf_section_named(&elf, ".text", &section) || !section.data)
        return kgen_fail(err, KGEN_E_COMPILE, "code object: %s or .text is missing or malformed",
                         entry->symbol);
    uint64_t start = symbol.st_value - section.header.sh_addr;
    if (symbol.st_value < section.header.sh_addr || start > section.header.sh_size ||
        symbol.st_size > section.header.sh_size - start)
        return kgen_fail(err, KGEN_E_COMPILE, "code object: %s is not inside .text", entry->symbol);
    unit->source = (const char *)section.data + start;
    unit->source_size = symbol.st_size;
    return KGEN_OK;
}

kgen_status kgen_disassemble(char **text, const kgen_entry *entry, kgen_error *err) {
    const kgen_target *target;
    kgen_toolchain toolchain;
    uint8_t *listing;
    size_t size;
    uint32_t ms;
    char isa[64];
    const char *const no_flags[] = {NULL};
    kgen__unit unit = {.toolchain = &toolchain,
                       .flags = no_flags,
                       .spec = entry->spec,
                       .arch = entry->target,
                       .isa = isa};
    *text = NULL;
    KGEN_TRY(kgen_target_find(&target, entry->target, err));
    if (target->vendor != KGEN_VENDOR_AMD)
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "%s: only kernels of AMD targets (gfx...) can be disassembled",
                         target->name);
    KGEN_TRY(find_kernel(&unit, entry, target, err));
    KGEN_TRY(find_disassembler(&toolchain, target, err));
    snprintf(isa, sizeof isa, "amdgcn-amd-amdhsa--%s", target->name);
    KGEN_TRY(kgen__compile(&unit, &listing, &size, &ms, err));
    *text = (char *)listing;
    return KGEN_OK;
}

kgen_status kgen__program_version(const char *program, char *line, size_t line_size,
                                  kgen_error *err) {
    const arguments args = {{program, "--version"}, 2};
    kgen__child child;
    kgen__child *one[] = {&child};
    uint8_t *text = NULL;
    size_t size;
    KGEN_TRY(kgen__child_prepare(&child, 60, err));
    kgen_status status = kgen__file_write(child.temp.path, "request", "", 0, err);
    if (status == KGEN_OK) status = start(&child, NULL, &args, err);
    if (status == KGEN_OK) {
        kgen__children_wait(one, 1, -1);
        status = kgen__file_read(child.temp.path, "reply", &text, &size, err);
    }
    if (status == KGEN_OK && (child.end != KGEN__EXITED || child.code != 0 || size == 0))
        status = kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s --version: failed", program);
    if (status == KGEN_OK)
        snprintf(line, line_size, "%.*s", (int)strcspn((char *)text, "\n"), (char *)text);
    for (char *at = line; status == KGEN_OK && *at; at++)
        if (*at < ' ' || *at > '~') *at = '?'; /* it is printed, and stored in entries */
    free(text);
    kgen__child_free(&child);
    return status;
}
