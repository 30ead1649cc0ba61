/* Child processes: each in a folder of its own, with a scrubbed environment,
 * a time limit, and nothing left behind. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOG_MAX = 1 << 20,
    DEFAULT_TIMEOUT_S = 300,
    MAX_TIMEOUT_S = 24 * 3600,
    EXIT_POLL_MS = 1,
    LOG_POLL_MS = 250
};

int64_t kgen__now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- files of a folder ---- */

static int open_in(const char *folder, const char *name, int flags) {
    char path[768];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

kgen_status kgen__file_write(const char *folder, const char *name, const void *data, size_t size,
                             kgen_error *err) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    if (size > limit.rlim_cur) /* the write would end this process with a signal */
        return kgen_fail(err, KGEN_E_IO, "%s/%s: %s", folder, name, strerror(EFBIG));
    int fd = open_in(folder, name, O_WRONLY | O_CREAT | O_TRUNC);
    const char *at = data;
    while (fd >= 0 && size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += n;
        size -= (size_t)n;
    }
    int saved = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && size == 0) return KGEN_OK;
    return kgen_fail(err, KGEN_E_IO, "%s/%s: %s", folder, name, strerror(saved));
}

static int read_bytes(int fd, uint8_t *out, size_t size) {
    while (size) {
        ssize_t n = read(fd, out, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        out += n;
        size -= (size_t)n;
    }
    return 1;
}

kgen_status kgen__file_read(const char *folder, const char *name, uint8_t **out, size_t *size,
                            kgen_error *err) {
    struct stat st;
    *out = NULL;
    *size = 0;
    int fd = open_in(folder, name, O_RDONLY | O_NONBLOCK); /* no pipe is waited for */
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        int reason = fd >= 0 ? EINVAL : errno;
        if (fd >= 0) close(fd);
        return kgen_fail(err, KGEN_E_IO, "%s/%s: %s", folder, name,
                         reason == EINVAL ? "no plain file" : strerror(reason));
    }
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    int ok = bytes && read_bytes(fd, bytes, (size_t)st.st_size);
    close(fd);
    if (!ok) {
        free(bytes);
        return kgen_fail(err, KGEN_E_IO, "%s/%s: cannot be read", folder, name);
    }
    bytes[st.st_size] = 0;
    *out = bytes;
    *size = (size_t)st.st_size;
    return KGEN_OK;
}

/* ---- one child ---- */

int kgen__child_timeout(int wanted_s) {
    if (wanted_s <= 0) return DEFAULT_TIMEOUT_S;
    return wanted_s < MAX_TIMEOUT_S ? wanted_s : MAX_TIMEOUT_S;
}

kgen_status kgen__child_prepare(kgen__child *child, int timeout_s, kgen_error *err) {
    *child = (kgen__child){.fd = -1, .timeout_s = kgen__child_timeout(timeout_s)};
    return kgen__temp_make(&child->temp, err);
}

