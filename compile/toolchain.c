/* Which compiler. Libraries are looked at, never loaded into this process. */
#define _GNU_SOURCE
#include "unit.h"

#include <fcntl.h>
#include <glob.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { PATH_SIZE = 1024 };

/* ---- files ---- */

static int join(char *out, const char *folder, const char *name) {
    return (size_t)snprintf(out, PATH_SIZE, "%s/%s", folder, name) < PATH_SIZE;
}

/* The first of `names` (NULL-terminated) that is in `folder`. */
static int find_in(char *out, const char *folder, const char *const *names) {
    for (; *names; names++)
        if (join(out, folder, *names) && access(out, R_OK) == 0) return 1;
    return 0;
}

static void folder_of(char *out, const char *path) {
    snprintf(out, PATH_SIZE, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash) *slash = 0;
}

/* "libhiprtc.so.7.2.53211" behind the links -> "7.2" */
static void version_of(char *out, size_t size, const char *path) {
    char real[PATH_MAX];
    int major = 0, minor = 0;
    const char *suffix = realpath(path, real) ? strstr(real, ".so.") : NULL;
    out[0] = 0;
    if (suffix && sscanf(suffix, ".so.%d.%d", &major, &minor) == 2)
        snprintf(out, size, " %d.%d", major, minor);
    else if (major)
        snprintf(out, size, " %d", major);
}

typedef struct mapped {
    const uint8_t *data;
    size_t size;
} mapped;

static int map_file(mapped *out, const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *data = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0) close(fd);
    if (data == MAP_FAILED) return 0;
    *out = (mapped){data, (size_t)st.st_size};
    return 1;
}

static void unmap_file(mapped *m) { munmap((void *)(uintptr_t)m->data, m->size); }

/* ---- identity ---- */

enum { BUILD_ID_BYTES = 20 };

/* The linker's build-id, or a digest of the whole file where it has none. */
static void file_identity(uint8_t out[BUILD_ID_BYTES], const mapped *file) {
    kgen__elf elf;
    const uint8_t *desc;
    size_t size;
    if (kgen__elf_open(&elf, file->data, file->size) &&
        kgen__elf_note(&elf, "GNU", NT_GNU_BUILD_ID, &desc, &size) && size >= BUILD_ID_BYTES)
        memcpy(out, desc, BUILD_ID_BYTES);
    else
        crypto_generichash(out, BUILD_ID_BYTES, file->data, file->size, NULL, 0);
}

/* Appends " tag=<hex>" to the id. */
static kgen_status add_identity(kgen_toolchain *tc, const char *tag, const char *path,
                                kgen_error *err) {
    mapped file;
    uint8_t bytes[BUILD_ID_BYTES];
    char hex[2 * BUILD_ID_BYTES + 1];
    size_t used = strlen(tc->id);
    if (!map_file(&file, path))
        return kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s: cannot be read", path);
    file_identity(bytes, &file);
    unmap_file(&file);
    sodium_bin2hex(hex, sizeof hex, bytes, sizeof bytes);
    snprintf(tc->id + used, sizeof tc->id - used, "%s%s=%s", used ? " " : "", tag, hex);
    return KGEN_OK;
}

/* ---- hipRTC ---- */

static const char *const hiprtc_names[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so",
                                           NULL};
static const char *const comgr_names[] = {"libamd_comgr.so.3", "libamd_comgr.so.2",
                                          "libamd_comgr.so", NULL};
static const char *const library_folders[] = {"lib",       "lib64",   "usr/lib/x86_64-linux-gnu",
                                              "usr/lib64", "usr/lib", NULL};
static const char *const loader_names[] = {
    "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2", NULL};

/* A prefix with a C library of its own needs its own loader. A link that
 * leads out of the prefix is the system's loader, which does not fit. */
static void find_loader(kgen_toolchain *tc, const char *root, const char *folder) {
    char real_root[PATH_MAX], real[PATH_MAX];
    snprintf(tc->libs, sizeof tc->libs, "%s", folder);
    if (!realpath(root, real_root)) return;
    size_t length = strlen(real_root);
    for (const char *const *name = loader_names; *name; name++) {
        if (!join(tc->loader, root, *name) || !realpath(tc->loader, real)) continue;
        if (strncmp(real, real_root, length) != 0 || real[length] != '/') continue;
        snprintf(tc->libs, sizeof tc->libs, "%s:%.400s/lib/x86_64-linux-gnu", folder, root);
        return;
    }
    tc->loader[0] = 0;
}

