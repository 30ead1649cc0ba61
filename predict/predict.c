/* Time of a launch: the largest of what memory, VALU and matrix units take, and
 * what every launch costs. Where each number comes from: docs/predict.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "predict_family.h"

enum { KIB = 1024 };

/* One device of an architecture, that of target->typical_cus; peak 0: no model. */
typedef struct device_row {
    const char *target;
    double peak, achievable; /* bytes per us: of the memory, of a read-mostly stream */
    double in_flight;        /* bytes a CU has to have under way to reach it */
    double read_us;          /* one read of memory, nothing else going on */
    double launch_us;        /* from one kernel of a graph to the next */
    double loaded_mhz;       /* while memory is busy: power is short then */
    double top_mhz;
    const char *basis; /* which of these were measured */
} device_row;

#define TIMES(...) __VA_ARGS__
#define NO_TIMES 0, 0, 0, 0, 0, 0, 0, ""
static const device_row devices[] = {
#define KGEN_TARGET(name, vendor, isa, fp8, by_default, flags, numbers, times) {name, times},
#include <kgen/targets.def>
};

enum { DEVICES = sizeof devices / sizeof devices[0] };

/* Share of the achievable bandwidth by share of the bytes in flight: measured
 * on gfx942 with one 8-byte load a thread; other devices take its shape. */
static const double curve[][2] = {{0, 0},       {0.03125, 0.067}, {0.125, 0.250}, {0.25, 0.467},
                                  {0.5, 0.738}, {0.75, 0.895},    {1, 1}};

enum { POINTS = sizeof curve / sizeof curve[0] };

static double bandwidth_of(const device_row *d, double in_flight) {
    if (in_flight <= 0) return d->achievable; /* a kernel that only stores */
    double x = in_flight / d->in_flight;
    for (int i = 1; i < POINTS; i++) {
        if (x > curve[i][0]) continue;
        double part = (x - curve[i - 1][0]) / (curve[i][0] - curve[i - 1][0]);
        return d->achievable * (curve[i - 1][1] + part * (curve[i][1] - curve[i - 1][1]));
    }
    return d->achievable;
}

/* --- how much work, in how many workgroups --------------------------------- */

static kgen_status measure(kgen__work *w, const kgen__mix *mix, const kgen_resources *r,
                           const kgen__predict_family *f, const kgen_spec *spec,
                           const kgen_target *target, const kgen_problem *p, kgen_error *err) {
    kgen__traffic t;
    KGEN_TRY(kgen__predict_bytes(&t.read, &t.written, spec, p, err));
    if (r->waves_per_simd < 1 || r->workgroup_size < 1)
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "waves_per_simd=%d, workgroup_size=%d: both must be known",
                         r->waves_per_simd, r->workgroup_size);
    w->bytes = t.read + t.written;
    double looped = f->looped ? f->looped(spec, p, &t) : t.read;
    w->waves = ceil((double)r->workgroup_size / target->wave_size);
    w->turns = mix->load_bytes > 0 ? looped / mix->load_bytes : 0;
    double fit = floor(r->waves_per_simd * target->simds / w->waves);
    if (f->resident && (fit < 1 || fit > f->resident(spec))) fit = f->resident(spec);
    w->resident = fmax(fit, 1) * target->typical_cus;
    f->cut(w, spec, target, p);
    return KGEN_OK;
}

/* --- time ------------------------------------------------------------------ */

static double in_flight_of(const kgen__work *w, const kgen__mix *mix, const kgen_target *target,
                           double groups) {
    return groups * w->waves * mix->in_flight_bytes / target->typical_cus;
}

/* Adds the time of `groups` workgroups that run at once. */
static void add_round(kgen__prediction *out, const kgen__work *w, const device_row *d,
                      const kgen_target *target, double groups) {
    double part = groups / w->groups, simds = target->typical_cus * target->simds;
    double busy = fmin(groups * w->waves, simds), cycles = part * w->turns / busy / d->loaded_mhz;
    double in_flight = in_flight_of(w, &out->mix, target, groups);
    out->memory_us += part * w->bytes / bandwidth_of(d, in_flight);
    out->valu_us += cycles * out->mix.valu_cycles;
    out->matrix_us += cycles * out->mix.matrix_cycles;
}

