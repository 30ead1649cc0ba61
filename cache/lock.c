/* Single flight: one file for all keys, one byte of it a key. The lock belongs to
 * the open file (OFD), so the system frees it when its process dies, threads of one
 * process exclude each other too, and nothing is left to clean. */
#define _GNU_SOURCE
#include "folder.h"
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LOCK_FILE "lock"

/* Never a standard stream: a host without stderr must not print into it. */
static int above_streams(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return higher;
}

/* O_NONBLOCK: a pipe in its place must not hold us up. */
static int open_file(const char *dir) {
    struct stat st;
    int root = kgen__folder_open(dir, 1);
    if (root < 0) return -1;
    int fd = above_streams(
        openat(root, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    close(root);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && kgen__is_trusted(&st)) return fd;
    close(fd);
    return -1;
}

/* 63 bits of a digest: two keys do not meet. */
static off_t byte_of(const kgen_key *key) {
    uint64_t at;
    memcpy(&at, key->bytes, sizeof at);
    return (off_t)(at >> 1);
}

/* Of a byte that another open file has locked. */
static int is_held(int probe, struct flock lock) {
    return fcntl(probe, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int kgen__lock_take(const char *dir, int *probe, const kgen_key *key) {
    const struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(key), .l_len = 1};
    int asks = __atomic_load_n(probe, __ATOMIC_ACQUIRE), none = -1;
    if (asks >= 0 && is_held(asks, lock)) return KGEN_LOCK_BUSY;
    int fd = open_file(dir);
    if (fd < 0) return KGEN_LOCK_NONE;
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return fd;
    int busy = errno == EAGAIN || errno == EACCES;
    if (!busy ||
        !__atomic_compare_exchange_n(probe, &none, fd, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        close(fd);
    return busy ? KGEN_LOCK_BUSY : KGEN_LOCK_NONE;
}
