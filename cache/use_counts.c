/* How often the folder had what was wanted: the counts of all processes, in one small file.
 * They are for people to read, so a process that cannot write them goes on without. */
#define _GNU_SOURCE
#include "files.h"
#include "folder.h"
#include "layer.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNTS_FILE "counts"

enum { LOCK_TRIES = 20 }; /* a millisecond each: nobody who was stopped holds us up */

static const char magic[8] = "kgencnt1";

typedef struct counts_file {
    char magic[sizeof magic];
    kgen_cache_use use;
} counts_file;

static int open_counts(const char *dir, int flags) {
    struct stat st;
    int root = kgen__folder_open(dir, 0);
    if (root < 0) return -1;
    int fd = openat(root, COUNTS_FILE, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    close(root);
    if (fd < 0 || (fstat(fd, &st) == 0 && kgen__is_trusted(&st))) return fd;
    close(fd);
    return -1;
}

static int take_lock(int fd, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 0;
}

/* 0: none yet, or those of another version. */
static int read_counts(int fd, kgen_cache_use *out) {
    counts_file file;
    if (kgen__read_at(fd, &file, 0, sizeof file) != sizeof file ||
        memcmp(file.magic, magic, sizeof magic) != 0)
        return 0;
    *out = file.use;
    return 1;
}

int kgen__counts_read(const char *dir, kgen_cache_use *out) {
    memset(out, 0, sizeof *out);
    int fd = open_counts(dir, O_RDONLY);
    if (fd < 0) return 0;
    int found = take_lock(fd, F_RDLCK) && read_counts(fd, out);
    close(fd);
    return found;
}

int kgen__counts_add(const char *dir, const kgen_cache_stats *more) {
    int added = 0;
    counts_file file = {.use.since = (uint64_t)time(NULL)};
    const uint64_t *from = (const uint64_t *)more;
    uint64_t *to = (uint64_t *)&file.use.stats;
    int fd = open_counts(dir, O_RDWR | O_CREAT);
    if (fd < 0) return 0;
    memcpy(file.magic, magic, sizeof magic);
    if (take_lock(fd, F_WRLCK)) {
        (void)read_counts(fd, &file.use);
        for (size_t i = 0; i < sizeof *more / sizeof *to; i++) to[i] += from[i];
        added = lseek(fd, 0, SEEK_SET) == 0 && kgen__write_all(fd, &file, sizeof file) == 0;
    }
    close(fd);
    return added;
}
