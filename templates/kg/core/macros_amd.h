// AMD: what the text of kernels is written with. Compiler attributes only: the same
// text goes through hipRTC and plain clang.
#pragma once

#define KG_DEV __attribute__((device, always_inline)) static inline
#define KG_LDS __attribute__((shared))
#define KG_UNROLL _Pragma("unroll")
#define KG_LOOP _Pragma("nounroll")

// Waves a SIMD must hold: what the register allocator works to.
#define KG_ENTRY(type, name, workgroups)                                                       \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(KG_WORKGROUP, KG_WORKGROUP), \
                              amdgpu_waves_per_eu(kg::waves_per_simd(workgroups)))) void       \
    KG_KERNEL(const type name)
// The argument where it lies, in constant memory: scalar loads, read on demand.
#define KG_ARGS(type, name) (*(const KG_CONSTANT type *)__builtin_amdgcn_kernarg_segment_ptr())
#define KG_CONSTANT __attribute__((address_space(4)))
#define KG_SHARED(name) static KG_LDS __attribute__((aligned(16))) unsigned char name[kg::LDS_USED]
