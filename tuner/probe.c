/* Which device it is, and what its times depend on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "watch.h"

static const double OPEN_S = 120; /* to open a device, at most */

/* Where the kernel says which driver is loaded. */
static const char *const driver_files[] = {
    [KGEN_VENDOR_AMD] = "/sys/module/amdgpu/version",
    [KGEN_VENDOR_NVIDIA] = "/sys/module/nvidia/version",
    [KGEN_VENDOR_CPU] = "/proc/sys/kernel/osrelease",
};

static void read_driver(char *out, size_t size, const kgen_target *target) {
    FILE *file = fopen(driver_files[target->vendor], "r");
    snprintf(out, size, "unknown");
    if (!file) return;
    if (fgets(out, (int)size, file)) out[strcspn(out, "\n")] = 0;
    fclose(file);
}

/* "... (sm_90, 132 units)" */
static int units_of(const char *label) {
    const char *open = strrchr(label, '('), *comma = open ? strchr(open, ',') : NULL;
    return comma && strstr(comma, " units)") ? atoi(comma + 1) : 0;
}

static json_t *look(const char *device, kgen_error *err) {
    const kgen_open_options options = {
        .size = sizeof options, .device = device, .cache_dir = "", .mode = KGEN_MODE_OFFLINE};
    kgen_context *ctx;
    if (kgen_open(&ctx, &options, err) != KGEN_OK)
        return json_pack("{s:i, s:s}", "status", (int)err->status, "text", err->text);
    char driver[64];
    const kgen_target *target = kgen_context_target(ctx);
    read_driver(driver, sizeof driver, target);
    int units = units_of(kgen_context_device(ctx));
    json_t *found = json_pack("{s:s, s:s, s:s, s:i}", "target", target->name, "device",
                              kgen_context_device_name(ctx), "driver", driver, "units",
                              units ? units : target->typical_cus);
    kgen_close(ctx);
    return found;
}

static int work(void *user, int fd) {
    kgen_error err;
    json_t *found = look(*(const char **)user, &err);
    char *text = found ? json_dumps(found, JSON_COMPACT) : NULL;
    int said = text && kgen__watch_say(fd, text);
    free(text);
    json_decref(found);
    return !said;
}

typedef struct answer {
    const char *device; /* first: what `work` sees */
    json_t *found;
} answer;

static kgen_status heard(void *user, double *seconds, char *line, kgen_error *err) {
    answer *a = user;
    *seconds = OPEN_S;
    json_decref(a->found);
    a->found = json_loads(line, 0, NULL);
    return a->found ? KGEN_OK : kgen_fail(err, KGEN_E_INTERNAL, "device: no answer");
}

static kgen_status read_answer(kgen__tuner_device *out, const json_t *found, kgen_error *err) {
    const char *target, *device, *driver;
    int status;
    if (json_unpack((json_t *)found, "{s:i, s:s}", "status", &status, "text", &target) == 0)
        return kgen_fail(err, (kgen_status)status, "%s", target);
    if (json_unpack((json_t *)found, "{s:s, s:s, s:s, s:i}", "target", &target, "device", &device,
                    "driver", &driver, "units", &out->environment.compute_units))
        return kgen_fail(err, KGEN_E_INTERNAL, "device: no answer");
    snprintf(out->environment.device, sizeof out->environment.device, "%s", device);
    snprintf(out->environment.driver, sizeof out->environment.driver, "%s", driver);
    return kgen_target_find(&out->target, target, err);
}

kgen_status kgen__tuner_probe(kgen__tuner_device *out, const char *device, kgen_error *err) {
    answer a = {device, NULL};
    const kgen__watch watch = {&a, work, heard, OPEN_S};
    kgen__watch_end end;
    kgen_toolchain toolchain;
    char how[96];
    memset(out, 0, sizeof *out);
    kgen_status status = kgen__watch_run(&end, how, sizeof how, &watch, err);
    if (status == KGEN_OK && !a.found)
        status =
            kgen_fail(err, KGEN_E_DEVICE, "device=%.60s: opening it ended with %s",
                      device ? device : "(the first)", end == KGEN__WATCH_HUNG ? "no answer" : how);
    if (status == KGEN_OK) status = read_answer(out, a.found, err);
    json_decref(a.found);
    if (status == KGEN_OK) status = kgen_toolchain_find(&toolchain, out->target, err);
    KGEN_TRY(status);
    snprintf(out->environment.toolchain, sizeof out->environment.toolchain, "%s", toolchain.id);
    kgen__date_now(out->environment.date);
    return KGEN_OK;
}
