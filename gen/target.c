#include <kgen/target.h>

#include <stdio.h>
#include <string.h>

#define AMD KGEN_VENDOR_AMD
#define CPU KGEN_VENDOR_CPU

/* name, vendor, isa, wave, LDS, vgprs, file, granule, waves, simds, CUs, mach, fnuz */
static const kgen_target targets[] = {
    {"gfx90a", AMD, KGEN_ISA_CDNA2, 64, 65536, 512, 512, 8, 8, 4, 104, 0x3f, 0},
    {"gfx942", AMD, KGEN_ISA_CDNA3, 64, 65536, 512, 512, 8, 8, 4, 304, 0x4c, 1},
    {"gfx950", AMD, KGEN_ISA_CDNA4, 64, 163840, 512, 512, 8, 8, 4, 256, 0x4f, 0},
    {"gfx1100", AMD, KGEN_ISA_RDNA3, 32, 65536, 256, 1536, 24, 16, 2, 96, 0x41, 0},
    {"gfx1201", AMD, KGEN_ISA_RDNA4, 32, 65536, 256, 1536, 24, 16, 2, 64, 0x4e, 0},
    {"sm_90", KGEN_VENDOR_NVIDIA, KGEN_ISA_SM90, 32, 49152, 255, 512, 8, 16, 4, 132, 0, 0},
    {"cpu:cdna2", CPU, KGEN_ISA_CDNA2, 64, 65536, 512, 512, 8, 8, 4, 4, 0, 0},
    {"cpu:cdna3", CPU, KGEN_ISA_CDNA3, 64, 65536, 512, 512, 8, 8, 4, 4, 0, 1},
    {"cpu:cdna4", CPU, KGEN_ISA_CDNA4, 64, 163840, 512, 512, 8, 8, 4, 4, 0, 0},
    {"cpu:rdna3", CPU, KGEN_ISA_RDNA3, 32, 65536, 256, 1536, 24, 16, 2, 4, 0, 0},
    {"cpu:rdna4", CPU, KGEN_ISA_RDNA4, 32, 65536, 256, 1536, 24, 16, 2, 4, 0, 0},
    {"cpu:sm90", CPU, KGEN_ISA_SM90, 32, 49152, 255, 512, 8, 16, 4, 4, 0, 0},
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
    char names[256];
    list_names(names, sizeof names);
    return kgen_fail(err, KGEN_E_TARGET, "arch=%.60s: unknown; known are %s", name, names);
}
