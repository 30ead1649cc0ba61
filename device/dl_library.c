/* Which driver library: the one that is named, else the one that the process has
 * loaded already, else the system's. An engine brings its own copy (torch's lies
 * in its package), and a second copy would know nothing of the engine's streams
 * and memory. */
#define _GNU_SOURCE
#include "dl.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES_MAX = 4 };

/* Copies of a driver that the process has loaded. */
typedef struct copies {
    const char *stem;
    char path[COPIES_MAX][KGEN__DL_PATH_MAX];
    int count;
} copies;

static void add_copy(copies *c, const char *path) {
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->path[i], path) == 0) return;
    if (c->count < COPIES_MAX && strlen(path) < KGEN__DL_PATH_MAX)
        snprintf(c->path[c->count++], KGEN__DL_PATH_MAX, "%s", path);
}

/* "libamdhip64.so.6" and "libamdhip64-1f2e.so", as wheels rename it; not "libcudart.so" for
 * "libcuda", nor a profiler's "libcuda-injection.so". */
static int is_copy(const char *path, const char *stem) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(stem);
    if (strncmp(name, stem, length) != 0) return 0;
    name += length;
    if (*name == '-') name += 1 + strspn(name + 1, "0123456789abcdef");
    return strncmp(name, ".so", 3) == 0;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *user) {
    copies *c = user;
    (void)size;
    if (info->dlpi_name && is_copy(info->dlpi_name, c->stem)) add_copy(c, info->dlpi_name);
    return 0;
}

static const char *path_of(void *library) {
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

/* A profiler's "libcuda-injection.so" that has the driver's SONAME passes all calls on: who calls
 * the driver past it is not seen by the profiler. */
static int stands_before(const char *path, const char *stem) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(stem);
    return strncmp(name, stem, length) == 0 && strncmp(name + length, "-injection.so", 13) == 0;
}

/* By SONAME, whatever the file is called, then by the names of files. */
static void find_copies(copies *c, const kgen__dl_driver *driver) {
    c->stem = driver->stem;
    for (const char *const *name = driver->libraries; *name; name++) {
        void *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        if (!library) continue;
        const int alone = stands_before(path_of(library), driver->stem);
        if (alone) c->count = 0;
        add_copy(c, path_of(library));
        dlclose(library);
        if (alone) return;
    }
    dl_iterate_phdr(look_at, c);
}

static kgen_status open_one(void **out, const kgen__dl_driver *driver, const char *name,
                            kgen_error *err) {
    *out = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return *out ? KGEN_OK : kgen_fail(err, KGEN_E_DEVICE, "%s: %.900s", driver->name, dlerror());
}

static kgen_status open_system(void **out, const kgen__dl_driver *driver, kgen_error *err) {
    char why[512] = "";
    for (const char *const *name = driver->libraries; *name; name++) {
        size_t used = strlen(why);
        *out = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (*out) return KGEN_OK;
        snprintf(why + used, sizeof why - used, "%s%s", used ? "; " : "", dlerror());
    }
    return kgen_fail(err, KGEN_E_DEVICE, "%s: no driver library (%s names one): %s", driver->name,
                     driver->library_env, why);
}

static kgen_status open_usual(void **out, const kgen__dl_driver *driver, kgen_error *err) {
    copies c = {.count = 0};
    find_copies(&c, driver);
    if (c.count == 0) return open_system(out, driver, err);
    if (c.count == 1) return open_one(out, driver, c.path[0], err);
    return kgen_fail(err, KGEN_E_DEVICE,
                     "%s: the process has loaded %.300s and %.300s; kgen_open_options.driver or "
                     "%s says which one is the program's",
                     driver->name, c.path[0], c.path[1], driver->library_env);
}

kgen_status kgen__dl_library(void **out, char path[KGEN__DL_PATH_MAX],
                             const kgen__dl_driver *driver, const char *named, kgen_error *err) {
    if (!named || !*named) named = secure_getenv(driver->library_env);
    KGEN_TRY(named && *named ? open_one(out, driver, named, err) : open_usual(out, driver, err));
    snprintf(path, KGEN__DL_PATH_MAX, "%s", path_of(*out));
    return KGEN_OK;
}
