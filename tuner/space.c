/* Tries every combination of the values of the open keys, keeps those that
 * resolve and fit the device, and orders them by their distance from the
 * default. */
#include "space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kgen/params.h>
#include <kgen/tuning_rows.h>

enum { VALUES_MAX = 32, LANES_MAX = 1024 };

static const char *const prune_names[] = {
    [KGEN__PRUNE_RULE] = "not allowed",
    [KGEN__PRUNE_LANES] = "too many lanes",
    [KGEN__PRUNE_WAVES] = "too many waves",
    [KGEN__PRUNE_SAME] = "same source",
};

const char *kgen__prune_name(kgen__prune reason) { return prune_names[reason]; }

/* --- keys and their values ----------------------------------------------- */

typedef struct axis {
    const kgen_param *param;
    int32_t values[VALUES_MAX];
    int count;
} axis;

/* A key of words alone is a preset of the others (gdn's batch): the family's. */
int kgen__space_searches(const kgen_param *param) {
    return param->role == KGEN_ROLE_TUNE && (param->domain->step || param->domain->list_count);
}

static int keys_of(const kgen_param **keys, kgen_family_id family) {
    int count = 0;
    for (int i = 0; i < kgen_param_count(family) && count < KGEN__SPACE_KEYS; i++) {
        const kgen_param *param = kgen_param_at(family, i);
        if (kgen__space_searches(param)) keys[count++] = param;
    }
    return count;
}

static void add_value(axis *a, int32_t value) {
    if (value && a->count < VALUES_MAX) a->values[a->count++] = value;
}

/* Of a range, what stands for it: half as much, twice as much, and the steps
 * beside the default. */
static int stands_for_range(const kgen_domain *domain, int32_t value, int32_t chosen) {
    return (value & (value - 1)) == 0 || abs(value - chosen) <= domain->step;
}

static void fill_axis(axis *a, int32_t asked, int32_t chosen) {
    const kgen_domain *domain = a->param->domain;
    if (asked || !chosen) { /* the caller's, or nothing that this kernel reads */
        a->values[a->count++] = asked;
        return;
    }
    for (int32_t i = 0; i < domain->list_count; i++) add_value(a, domain->list[i]);
    for (int32_t v = domain->min; domain->step && v <= domain->max; v += domain->step)
        if (stands_for_range(domain, v, chosen)) add_value(a, v);
}

/* --- combinations -------------------------------------------------------- */

typedef struct maker {
    kgen__space *space;
    const kgen_spec *asked;
    const kgen_target *target;
    axis axes[KGEN__SPACE_KEYS];
    int capacity;
    kgen_error *err;
} maker;

static kgen_status append(maker *m, const kgen_spec *resolved) {
    kgen__space *space = m->space;
    if (space->count == m->capacity) {
        int capacity = m->capacity ? 2 * m->capacity : 64;
        kgen__candidate *list = realloc(space->list, (size_t)capacity * sizeof *list);
        if (!list) return kgen_fail(m->err, KGEN_E_NOMEM, "no memory for %d candidates", capacity);
        space->list = list;
        m->capacity = capacity;
    }
    kgen__candidate *c = &space->list[space->count];
    memset(c, 0, sizeof *c);
    c->spec = *resolved;
    KGEN_TRY(kgen_tuning_row_digest(c->kernel, resolved, m->target, m->err));
    for (int i = 0; i < space->count; i++) {
        if (strcmp(space->list[i].kernel, c->kernel) != 0) continue;
        space->pruned[KGEN__PRUNE_SAME] += i > 0; /* the family's own comes up again */
        return KGEN_OK;
    }
    space->count++;
    return KGEN_OK;
}

int kgen__space_allows(kgen_spec *resolved, kgen__prune *why, const kgen_spec *spec,
                       const kgen_target *target) {
    *why = KGEN__PRUNE_RULE;
    if (kgen_spec_resolve(resolved, spec, target, NULL) != KGEN_OK) return 0;
    int32_t lanes = kgen_spec_lanes(resolved, target);
    int32_t waves = lanes / target->wave_size * kgen_spec_occupancy(resolved);
    *why = lanes > LANES_MAX ? KGEN__PRUNE_LANES : KGEN__PRUNE_WAVES;
    return lanes <= LANES_MAX && waves <= target->max_waves * target->simds;
}

static kgen_status try_spec(maker *m, const kgen_spec *spec) {
    kgen_spec resolved;
    kgen__prune why;
    m->space->considered++;
    if (kgen__space_allows(&resolved, &why, spec, m->target)) return append(m, &resolved);
    m->space->pruned[why]++;
    return KGEN_OK;
}

