/* The targets: rows of targets.def, found by name. */
#include <kgen/target.h>

#include <stdio.h>
#include <string.h>

#include "family.h"
#include "templates/kg/core/shape.h"

enum { FN, FNUZ, SOFT };

static const kgen_target targets[] = {
#define NUMBERS(...) __VA_ARGS__
#define KGEN_TARGET(name, vendor, isa, fp8, by_default, flags, numbers, times) \
    {name, KGEN_VENDOR_##vendor, KGEN_ISA_##isa, fp8 == FNUZ, fp8 != SOFT, by_default, numbers},
#include <kgen/targets.def>
};

enum { TARGETS = sizeof targets / sizeof targets[0] };

size_t kgen_target_count(void) { return TARGETS; }

const kgen_target *kgen_target_at(size_t index) { return index < TARGETS ? &targets[index] : NULL; }

static void list_names(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < TARGETS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", targets[i].name);
}

/* "gfx942:sramecc+:xnack-" names the default features of gfx942. */
static size_t base_length(const char *name) {
    const char *colon = strchr(name, ':');
    return colon && strncmp(name, "gfx", 3) == 0 ? (size_t)(colon - name) : strlen(name);
}

kgen_status kgen_target_find(const kgen_target **out, const char *name, kgen_error *err) {
    if (strcmp(name, "cpu") == 0) name = "cpu:cdna3";
    size_t length = base_length(name);
    for (size_t i = 0; i < TARGETS; i++) {
        if (strlen(targets[i].name) == length && strncmp(targets[i].name, name, length) == 0) {
            *out = &targets[i];
            return KGEN_OK;
        }
    }
    char names[512];
    list_names(names, sizeof names);
    return kgen_fail(err, KGEN_E_TARGET, "arch=%.60s: unknown; known are %s", name, names);
}

int32_t kgen_target_lane_registers(const kgen_target *target, int32_t waves) {
    int32_t simd = ceil_div(larger(1, waves), target->simds); /* waves of one */
    return smaller(target->max_vgprs,
                   target->vgpr_file / simd / target->vgpr_granule * target->vgpr_granule);
}

int32_t kgen__lane_room(const kgen_target *target, int32_t waves, int32_t groups,
                        int32_t lds_bytes) {
    if (target->wave_size == 32 && target->simds > 2) return INT32_MAX; /* gfx1250, sm_90 */
    int fits = groups * waves / target->simds <= target->max_waves &&
               groups * lds_bytes <= target->unit_lds_bytes;
    return kgen_target_lane_registers(target, fits ? groups * waves : waves);
}

static int is_generic(const char *name) {
    static const char end[] = "-generic";
    size_t length = strlen(name), tail = sizeof end - 1;
    return length > tail && strcmp(name + length - tail, end) == 0;
}

const kgen_target *kgen_target_generic(const kgen_target *target) {
    if (target->vendor != KGEN_VENDOR_AMD || is_generic(target->name)) return NULL;
    for (size_t i = 0; i < TARGETS; i++)
        if (targets[i].isa == target->isa && targets[i].simds == target->simds &&
            is_generic(targets[i].name))
            return &targets[i];
    return NULL;
}
