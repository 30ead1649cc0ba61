// NVIDIA through NVRTC: what the text of kernels is written with.
#pragma once

#define KG_DEV static __device__ __forceinline__
#define KG_DEV_MEMBER __device__ __forceinline__
#define KG_LDS __shared__
#define KG_UNROLL _Pragma("unroll")
#define KG_LOOP _Pragma("unroll 1")
#if defined(KG_CLUSTER)
#define KG_CLUSTERED __cluster_dims__(KG_CLUSTER, 1, 1)
#else
#define KG_CLUSTERED
#endif
#define KG_ENTRY(type, name, workgroups)                                                \
    extern "C" __global__ void KG_CLUSTERED __launch_bounds__(KG_WORKGROUP, workgroups) \
        KG_KERNEL(const __grid_constant__ type name)
#define KG_ARGS(type, name) (name)
#define KG_CONSTANT
// More than 48 KiB are the launch's to give. Matrices in LDS begin at multiples of 1024.
#if defined(KG_LAUNCH_LDS)
#define KG_SHARED(name) extern KG_LDS __align__(1024) unsigned char name[]
#else
#define KG_SHARED(name) KG_LDS __align__(1024) unsigned char name[kg::LDS_USED]
#endif
