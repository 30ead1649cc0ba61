/* How many compilers at once: what cores, memory and the control group allow. */
#include "unit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKER_SHIFT = 30 }; /* a compiler takes a few hundred MiB; 1 GiB is enough for all */

/* Available to the machine; 0: not known. */
static uint64_t machine_memory(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib << 10;
}

/* The first numbers of a file; "max" and what is missing are 0. */
static int read_numbers(const char *group, const char *name, unsigned long long out[2]) {
    char path[1200], line[128] = "";
    out[0] = out[1] = 0;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    char *got = fgets(line, sizeof line, f);
    fclose(f);
    if (!got || strncmp(line, "max", 3) == 0) return 0;
    return sscanf(line, "%llu %llu", &out[0], &out[1]);
}

static int at_least_one(uint64_t n, int most) {
    return n < 1 ? 1 : n < (uint64_t)most ? (int)n : most;
}

int kgen__group_workers(const char *group, int most) {
    unsigned long long limit[2], used[2], quota[2];
    if (read_numbers(group, "memory.max", limit) >= 1) {
        (void)read_numbers(group, "memory.current", used);
        uint64_t left = limit[0] > used[0] ? limit[0] - used[0] : 0;
        most = at_least_one(left >> WORKER_SHIFT, most);
    }
    if (read_numbers(group, "cpu.max", quota) == 2 && quota[1])
        most = at_least_one((quota[0] + quota[1] - 1) / quota[1], most);
    return most;
}

/* This process's group and those above it: each may have a limit. */
static int groups_workers(int most) {
    static const char root[] = "/sys/fs/cgroup";
    char line[1024] = "", path[sizeof root + sizeof line];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0) break;
    if (f) fclose(f);
    line[strcspn(line, "\n")] = 0;
    snprintf(path, sizeof path, "%s%s", root, strncmp(line, "0::/", 4) == 0 ? line + 3 : "");
    while (strlen(path) >= sizeof root - 1) {
        most = kgen__group_workers(path, most);
        *strrchr(path, '/') = 0;
    }
    return most;
}

int kgen__default_workers(void) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int most = cores < KGEN__CHILDREN_MAX ? cores : KGEN__CHILDREN_MAX;
    uint64_t memory = machine_memory();
    if (memory) most = at_least_one(memory >> WORKER_SHIFT, most);
    return groups_workers(most < 1 ? 1 : most);
}
