/* A worker process and who watches it: lines come through a pipe, and when none
 * comes in time the worker is ended. */
#ifndef KGEN_TUNER_WATCH_H
#define KGEN_TUNER_WATCH_H

#include <kgen/status.h>
#include <stddef.h>

typedef enum kgen__watch_end {
    KGEN__WATCH_DONE, /* the worker returned 0 */
    KGEN__WATCH_HUNG, /* no line in time: it was killed */
    KGEN__WATCH_DIED, /* it returned something else, or was ended by a signal */
    KGEN__WATCH_STOP, /* `heard` failed */
} kgen__watch_end;

typedef struct kgen__watch {
    void *user;
    /* In the worker: writes lines to fd. Its value is the exit code. */
    int (*work)(void *user, int fd);
    /* In the watcher, of each line (without its newline): *seconds in which the
     * next one must come, below 0: no limit. */
    kgen_status (*heard)(void *user, double *seconds, char *line, kgen_error *err);
    double seconds; /* for the first line */
} kgen__watch;

/* how[size]: "exit code 3", "signal 11 (Segmentation fault)". The status is that
 * of `heard`, or KGEN_E_IO when there can be no worker. */
kgen_status kgen__watch_run(kgen__watch_end *end, char *how, size_t size, const kgen__watch *watch,
                            kgen_error *err);
/* A line into the pipe; returns 0 when the watcher is gone. */
int kgen__watch_say(int fd, const char *line);

#endif
