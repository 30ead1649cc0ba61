/* Forks the worker, reads its lines with a time limit, and says how it ended. */
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 16, KILL_WAIT_S = 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int kgen__watch_say(int fd, const char *line) {
    size_t length = strlen(line), done = 0;
    char *text = malloc(length + 1);
    if (!text) return 0;
    memcpy(text, line, length);
    text[length++] = '\n';
    while (done < length) {
        ssize_t written = write(fd, text + done, length - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        done += (size_t)written;
    }
    free(text);
    return done == length;
}

/* --- the worker ------------------------------------------------------------ */

static kgen_status start(pid_t *pid, int *fd, const kgen__watch *watch, kgen_error *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) /* compilers that the worker starts must not hold it open */
        return kgen_fail(err, KGEN_E_IO, "worker: no pipe: %s", strerror(errno));
    fflush(NULL); /* or both would write what stands in the buffers */
    pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0) {
        close(ends[0]);
        signal(SIGPIPE, SIG_IGN);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* what is left on a device would disturb the next run */
        int code = getppid() == parent ? watch->work(watch->user, ends[1]) : 1;
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    *fd = ends[0];
    if (*pid > 0) return KGEN_OK;
    close(ends[0]);
    return kgen_fail(err, KGEN_E_IO, "worker: cannot fork: %s", strerror(errno));
}

/* A process that waits for its driver may outlive even SIGKILL for a while. */
static int reap(pid_t pid, int *state) {
    double limit = now() + KILL_WAIT_S;
    do {
        pid_t got = waitpid(pid, state, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return 1;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    } while (now() < limit);
    return 0;
}

static void describe(char *how, size_t size, int state) {
    if (WIFSIGNALED(state))
        snprintf(how, size, "signal %d (%s)", WTERMSIG(state), strsignal(WTERMSIG(state)));
    else
        snprintf(how, size, "exit code %d", WEXITSTATUS(state));
}

/* --- the watcher ------------------------------------------------------------- */

typedef struct reader {
    const kgen__watch *watch;
    int fd;
    double deadline; /* below 0: none */
    size_t used;
    char text[LINE_MAX_BYTES];
} reader;

/* 1: there is something to read. 0: the time is over. */
static int wait_for_text(const reader *r) {
    while (1) {
        double left = r->deadline < 0 ? 60 : r->deadline - now();
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        int got = poll(&p, 1, left <= 0 ? 0 : left > 60 ? 60000 : (int)(left * 1000) + 1);
        if (got > 0) return 1;
        if (got < 0 && errno != EINTR) return 1; /* read says what it is */
        if (r->deadline >= 0 && now() >= r->deadline) return 0;
    }
}

static kgen_status hear(reader *r, kgen_error *err) {
    char *line = r->text, *end;
    while ((end = memchr(line, '\n', r->used - (size_t)(line - r->text)))) {
        double seconds = -1;
        *end = 0;
        KGEN_TRY(r->watch->heard(r->watch->user, &seconds, line, err));
        r->deadline = seconds < 0 ? -1 : now() + seconds;
        line = end + 1;
    }
    r->used -= (size_t)(line - r->text);
    memmove(r->text, line, r->used);
    return r->used < sizeof r->text
               ? KGEN_OK
               : kgen_fail(err, KGEN_E_INTERNAL, "worker: a line of %zu bytes", r->used);
}

static kgen_status follow(kgen__watch_end *end, reader *r, kgen_error *err) {
    while (1) {
        if (!wait_for_text(r)) {
            *end = KGEN__WATCH_HUNG;
            return KGEN_OK;
        }
        ssize_t got = read(r->fd, r->text + r->used, sizeof r->text - r->used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) { /* the worker is gone, or about to be */
            *end = KGEN__WATCH_DIED;
            return KGEN_OK;
        }
        r->used += (size_t)got;
        kgen_status status = hear(r, err);
        if (status != KGEN_OK) {
            *end = KGEN__WATCH_STOP;
            return status;
        }
    }
}

kgen_status kgen__watch_run(kgen__watch_end *end, char *how, size_t size, const kgen__watch *watch,
                            kgen_error *err) {
    pid_t pid = -1;
    int state = 0;
    reader *r = calloc(1, sizeof *r);
    if (!r) return kgen_fail(err, KGEN_E_NOMEM, "worker: no memory");
    r->watch = watch;
    r->deadline = watch->seconds < 0 ? -1 : now() + watch->seconds;
    kgen_status status = start(&pid, &r->fd, watch, err);
    if (status != KGEN_OK) {
        free(r);
        return status;
    }
    status = follow(end, r, err);
    if (*end != KGEN__WATCH_DIED) kill(pid, SIGKILL);
    int reaped = reap(pid, &state);
    if (!reaped)
        snprintf(how, size, "does not end");
    else
        describe(how, size, state);
    if (*end == KGEN__WATCH_DIED && reaped && WIFEXITED(state) && WEXITSTATUS(state) == 0)
        *end = KGEN__WATCH_DONE;
    close(r->fd);
    free(r);
    return status;
}
