/* A kernel's shared object is written to a memory file and opened with dlopen.
 * It is checked first: dlopen believes the headers of what it maps. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "module.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fiber.h"
#include "team.h"

#ifdef KGEN__FIBER_ASAN
enum { KEEP_FILE = 1 }; /* so that reports name the kernel's functions and lines */
#else
enum { KEEP_FILE = 0 };
#endif

typedef struct cpu_module {
    void *object;
    int fd; /* of the memory file, -1 once it is closed */
} cpu_module;

static kgen_status bad_code(const kgen_entry *entry, kgen_error *err, const char *why) {
    return kgen_fail(err, KGEN_E_DEVICE, "cpu device: code object of %s (%zu bytes) %s",
                     entry->symbol, entry->code_size, why);
}

/* dlopen maps what the headers say: past the end of the file that is a fault,
 * not an error. */
static int segments_fit(const uint8_t *code, size_t size) {
    Elf64_Ehdr head;
    memcpy(&head, code, sizeof head);
    if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > size ||
        head.e_phnum > (size - head.e_phoff) / sizeof(Elf64_Phdr))
        return 0;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, code + head.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return 0;
    }
    return 1;
}

static kgen_status check_elf(const kgen_entry *entry, kgen_error *err) {
    const uint8_t *code = entry->code;
    if (!code || entry->code_size < sizeof(Elf64_Ehdr) || memcmp(code, ELFMAG, SELFMAG) != 0 ||
        code[EI_CLASS] != ELFCLASS64)
        return bad_code(entry, err, "is not a 64-bit shared object");
    if (!segments_fit(code, entry->code_size)) return bad_code(entry, err, "is cut short");
    return KGEN_OK;
}

static int write_all(int fd, const uint8_t *bytes, size_t size) {
    while (size) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

/* dlopen takes a name it has seen for the object it has already loaded, and
 * descriptor numbers come back. A serial number, spelt as "/" and "./" where
 * the path may hold either, makes every name new. */
static void unique_path(char *out, size_t size, int fd) {
    static atomic_uint counter;
    size_t used = (size_t)snprintf(out, size, "/proc/%d/fd/", (int)getpid());
    for (unsigned n = atomic_fetch_add(&counter, 1); n; n >>= 1)
        used += (size_t)snprintf(out + used, size - used, n & 1 ? "./" : "/");
    snprintf(out + used, size - used, "%d", fd);
}

static void close_file(cpu_module *module) {
    if (module->fd >= 0) close(module->fd);
    module->fd = -1;
}

static kgen_status open_object(const kgen_entry *entry, cpu_module *module, kgen_error *err) {
    char path[128];
    module->fd = memfd_create("kgen-kernel", MFD_CLOEXEC);
    if (module->fd < 0 || write_all(module->fd, entry->code, entry->code_size) != 0)
        return kgen_fail(err, KGEN_E_IO, "cpu device: cannot hold %s in memory (%zu bytes): %s",
                         entry->symbol, entry->code_size, strerror(errno));
    unique_path(path, sizeof path, module->fd);
    module->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module->object) return bad_code(entry, err, dlerror());
    if (!KEEP_FILE) close_file(module);
    return KGEN_OK;
}

static kgen_status bind(void *object, const kgen_entry *entry, void **body, kgen_error *err) {
    void (*bind_ops)(const kg_cpu_ops *ops) = NULL;
    void *address = dlsym(object, "kg_cpu_bind");
    *body = dlsym(object, entry->symbol);
    if (!*body) return bad_code(entry, err, "does not hold that symbol");
    if (!address) return bad_code(entry, err, "has no kg_cpu_bind");
    memcpy(&bind_ops, &address, sizeof bind_ops);
    bind_ops(&kgen__team_ops);
    return KGEN_OK;
}

static kgen_status load(const kgen_entry *entry, cpu_module *module, void **body, kgen_error *err) {
    KGEN_TRY(check_elf(entry, err));
    KGEN_TRY(open_object(entry, module, err));
    return bind(module->object, entry, body, err);
}

void kgen__cpu_module_unload(void *handle) {
    cpu_module *module = handle;
    if (module->object) dlclose(module->object);
    close_file(module);
    free(module);
}

kgen_status kgen__cpu_module_load(const kgen_entry *entry, void **out, void **body,
                                  kgen_error *err) {
    cpu_module *module = calloc(1, sizeof *module);
    if (!module)
        return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory to load %s", entry->symbol);
    module->fd = -1;
    kgen_status status = load(entry, module, body, err);
    if (status == KGEN_OK)
        *out = module;
    else
        kgen__cpu_module_unload(module);
    return status;
}
