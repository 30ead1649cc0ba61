/* Folders with their parents, and writes that go on after a short count. */
#include "files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int kgen__make_dirs(const char *dir) {
    char path[PATH_MAX];
    int reason = 0;
    if ((size_t)snprintf(path, sizeof path, "%s", dir) >= sizeof path) return ENAMETOOLONG;
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST && !reason) reason = errno;
        *at = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST && !reason) reason = errno;
    return reason;
}

/* Past its limit on file sizes a process gets a signal that ends it. */
static int fits_limit(int fd, size_t size) {
    struct rlimit limit;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 || getrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    return limit.rlim_cur == RLIM_INFINITY || (rlim_t)at + size <= limit.rlim_cur;
}

int kgen__write_all(int fd, const void *bytes, size_t size) {
    const char *from = bytes;
    if (!fits_limit(fd, size)) {
        errno = EFBIG;
        return -1;
    }
    while (size > 0) {
        ssize_t done = write(fd, from, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        from += done;
        size -= (size_t)done;
    }
    return 0;
}

size_t kgen__read_at(int fd, void *bytes, size_t at, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, (char *)bytes + done, size - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

size_t kgen__read_all(int fd, void *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, (char *)bytes + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}
