/* A size that kernels and the host must agree on is a function of integers in a
 * header that both include: plain C, and constexpr on the device. */
#pragma once

#ifdef __cplusplus
#define KG_SHAPE constexpr
#else
#define KG_SHAPE static inline
#endif

KG_SHAPE int ceil_div(int a, int b) { return (a + b - 1) / b; }
KG_SHAPE int smaller(int a, int b) { return a < b ? a : b; }
KG_SHAPE int larger(int a, int b) { return a > b ? a : b; }
