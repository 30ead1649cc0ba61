/* Readers of foreign bytes under random input.
 *
 *   fuzz SECONDS FOLDER [TARGET]   replays FOLDER/<target>/, then mutations of it for so long each
 *
 * Built with KGEN_FUZZ it is a libFuzzer program instead, whose target is in KGEN_FUZZ_TARGET:
 * tests/fuzz/run.sh. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check/check.h"

static const struct {
    const char *name;
    fuzz_target *run;
} targets[] = {{"spec", fuzz_spec},     {"config", fuzz_config},   {"row", fuzz_row},
               {"case", fuzz_case},     {"journal", fuzz_journal}, {"entry", fuzz_entry},
               {"bundle", fuzz_bundle}, {"capture", fuzz_capture}, {"object", fuzz_object},
               {"remote", fuzz_remote}};

enum { TARGETS = sizeof targets / sizeof targets[0] };

void fuzz_wrong(const char *what, const char *text) {
    fprintf(stderr, "fuzz: %s: %s\n", what, text);
    abort();
}

const char *fuzz_file(const void *bytes, size_t size) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || fchmod(fd, 0600) != 0 || ftruncate(fd, 0) != 0 ||
        pwrite(fd, bytes, size, 0) != (ssize_t)size)
        fuzz_wrong("no file", path);
    return path;
}

#ifdef KGEN_FUZZ

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fuzz_target *run;
    const char *name = getenv("KGEN_FUZZ_TARGET");
    for (size_t i = 0; !run && i < TARGETS; i++)
        if (name && strcmp(targets[i].name, name) == 0) run = targets[i].run;
    if (!run) fuzz_wrong("KGEN_FUZZ_TARGET names no target", name ? name : "");
    run(data, size);
    return 0;
}

#else

enum { INPUT_MAX = 1 << 18, FILES_MAX = 256 };

typedef struct input {
    char *name;
    uint8_t *bytes;
    size_t size;
} input;

static input files[FILES_MAX];
static size_t file_count;
static kgen__rng rng;

static size_t below(size_t bound) { return (size_t)(kgen__rng_next(&rng) % bound); }

static void read_file(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    input *in = &files[file_count++];
    if (!file) fuzz_wrong("cannot be read", path);
    in->bytes = malloc(INPUT_MAX);
    in->size = fread(in->bytes, 1, INPUT_MAX, file);
    in->name = strdup(name);
    fclose(file);
}

static void read_folder(const char *folder) {
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    if (count < 3 || count > FILES_MAX) fuzz_wrong("no corpus, or a large one", folder);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') read_file(folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

static void drop_files(void) {
    while (file_count > 0) {
        input *in = &files[--file_count];
        free(in->bytes);
        free(in->name);
    }
}

static void change_byte(uint8_t *bytes, size_t *size) {
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '-', '"', ',', '{', '9', '\n', '='};
    bytes[below(*size)] = below(2) ? odd[below(sizeof odd)] : (uint8_t)kgen__rng_next(&rng);
}

static void cut(uint8_t *bytes, size_t *size) {
    size_t at = below(*size), length = below(*size - at);
    memmove(bytes + at, bytes + at + length, *size - at - length);
    *size -= length;
}

static void repeat(uint8_t *bytes, size_t *size) {
    size_t at = below(*size), length = below(*size - at);
    if (length > INPUT_MAX - *size) length = INPUT_MAX - *size;
    memmove(bytes + at + length, bytes + at, *size - at);
    *size += length;
}

/* A piece of another input. */
static void splice(uint8_t *bytes, size_t *size) {
    const input *other = &files[below(file_count)];
    if (!other->size) return;
    size_t from = below(other->size), to = below(*size), length = below(other->size - from + 1);
    if (length > *size - to) length = *size - to;
    memcpy(bytes + to, other->bytes + from, length);
}

static void mutate(uint8_t *bytes, size_t *size) {
    static void (*const ways[])(uint8_t *, size_t *) = {change_byte, change_byte, change_byte,
                                                        cut,         repeat,      splice};
    for (size_t i = below(6) + 1; i > 0 && *size > 0; i--)
        ways[below(sizeof ways / sizeof ways[0])](bytes, size);
}

/* Of exact size, so that a sanitizer sees one byte too many. */
static void give(fuzz_target *run, const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    run(copy, size);
    free(copy);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_target(size_t index, const char *folder, double seconds) {
    char path[4096];
    uint8_t *bytes = malloc(INPUT_MAX);
    unsigned long runs = 0;
    snprintf(path, sizeof path, "%s/%s", folder, targets[index].name);
    read_folder(path);
    for (size_t i = 0; i < file_count; i++) give(targets[index].run, files[i].bytes, files[i].size);
    for (double end = now() + seconds; now() < end; runs++) {
        const input *in = &files[below(file_count)];
        size_t size = in->size;
        memcpy(bytes, in->bytes, size);
        mutate(bytes, &size);
        give(targets[index].run, bytes, size);
    }
    printf("%-8s %4zu files, %lu mutations\n", targets[index].name, file_count, runs);
    drop_files();
    free(bytes);
}

int main(int argc, char **argv) {
    const char *given = getenv("KGEN_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : kgen__seed_fresh();
    int ran = 0;
    if (argc < 3) fuzz_wrong("usage", "fuzz SECONDS FOLDER [TARGET]");
    printf("KGEN_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    kgen__rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < TARGETS; i++) {
        if (argc > 3 && strcmp(argv[3], targets[i].name) != 0) continue;
        run_target(i, argv[2], atof(argv[1]));
        ran++;
    }
    return ran ? 0 : 1;
}

#endif