/* libLLVM is a part of comgr, or a library that comgr names. */
static kgen_status add_llvm(kgen_toolchain *tc, const char *folder, const char *comgr,
                            kgen_error *err) {
    mapped file;
    kgen__elf elf;
    const char *name;
    char path[PATH_SIZE] = "";
    if (!map_file(&file, comgr))
        return kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s: cannot be read", comgr);
    if (kgen__elf_open(&elf, file.data, file.size) &&
        kgen__elf_dynamic(&elf, DT_NEEDED, "libLLVM", &name) && !join(path, folder, name))
        path[0] = 0;
    unmap_file(&file);
    return *path ? add_identity(tc, "llvm", path, err) : KGEN_OK;
}

/* Beside hipRTC, or beside what the name of hipRTC is a link to. */
kgen_status kgen__toolchain_comgr(char out[PATH_SIZE], const kgen_toolchain *tc, kgen_error *err) {
    char folder[PATH_SIZE], real[PATH_MAX];
    folder_of(folder, tc->path);
    if (find_in(out, folder, comgr_names)) return KGEN_OK;
    folder_of(folder, realpath(tc->path, real) ? real : tc->path);
    if (find_in(out, folder, comgr_names)) return KGEN_OK;
    return kgen_fail(err, KGEN_E_TOOLCHAIN,
                     "%.300s: libamd_comgr is not beside it; install it there", tc->path);
}

static kgen_status fill_hiprtc(kgen_toolchain *tc, const char *root, const char *folder,
                               kgen_error *err) {
    char comgr[PATH_SIZE], version[32], real_folder[PATH_SIZE];
    tc->compiler = KGEN_TOOLCHAIN_HIPRTC;
    KGEN_TRY(kgen__toolchain_comgr(comgr, tc, err));
    version_of(version, sizeof version, tc->path);
    snprintf(tc->name, sizeof tc->name, "hiprtc%s", version);
    folder_of(real_folder, comgr);
    KGEN_TRY(add_identity(tc, "hiprtc", tc->path, err));
    KGEN_TRY(add_identity(tc, "comgr", comgr, err));
    KGEN_TRY(add_llvm(tc, real_folder, comgr, err));
    if (*root) find_loader(tc, root, folder);
    return KGEN_OK;
}

/* root "": the system. *found: there is a libhiprtc under it. */
static kgen_status hiprtc_under(kgen_toolchain *tc, const char *root, int *found, kgen_error *err) {
    char folder[PATH_SIZE];
    *found = 0;
    if (!root || strlen(root) > 400) return KGEN_OK;
    for (const char *const *sub = library_folders; *sub; sub++) {
        if (!join(folder, root, *sub) || !find_in(tc->path, folder, hiprtc_names)) continue;
        *found = 1;
        return fill_hiprtc(tc, root, folder, err);
    }
    return KGEN_OK;
}

static const char *env_or(const char *name, const char *other) {
    const char *value = secure_getenv(name);
    return value && *value ? value : other;
}

static const char *prefix_folder(void) {
#ifdef KGEN_ROCM_PREFIX_DIR
    return env_or("KGEN_ROCM_PREFIX", KGEN_ROCM_PREFIX_DIR);
#else
    return env_or("KGEN_ROCM_PREFIX", NULL);
#endif
}

static kgen_status find_hiprtc(kgen_toolchain *tc, int *found, kgen_error *err) {
    const char *named = env_or("KGEN_ROCM_PATH", NULL);
    const char *const roots[] = {named, "/opt/rocm", "", prefix_folder()};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        KGEN_TRY(hiprtc_under(tc, roots[i], found, err));
        if (*found) return KGEN_OK;
        if (i == 0 && named)
            return kgen_fail(err, KGEN_E_TOOLCHAIN,
                             "KGEN_ROCM_PATH=%.300s: no libhiprtc in its lib folder; unset it or "
                             "name the folder of a ROCm installation",
                             named);
    }
    return KGEN_OK;
}

/* ---- clang ---- */

static const char *const clang_names[] = {"clang-22", "clang-21", "clang-20", "clang-19",
                                          "clang-18", "clang-17", "clang-16", "clang-15",
                                          "clang-14", "clang",    NULL};

static int in_path(char *out, const char *name) {
    const char *path = env_or("PATH", "/usr/local/bin:/usr/bin:/bin");
    while (*path) {
        int length = (int)strcspn(path, ":");
        if (path[0] == '/' &&
            (size_t)snprintf(out, PATH_SIZE, "%.*s/%s", length, path, name) < PATH_SIZE &&
            access(out, X_OK) == 0)
            return 1;
        path += length + (path[length] == ':');
    }
    return 0;
}

