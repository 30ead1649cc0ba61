/* Number formats, written from their definitions and with no table of codes: a
 * format is its widths, its bias and its largest code. */
#include "check.h"

#include <math.h>
#include <string.h>

typedef struct format {
    int mantissa; /* stored bits */
    int bias;
    int saturates;
    int no_negative_zero;
    uint32_t sign;
    uint32_t max_code; /* largest finite */
    uint32_t infinity; /* code, 0 if none */
    uint32_t nan;      /* first NaN code */
    uint32_t nans;     /* how many, without the sign */
} format;

static const format formats[] = {
    [KGEN_DTYPE_BF16] = {7, 127, 0, 0, 0x8000, 0x7f7f, 0x7f80, 0x7f81, 0x7f},
    [KGEN_DTYPE_FP16] = {10, 15, 0, 0, 0x8000, 0x7bff, 0x7c00, 0x7c01, 0x3ff},
    [KGEN_DTYPE_E4M3FN] = {3, 7, 1, 0, 0x80, 0x7e, 0, 0x7f, 1},
    [KGEN_DTYPE_E4M3FNUZ] = {3, 8, 1, 1, 0x80, 0x7f, 0, 0x80, 1},
    [KGEN_DTYPE_E5M2] = {2, 15, 1, 0, 0x80, 0x7b, 0x7c, 0x7d, 3},
    [KGEN_DTYPE_F32] = {23, 127, 0, 0, 0x80000000u, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fffff},
};

static const format *format_of(kgen_dtype dtype) {
    size_t index = (size_t)dtype;
    int known = index < sizeof formats / sizeof formats[0] && formats[index].sign != 0;
    return &formats[known ? index : KGEN_DTYPE_F32];
}

/* 2^n of a double's own exponents. Numbers are decoded in every inner loop of a reference, and
 * ldexp() is a call. */
static double power_of_two(int n) {
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Value of a code without its sign; it is neither NaN nor infinity. */
static double magnitude_of(const format *f, uint32_t code) {
    int exponent = (int)(code >> f->mantissa);
    double fraction = (double)(code & ((1u << f->mantissa) - 1));
    if (exponent == 0) return fraction * power_of_two(1 - f->bias - f->mantissa);
    return (fraction + (double)(1u << f->mantissa)) *
           power_of_two(exponent - f->bias - f->mantissa);
}

static int is_nan_code(const format *f, uint32_t bits) {
    if (f->no_negative_zero) return bits == f->nan;
    uint32_t code = bits & (f->sign - 1);
    return code >= f->nan && code - f->nan < f->nans;
}

/* Greatest value of a type of integers, which are symmetric; 0: a type of floats. */
static int integer_most(kgen_dtype dtype) {
    return dtype == KGEN_DTYPE_I8 ? 127 : dtype == KGEN_DTYPE_I4 ? 7 : 0;
}

float kgen__number_decode(kgen_dtype dtype, uint32_t bits) {
    if (dtype == KGEN_DTYPE_I4) return (float)(bits & 15) - 8;
    if (integer_most(dtype)) return (float)(int8_t)bits;
    const format *f = format_of(dtype);
    uint32_t code = bits & (f->sign - 1);
    if (is_nan_code(f, bits)) return NAN;
    float value = f->infinity && code == f->infinity ? INFINITY : (float)magnitude_of(f, code);
    return bits & f->sign ? -value : value;
}

static int exponent_at(const format *f, double magnitude) {
    int exponent = magnitude > 0 ? ilogb(magnitude) : 1 - f->bias;
    return exponent < 1 - f->bias ? 1 - f->bias : exponent;
}

/* Code of a finite magnitude; may lie past max_code. */
static uint64_t round_even(const format *f, double magnitude) {
    int exponent = exponent_at(f, magnitude);
    double scaled = ldexp(magnitude, f->mantissa - exponent);
    uint64_t whole = (uint64_t)scaled;
    double rest = scaled - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1))) whole++;
    return ((uint64_t)(exponent + f->bias - 1) << f->mantissa) + whole;
}

static uint32_t encode_integer(kgen_dtype dtype, double value) {
    int most = integer_most(dtype);
    int32_t nearest = isnan(value) ? 0 : (int32_t)nearbyint(fmax(-most, fmin(most, value)));
    return dtype == KGEN_DTYPE_I4 ? (uint32_t)(nearest + 8) : (uint32_t)nearest & 0xffu;
}

uint32_t kgen__number_encode(kgen_dtype dtype, double value) {
    if (integer_most(dtype)) return encode_integer(dtype, value);
    const format *f = format_of(dtype);
    if (isnan(value)) return f->no_negative_zero ? f->nan : f->nan | (f->sign - 1);
    uint64_t code = isinf(value) ? (uint64_t)f->max_code + 1 : round_even(f, fabs(value));
    if (code > f->max_code) code = f->saturates ? f->max_code : f->infinity;
    if (code == 0 && f->no_negative_zero) return 0;
    return (uint32_t)code | (signbit(value) ? f->sign : 0);
}

uint32_t kgen__number_poison(kgen_dtype dtype, uint32_t pick) {
    if (integer_most(dtype)) return pick & 0xffu;
    const format *f = format_of(dtype);
    if (f->no_negative_zero) return f->nan;
    uint32_t codes = f->nans + (f->infinity ? 1 : 0);
    uint32_t first = f->infinity ? f->infinity : f->nan;
    return (first + (pick >> 1) % codes) | (pick & 1 ? f->sign : 0);
}

double kgen__number_max(kgen_dtype dtype) {
    if (integer_most(dtype)) return integer_most(dtype);
    const format *f = format_of(dtype);
    return magnitude_of(f, f->max_code);
}

double kgen__number_half_ulp(kgen_dtype dtype, double magnitude) {
    if (integer_most(dtype)) return 0.5;
    const format *f = format_of(dtype);
    double bounded = fmin(fabs(magnitude), magnitude_of(f, f->max_code));
    return ldexp(0.5, exponent_at(f, bounded) - f->mantissa);
}

double kgen__number_load(kgen_dtype dtype, const void *base, int64_t index) {
    int size = kgen_dtype_size(dtype);
    const unsigned char *at = (const unsigned char *)base + index * size / kgen_dtype_values(dtype);
    if (dtype == KGEN_DTYPE_I4) return kgen__number_decode(dtype, *at >> index % 2 * 4);
    if (size == 1) return kgen__number_decode(dtype, *at);
    if (size == 2) {
        uint16_t bits;
        memcpy(&bits, at, sizeof bits);
        return kgen__number_decode(dtype, bits);
    }
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

void kgen__number_store(kgen_dtype dtype, void *base, int64_t index, double value) {
    uint32_t bits = kgen__number_encode(dtype, value);
    uint16_t half = (uint16_t)bits;
    int size = kgen_dtype_size(dtype);
    unsigned char *at = (unsigned char *)base + index * size / kgen_dtype_values(dtype);
    if (dtype == KGEN_DTYPE_I4)
        *at = (unsigned char)(index % 2 ? (*at & 15) | bits << 4 : (*at & 0xf0) | bits);
    else if (size == 1)
        *at = (unsigned char)bits;
    else if (size == 2)
        memcpy(at, &half, sizeof half);
    else
        memcpy(at, &bits, sizeof bits);
}
