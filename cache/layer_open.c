/* Layers that others made: the bundles and folders of KGEN_CACHE_LAYERS. One that is
 * refused is no error of the cache, for the kernels may be elsewhere; why is kept. */
#define _GNU_SOURCE
#include "bundle_parts.h"
#include "folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kgen_status open_folder(void **self, const char *path, kgen_cache_stats *stats,
                               kgen_error *err) {
    int fd = kgen__folder_open(path, 0);
    if (fd < 0)
        return kgen_fail(err, KGEN_E_IO, "layer %.600s: %s", path,
                         errno == EPERM ? "it belongs to neither this user nor root"
                                        : strerror(errno));
    close(fd);
    return kgen__store_open((kgen__store **)self, path, stats, err);
}

static kgen_status open_bundle(void **self, const char *path, kgen_error *err) {
    return kgen__bundle_open((kgen__bundle **)self, path, secure_getenv("KGEN_BUNDLE_KEY"),
                             KGEN__BUNDLE_AUTO, err);
}

kgen_status kgen__layer_open(const kgen__layer_ops **ops, void **self, const char *path,
                             kgen_cache_stats *stats, kgen_error *err) {
    struct stat st;
    if (path[0] != '/')
        return kgen_fail(err, KGEN_E_IO, "layer %.600s: an absolute path expected", path);
    if (stat(path, &st) != 0)
        return kgen_fail(err, KGEN_E_IO, "layer %.600s: %s", path, strerror(errno));
    *ops = S_ISDIR(st.st_mode) ? &kgen__system_ops : &kgen__bundle_ops;
    return S_ISDIR(st.st_mode) ? open_folder(self, path, stats, err) : open_bundle(self, path, err);
}
