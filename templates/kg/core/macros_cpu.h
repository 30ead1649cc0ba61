// The cpu device: what the text of kernels is written with.
#pragma once

#define KG_DEV static inline __attribute__((always_inline))
#define KG_LDS
#define KG_UNROLL
#define KG_LOOP

#define KG_ENTRY(type, name, workgroups)                                                   \
    static void kg_lane_body(const type &name);                                            \
    extern "C" __attribute__((visibility("default"))) void KG_KERNEL(const void *params) { \
        kg_lane_body(*(const type *)params);                                               \
    }                                                                                      \
    static void kg_lane_body(const type &name)
#define KG_ARGS(type, name) (name)
#define KG_CONSTANT
#define KG_SHARED(name) unsigned char *name = kg_ops->self()->lds