static const char probe_text[] = "extern \"C\" __attribute__((global)) void kg_probe() {}\n";

static kgen_status compile_probe(const kgen_toolchain *tc, const kgen_target *target,
                                 kgen_error *err) {
    kgen__unit unit = {.toolchain = tc,
                       .flags = kgen_target_flags(target, KGEN_TOOLCHAIN_CLANG),
                       .source = probe_text,
                       .source_size = sizeof probe_text - 1,
                       .spec = "a test of the compiler",
                       .arch = target->name};
    uint8_t *code;
    size_t size;
    uint32_t ms;
    kgen_status status = kgen__compile(&unit, &code, &size, &ms, err);
    if (status == KGEN_OK) free(code);
    return status;
}

/* That the probe was compiled is noted in the cache as a kernel is, without an entry. */
typedef struct probe {
    kgen_cache *cache;
    kgen_source source;
    const char *const *flags;
    size_t flag_count;
    kgen_key key;
} probe;

static int was_probed(const probe *p) {
    return kgen_cache_was_made(p->cache, &p->source, p->flags, p->flag_count, &p->key);
}

/* Of many processes one asks the compiler. 1: it is known by now. */
static int await_probe(const probe *p, int *lock) {
    enum { WAIT_MS = 60000, POLL_MS = 10 };
    const int64_t end = kgen__now_ms() + WAIT_MS;
    for (;;) {
        *lock = kgen_cache_lock(p->cache, &p->key);
        if (was_probed(p)) return 1;
        if (*lock != KGEN_LOCK_BUSY || kgen__now_ms() >= end) return 0;
        usleep(POLL_MS * 1000);
    }
}

/* Does it know the architecture, and can it link for it? */
static kgen_status try_target(const kgen_toolchain *tc, const kgen_target *target,
                              kgen_cache *cache, kgen_error *err) {
    probe p = {.cache = cache, .flags = kgen_target_flags(target, KGEN_TOOLCHAIN_CLANG)};
    kgen_status status = KGEN_OK;
    int lock = KGEN_LOCK_NONE;
    if (!cache) return compile_probe(tc, target, err);
    p.source =
        (kgen_source){.text = (char *)probe_text, .size = sizeof probe_text - 1, .target = target};
    while (p.flags[p.flag_count]) p.flag_count++;
    kgen_key_make(&p.key, &p.source, p.flags, p.flag_count, tc->id);
    if (!was_probed(&p) && !await_probe(&p, &lock)) {
        status = compile_probe(tc, target, err);
        if (status == KGEN_OK)
            kgen_cache_note_made(cache, &p.source, p.flags, p.flag_count, &p.key);
    }
    if (lock >= 0) close(lock);
    return status;
}

/* The libraries that do the work of clang; the first says its version. */
static const char *const clang_parts[] = {"libclang-cpp", "libLLVM"};
enum { CLANG_PARTS = sizeof clang_parts / sizeof clang_parts[0] };

static int find_beside(char *out, const char *program, const char *name) {
    const char *const names[] = {name, NULL};
    char real[PATH_MAX], folder[PATH_SIZE], beside[PATH_SIZE + 8];
    folder_of(folder, realpath(program, real) ? real : program);
    snprintf(beside, sizeof beside, "%.1000s/../lib", folder);
    return find_in(out, beside, names);
}

/* A library that the program names, beside it or the system's. What is not found is
 * the loader's business; the version text stands for it. */
static int find_library(char *out, const char *program, const char *name) {
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu",
                                          "/usr/lib64", "/usr/lib", NULL};
    const char *const names[] = {name, NULL};
    if (find_beside(out, program, name)) return 1;
    for (const char *const *at = folders; *at; at++)
        if (find_in(out, *at, names)) return 1;
    return 0;
}

static void add_file(crypto_generichash_state *state, const mapped *file) {
    uint8_t bytes[BUILD_ID_BYTES];
    file_identity(bytes, file);
    crypto_generichash_update(state, bytes, sizeof bytes);
}

/* The program and the libraries that do its work. A script has the identity of its text. */
static int add_program(crypto_generichash_state *state, const char *program) {
    mapped file, part;
    kgen__elf elf;
    const char *name;
    char path[PATH_SIZE];
    if (!map_file(&file, program)) return 0;
    add_file(state, &file);
    for (size_t i = 0; i < CLANG_PARTS; i++) {
        if (!kgen__elf_open(&elf, file.data, file.size) ||
            !kgen__elf_dynamic(&elf, DT_NEEDED, clang_parts[i], &name) ||
            !find_library(path, program, name) || !map_file(&part, path))
            continue;
        add_file(state, &part);
        unmap_file(&part);
    }
    unmap_file(&file);
    return 1;
}

