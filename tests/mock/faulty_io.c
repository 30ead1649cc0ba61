/* A disk that fails now and then, as one on a network does: preloaded into kgen, a call of this
 * table fails with probability 1 / KGEN_FAULT_EVERY, by the seed KGEN_FAULT_SEED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;
static unsigned every;

static uint32_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

__attribute__((constructor)) static void begin(void) {
    const char *seed = getenv("KGEN_FAULT_SEED"), *rate = getenv("KGEN_FAULT_EVERY");
    state = seed ? strtoull(seed, NULL, 10) : 1;
    every = rate ? (unsigned)strtoul(rate, NULL, 10) : 0;
    for (int i = 0; i < 8; i++) draw();
}

/* 1: errno says how this call fails. */
static int fails(void) {
    static const int reasons[] = {EIO, ESTALE, EBUSY, ENOSPC, EACCES, EINTR, ENOENT, EMFILE};
    if (!every || draw() % every) return 0;
    errno = reasons[draw() % (sizeof reasons / sizeof reasons[0])];
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int openat(int at, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    return fails() ? -1 : REAL(openat)(at, path, flags, mode);
}

/* A short count is no failure. */
ssize_t read(int fd, void *bytes, size_t size) {
    if (fails()) return -1;
    return REAL(read)(fd, bytes, size > 1 && every && !(draw() % every) ? size / 2 : size);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) return REAL(write)(fd, bytes, size);
    if (fails()) return -1;
    return REAL(write)(fd, bytes, size > 1 && every && !(draw() % every) ? size / 2 : size);
}

int fsync(int fd) { return fails() ? -1 : REAL(fsync)(fd); }

/* The reply may be lost of what was done. */
int renameat(int from, const char *old, int to, const char *name) {
    int lost = fails(), done = lost && draw() % 2 ? 0 : REAL(renameat)(from, old, to, name);
    if (!lost) return done;
    errno = EIO;
    return -1;
}

int mkdirat(int at, const char *path, mode_t mode) {
    return fails() ? -1 : REAL(mkdirat)(at, path, mode);
}

int unlinkat(int at, const char *path, int flags) {
    return fails() ? -1 : REAL(unlinkat)(at, path, flags);
}

int fstat(int fd, struct stat *out) { return fails() ? -1 : REAL(fstat)(fd, out); }
