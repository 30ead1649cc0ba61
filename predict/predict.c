/* Time of a launch: the largest of what memory, VALU and matrix units and waves that wait for
 * all of these take, and what every launch costs. Where each number comes from: docs/predict.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device_row.h"
#include "predict_family.h"

enum { KIB = 1024 };

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

/* Of a SIMD that has so many waves on average; values[n]: with n + 1. */
static double of_waves(const double *values, double waves) {
    int below = (int)fmin(waves, KGEN__PACES);
    double low = below > 0 ? values[below - 1] : 0;
    if (below == KGEN__PACES) return low;
    return low + (waves - below) * (values[below] - low);
}

/* Turns of a SIMD in a microsecond. */
static double turns_of(const kgen__mix *m, double waves) {
    double turns[KGEN__PACES];
    /* Few SIMDs with a wave each have more of the memory than all would. */
    if (waves < 1) return waves / (m->alone_us + waves * (m->turn_us[0] - m->alone_us));
    for (int n = 0; n < KGEN__PACES; n++) turns[n] = (n + 1) / m->turn_us[n];
    return of_waves(turns, waves);
}

/* The way that most turns go loads less than all of the loop. */
static double pace_us(const kgen__mix *m, double turns, double simds, double waves) {
    if (!(m->turn_us[0] > 0)) return 0;
    if (m->turn_bytes) turns *= (double)m->load_bytes / m->turn_bytes;
    return turns / simds / turns_of(m, waves);
}

/* Adds the time of `groups` workgroups that run at once. */
static void add_round(kgen__prediction *out, const kgen__work *w, const kgen__device_row *d,
                      const kgen_target *target, double groups) {
    double part = groups / w->groups, simds = target->typical_cus * target->simds;
    double busy = fmin(groups * w->waves, simds), cycles = part * w->turns / busy / d->loaded_mhz;
    double in_flight = in_flight_of(w, &out->mix, target, groups);
    out->memory_us += part * w->bytes / kgen__device_bandwidth(d, in_flight);
    out->valu_us += cycles * out->mix.valu_cycles;
    out->matrix_us += cycles * out->mix.matrix_cycles;
    out->turns_us += pace_us(&out->mix, part * w->turns, simds, groups * w->waves / simds);
}

static void add_rounds(kgen__prediction *out, const kgen__work *w, const kgen__device_row *d,
                       const kgen_target *target) {
    double full = floor(w->groups / w->resident), rest = w->groups - full * w->resident;
    if (full > 0) add_round(out, w, d, target, w->resident);
    out->memory_us *= full;
    out->valu_us *= full;
    out->matrix_us *= full;
    out->turns_us *= full;
    if (rest > 0) add_round(out, w, d, target, rest);
}

static double longest(const kgen__prediction *p) {
    return fmax(fmax(p->memory_us, p->turns_us), fmax(p->valu_us, p->matrix_us));
}

static const char *bound_of(const kgen__prediction *p, const kgen__device_row *d) {
    double most = fmax(p->memory_us, fmax(p->valu_us, p->matrix_us));
    if (p->fixed_us > longest(p)) return "latency";
    if (p->turns_us > 1.1 * most) return "waits";
    if (most == p->valu_us) return "valu";
    if (most == p->matrix_us) return "matrix";
    return p->bandwidth < 0.9 * d->achievable ? "latency" : "memory";
}

static void say(kgen__prediction *p, const kgen__device_row *d, const kgen__predict_family *f,
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

kgen_status kgen__predict_estimate(kgen__prediction *out, const kgen__mix *mix,
                                   const kgen_resources *resources, const kgen_spec *spec,
                                   const kgen_target *target, const kgen_problem *problem,
                                   kgen_error *err) {
    const kgen__device_row *d = NULL;
    const kgen__predict_family *f = NULL;
    kgen_spec resolved;
    kgen__work w = {0};
    KGEN_TRY(kgen__device_find(&d, target, err));
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
    out->mean_in_flight =
        target->simds * of_waves(mix->turn_flight, fmin(w.groups, w.resident) * w.waves /
                                                       target->typical_cus / target->simds);
    out->bandwidth = kgen__device_bandwidth(d, out->in_flight_per_cu);
    out->achievable = d->achievable;
    out->peak = d->peak;
    out->fixed_us = d->launch_us + f->reads * d->read_us + f->cycles / d->top_mhz;
    if (w.merged) out->fixed_us += f->merge / d->top_mhz;
    add_rounds(out, &w, d, target);
    out->us = longest(out) + out->fixed_us;
    out->bound = bound_of(out, d);
    say(out, d, f, kgen_family_name(spec->family), target, w.merged);
    return KGEN_OK;
}

kgen_status kgen__predict(kgen__prediction *out, const kgen_entry *entry, const kgen_spec *spec,
                          const kgen_target *target, const kgen_problem *problem, kgen_error *err) {
    const kgen__device_row *d;
    kgen__mix mix;
    KGEN_TRY(kgen__device_find(&d, target, err));
    KGEN_TRY(kgen__predict_mix(&mix, entry, target, err));
    return kgen__predict_estimate(out, &mix, &entry->resources, spec, target, problem, err);
}