/* Another program may print the same version: what it is made of counts too. */
static kgen_status clang_identity(kgen_toolchain *tc, const char *version, kgen_error *err) {
    crypto_generichash_state state;
    uint8_t bytes[BUILD_ID_BYTES];
    char hex[2 * BUILD_ID_BYTES + 1];
    struct utsname host;
    const char *machine = uname(&host) == 0 ? host.machine : "";
    crypto_generichash_init(&state, NULL, 0, sizeof bytes);
    crypto_generichash_update(&state, (const uint8_t *)version, strlen(version) + 1);
    crypto_generichash_update(&state, (const uint8_t *)machine, strlen(machine) + 1);
    if (!add_program(&state, tc->path))
        return kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s: cannot be read", tc->path);
    crypto_generichash_final(&state, bytes, sizeof bytes);
    sodium_bin2hex(hex, sizeof hex, bytes, sizeof bytes);
    snprintf(tc->id, sizeof tc->id, "clang=%s", hex);
    return KGEN_OK;
}

/* Its version is that of a library which the loader takes from beside it, and that has an
 * identity of its own: the program need not be started to be known. Of many processes that want
 * a kernel at once each would, at 26 ms of a core. */
static int known_by_library(kgen_toolchain *tc) {
    static const char beside[] = "$ORIGIN/../lib";
    mapped file;
    kgen__elf elf;
    const char *folder, *name;
    char path[PATH_SIZE], version[32];
    if (!map_file(&file, tc->path)) return 0;
    int known = kgen__elf_open(&elf, file.data, file.size) &&
                kgen__elf_dynamic(&elf, DT_RUNPATH, beside, &folder) &&
                strchr(":", folder[sizeof beside - 1]) &&
                kgen__elf_dynamic(&elf, DT_NEEDED, clang_parts[0], &name) &&
                find_beside(path, tc->path, name);
    unmap_file(&file);
    if (!known) return 0;
    version_of(version, sizeof version, path);
    snprintf(tc->name, sizeof tc->name, "clang%s", version);
    return 1;
}

/* Its own words: of a script, and of a program that holds its libraries or has them elsewhere. */
static kgen_status ask_version(kgen_toolchain *tc, char *line, size_t size, kgen_error *err) {
    KGEN_TRY(kgen__program_version(tc->path, line, size, err));
    const char *version = strstr(line, "version ");
    version = version ? version + strlen("version ") : "";
    snprintf(tc->name, sizeof tc->name, "clang %.*s", (int)strcspn(version, " "), version);
    return KGEN_OK;
}

static kgen_status fill_clang(kgen_toolchain *tc, const kgen_target *target, kgen_cache *cache,
                              kgen_error *err) {
    char line[120] = "";
    tc->compiler = KGEN_TOOLCHAIN_CLANG;
    if (!known_by_library(tc)) KGEN_TRY(ask_version(tc, line, sizeof line, err));
    KGEN_TRY(clang_identity(tc, line, err));
    return target->vendor == KGEN_VENDOR_AMD ? try_target(tc, target, cache, err) : KGEN_OK;
}

static kgen_status named_clang(kgen_toolchain *out, const kgen_target *target, const char *named,
                               kgen_cache *cache, kgen_error *err) {
    int ok = *named == '/' ? snprintf(out->path, PATH_SIZE, "%s", named) < PATH_SIZE
                           : in_path(out->path, named);
    if (!ok || access(out->path, X_OK) != 0)
        return kgen_fail(err, KGEN_E_TOOLCHAIN,
                         "KGEN_CLANG=%.300s: not a program; unset it or name a clang", named);
    return fill_clang(out, target, cache, err);
}

kgen_status kgen__toolchain_clang(kgen_toolchain *out, const kgen_target *target, kgen_cache *cache,
                                  kgen_error *err) {
    const char *named = env_or("KGEN_CLANG", NULL);
    kgen_error why = {.text = "no clang in PATH"};
    memset(out, 0, sizeof *out);
    if (named) return named_clang(out, target, named, cache, err);
    for (const char *const *name = clang_names; *name; name++) {
        if (!in_path(out->path, *name)) continue;
        if (fill_clang(out, target, cache, &why) == KGEN_OK) return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_TOOLCHAIN,
                     "%s: no clang that compiles for it (clang-22 to clang-14, clang): %.300s; "
                     "install one or set KGEN_CLANG",
                     target->name, why.text);
}

