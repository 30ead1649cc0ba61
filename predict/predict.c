/* Time of a launch: the largest of what memory, VALU and matrix units take, and
 * what every launch costs. Where each number comes from: docs/predict.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "predict.h"

enum { KIB = 1024 };

/* One device of each architecture, that of target->typical_cus. */
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

static const device_row devices[] = {
    {"gfx90a", 1.64e6, 1.31e6, 15 * KIB, 0.42, 2.1, 1400, 1700, "launch measured, rest scaled"},
    {"gfx942", 5.3e6, 4.20e6, 16 * KIB, 0.42, 2.2, 1250, 2100, "measured, launch assumed"},
    {"gfx950", 8.0e6, 6.20e6, 28 * KIB, 0.42, 2.2, 1600, 2400,
     "bandwidth measured, in flight scaled, clock and launch assumed"},
    {"gfx1100", 0.96e6, 0.732e6, 7 * KIB, 0.35, 2.8, 2300, 2500,
     "launch measured, bandwidth AMD's, rest assumed"},
    {"gfx1201", 0.64e6, 0.612e6, 8 * KIB, 0.35, 2.15, 2400, 2970,
     "bandwidth and launch measured, rest assumed"},
};

/* What happens before the first data is there and after the last. */
typedef struct family_row {
    int reads;     /* that wait for each other: length, table, data ... */
    double cycles; /* of arithmetic and LDS, at the top clock */
    double merge;  /* cycles, where several workgroups share an item */
} family_row;

static const family_row families[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = {3, 5200, 4700},  [KGEN_FAMILY_GDN] = {2, 3000, 0},
    [KGEN_FAMILY_SCATTER] = {3, 1000, 0},  [KGEN_FAMILY_KV_WRITE] = {2, 500, 0},
    [KGEN_FAMILY_KV_GATHER] = {3, 500, 0},
};

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

typedef struct work {
    double turns;    /* of waves, in all */
    double groups;   /* workgroups; a part of one is one that has less to do */
    double resident; /* workgroups at once on the device */
    double waves;    /* of a workgroup */
    double bytes;
    int merged; /* items are cut between workgroups */
} work;

/* How often a byte is loaded: waves that share values load the keys each, and
 * every block of query rows loads both. */
static double attn_loads(const kgen_attn_spec *s) {
    double passes = ceil(s->group * s->q_tokens / (16.0 * s->row_tiles));
    return passes * (s->head_dim * s->v_split + s->v_dim) / (s->head_dim + s->v_dim);
}

/* As the kernel cuts it: a workgroup gets two turns of each of its waves at
 * least, and there are no more than are resident. */
static void cut_attn(work *w, const kgen_attn_spec *s, const kgen_problem *p) {
    double least = 2 * w->waves * s->v_split, items = (double)p->batch * p->heads;
    w->groups = fmax(1, fmin(w->turns / least, w->resident));
    w->merged = w->turns / items > least;
}

static double gdn_groups(const kgen_gdn_spec *s, const kgen_target *target) {
    if (s->fuse != KGEN_FUSE_C) return (double)s->v_heads * s->v_blocks;
    double channels = 2.0 * s->k_heads * s->k_dim + (double)s->v_heads * s->v_dim;
    return ceil(channels / (4.0 * s->waves * target->wave_size));
}

/* A lane moves `turns` pieces of 16 bytes of the cache. */
static double kv_groups(double rows, double dims, int32_t kv, int32_t turns, double lanes) {
    return fmax(1, rows * dims * kgen_dtype_size((kgen_dtype)kv) / (16 * turns * lanes));
}

