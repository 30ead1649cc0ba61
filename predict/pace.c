/* How long a turn takes where waves of a SIMD wait for its units, for each other's bytes and for
 * their own: each issues in order, memory answers the later the more is under way (measured:
 * docs/predict.md), and all SIMDs of all compute units do the same, or the one is alone. */
#include <math.h>
#include <stdlib.h>

#include "device_row.h"
#include "listing.h"

enum {
    RAMP = 4, /* turns that are not counted */
    TURNS = 12,
    COUNTED = 64, /* loads and stores that the counter of a wave holds */
    PATH = 64     /* bytes that the way to a compute unit carries in a cycle */
};

/* issue: cycles between two instructions of a wave. alone: matrix instructions leave the vector
 * unit to others. */
typedef struct issue_row {
    int issue, alone, counts_stores;
} issue_row;
#define ISSUE_CDNA1 {4, 1, 1}
#define ISSUE_CDNA2 {4, 1, 1}
#define ISSUE_CDNA3 {4, 1, 1}
#define ISSUE_CDNA4 {4, 1, 1}
#define ISSUE_RDNA2 {1, 0, 0}
#define ISSUE_RDNA3 {1, 0, 0}
#define ISSUE_RDNA4 {1, 0, 0}
#define ISSUE_SM90 {1, 1, 0}
static const issue_row issue_rows[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = ISSUE_##NAME,
#include <kgen/targets.def>
};

typedef struct wave {
    double now;
    double done[COUNTED], bytes[COUNTED]; /* of what is under way, oldest first */
    int first, count;
    int at, turn;
    double ramp, end; /* when RAMP, and all turns, were over */
} wave;

typedef struct simd {
    const kgen__path *path;
    const kgen__device_row *device;
    const kgen_target *target;
    issue_row row;
    double mhz;
    double alike;                  /* SIMDs of the device that do the same */
    double vector, matrix, memory; /* when they are free; memory: this SIMD's share of it */
    double area;                   /* bytes x cycles under way */
    int waves;
    wave wave[KGEN__PACES];
} simd;

static double under_way(const simd *s, double now) {
    double sum = 0;
    for (int n = 0; n < s->waves; n++) {
        const wave *w = &s->wave[n];
        for (int i = 0; i < w->count; i++) {
            int at = (w->first + i) % COUNTED;
            if (w->done[at] > now) sum += w->bytes[at];
        }
    }
    return sum;
}

static void wait_until(wave *w, int allowed) {
    for (; w->count > allowed; w->count--, w->first = (w->first + 1) % COUNTED)
        w->now = fmax(w->now, w->done[w->first]);
}

/* Until an answer comes, with so many bytes of the SIMD under way; those of the others too. */
static double latency_of(const simd *s, double bytes) {
    double all = bytes * s->alike, of_unit = all / s->target->typical_cus;
    double us = bytes > 0 ? all / kgen__device_bandwidth(s->device, of_unit) : s->device->read_us;
    return us * s->mhz;
}

/* bytes: of the wave; of stores 0, which are only counted. */
static void ask(simd *s, wave *w, double bytes) {
    wait_until(w, COUNTED - 1);
    double share = fmin(s->device->achievable / s->mhz / s->alike, PATH);
    s->memory = fmax(s->memory, w->now) + bytes / share;
    double done = fmax(s->memory, w->now + latency_of(s, under_way(s, w->now) + bytes));
    int last = (w->first + w->count - 1) % COUNTED;
    if (w->count) done = fmax(done, w->done[last]);
    int at = (w->first + w->count++) % COUNTED;
    w->done[at] = done, w->bytes[at] = bytes;
    s->area += bytes * (done - w->now);
}

/* 0: the wave waits for a unit, which others may have before it. */
static int occupy(simd *s, wave *w, const kgen__instruction *i) {
    int matrix = i->op == KGEN__OP_MATRIX && s->row.alone;
    double free = fmax(s->vector, matrix ? s->matrix : 0);
    if (free > w->now) {
        w->now = free;
        return 0;
    }
    double cycles = matrix ? s->row.issue : i->cycles;
    if (matrix) s->matrix = w->now + i->cycles;
    s->vector = w->now + cycles;
    w->now += fmax(cycles, s->row.issue);
    return 1;
}

static int carry_out(simd *s, wave *w, const kgen__instruction *i) {
    if (i->op == KGEN__OP_VALU || i->op == KGEN__OP_MATRIX) return occupy(s, w, i);
    if (i->op == KGEN__OP_LOAD) ask(s, w, (double)i->bytes * s->target->wave_size);
    if (i->op == KGEN__OP_STORE && s->row.counts_stores) ask(s, w, 0);
    if (i->allowed >= 0) wait_until(w, i->allowed);
    w->now += s->row.issue;
    return 1;
}

/* The one that is furthest behind; of those that are so alike, with fewer turns. */
static wave *next_wave(simd *s) {
    wave *next = &s->wave[0];
    for (int n = 1; n < s->waves; n++) {
        wave *w = &s->wave[n];
        if (w->now < next->now || (w->now <= next->now && w->turn < next->turn)) next = w;
    }
    return next;
}

/* Until each has had its turns; who has goes on, so that none is ever alone. */
static void run(simd *s, double *turn_us, double *in_flight) {
    double sum = 0, end = 0, issue = s->path->count * s->row.issue;
    for (int n = 0; n < s->waves; n++) s->wave[n].now = n * issue / s->waves;
    for (int left = s->waves; left > 0;) {
        wave *w = next_wave(s);
        if (!carry_out(s, w, &s->path->steps[w->at]) || ++w->at < s->path->count) continue;
        w->at = 0;
        if (++w->turn == RAMP) w->ramp = w->now;
        if (w->turn == TURNS) w->end = w->now, left--;
    }
    for (int n = 0; n < s->waves; n++) {
        sum += (s->wave[n].end - s->wave[n].ramp) / (TURNS - RAMP);
        end = fmax(end, s->wave[n].now);
    }
    *turn_us = sum / s->waves / s->mhz;
    *in_flight = s->area / end;
}

kgen_status kgen__predict_pace(kgen__mix *out, const kgen__path *path, const kgen_target *target,
                               kgen_error *err) {
    const kgen__device_row *device;
    if (kgen__device_find(&device, target, NULL) != KGEN_OK || !path->count) return KGEN_OK;
    simd *s = malloc(sizeof *s);
    if (!s) return kgen_fail(err, KGEN_E_NOMEM, "prediction: no memory for waves");
    for (int waves = 0; waves <= KGEN__PACES; waves++) {
        double in_flight;
        int alone = waves == 0;
        *s = (simd){.path = path,
                    .device = device,
                    .target = target,
                    .row = issue_rows[target->isa],
                    .mhz = device->loaded_mhz,
                    .alike = alone ? 1 : (double)target->typical_cus * target->simds,
                    .waves = alone ? 1 : waves};
        run(s, alone ? &out->alone_us : &out->turn_us[waves - 1],
            alone ? &in_flight : &out->turn_flight[waves - 1]);
    }
    free(s);
    out->turn_bytes = 0;
    for (int32_t i = 0; i < path->count; i++)
        if (path->steps[i].op == KGEN__OP_LOAD)
            out->turn_bytes += path->steps[i].bytes * target->wave_size;
    return KGEN_OK;
}
