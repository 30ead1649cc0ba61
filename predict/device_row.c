/* The devices that are predicted, and their bandwidth by bytes under way. Where each number
 * comes from: docs/predict.md. */
#include "device_row.h"

#include <stdio.h>
#include <string.h>

#define TIMES(...) __VA_ARGS__
#define NO_TIMES 0, 0, 0, 0, 0, 0, 0, ""
static const kgen__device_row devices[] = {
#define KGEN_TARGET(name, vendor, isa, fp8, by_default, flags, numbers, times) {name, times},
#include <kgen/targets.def>
};

enum { DEVICES = sizeof devices / sizeof devices[0] };

/* Share of the achievable bandwidth by share of the bytes in flight: measured
 * on gfx942 with one 8-byte load a thread; other devices take its shape. */
static const double curve[][2] = {{0, 0},       {0.03125, 0.067}, {0.125, 0.250}, {0.25, 0.467},
                                  {0.5, 0.738}, {0.75, 0.895},    {1, 1}};

enum { POINTS = sizeof curve / sizeof curve[0] };

double kgen__device_bandwidth(const kgen__device_row *d, double in_flight) {
    if (in_flight <= 0) return d->achievable; /* a kernel that only stores */
    double x = in_flight / d->in_flight;
    for (int i = 1; i < POINTS; i++) {
        if (x > curve[i][0]) continue;
        double part = (x - curve[i - 1][0]) / (curve[i][0] - curve[i - 1][0]);
        return d->achievable * (curve[i - 1][1] + part * (curve[i][1] - curve[i - 1][1]));
    }
    return d->achievable;
}

kgen_status kgen__device_find(const kgen__device_row **out, const kgen_target *target,
                              kgen_error *err) {
    char known[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < DEVICES; i++) {
        if (devices[i].peak == 0) continue;
        *out = &devices[i];
        if (strcmp(devices[i].target, target->name) == 0) return KGEN_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     devices[i].target);
    }
    return kgen_fail(err, KGEN_E_UNSUPPORTED, "arch=%s: no prediction; there is one of %s",
                     target->name, known);
}
