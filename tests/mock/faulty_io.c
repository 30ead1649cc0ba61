/* A disk that fails, preloaded into kgen. Now and then, as one on a network does: a call below
 * fails with probability 1 / KGEN_FAULT_EVERY, by the seed KGEN_FAULT_SEED. Or always: the call
 * KGEN_FAULT_CALL fails with the number KGEN_FAULT_REASON. Or by pieces: a call reads or writes
 * KGEN_FAULT_PIECE bytes at most. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;
static unsigned every, reason, piece;
static const char *only;

static uint32_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static unsigned number(const char *name) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
    state = number("KGEN_FAULT_SEED");
    every = number("KGEN_FAULT_EVERY");
    reason = number("KGEN_FAULT_REASON");
    piece = number("KGEN_FAULT_PIECE");
    only = getenv("KGEN_FAULT_CALL");
    for (int i = 0; i < 8; i++) draw();
}

/* 1: errno says how this call fails. */
static int fails(const char *call) {
    static const int reasons[] = {EIO,    ESTALE, EBUSY,  ENOSPC, EACCES, EINTR,
                                  ENOENT, EMFILE, ENFILE, EPERM,  EROFS,  EDQUOT};
    if (only && strcmp(only, call) == 0) {
        errno = (int)reason;
        return 1;
    }
    if (!every || draw() % every) return 0;
    errno = reasons[draw() % (sizeof reasons / sizeof reasons[0])];
    return 1;
}

/* A short count is no failure. */
static size_t cut(size_t size) {
    if (piece) return size < piece ? size : piece;
    return size > 1 && every && !(draw() % every) ? size / 2 : size;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int openat(int at, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    return fails(flags & O_CREAT ? "creat" : "openat") ? -1 : REAL(openat)(at, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    return fails("open") ? -1 : REAL(open)(path, flags, mode);
}

/* The descriptor is gone all the same. */
int close(int fd) {
    int done = REAL(close)(fd);
    return fails("close") ? -1 : done;
}

ssize_t read(int fd, void *bytes, size_t size) {
    return fails("read") ? -1 : REAL(read)(fd, bytes, cut(size));
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at) {
    return fails("pread") ? -1 : REAL(pread)(fd, bytes, cut(size), at);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) return REAL(write)(fd, bytes, size);
    return fails("write") ? -1 : REAL(write)(fd, bytes, cut(size));
}

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t at) {
    if (fd >= 0 && fails("mmap")) return MAP_FAILED;
    return REAL(mmap)(where, size, protection, flags, fd, at);
}

int fcntl(int fd, int command, ...) {
    va_list ap;
    va_start(ap, command);
    void *what = va_arg(ap, void *);
    va_end(ap);
    return fails("fcntl") ? -1 : REAL(fcntl)(fd, command, what);
}

int flock(int fd, int operation) { return fails("flock") ? -1 : REAL(flock)(fd, operation); }

int pipe2(int ends[2], int flags) { return fails("pipe2") ? -1 : REAL(pipe2)(ends, flags); }

int fsync(int fd) { return fails("fsync") ? -1 : REAL(fsync)(fd); }

/* The reply may be lost of what was done. */
int renameat(int from, const char *old, int to, const char *name) {
    int lost = fails("renameat"), why = errno;
    int done = lost && (only || draw() % 2) ? 0 : REAL(renameat)(from, old, to, name);
    if (!lost) return done;
    errno = only ? why : EIO;
    return -1;
}

int mkdirat(int at, const char *path, mode_t mode) {
    return fails("mkdirat") ? -1 : REAL(mkdirat)(at, path, mode);
}

int unlinkat(int at, const char *path, int flags) {
    return fails("unlinkat") ? -1 : REAL(unlinkat)(at, path, flags);
}

int fchmod(int fd, mode_t mode) { return fails("fchmod") ? -1 : REAL(fchmod)(fd, mode); }

int fstat(int fd, struct stat *out) { return fails("fstat") ? -1 : REAL(fstat)(fd, out); }

int fstatat(int at, const char *path, struct stat *out, int flags) {
    return fails("fstatat") ? -1 : REAL(fstatat)(at, path, out, flags);
}
