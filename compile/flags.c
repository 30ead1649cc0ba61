/* Every compiler flag there is, in order. They are part of the key: a change
 * here makes new cache entries. */
#define _GNU_SOURCE
#include <kgen/build.h>

#include <stdlib.h>
#include <string.h>

/* Parsing costs 40 ms instead of 220 without hipRTC's builtin header; the
 * sources use compiler builtins only. -mcumode: one workgroup, one CU. */
#define HIP_FLAGS                                                             \
    "-O3", "-std=c++17", "-mcode-object-version=5", "-nogpuinc", "-nogpulib", \
        "-ffp-contract=fast", "-fno-math-errno", "-Wundef", "-Werror=undef"
#define HIPRTC_FLAGS HIP_FLAGS, "--hiprtc-no-builtin-header"
/* Without -fuse-cuid=none the object has a symbol made from the folder's name. */
#define CLANG_HIP_FLAGS \
    "-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-fuse-cuid=none", HIP_FLAGS

/* No contraction and no library: the cpu target is there to be exact and
 * checked, not fast; -O1, because it compiles in two thirds of the time. By its rules of aliasing
 * clang 19 drops the sums of a lane's one value there (gdn with el=8, t=1). */
#define CPU_FLAGS                                                                               \
    "-x", "c++", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", \
        "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-Wundef", "-Werror=undef",  \
        "-Wl,--build-id=none", "-Wl,--no-as-needed", "-lm"

static const char *const cpu_clang[] = {CPU_FLAGS, "-nostdlib", "-O1", NULL};
/* The sanitizers' run time is the one of the program that loads the kernel.
 * vptr and function checks need parts that not every run time has; null,
 * object-size and pointer-overflow see what AddressSanitizer sees, and take twice its time. */
/* clang-format off */
static const char *const cpu_clang_sanitize[] = {
    CPU_FLAGS, "-nostdlib", "-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-ffile-compilation-dir=.",
    "-fsanitize=address,undefined", "-fno-sanitize=vptr,function,null,object-size,pointer-overflow",
    "-fno-sanitize-recover=undefined", NULL};
/* clang-format on */

typedef struct flags_row {
    const char *target;
    const char *const *lists[KGEN_TOOLCHAIN_NVRTC + 1]; /* by kgen_compiler */
} flags_row;

/* Rows of `flags` in targets.def. */
#define LIST(...) \
    (const char *const[]) { __VA_ARGS__, NULL }
#define FLAGS_HIP(arch) \
    LIST("--offload-arch=" arch, HIPRTC_FLAGS), LIST("--offload-arch=" arch, CLANG_HIP_FLAGS), NULL
#define FLAGS_HIP_CUMODE(arch)                              \
    LIST("--offload-arch=" arch, HIPRTC_FLAGS, "-mcumode"), \
        LIST("--offload-arch=" arch, CLANG_HIP_FLAGS, "-mcumode"), NULL
/* Code objects of a family have version 6 at least; of two versions the last counts. */
#define FLAGS_HIP_GENERIC(arch)                                                        \
    LIST("--offload-arch=" arch, HIPRTC_FLAGS, "-mcumode", "-mcode-object-version=6"), \
        LIST("--offload-arch=" arch, CLANG_HIP_FLAGS, "-mcumode", "-mcode-object-version=6"), NULL
/* Scalar products: a loop over a head of 512 is longer than what the compiler unrolls of itself
 * (16384), and what it leaves a loop keeps in memory what should be in registers. */
#define UNROLLED "-mllvm", "-pragma-unroll-threshold=131072"
#define FLAGS_HIP_SCALAR(arch)                                        \
    LIST("--offload-arch=" arch, HIPRTC_FLAGS, "-mcumode", UNROLLED), \
        LIST("--offload-arch=" arch, CLANG_HIP_FLAGS, "-mcumode", UNROLLED), NULL
#define FLAGS_HIP_SCALAR_GENERIC(arch)                                                           \
    LIST("--offload-arch=" arch, HIPRTC_FLAGS, "-mcumode", "-mcode-object-version=6", UNROLLED), \
        LIST("--offload-arch=" arch, CLANG_HIP_FLAGS, "-mcumode", "-mcode-object-version=6",     \
             UNROLLED),                                                                          \
        NULL
/* With the instructions that later architectures lack. */
#define FLAGS_NVRTC(arch)                                                  \
    NULL, NULL,                                                            \
        LIST("--gpu-architecture=" arch "a", "--std=c++17", "--fmad=true", \
             "--device-as-default-execution-space")
#define FLAGS_HOST(arch) NULL, cpu_clang, NULL

static const flags_row rows[] = {
#define KGEN_TARGET(name, vendor, isa, fp8, by_default, flags, numbers, times) \
    {name, {FLAGS_##flags(name)}},
#include <kgen/targets.def>
};

static const char *const no_flags[] = {NULL};

static int sanitize(void) {
    const char *value = secure_getenv("KGEN_CPU_SANITIZE");
    return value && strcmp(value, "1") == 0;
}

const char *const *kgen_target_flags(const kgen_target *target, kgen_compiler compiler) {
    if ((unsigned)compiler > KGEN_TOOLCHAIN_NVRTC) return no_flags;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].target, target->name) != 0) continue;
        const char *const *list = rows[i].lists[compiler];
        return !list ? no_flags : list == cpu_clang && sanitize() ? cpu_clang_sanitize : list;
    }
    return no_flags;
}
