/* Temporary folders. One is locked while its process lives; the system frees the lock
 * of a process that was killed, and the next process removes what that one left. */
#define _GNU_SOURCE
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "kgen-"

enum {
    RANDOM_LETTERS = 6, /* of mkdtemp */
    DEPTH_MAX = 200,    /* a descriptor a level */
    YOUNG_S = 60,       /* it may not be locked yet */
};

static const char *base_folder(void) {
    const char *base = secure_getenv("TMPDIR");
    return base && base[0] == '/' ? base : "/tmp";
}

static int open_folder(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Compilers leave files behind when they are killed. Not followed: links. */
static void remove_tree(int parent, const char *name, int depth) {
    int fd = open_folder(parent, name);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) != 0 && depth < DEPTH_MAX)
            remove_tree(dirfd(dir), e->d_name, depth + 1);
    }
    closedir(dir);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* ---- what others have left --------------------------------------------------- */

static int is_ours(const struct dirent *file) {
    return strncmp(file->d_name, PREFIX, strlen(PREFIX)) == 0 &&
           strlen(file->d_name) == strlen(PREFIX) + RANDOM_LETTERS;
}

static int is_abandoned(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && st.st_mtime < time(NULL) - YOUNG_S &&
           flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void sweep(void) {
    struct dirent **files = NULL;
    int base = open(base_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = base >= 0 ? scandirat(base, ".", &files, is_ours, NULL) : 0;
    for (int i = 0; i < count; i++) {
        int fd = open_folder(base, files[i]->d_name);
        if (fd >= 0 && is_abandoned(fd)) remove_tree(base, files[i]->d_name, 0);
        if (fd >= 0) close(fd);
        free(files[i]);
    }
    free(files);
    if (base >= 0) close(base);
}

/* ---- one folder ---------------------------------------------------------------- */

kgen_status kgen__temp_make(kgen__temp *temp, kgen_error *err) {
    static pthread_once_t swept = PTHREAD_ONCE_INIT;
    const char *base = base_folder();
    pthread_once(&swept, sweep);
    int n = snprintf(temp->path, sizeof temp->path, "%s/" PREFIX "XXXXXX", base);
    int too_long = n < 0 || (size_t)n >= sizeof temp->path;
    if (too_long || !mkdtemp(temp->path)) {
        temp->path[0] = 0;
        return kgen_fail(err, KGEN_E_IO, "temporary folder under TMPDIR=%.200s: %s", base,
                         too_long ? "name too long" : strerror(errno));
    }
    temp->lock = open_folder(AT_FDCWD, temp->path);
    if (temp->lock >= 0) (void)flock(temp->lock, LOCK_EX | LOCK_NB); /* one that fails is swept */
    return KGEN_OK;
}

void kgen__temp_remove(kgen__temp *temp) {
    if (!temp->path[0]) return;
    remove_tree(AT_FDCWD, temp->path, 0);
    if (temp->lock >= 0) close(temp->lock);
    *temp = (kgen__temp){.lock = -1};
}