static void count_groups(work *w, const kgen_spec *spec, const kgen_target *target,
                         const kgen_problem *p) {
    const kgen_kv_write_spec *k = &spec->kv_write;
    const kgen_kv_gather_spec *g = &spec->kv_gather;
    double lanes = w->waves * target->wave_size, rows = (double)p->batch * p->heads;
    switch (spec->family) {
    case KGEN_FAMILY_ATTN:
        cut_attn(w, &spec->attn, p);
        return;
    case KGEN_FAMILY_GDN:
        w->groups = p->batch * gdn_groups(&spec->gdn, target);
        return;
    case KGEN_FAMILY_KV_WRITE:
        w->groups = kv_groups(rows, k->head_dim + k->v_dim, k->kv, k->turns, lanes);
        return;
    case KGEN_FAMILY_KV_GATHER:
        w->groups = kv_groups(rows, g->head_dim + g->v_dim, g->kv, g->turns, lanes);
        return;
    default:
        w->groups = fmax(p->batch, w->turns / w->waves);
    }
}

static kgen_status measure(work *w, const kgen__mix *mix, const kgen_resources *r,
                           const kgen_spec *spec, const kgen_target *target, const kgen_problem *p,
                           kgen_error *err) {
    double read, written;
    KGEN_TRY(kgen__predict_bytes(&read, &written, spec, p, err));
    if (r->waves_per_simd < 1 || r->workgroup_size < 1)
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "waves_per_simd=%d, workgroup_size=%d: both must be known",
                         r->waves_per_simd, r->workgroup_size);
    w->bytes = read + written;
    /* Queries and results count as if they went through the loop: they are few,
       and what has more of them must not look better spread. */
    double loaded = spec->family == KGEN_FAMILY_ATTN ? w->bytes * attn_loads(&spec->attn) : read;
    w->waves = ceil((double)r->workgroup_size / target->wave_size);
    w->turns = mix->load_bytes > 0 ? loaded / mix->load_bytes : 0;
    double fit = floor(r->waves_per_simd * target->simds / w->waves);
    if (spec->family == KGEN_FAMILY_ATTN && (fit < 1 || fit > spec->attn.occupancy))
        fit = spec->attn.occupancy;
    w->resident = fmax(fit, 1) * target->typical_cus;
    count_groups(w, spec, target, p);
    return KGEN_OK;
}

/* --- time ------------------------------------------------------------------ */

static double in_flight_of(const work *w, const kgen__mix *mix, const kgen_target *target,
                           double groups) {
    return groups * w->waves * mix->in_flight_bytes / target->typical_cus;
}

/* Adds the time of `groups` workgroups that run at once. */
static void add_round(kgen__prediction *out, const work *w, const device_row *d,
                      const kgen_target *target, double groups) {
    double part = groups / w->groups, simds = target->typical_cus * target->simds;
    double busy = fmin(groups * w->waves, simds), cycles = part * w->turns / busy / d->loaded_mhz;
    double in_flight = in_flight_of(w, &out->mix, target, groups);
    out->memory_us += part * w->bytes / bandwidth_of(d, in_flight);
    out->valu_us += cycles * out->mix.valu_cycles;
    out->matrix_us += cycles * out->mix.matrix_cycles;
}

static void add_rounds(kgen__prediction *out, const work *w, const device_row *d,
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

static void say(kgen__prediction *p, const device_row *d, const family_row *f, const char *family,
                const kgen_target *target, int merged) {
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
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        if (strcmp(devices[i].target, target->name) != 0) continue;
        *out = &devices[i];
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_UNSUPPORTED,
                     "arch=%s: no prediction; there is one of gfx90a, "
                     "gfx942, gfx950, gfx1100, gfx1201",
                     target->name);
}

kgen_status kgen__predict_estimate(kgen__prediction *out, const kgen__mix *mix,
                                   const kgen_resources *resources, const kgen_spec *spec,
                                   const kgen_target *target, const kgen_problem *problem,
                                   kgen_error *err) {
    const device_row *d = NULL;
    const family_row *f = &families[spec->family];
    kgen_spec resolved;
    work w = {0};
    KGEN_TRY(find_device(&d, target, err));
    KGEN_TRY(kgen_spec_resolve(&resolved, spec, target, err));
    KGEN_TRY(measure(&w, mix, resources, &resolved, target, problem, err));
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