static int spawn(kgen__child *child, char *const *argv, char *const *env, int log_fd) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    char in[600], out[600];
    sigset_t all, none;
    snprintf(in, sizeof in, "%s/request", child->temp.path);
    snprintf(out, sizeof out, "%s/reply", child->temp.path);
    sigfillset(&all);
    sigemptyset(&none);
    if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
    if (posix_spawnattr_init(&attr) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    /* The log first: in a host without stdin log_fd may be 0. */
    posix_spawn_file_actions_adddup2(&files, log_fd, 2);
    posix_spawn_file_actions_addopen(&files, 0, in, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    int result = posix_spawn(&child->pid, argv[0], &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (result != 0) child->pid = 0;
    return result;
}

kgen_status kgen__child_start(kgen__child *child, char *const *argv, const char *libraries,
                              kgen_error *err) {
    char tmp[600], path[1100];
    int fds[2];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", child->temp.path);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", libraries);
    const char *const env[] = {
        "PATH=/usr/bin:/bin",        "LC_ALL=C", "HOME=/nonexistent",      "AMD_COMGR_CACHE=0",
        "CLANG_NO_DEFAULT_CONFIG=1", tmp,        *libraries ? path : NULL, NULL};
    if (pipe2(fds, O_CLOEXEC) != 0)
        return kgen_fail(err, KGEN_E_IO, "pipe for a compiler: %s", strerror(errno));
    free(child->log);
    child->log = NULL;
    child->log_size = 0;
    int result = spawn(child, argv, (char *const *)env, fds[1]);
    close(fds[1]);
    if (result != 0) {
        close(fds[0]);
        return kgen_fail(err, KGEN_E_TOOLCHAIN, "%.300s: cannot be started: %s", argv[0],
                         strerror(result));
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    child->fd = fds[0];
    child->start_ms = kgen__now_ms();
    return KGEN_OK;
}

typedef enum log_state { LOG_READ, LOG_EMPTY, LOG_END } log_state;

/* Appends, dropping what is over LOG_MAX. */
static log_state read_log(kgen__child *child) {
    char buffer[4096];
    ssize_t n = read(child->fd, buffer, sizeof buffer);
    if (n < 0) return errno == EAGAIN ? LOG_EMPTY : errno == EINTR ? LOG_READ : LOG_END;
    if (n == 0) return LOG_END;
    if (child->log_size + (size_t)n > LOG_MAX) return LOG_READ;
    char *log = realloc(child->log, child->log_size + (size_t)n + 1);
    if (!log) return LOG_READ;
    memcpy(log + child->log_size, buffer, (size_t)n);
    child->log = log;
    child->log_size += (size_t)n;
    log[child->log_size] = 0;
    return LOG_READ;
}

/* Not reaped yet. The host may reap for itself (SIGCHLD ignored): then the
 * exit status is unknown and the reply alone decides. */
static int has_exited(const kgen__child *child) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return errno != EINTR;
    return info.si_pid != 0;
}

/* The group dies with its leader: compilers start programs of their own. */
static void reap(kgen__child *child, int timed_out) {
    int status = 0;
    kill(-child->pid, SIGKILL);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) continue;
    if (child->fd >= 0) close(child->fd);
    child->fd = -1;
    child->pid = 0;
    child->ms = (uint32_t)(kgen__now_ms() - child->start_ms);
    child->end = timed_out ? KGEN__TIMED_OUT : WIFSIGNALED(status) ? KGEN__SIGNALLED : KGEN__EXITED;
    child->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static int time_left(const kgen__child *child) {
    int64_t left = child->start_ms + (int64_t)child->timeout_s * 1000 - kgen__now_ms();
    return left > 0 ? (int)left : 0;
}

static void drop_log(kgen__child *child) {
    if (child->fd >= 0) close(child->fd);
    child->fd = -1;
}

/* The end of its stderr announces the end of a child: no signal handler, no
 * thread. Between the two it is asked every EXIT_POLL_MS; and now and then
 * before, for a program that it started may keep the stream. */
static int has_ended(kgen__child *child, int readable) {
    if (child->fd >= 0 && readable && read_log(child) == LOG_END) drop_log(child);
    if (!has_exited(child)) return 0;
    for (int reads = LOG_MAX / 4096; child->fd >= 0 && reads > 0; reads--)
        if (read_log(child) != LOG_READ) drop_log(child);
    return 1;
}

static int collect(kgen__child *const *children, int count, const struct pollfd *fds) {
    for (int i = 0, f = 0; i < count; i++) {
        if (!children[i] || !children[i]->pid) continue;
        int ended = has_ended(children[i], fds[f++].revents != 0);
        if (!ended && time_left(children[i]) > 0) continue;
        reap(children[i], !ended);
        return i;
    }
    return -1;
}

static int fill_fds(struct pollfd *fds, kgen__child *const *children, int count, int *wait_ms) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        const kgen__child *child = children[i];
        if (!child || !child->pid || n == KGEN__CHILDREN_MAX) continue;
        int left = time_left(child);
        int most = child->fd < 0 ? EXIT_POLL_MS : left < LOG_POLL_MS ? left : LOG_POLL_MS;
        if (most < *wait_ms) *wait_ms = most;
        fds[n++] = (struct pollfd){.fd = child->fd, .events = POLLIN};
    }
    return n;
}

int kgen__children_wait(kgen__child *const *children, int count, int wait_ms) {
    struct pollfd fds[KGEN__CHILDREN_MAX];
    int64_t end = kgen__now_ms() + wait_ms;
    for (;;) {
        int64_t left = wait_ms < 0 ? 1000 : end - kgen__now_ms();
        int wait = left > 0 ? (int)left : 0;
        int n = fill_fds(fds, children, count, &wait);
        if (n == 0 && wait_ms < 0) return -1;
        if (poll(fds, (nfds_t)n, wait) < 0) n = 0; /* a signal: look again */
        int ended = n ? collect(children, count, fds) : -1;
        if (ended >= 0) return ended;
        if (wait_ms >= 0 && kgen__now_ms() >= end) return -1;
    }
}

void kgen__child_free(kgen__child *child) {
    if (child->pid) reap(child, 1);
    kgen__temp_remove(&child->temp);
    free(child->log);
    memset(child, 0, sizeof *child);
}