static kgen_status try_all(maker *m, int key) {
    if (key == m->space->keys) return try_spec(m, m->asked);
    kgen_spec spec = *m->asked;
    const kgen_spec *outer = m->asked;
    kgen_status status = KGEN_OK;
    m->asked = &spec;
    for (int i = 0; i < m->axes[key].count && status == KGEN_OK; i++) {
        kgen_param_set(&spec, m->axes[key].param, m->axes[key].values[i]);
        status = try_all(m, key + 1);
    }
    m->asked = outer;
    return status;
}

/* --- places and order ---------------------------------------------------- */

/* Of the values that the candidates have, how many are below `value`. */
static int16_t place_of(const kgen__space *space, const kgen_param *key, int32_t value) {
    int32_t below[VALUES_MAX];
    int16_t count = 0;
    for (int i = 0; i < space->count; i++) {
        int32_t v = kgen_param_get(&space->list[i].spec, key);
        int known = v >= value;
        for (int j = 0; j < count && !known; j++) known = below[j] == v;
        if (!known && count < VALUES_MAX) below[count++] = v;
    }
    return count;
}

static int by_distance(const void *a, const void *b) {
    const kgen__candidate *x = a, *y = b;
    int difference = x->distance - y->distance;
    return difference ? difference : strcmp(x->kernel, y->kernel);
}

int kgen__space_distance(const kgen__space *space, int a, int b) {
    int distance = 0;
    for (int k = 0; k < space->keys; k++)
        distance += abs(space->list[a].at[k] - space->list[b].at[k]);
    return distance;
}

void kgen__space_arrange(kgen__space *space) {
    const kgen_param *keys[KGEN__SPACE_KEYS];
    if (!space->count) return;
    space->keys = keys_of(keys, space->list[0].spec.family);
    for (int k = 0; k < space->keys; k++)
        for (int i = 0; i < space->count; i++)
            space->list[i].at[k] =
                place_of(space, keys[k], kgen_param_get(&space->list[i].spec, keys[k]));
    for (int i = 0; i < space->count; i++)
        space->list[i].distance = kgen__space_distance(space, i, 0);
    qsort(space->list + 1, (size_t)space->count - 1, sizeof *space->list, by_distance);
}

/* --- the space ----------------------------------------------------------- */

/* Of what the caller leaves open, the keys of the search; presets are chosen. */
static kgen_spec open_keys(const kgen_spec *chosen, const kgen_spec *asked, const kgen_param **keys,
                           int count) {
    kgen_spec spec = *chosen;
    for (int i = 0; i < count; i++) kgen_param_set(&spec, keys[i], kgen_param_get(asked, keys[i]));
    return spec;
}

/* The family's own choice, whatever the caller has set: what a row replaces. */
static kgen_status own_choice(kgen_spec *out, const kgen_spec *spec, const kgen_problem *problem,
                              const kgen_target *target, kgen_error *err) {
    kgen_spec open = *spec;
    kgen_tuning_match match;
    kgen_spec_open_tuning(&open);
    return kgen_tuning_resolve(out, &match, NULL, &open, problem, target, NULL, err);
}

kgen_status kgen__space_make(kgen__space *out, const kgen_spec *spec, const kgen_problem *problem,
                             const kgen_target *target, kgen_error *err) {
    const kgen_param *keys[KGEN__SPACE_KEYS];
    kgen_spec own, chosen;
    kgen_tuning_match match;
    memset(out, 0, sizeof *out);
    KGEN_TRY(own_choice(&own, spec, problem, target, err));
    KGEN_TRY(kgen_tuning_resolve(&chosen, &match, NULL, spec, problem, target, NULL, err));
    int count = out->keys = keys_of(keys, spec->family);
    kgen_spec asked = open_keys(&chosen, spec, keys, count);
    maker m = {.space = out, .asked = &asked, .target = target, .err = err};
    for (int i = 0; i < count; i++) {
        m.axes[i].param = keys[i];
        fill_axis(&m.axes[i], kgen_param_get(spec, keys[i]), kgen_param_get(&chosen, keys[i]));
    }
    kgen_status status = append(&m, &own);
    if (status == KGEN_OK) status = try_all(&m, 0);
    if (status == KGEN_OK)
        kgen__space_arrange(out);
    else
        kgen__space_free(out);
    return status;
}

void kgen__space_keys(char *out, size_t size, const kgen__candidate *candidate) {
    const kgen_param *keys[KGEN__SPACE_KEYS];
    int count = keys_of(keys, candidate->spec.family);
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s=%d", i ? "," : "", keys[i]->key,
                                 kgen_param_get(&candidate->spec, keys[i]));
}

void kgen__space_free(kgen__space *space) {
    free(space->list);
    memset(space, 0, sizeof *space);
}
