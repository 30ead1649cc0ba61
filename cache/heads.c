/* Heads of entries: what a list shows, read without the code. Nothing here is digested,
 * so a head is for people to read and never for a device. */
#define _GNU_SOURCE
#include "layer.h"
#include "walk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct reading {
    int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user);
    void *user;
    kgen_cache_health *health; /* may be NULL */
} reading;

static kgen__verdict read_head(kgen_entry *out, size_t *file_bytes, const kgen__place *at,
                               const kgen_key *key) {
    uint8_t bytes[KGEN__HEAD_MAX];
    struct stat st;
    kgen__verdict verdict = KGEN__BAD;
    size_t code_at;
    int fd = openat(at->shard, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return KGEN__BAD;
    if (fstat(fd, &st) == 0 && kgen__is_trusted(&st)) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        *file_bytes = (size_t)st.st_size;
        verdict =
            kgen__entry_head(out, &code_at, bytes, got > 0 ? (size_t)got : 0, *file_bytes, key);
    }
    close(fd);
    return verdict;
}

static kgen_status on_file(const kgen__place *at, const kgen_key *key, int *stop, void *user,
                           kgen_error *err) {
    reading *r = user;
    kgen_entry head;
    size_t file_bytes = 0;
    (void)err;
    kgen__verdict verdict = read_head(&head, &file_bytes, at, key);
    if (r->health) {
        r->health->entries += verdict == KGEN__GOOD;
        r->health->refused += verdict == KGEN__BAD;
        r->health->bytes += file_bytes;
    }
    if (verdict == KGEN__GOOD && r->visit) *stop = r->visit(&head, file_bytes, r->user) != 0;
    return KGEN_OK;
}

kgen_status kgen__heads_each(const char *dir, const char *prefix,
                             int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                             void *user, kgen_error *err) {
    reading r = {visit, user, NULL};
    kgen__walk walk = {.dir = dir, .prefix = prefix, .file = on_file, .user = &r};
    return kgen__walk_run(&walk, err);
}

kgen_status kgen__heads_count(const char *dir, kgen_cache_health *health, kgen_error *err) {
    reading r = {.health = health};
    kgen__walk walk = {.dir = dir, .prefix = "", .file = on_file, .user = &r};
    kgen_status status = kgen__walk_run(&walk, err);
    health->refused += walk.refused;
    return status;
}