static kgen_status find_amd(kgen_toolchain *out, const kgen_target *target, kgen_cache *cache,
                            kgen_error *err) {
    int found;
    KGEN_TRY(find_hiprtc(out, &found, err));
    if (found) return KGEN_OK;
    const char *prefix = prefix_folder();
    kgen_error why;
    if (kgen__toolchain_clang(out, target, cache, &why) == KGEN_OK) return KGEN_OK;
    return kgen_fail(err, KGEN_E_TOOLCHAIN,
                     "%s: no libhiprtc in $KGEN_ROCM_PATH, /opt/rocm, the system's folders, or "
                     "the prefix %.200s; `run setup` makes the prefix. %.400s",
                     target->name, prefix ? prefix : "($KGEN_ROCM_PREFIX)", why.text);
}

/* ---- NVRTC ---- */

static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
/* clang-format off */
static const char *const nvrtc_folders[] = {
    "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", NULL};
/* clang-format on */

/* The part with the headers and the device library, of the same release. */
static kgen_status nvrtc_builtins(char *out, const char *nvrtc, kgen_error *err) {
    char real[PATH_MAX], folder[PATH_SIZE], pattern[PATH_SIZE + 64];
    glob_t hits;
    const char *suffix = realpath(nvrtc, real) ? strstr(real, ".so.") : NULL;
    folder_of(folder, suffix ? real : nvrtc);
    snprintf(pattern, sizeof pattern, "%s/libnvrtc-builtins.so.%d*", folder,
             suffix ? atoi(suffix + 4) : 0);
    int ok = glob(pattern, GLOB_NOSORT, NULL, &hits) == 0;
    if (ok) snprintf(out, PATH_SIZE, "%s", hits.gl_pathv[0]);
    globfree(&hits);
    if (ok) return KGEN_OK;
    return kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s: libnvrtc-builtins is not beside it", nvrtc);
}

static kgen_status fill_nvrtc(kgen_toolchain *tc, kgen_error *err) {
    char builtins[PATH_SIZE], version[32];
    tc->compiler = KGEN_TOOLCHAIN_NVRTC;
    KGEN_TRY(nvrtc_builtins(builtins, tc->path, err));
    version_of(version, sizeof version, builtins);
    snprintf(tc->name, sizeof tc->name, "nvrtc%s", version);
    folder_of(tc->libs, tc->path);
    KGEN_TRY(add_identity(tc, "nvrtc", tc->path, err));
    return add_identity(tc, "builtins", builtins, err);
}

static kgen_status find_nvrtc(kgen_toolchain *out, const kgen_target *target, kgen_error *err) {
    const char *named = env_or("KGEN_NVRTC_PATH", NULL);
    if (named) {
        snprintf(out->path, sizeof out->path, "%s", named);
        if (*named == '/' && access(named, R_OK) == 0) return fill_nvrtc(out, err);
        return kgen_fail(err, KGEN_E_TOOLCHAIN,
                         "KGEN_NVRTC_PATH=%.300s: not a readable file; unset it or name "
                         "libnvrtc.so.13 with its whole path",
                         named);
    }
    for (const char *const *folder = nvrtc_folders; *folder; folder++)
        if (find_in(out->path, *folder, nvrtc_names)) return fill_nvrtc(out, err);
    return kgen_fail(err, KGEN_E_TOOLCHAIN,
                     "%s: no libnvrtc.so.13 or .12 in /usr/local/cuda or the system's folders; "
                     "install NVRTC or set KGEN_NVRTC_PATH",
                     target->name);
}

kgen_status kgen__toolchain_find(kgen_toolchain *out, const kgen_target *target, kgen_cache *cache,
                                 kgen_error *err) {
    kgen_toolchain found = {0};
    kgen_status status = target->vendor == KGEN_VENDOR_AMD ? find_amd(&found, target, cache, err)
                         : target->vendor == KGEN_VENDOR_NVIDIA
                             ? find_nvrtc(&found, target, err)
                             : kgen__toolchain_clang(&found, target, cache, err);
    if (status == KGEN_OK) *out = found;
    return status;
}

kgen_status kgen_toolchain_find(kgen_toolchain *out, const kgen_target *target, kgen_error *err) {
    return kgen__toolchain_find(out, target, NULL, err);
}
