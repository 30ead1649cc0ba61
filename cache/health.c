/* What a cache is good for: a file is written, read again and removed, as an entry
 * would be, so that the reason for which an entry would fail has a name. */
#define _GNU_SOURCE
#include "folder.h"
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#define SUFFIX ".test"

enum { TEST_BYTES = 64 << 10 }; /* a small entry */

/* 0, or -1 with errno. */
static int reads_back(const kgen__place *at, const uint8_t *wrote) {
    static const size_t size = TEST_BYTES;
    uint8_t got[4096];
    int fd = openat(at->shard, at->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t done = 0;
    errno = EIO;
    while (done < size) {
        ssize_t n = read(fd, got, sizeof got);
        if (n <= 0 || memcmp(got, wrote + done, (size_t)n) != 0) break;
        done += (size_t)n;
    }
    close(fd);
    return done == size ? 0 : -1;
}

int kgen__folder_test(const char *dir) {
    static const uint8_t bytes[TEST_BYTES];
    kgen__place at;
    kgen_key key;
    int is_new = access(dir, F_OK) != 0;
    randombytes_buf(key.bytes, sizeof key.bytes);
    int failed = kgen__place_open(&at, dir, &key, SUFFIX, 1) ||
                 kgen__place_publish(&at, bytes, sizeof bytes, 1);
    if (!failed) failed = reads_back(&at, bytes);
    int reason = failed ? errno : 0;
    if (at.shard >= 0) unlinkat(at.shard, at.name, 0);
    if (at.root >= 0 && is_new) { /* it goes as it came, unless somebody else needs it */
        char shard[KGEN__SHARD_DIGITS + 1] = {at.hex[0], at.hex[1], 0};
        unlinkat(at.root, shard, AT_REMOVEDIR);
        rmdir(dir);
    }
    kgen__place_close(&at);
    return reason;
}

/* Others may remove entries of it, or lock this user out of a part. */
static int is_open_to_others(const char *dir) {
    struct stat st;
    int fd = kgen__folder_open(dir, 0);
    int open_to_others = fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH));
    if (fd >= 0) close(fd);
    return open_to_others;
}

kgen_status kgen__folder_examine(const char *dir, kgen_cache_health *out, kgen_error *err) {
    int reason = kgen__folder_test(dir);
    if (reason) kgen__fail_write(dir, reason, &out->cannot_save);
    out->open_to_others = is_open_to_others(dir);
    kgen_status status = kgen__heads_count(dir, out, err);
    return reason ? KGEN_OK : status; /* one reason is enough */
}
