/* The architectures kgen writes kernels for: a row of targets.def each. */
#ifndef KGEN_TARGET_H
#define KGEN_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kgen_vendor { KGEN_VENDOR_AMD, KGEN_VENDOR_NVIDIA, KGEN_VENDOR_CPU } kgen_vendor;

/* The instruction family that decides matrix fragments, fp8 kind and caches.
 * A cpu target has the isa of its persona. */
typedef enum kgen_isa {
#define KGEN_ISA(NAME, ...) KGEN_ISA_##NAME,
#include "targets.def"
    KGEN_ISA_COUNT
} kgen_isa;

typedef struct kgen_target {
    const char *name; /* "gfx942", "sm_90", "cpu:cdna3": what --arch takes */
    kgen_vendor vendor;
    kgen_isa isa;
    int32_t fp8_fnuz;        /* 1: native e4m3 is fnuz (max 240), 0: fn (max 448) */
    int32_t fp8_converts;    /* 1: instructions convert it, 0: integer arithmetic does */
    int32_t by_default;      /* 1: commands take it where none is named */
    int32_t wave_size;       /* lanes */
    int32_t lds_bytes;       /* LDS a workgroup may use; on sm_90 without asking for more */
    int32_t unit_lds_bytes;  /* LDS of a compute unit */
    int32_t group_lds_bytes; /* of it, taken by each resident workgroup beside its own */
    int32_t max_vgprs;       /* registers a lane is counted to have before it spills */
    int32_t vgpr_file;       /* registers a lane slot of one SIMD shares out */
    int32_t vgpr_granule;
    int32_t max_waves;   /* resident waves a SIMD */
    int32_t simds;       /* SIMDs a compute unit (partitions an SM) */
    int32_t typical_cus; /* compute units of the part in production */
    int32_t elf_mach;    /* EF_AMDGPU_MACH of the code object, 0 elsewhere */
} kgen_target;

/* Pointers are to static storage; thread-safe. find: unknown names give
 * KGEN_E_TARGET with the list of known ones; "gfx942:sramecc+:xnack-" is
 * taken as "gfx942"; "cpu" as "cpu:cdna3". */
KGEN_API kgen_status kgen_target_find(const kgen_target **out, const char *name, kgen_error *err);
/* The target whose code objects run on all GPUs of an AMD isa ("gfx11-generic" for
 * gfx1100), NULL where there is none, and of itself. */
KGEN_API const kgen_target *kgen_target_generic(const kgen_target *target);
/* That a lane may have where a compute unit is to hold so many waves at once. */
KGEN_API int32_t kgen_target_lane_registers(const kgen_target *target, int32_t waves);
KGEN_API size_t kgen_target_count(void);
KGEN_API const kgen_target *kgen_target_at(size_t index);

#ifdef __cplusplus
}
#endif
#endif
