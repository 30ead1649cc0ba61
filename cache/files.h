/* Files, for the folders that keep some: what POSIX leaves to a loop. */
#ifndef KGEN_CACHE_FILES_H
#define KGEN_CACHE_FILES_H

#include <stddef.h>

/* mkdir -p, 0700. The first reason (errno) that is not "exists" tells most;
 * whether it mattered is seen when the directory is opened. 0: none. */
int kgen__make_dirs(const char *dir);
/* How much was read: less than `size` where the file ends before. */
size_t kgen__read_all(int fd, void *bytes, size_t size);
size_t kgen__read_at(int fd, void *bytes, size_t at, size_t size);
/* 0, or -1 with errno. */
int kgen__write_all(int fd, const void *bytes, size_t size);

#endif
