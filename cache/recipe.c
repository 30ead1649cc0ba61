/* What a key is without its compiler: source, flags and target, the *recipe*. A small
 * file beside the entries says which key the last build with a compiler had for it, so
 * that a kernel is found where no compiler is left, with one read. */
#define _GNU_SOURCE
#include "files.h"
#include "folder.h"
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* 1: *key was read. A damaged one is as good as none. */
int kgen__recipe_read_at(const kgen__place *at, kgen_key *key) {
    struct stat st;
    char hex[KGEN_KEY_HEX] = "";
    int fd = openat(at->shard, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0;
    int read_whole = fstat(fd, &st) == 0 && kgen__is_trusted(&st) &&
                     st.st_size == KGEN_KEY_HEX - 1 &&
                     kgen__read_at(fd, hex, 0, KGEN_KEY_HEX - 1) == KGEN_KEY_HEX - 1;
    close(fd);
    return read_whole && kgen_key_parse(key, hex, NULL) == KGEN_OK;
}

int kgen__recipe_read(const char *dir, const kgen_key *recipe, kgen_key *key) {
    kgen__place at;
    int found = kgen__place_open(&at, dir, recipe, KGEN__NOTE_SUFFIX, 0) == 0 &&
                kgen__recipe_read_at(&at, key);
    kgen__place_close(&at);
    return found;
}

/* Not flushed: one that a crash has eaten is written by the next build. */
int kgen__recipe_write(const char *dir, const kgen_key *recipe, const kgen_key *key) {
    kgen__place at;
    char hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, key);
    int failed = kgen__place_open(&at, dir, recipe, KGEN__NOTE_SUFFIX, 1) ||
                 kgen__place_publish(&at, hex, KGEN_KEY_HEX - 1, 0);
    int reason = errno;
    kgen__place_close(&at);
    errno = reason;
    return failed ? -1 : 0;
}