static void add_rounds(kgen__prediction *out, const kgen__work *w, const device_row *d,
                       const kgen_target *target) {
    double full = floor(w->groups / w->resident), rest = w->groups - full * w->resident;
    if (full > 0) add_round(out, w, d, target, w->resident);
    out->memory_us *= full;
    out->valu_us *= full;
    out->matrix_us *= full;
    if (rest > 0) add_round(out, w, d, target, rest);
}

static const char *bound_of(const kgen__prediction *p, const device_row *d) {
    double most = fmax(p->memory_us, fmax(p->valu_us, p->matrix_us));
    if (p->fixed_us > most) return "latency";
    if (most == p->valu_us) return "valu";
    if (most == p->matrix_us) return "matrix";
    return p->bandwidth < 0.9 * d->achievable ? "latency" : "memory";
}

static void say(kgen__prediction *p, const device_row *d, const kgen__predict_family *f,
                const char *family, const kgen_target *target, int merged) {
    char merge[64] = "";
    if (merged) snprintf(merge, sizeof merge, ", merge %.1f us", f->merge / d->top_mhz);
    snprintf(
        p->assumptions, sizeof p->assumptions,
        "%s on %s with %d CUs: %.0f of %.0f GB/s from %.0f KiB in flight a CU on; %.2f GHz while "
        "memory is busy (%s). Fixed: launch %.1f us, %d dependent reads of %.2f us, begin and "
        "end %.1f us%s. Caches are cold, every branch of the loop is counted.",
        family, target->name, target->typical_cus, d->achievable / 1000, d->peak / 1000,
        d->in_flight / KIB, d->loaded_mhz / 1000, d->basis, d->launch_us, f->reads, d->read_us,
        f->cycles / d->top_mhz, merge);
}

static kgen_status find_device(const device_row **out, const kgen_target *target, kgen_error *err) {
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

kgen_status kgen__predict_estimate(kgen__prediction *out, const kgen__mix *mix,
                                   const kgen_resources *resources, const kgen_spec *spec,
                                   const kgen_target *target, const kgen_problem *problem,
                                   kgen_error *err) {
    const device_row *d = NULL;
    const kgen__predict_family *f = NULL;
    kgen_spec resolved;
    kgen__work w = {0};
    KGEN_TRY(find_device(&d, target, err));
    KGEN_TRY(kgen__predict_family_of(&f, spec->family, err));
    KGEN_TRY(kgen_spec_resolve(&resolved, spec, target, err));
    KGEN_TRY(measure(&w, mix, resources, f, &resolved, target, problem, err));
    memset(out, 0, sizeof *out);
    out->mix = *mix;
    out->bytes = w.bytes;
    out->waves_per_simd = resources->waves_per_simd;
    out->workgroups = (int32_t)fmin(ceil(w.groups), INT32_MAX);
    out->in_flight_per_cu = in_flight_of(&w, mix, target, fmin(w.groups, w.resident));
    out->in_flight_target = d->in_flight;
    out->bandwidth = bandwidth_of(d, out->in_flight_per_cu);
    out->achievable = d->achievable;
    out->peak = d->peak;
    out->fixed_us = d->launch_us + f->reads * d->read_us + f->cycles / d->top_mhz;
    if (w.merged) out->fixed_us += f->merge / d->top_mhz;
    add_rounds(out, &w, d, target);
    out->us = fmax(out->memory_us, fmax(out->valu_us, out->matrix_us)) + out->fixed_us;
    out->bound = bound_of(out, d);
    say(out, d, f, kgen_family_name(spec->family), target, w.merged);
    return KGEN_OK;
}

kgen_status kgen__predict(kgen__prediction *out, const kgen_entry *entry, const kgen_spec *spec,
                          const kgen_target *target, const kgen_problem *problem, kgen_error *err) {
    const device_row *d;
    kgen__mix mix;
    KGEN_TRY(find_device(&d, target, err));
    KGEN_TRY(kgen__predict_mix(&mix, entry, target, err));
    return kgen__predict_estimate(out, &mix, &entry->resources, spec, target, problem, err);
}
