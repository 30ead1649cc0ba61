/* Single flight: one file for all keys, one byte of it a key. The lock belongs to
 * the open file (OFD), so the system frees it when its process dies, threads of one
 * process exclude each other too, and nothing is left to clean.
 *
 * Who waits sleeps on a word of the file's first page, which whoever frees a lock makes
 * another and wakes all sleepers of. It is written and read as a file, and mapped for the
 * system alone: a file that shrinks ends nobody. Where no wake comes through (other machines
 * of a network file system, a process that died), the sleep ends by its time. */
#define _GNU_SOURCE
#include "files.h"
#include "folder.h"
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#define LOCK_FILE "lock"

enum { WORD = 4, PAGE = 4096 };

/* Never a standard stream: a host without stderr must not print into it. */
static int above_streams(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return higher;
}

/* O_NONBLOCK: a pipe in its place must not hold us up. */
static int open_file(const char *dir) {
    static const uint8_t words[PAGE];
    struct stat st;
    int root = kgen__folder_open(dir, 1);
    if (root < 0) return -1;
    int fd = above_streams(
        openat(root, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    close(root);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && kgen__is_trusted(&st)) {
        if (st.st_size < PAGE) (void)kgen__write_all(fd, words, sizeof words);
        return fd;
    }
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

static struct flock lock_of(const kgen_key *key) {
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(key), .l_len = 1};
}

int kgen__lock_take(const char *dir, int *probe, const kgen_key *key) {
    const struct flock lock = lock_of(key);
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

/* ---- sleep and wake -------------------------------------------------------- */

static size_t word_of(const kgen_key *key) {
    return (size_t)(key->bytes[8] | key->bytes[9] << 8) % (PAGE / WORD) * WORD;
}

/* 1: it was carried out. No word is read or written here. */
static int on_word(int fd, const kgen_key *key, int operation, uint32_t value,
                   const struct timespec *time) {
    uint8_t *words = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) return 0;
    long done = syscall(SYS_futex, words + word_of(key), operation, value, time, NULL, 0);
    int is_done = done >= 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
    munmap(words, PAGE);
    return is_done;
}

int kgen__lock_is_held(const int *probe, const kgen_key *key) {
    int asks = __atomic_load_n(probe, __ATOMIC_ACQUIRE);
    return asks >= 0 && is_held(asks, lock_of(key));
}

void kgen__lock_await(const int *probe, const kgen_key *key, int ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    int asks = __atomic_load_n(probe, __ATOMIC_ACQUIRE);
    uint32_t seen = 0;
    int has_words = asks >= 0 && kgen__read_at(asks, &seen, word_of(key), WORD) == WORD;
    /* What is freed from here on has another word. */
    if (asks >= 0 && !is_held(asks, lock_of(key))) return;
    if (!has_words || !on_word(asks, key, FUTEX_WAIT, seen, &time)) poll(NULL, 0, ms);
}

void kgen__lock_free(int lock, const kgen_key *key) {
    struct flock free = lock_of(key);
    uint32_t next = randombytes_random();
    free.l_type = F_UNLCK;
    if (fcntl(lock, F_OFD_SETLK, &free) == 0 && lseek(lock, (off_t)word_of(key), SEEK_SET) >= 0 &&
        kgen__write_all(lock, &next, sizeof next) == 0)
        (void)on_word(lock, key, FUTEX_WAKE, INT_MAX, NULL);
    close(lock);
}
