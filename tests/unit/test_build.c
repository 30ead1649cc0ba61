/* Toolchains, helper processes, code objects, the gate, kgen_build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compile/unit.h"
#include "seed.h"

static char scratch[256]; /* TMPDIR of this run: must be empty in the end */
static char files[256];   /* the tests' own files */
static unsigned seed;

#define TINY_HIP                                                   \
    "extern \"C\" __attribute__((global)) void kg_x(float *p) {\n" \
    "  p[__builtin_amdgcn_workitem_id_x()] += 1.0f;\n}\n"
#define TINY_CUDA                                                                                \
    "extern \"C\" __global__ void kg_x(float *p) { __shared__ float s[64];\n"                    \
    "  s[threadIdx.x] = p[threadIdx.x]; __syncthreads(); p[threadIdx.x] = s[63 - threadIdx.x]; " \
    "}\n"
#define TINY_CPU "extern \"C\" int kg_x(const int *p) { return p[0] + p[1]; }\n"

typedef struct object {
    uint8_t *code;
    size_t size;
    uint32_t ms;
} object;

static const kgen_target *target_of(const char *name) {
    const kgen_target *t;
    kgen_error err;
    assert_int_equal(kgen_target_find(&t, name, &err), KGEN_OK);
    return t;
}

static kgen_toolchain toolchain_or_skip(const char *arch) {
    kgen_toolchain tc;
    kgen_error err;
    if (kgen_toolchain_find(&tc, target_of(arch), &err) != KGEN_OK) {
        print_message("skipped, %s\n", err.text);
        skip();
    }
    return tc;
}

/* hipRTC or nothing: clang-19 does not know gfx950. */
static kgen_toolchain hiprtc_or_skip(void) {
    kgen_toolchain tc = toolchain_or_skip("gfx942");
    if (tc.compiler != KGEN_TOOLCHAIN_HIPRTC) {
        print_message("skipped, no hipRTC: gfx942 goes through %s\n", tc.name);
        skip();
    }
    return tc;
}

static kgen_status compile(object *out, const kgen_toolchain *tc, const char *arch,
                           const char *source, kgen_error *err) {
    kgen__unit unit = {.toolchain = tc,
                       .flags = kgen_target_flags(target_of(arch), tc->compiler),
                       .source = source,
                       .source_size = strlen(source),
                       .spec = "attn:test",
                       .arch = arch,
                       .timeout_s = 120};
    memset(out, 0, sizeof *out);
    return kgen__compile(&unit, &out->code, &out->size, &out->ms, err);
}

static object compiled(const kgen_toolchain *tc, const char *arch, const char *source) {
    object o;
    kgen_error err;
    if (compile(&o, tc, arch, source, &err) != KGEN_OK) fail_msg("%s: %s", arch, err.text);
    return o;
}

static kgen_resources inspected(const object *o, const char *arch, int lanes) {
    kgen_resources r;
    kgen_error err;
    if (kgen__inspect(&r, target_of(arch), "kg_x", lanes, 0, o->code, o->size, &err) != KGEN_OK)
        fail_msg("%s: %s", arch, err.text);
    return r;
}

static void write_script(char path[300], const char *name, const char *text) {
    snprintf(path, 300, "%s/%s", files, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static int lines_of(const char *name) {
    char path[300];
    int lines = 0, c;
    snprintf(path, sizeof path, "%s/%s", files, name);
    FILE *f = fopen(path, "r");
    while (f && (c = getc(f)) != EOF) lines += c == '\n';
    if (f) fclose(f);
    return lines;
}

/* A toolchain that asks kgen-cc for a library: what a fake kgen-cc gets. */
static const kgen_toolchain fake = {
    .compiler = KGEN_TOOLCHAIN_NVRTC, .name = "fake 1.0", .path = "/nonexistent/libfake.so"};

static const char *const amd_archs[] = {
#define IF_AMD(name) name,
#define IF_NVIDIA(name)
#define IF_CPU(name)
#define KGEN_TARGET(name, vendor, ...) IF_##vendor(name)
#include <kgen/targets.def>
};
enum { AMD_ARCHS = sizeof amd_archs / sizeof amd_archs[0] };

/* ---- compilers ---- */

static void test_amd_every_arch(void **state) {
    (void)state;
    hiprtc_or_skip();
    for (int i = 0; i < AMD_ARCHS; i++) {
        const kgen_target *t = target_of(amd_archs[i]);
        kgen_toolchain tc = toolchain_or_skip(t->name);
        object o = compiled(&tc, t->name, TINY_HIP);
        kgen_resources r = inspected(&o, t->name, 0);
        print_message("  %-8s %s %zu bytes, %u ms, %d VGPRs, %d waves a SIMD\n", t->name, tc.name,
                      o.size, o.ms, r.vgprs, r.waves_per_simd);
        assert_in_range(r.vgprs, 1, 32);
        assert_int_equal(r.agprs, 0);
        assert_in_range(r.sgprs, 1, 104);
        assert_int_equal(r.vgpr_spills, 0);
        assert_int_equal(r.sgpr_spills, 0);
        assert_int_equal(r.scratch_bytes, 0);
        assert_int_equal(r.lds_bytes, 0);
        assert_int_equal(r.wave_size, t->wave_size);
        assert_int_equal(r.kernarg_bytes, 8);
        assert_int_equal(r.workgroup_size, 1024);
        assert_int_equal(r.waves_per_simd, t->max_waves);
        assert_in_range(r.code_bytes, 16, 4096);
        free(o.code);
    }
}

/* Each of these defines KG_NOISE for one of the compilers when it gets there. */
static const char *const noise[][2] = {
    {"HIPRTC_COMPILE_OPTIONS_APPEND", "-DKG_NOISE=1"},
    {"AMD_COMGR_DRIVER_OPTIONS_APPEND", "-DKG_NOISE=1"},
    {"CCC_OVERRIDE_OPTIONS", "+-DKG_NOISE=1"},
    {"LANG", "de_DE.UTF-8"},
};
enum { NOISES = sizeof noise / sizeof noise[0] };
#define IF_NOISE "\n#ifdef KG_NOISE\n#error the environment came through\n#endif\n"

static void same_bytes(const kgen_toolchain *tc, const char *arch, const char *source) {
    object a = compiled(tc, arch, source);
    for (int i = 0; i < NOISES; i++) setenv(noise[i][0], noise[i][1], 1);
    object b = compiled(tc, arch, source);
    for (int i = 0; i < NOISES; i++) unsetenv(noise[i][0]);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.code, b.code, a.size);
    free(a.code);
    free(b.code);
}

static void test_same_bytes_hip(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    same_bytes(&tc, "gfx942", TINY_HIP IF_NOISE);
}

static void test_same_bytes_cpu(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("cpu:cdna3");
    same_bytes(&tc, "cpu:cdna3", TINY_CPU IF_NOISE);
}

/* ---- what a clang is, without starting it ---- */

/* A copy of `from`, at most 1 MiB: what a library is stands at its front.
 * turned: with one bit changed of its build-id, or of its text where it has none. */
static void copy_program(const char *to, const char *from, int turned) {
    enum { FRONT = 1 << 20 };
    static uint8_t bytes[FRONT];
    kgen__elf elf;
    const uint8_t *id;
    size_t id_size;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    size_t size = fread(bytes, 1, sizeof bytes, in);
    assert_true(kgen__elf_open(&elf, bytes, size));
    if (!kgen__elf_note(&elf, "GNU", NT_GNU_BUILD_ID, &id, &id_size)) id = bytes + size - 1;
    if (turned) bytes[id - bytes] ^= 1;
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    fclose(in);
    assert_int_equal(chmod(to, 0700), 0);
}

/* What KGEN_CLANG=`program` is, where nothing can be started. */
static kgen_status clang_is(kgen_toolchain *out, const char *program) {
    char keep[1024] = "";
    const char *was = getenv("KGEN_CLANG");
    kgen_error err;
    if (was) snprintf(keep, sizeof keep, "%s", was);
    setenv("KGEN_CLANG", program, 1);
    setenv("TMPDIR", "/nonexistent/place", 1);
    kgen_status status = kgen_toolchain_find(out, target_of("cpu:cdna3"), &err);
    setenv("TMPDIR", scratch, 1);
    if (was)
        setenv("KGEN_CLANG", keep, 1);
    else
        unsetenv("KGEN_CLANG");
    return status;
}

/* Beside the program, or the system's. */
static void find_library(char out[PATH_MAX], const char *folder, const char *name) {
    snprintf(out, PATH_MAX, "%.3000s/../lib/%.200s", folder, name);
    if (access(out, R_OK) != 0) snprintf(out, PATH_MAX, "/usr/lib/x86_64-linux-gnu/%.200s", name);
}

/* A program `copy` of `real`, with links to its libraries beside it. 0: its libraries are not
 * of the kind. */
static int move_clang(const char *real, const char *copy, char library[2][PATH_MAX],
                      char link[2][PATH_MAX]) {
    static const char *const parts[] = {"libclang-cpp", "libLLVM"};
    static uint8_t bytes[1 << 20];
    char folder[PATH_MAX], command[700];
    const char *name;
    kgen__elf elf;
    FILE *f = fopen(real, "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    if (!kgen__elf_open(&elf, bytes, size) ||
        !kgen__elf_dynamic(&elf, DT_RUNPATH, "$ORIGIN/../lib", &name))
        return 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(real, '/') - real), real);
    snprintf(command, sizeof command, "mkdir -p '%s/llvm/bin' '%s/llvm/lib'", files, files);
    assert_int_equal(system(command), 0);
    copy_program(copy, real, 0);
    for (int i = 0; i < 2; i++) {
        if (!kgen__elf_dynamic(&elf, DT_NEEDED, parts[i], &name)) return 0;
        find_library(library[i], folder, name);
        snprintf(link[i], PATH_MAX, "%.200s/llvm/lib/%.200s", files, name);
        assert_int_equal(symlink(library[i], link[i]), 0);
    }
    return 1;
}

/* Nothing can be started here, and still a compiler is known; another one by each of its parts. */
static void test_clang_is_not_started(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("cpu:cdna3"), moved, other;
    char real[PATH_MAX], library[2][PATH_MAX], link[2][PATH_MAX], copy[300];
    snprintf(copy, sizeof copy, "%s/llvm/bin/clang", files);
    if (!realpath(tc.path, real) || !move_clang(real, copy, library, link)) {
        print_message("skipped: %s has its libraries elsewhere\n", tc.path);
        skip();
    }
    assert_int_equal(clang_is(&moved, copy), KGEN_OK);
    assert_string_equal(moved.id, tc.id);
    assert_string_equal(moved.name, tc.name);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unlink(link[i]), 0);
        if (i == 0) assert_int_not_equal(clang_is(&other, copy), KGEN_OK); /* it is asked */
        copy_program(link[i], library[i], 1);
        assert_int_equal(clang_is(&other, copy), KGEN_OK);
        assert_string_not_equal(other.id, tc.id);
        assert_int_equal(unlink(link[i]), 0);
        assert_int_equal(symlink(library[i], link[i]), 0);
    }
    copy_program(copy, real, 1);
    assert_int_equal(clang_is(&other, copy), KGEN_OK);
    assert_string_not_equal(other.id, tc.id);
}

static void test_clang_amd(void **state) {
    (void)state;
    kgen_toolchain tc;
    kgen_error err;
    if (kgen__toolchain_clang(&tc, target_of("gfx942"), NULL, &err) != KGEN_OK) {
        print_message("skipped, %s\n", err.text);
        skip();
    }
    assert_null(strstr(tc.id, "/usr"));
    static const char *const archs[] = {"gfx90a", "gfx942", "gfx1100", "gfx1201"};
    for (int i = 0; i < 4; i++) {
        object a = compiled(&tc, archs[i], TINY_HIP), b = compiled(&tc, archs[i], TINY_HIP);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.code, b.code, a.size);
        kgen_resources r = inspected(&a, archs[i], 0);
        print_message("  %-8s %s %zu bytes, %u ms\n", archs[i], tc.name, a.size, a.ms);
        assert_int_equal(r.kernarg_bytes, 8);
        free(a.code);
        free(b.code);
    }
}

static void test_nvrtc(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("sm_90");
    assert_int_equal(tc.compiler, KGEN_TOOLCHAIN_NVRTC);
    object a = compiled(&tc, "sm_90", TINY_CUDA), b = compiled(&tc, "sm_90", TINY_CUDA);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.code, b.code, a.size);
    kgen_resources r = inspected(&a, "sm_90", 64);
    print_message("  sm_90 %s (%s) %zu bytes, %u ms, %d registers\n", tc.name, tc.id, a.size, a.ms,
                  r.vgprs);
    assert_in_range(r.vgprs, 4, 64);
    assert_int_equal(r.lds_bytes, 256);
    assert_int_equal(r.scratch_bytes, 0);
    assert_in_range(r.code_bytes, 16, 4096);
    assert_in_range(r.waves_per_simd, 1, 16);
    free(a.code);
    free(b.code);
}

static void test_nvrtc_local_memory(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("sm_90");
    object o = compiled(&tc, "sm_90",
                        "extern \"C\" __global__ void __launch_bounds__(64) kg_x(float *p, int n) "
                        "{ float a[64]; for (int i = 0; i < 64; i++) a[i * n % 64] = p[i];\n"
                        "for (int i = 0; i < 64; i++) p[i] = a[(i + n) % 64]; }");
    kgen_resources r = inspected(&o, "sm_90", 64);
    kgen_error err;
    assert_in_range(r.scratch_bytes, 256, 1024);
    assert_int_equal(r.workgroup_size, 64);
    assert_int_equal(kgen__gate(&r, target_of("sm_90"), 64, 0, 0, &err), KGEN_E_BUDGET);
    assert_int_equal(kgen__gate(&r, target_of("sm_90"), 128, 0, 1, &err), KGEN_E_BUDGET);
    assert_non_null(strstr(err.text, "64 lanes; needs 128"));
    free(o.code);
}

/* RTLD_NOW: every symbol, the sanitizers' too, must be in this process. */
static void *load_cpu(const uint8_t *code, size_t size) {
    char path[300];
    snprintf(path, sizeof path, "%s/kernel.so", files);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(code, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    return library;
}

static void call_cpu(const object *o) {
    int in[2] = {40, 2};
    int (*function)(const int *);
    void *library = load_cpu(o->code, o->size);
    *(void **)&function = dlsym(library, "kg_x");
    assert_non_null(function);
    assert_int_equal(function(in), 42);
    dlclose(library);
}

static void test_cpu(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("cpu:cdna3");
    assert_int_equal(tc.compiler, KGEN_TOOLCHAIN_CLANG);
    object a = compiled(&tc, "cpu:cdna3", TINY_CPU), b = compiled(&tc, "cpu:cdna3", TINY_CPU);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.code, b.code, a.size);
    kgen_resources r = inspected(&a, "cpu:cdna3", 64);
    print_message("  %s %zu bytes, %u ms\n", tc.name, a.size, a.ms);
    assert_in_range(r.code_bytes, 1, 4096);
    assert_int_equal(r.vgprs, -1);
    kgen_error err;
    assert_int_equal(kgen__gate(&r, target_of("cpu:cdna3"), 64, 0, 0, &err), KGEN_OK);
    call_cpu(&a);
    free(a.code);
    free(b.code);
}

/* The same source, flags with and without the sanitizers: other bytes. */
static void test_cpu_sanitize_flags(void **state) {
    (void)state;
    const char *was = getenv("KGEN_CPU_SANITIZE");
    char keep[8] = "";
    if (was) snprintf(keep, sizeof keep, "%s", was);
    kgen_toolchain tc = toolchain_or_skip("cpu:cdna3");
    unsetenv("KGEN_CPU_SANITIZE");
    object a = compiled(&tc, "cpu:cdna3", TINY_CPU);
    setenv("KGEN_CPU_SANITIZE", "1", 1);
    object b = compiled(&tc, "cpu:cdna3", TINY_CPU), c = compiled(&tc, "cpu:cdna3", TINY_CPU);
    if (was)
        setenv("KGEN_CPU_SANITIZE", keep, 1);
    else
        unsetenv("KGEN_CPU_SANITIZE");
    assert_int_equal(b.size, c.size);
    assert_memory_equal(b.code, c.code, b.size);
    assert_null(memmem(a.code, a.size, "__asan_", 7));
    assert_non_null(memmem(b.code, b.size, "__asan_", 7));
    free(a.code);
    free(b.code);
    free(c.code);
}

/* ---- what goes wrong ---- */

#define BAD_C "\n\nint f() { return nothing; }\n"

static void expect_line(const char *arch, const char *source, const char *error_line) {
    kgen_toolchain tc = toolchain_or_skip(arch);
    object o;
    kgen_error err;
    assert_int_equal(compile(&o, &tc, arch, source, &err), KGEN_E_COMPILE);
    assert_null(o.code);
    if (strncmp(err.text, error_line, strlen(error_line)) != 0) fail_msg("%s", err.text);
    assert_non_null(strstr(err.text, "nothing"));
    assert_null(strchr(err.text, '\n'));
    char hint[128];
    snprintf(hint, sizeof hint, "`kgen source 'attn:test' --arch %s` shows the text", arch);
    assert_non_null(strstr(err.text, hint));
}

static void test_error_line_hip(void **state) {
    (void)state;
    expect_line("gfx942", BAD_C, "kgen_kernel.hip:3:");
}

static void test_error_line_cpu(void **state) {
    (void)state;
    expect_line("cpu:rdna3", BAD_C, "kgen_kernel.hip:3:");
}

static void test_error_line_nvrtc(void **state) {
    (void)state;
    expect_line("sm_90", "\n\n__device__ int f() { return nothing; }\n",
                "kgen_kernel.hip(3): error");
}

/* A misspelt macro must not become 0. */
static void test_undefined_macro(void **state) {
    (void)state;
    static const char *const archs[] = {"gfx942", "cpu:cdna3"};
    for (int i = 0; i < 2; i++) {
        kgen_toolchain tc = toolchain_or_skip(archs[i]);
        object o;
        kgen_error err;
        assert_int_equal(compile(&o, &tc, archs[i], "#if KG_MISSPELT\n#endif\n" TINY_CPU, &err),
                         KGEN_E_COMPILE);
        assert_non_null(strstr(err.text, "KG_MISSPELT"));
    }
}

static kgen_status find_only(const char *arch, kgen_error *err) {
    kgen_toolchain tc;
    return kgen_toolchain_find(&tc, target_of(arch), err);
}

/* The helper is looked for when it has something to do. */
static kgen_status find_and_compile(const char *arch, kgen_error *err) {
    kgen_toolchain tc;
    object o = {0};
    kgen_status status = kgen_toolchain_find(&tc, target_of(arch), err);
    if (status == KGEN_OK) status = compile(&o, &tc, arch, TINY_CPU, err);
    free(o.code);
    return status;
}

static void expect_advice(const char *variable, const char *arch,
                          kgen_status (*attempt)(const char *arch, kgen_error *err)) {
    char keep[1024] = "";
    const char *was = getenv(variable);
    kgen_error err;
    if (was) snprintf(keep, sizeof keep, "%s", was);
    setenv(variable, "/nonexistent/place", 1);
    kgen_status status = attempt(arch, &err);
    if (was)
        setenv(variable, keep, 1);
    else
        unsetenv(variable);
    assert_int_equal(status, KGEN_E_TOOLCHAIN);
    assert_non_null(strstr(err.text, variable));
    assert_non_null(strstr(err.text, "/nonexistent/place"));
    assert_non_null(strstr(err.text, "unset it or name"));
}

static void test_wrong_paths(void **state) {
    (void)state;
    expect_advice("KGEN_ROCM_PATH", "gfx942", find_only);
    expect_advice("KGEN_NVRTC_PATH", "sm_90", find_only);
    expect_advice("KGEN_CLANG", "cpu:cdna3", find_only);
    expect_advice("KGEN_CC", "cpu:cdna3", find_and_compile);
}

static void test_no_library(void **state) {
    (void)state;
    object o;
    kgen_error err;
    assert_int_equal(compile(&o, &fake, "sm_90", TINY_CUDA, &err), KGEN_E_TOOLCHAIN);
    assert_non_null(strstr(err.text, "libfake.so"));
}

static kgen_status compile_with_helper(const char *script, int timeout_s, kgen_error *err) {
    char path[300];
    object o = {0};
    const char *const *flags = kgen_target_flags(target_of("sm_90"), KGEN_TOOLCHAIN_NVRTC);
    kgen__unit unit = {.toolchain = &fake,
                       .flags = flags,
                       .source = "x",
                       .source_size = 1,
                       .spec = "attn:test",
                       .arch = "sm_90",
                       .timeout_s = timeout_s};
    write_script(path, "helper.sh", script);
    setenv("KGEN_CC", path, 1);
    kgen_status status = kgen__compile(&unit, &o.code, &o.size, &o.ms, err);
    unsetenv("KGEN_CC");
    free(o.code);
    return status;
}

static void test_crash_is_retried_once(void **state) {
    (void)state;
    char script[700];
    kgen_error err;
    snprintf(script, sizeof script,
             "#!/bin/sh\necho run >> %s/crashes\necho 'LLVM ERROR: no' >&2\nkill -SEGV $$\n",
             files);
    assert_int_equal(compile_with_helper(script, 30, &err), KGEN_E_COMPILE);
    assert_int_equal(lines_of("crashes"), 2);
    assert_non_null(strstr(err.text, "signal 11"));
    assert_non_null(strstr(err.text, "LLVM ERROR: no"));
    assert_non_null(strstr(err.text, "attn:test"));
}

static void test_hang_is_killed_with_children(void **state) {
    (void)state;
    char script[700], path[300];
    kgen_error err;
    int pid = 0;
    time_t before = time(NULL);
    snprintf(script, sizeof script, "#!/bin/sh\nsleep 600 &\necho $! > %s/sleeper\nwait\n", files);
    assert_int_equal(compile_with_helper(script, 1, &err), KGEN_E_COMPILE);
    assert_non_null(strstr(err.text, "1 s"));
    assert_true(time(NULL) - before < 20);
    snprintf(path, sizeof path, "%s/sleeper", files);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    /* Dead, or dead and not yet reaped by init. */
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int i = 0; i < 100; i++) {
        char state_letter = 'Z';
        f = fopen(path, "r");
        if (f && fscanf(f, "%*d %*s %c", &state_letter) != 1) state_letter = 'Z';
        if (f) fclose(f);
        if (!f || state_letter == 'Z') return;
        usleep(20000);
    }
    fail_msg("process %d outlives its helper", pid);
}

static void test_helper_without_an_answer(void **state) {
    (void)state;
    static const char *const scripts[] = {
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\necho 'some words, no answer at all'; exit 0\n",
        "#!/bin/sh\nprintf 'KGC1\\0\\0\\0\\0\\377\\377\\377\\377\\377\\377\\377\\377'; exit 0\n",
        "#!/bin/sh\nexit 3\n",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        kgen_error err;
        assert_int_equal(compile_with_helper(scripts[i], 30, &err), KGEN_E_TOOLCHAIN);
        assert_non_null(strstr(err.text, "no answer"));
    }
}

/* A compiler that wants 5 GiB: the limit stops it, not the machine. */
static void test_memory_limit(void **state) {
    (void)state;
    char script[700];
    kgen_error err;
    const char *bin = getenv("KGEN_BIN_DIR");
    if (!bin) {
        print_message("skipped, KGEN_BIN_DIR is not set\n");
        skip();
    }
    snprintf(script, sizeof script,
             "#!/bin/sh\nexec %s/kgen-cc $1 $2 $3 /bin/dd if=/dev/zero of=/dev/null bs=5G "
             "count=1\n",
             bin);
    kgen_status status = compile_with_helper(script, 60, &err);
    if (status != KGEN_E_TOOLCHAIN || !strstr(err.text, "memory exhausted"))
        fail_msg("%s", err.text);
}

static void test_odd_hosts(void **state) {
    (void)state;
    kgen_toolchain tc = toolchain_or_skip("cpu:cdna3");
    void (*was)(int) = signal(SIGCHLD, SIG_IGN);
    object a = compiled(&tc, "cpu:cdna3", TINY_CPU);
    signal(SIGCHLD, was);
    int in = dup(0);
    close(0);
    object b = compiled(&tc, "cpu:cdna3", TINY_CPU);
    dup2(in, 0);
    close(in);
    assert_int_equal(a.size, b.size);
    free(a.code);
    free(b.code);
}

/* ---- code objects ---- */

/* 150 values alive in 64 registers. */
#define SPILLING                                                                 \
    "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64),\n" \
    "    amdgpu_num_vgpr(64))) void kg_x(float *p, const float *q) {\n"          \
    "  float a[150]; int t = __builtin_amdgcn_workitem_id_x();\n"                \
    "  for (int i = 0; i < 150; i++) a[i] = q[i * 64 + t];\n"                    \
    "  for (int j = 0; j < 100; j++)\n"                                          \
    "    for (int i = 0; i < 150; i++) a[i] = a[i] * a[(i + 1) % 150] + q[j];\n" \
    "  for (int i = 0; i < 150; i++) p[i * 64 + t] = a[i];\n}\n"

static void test_gate(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942", SPILLING);
    kgen_resources r = inspected(&o, "gfx942", 64);
    kgen_error err;
    assert_in_range(r.vgpr_spills, 1, 1000);
    assert_in_range(r.scratch_bytes, 4, 4096);
    assert_int_equal(r.workgroup_size, 64);
    assert_int_equal(kgen__gate(&r, target_of("gfx942"), 64, 0, 0, &err), KGEN_E_BUDGET);
    print_message("  %s\n", err.text);
    char number[32];
    snprintf(number, sizeof number, "%d VGPRs", r.vgpr_spills);
    assert_non_null(strstr(err.text, number));
    assert_non_null(strstr(err.text, "gfx942 allows 512"));
    assert_int_equal(kgen__gate(&r, target_of("gfx942"), 64, 32, 0, &err), KGEN_E_BUDGET);
    assert_non_null(strstr(err.text, "gfx942 allows 64 where a compute unit holds 32 workgroups of "
                                     "64 lanes (occ, waves)"));
    assert_int_equal(kgen__gate(&r, target_of("gfx942"), 64, 0, 1, &err), KGEN_OK);
    assert_int_equal(kgen__gate(&r, target_of("gfx942"), 65, 0, 1, &err), KGEN_E_BUDGET);
    free(o.code);
}

/* What spilled into other registers, with no byte of memory. */
static void test_gate_of_moves(void **state) {
    (void)state;
    static const struct {
        int32_t vgprs, sgprs, scratch;
        kgen_status status;
    } rows[] = {
        {0, 0, 0, KGEN_OK},        {4, 4, 0, KGEN_OK},         {8, 0, 0, KGEN_OK},
        {0, 8, 0, KGEN_OK},        {9, 0, 0, KGEN_E_BUDGET},   {0, 9, 0, KGEN_E_BUDGET},
        {5, 4, 0, KGEN_E_BUDGET},  {1, 0, 4, KGEN_E_BUDGET},   {0, 0, 4, KGEN_E_BUDGET},
        {1, 0, -1, KGEN_E_BUDGET}, {-1, -1, 4, KGEN_E_BUDGET}, {-1, -1, 0, KGEN_OK},
        {-1, -1, -1, KGEN_OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_resources r;
        kgen_error err;
        memset(&r, 0xff, sizeof r);
        r.lds_bytes = 0;
        r.vgpr_spills = rows[i].vgprs;
        r.sgpr_spills = rows[i].sgprs;
        r.scratch_bytes = rows[i].scratch;
        assert_int_equal(kgen__gate(&r, target_of("gfx942"), 64, 0, 0, &err), rows[i].status);
        assert_int_equal(kgen__gate(&r, target_of("gfx942"), 64, 0, 1, &err), KGEN_OK);
    }
}

/* Accumulators in AGPRs, and LDS: what occupancy is made of. */
#define MATRIX                                                                         \
    "typedef float f16v __attribute__((ext_vector_type(16)));\n"                       \
    "__attribute__((shared)) float s[8192];\n"                                         \
    "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(256, 256),\n"     \
    "    amdgpu_waves_per_eu(1, 1))) void kg_x(float *p, float x) {\n"                 \
    "  int t = __builtin_amdgcn_workitem_id_x();\n"                                    \
    "  f16v a[18] = {};\n"                                                             \
    "  s[t] = p[t]; __builtin_amdgcn_s_barrier();\n"                                   \
    "  for (int j = 0; j < 64; j++)\n"                                                 \
    "    for (int i = 0; i < 18; i++)\n"                                               \
    "      a[i] = __builtin_amdgcn_mfma_f32_32x32x2f32(s[t ^ j], x, a[i], 0, 0, 0);\n" \
    "  for (int i = 0; i < 18; i++)\n"                                                 \
    "    for (int k = 0; k < 16; k++) p[(i * 16 + k) * 64 + t] = a[i][k];\n}\n"

static void test_occupancy(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942", MATRIX);
    kgen_resources r = inspected(&o, "gfx942", 256);
    print_message("  %d VGPRs, %d AGPRs, %d bytes of LDS, %d waves a SIMD\n", r.vgprs, r.agprs,
                  r.lds_bytes, r.waves_per_simd);
    assert_in_range(r.agprs, 1, 256);
    assert_in_range(r.vgprs + r.agprs, 288, 512); /* 18 accumulators of 16 */
    assert_int_equal(r.lds_bytes, 32768);
    assert_int_equal(r.waves_per_simd, 1);
    free(o.code);
}

static void test_occupancy_by_lds(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942",
                        "__attribute__((shared)) float s[5120];\n"
                        "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(256, "
                        "256))) void kg_x(float *p) { int t = __builtin_amdgcn_workitem_id_x();\n"
                        "s[t * 20] = p[t]; __builtin_amdgcn_s_barrier(); p[t] = s[t * 19]; }");
    kgen_resources r = inspected(&o, "gfx942", 256);
    assert_int_equal(r.lds_bytes, 20480);
    assert_int_equal(r.waves_per_simd, 3); /* 3 workgroups of 4 waves, 4 SIMDs */
    free(o.code);
}

static void test_wrong_object(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942", TINY_HIP);
    kgen_resources r;
    kgen_error err;
    assert_int_equal(kgen__inspect(&r, target_of("gfx950"), "kg_x", 64, 0, o.code, o.size, &err),
                     KGEN_E_COMPILE);
    assert_non_null(strstr(err.text, "gfx950"));
    assert_int_equal(kgen__inspect(&r, target_of("sm_90"), "kg_x", 64, 0, o.code, o.size, &err),
                     KGEN_E_COMPILE);
    assert_int_equal(kgen__inspect(&r, target_of("gfx942"), "kg_y", 64, 0, o.code, o.size, &err),
                     KGEN_E_COMPILE);
    assert_non_null(strstr(err.text, "symbol"));
    static const struct {
        size_t at;
        uint8_t byte;
        const char *says;
    } rows[] = {{EI_OSABI, 0, "ABI 0."},
                {EI_ABIVERSION, 1, "ABI 64.1"},
                {EI_ABIVERSION, 5, "ABI 64.5"},
                {offsetof(Elf64_Ehdr, e_flags) + 1, 0x7, "xnack"},
                {offsetof(Elf64_Ehdr, e_flags) + 1, 0x9, "sramecc"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t was = o.code[rows[i].at];
        o.code[rows[i].at] = rows[i].byte;
        assert_int_equal(
            kgen__inspect(&r, target_of("gfx942"), "kg_x", 64, 0, o.code, o.size, &err),
            KGEN_E_COMPILE);
        assert_non_null(strstr(err.text, rows[i].says));
        o.code[rows[i].at] = was;
    }
    assert_int_equal(kgen__inspect(&r, target_of("gfx942"), "kg_x", 64, 0, o.code, o.size, &err),
                     KGEN_OK);
    free(o.code);
}

/* In a block of its exact size, so that a sanitizer sees one byte too far. */
static void inspect_copy(const uint8_t *code, size_t size, const kgen_target *t) {
    uint8_t *copy = malloc(size ? size : 1);
    kgen_resources r;
    kgen_error err;
    assert_non_null(copy);
    memcpy(copy, code, size);
    kgen_status status = kgen__inspect(&r, t, "kg_x", 64, 0, copy, size, &err);
    if (status != KGEN_OK && status != KGEN_E_COMPILE) fail_msg("status %d", status);
    if (status == KGEN_OK) kgen__gate(&r, t, 64, 0, 0, &err);
    free(copy);
}

static void torture(const object *o, const char *arch) {
    const kgen_target *t = target_of(arch);
    uint8_t *bad = malloc(o->size);
    assert_non_null(bad);
    for (size_t size = 0; size < o->size; size += 1 + size / 512) inspect_copy(o->code, size, t);
    for (int round = 0; round < 20000; round++) {
        memcpy(bad, o->code, o->size);
        for (int flips = 1 + rand() % 4; flips > 0; flips--) {
            /* Half of them where the headers, notes and tables are. */
            size_t range = rand() % 2 || o->size < 1600 ? o->size : 1600;
            bad[(size_t)rand() % range] = (uint8_t)(rand() % 3 ? rand() : 0xff);
        }
        inspect_copy(bad, o->size, t);
    }
    free(bad);
}

static void test_hostile_objects(void **state) {
    (void)state;
    static const struct {
        const char *arch, *source;
    } rows[] = {
        {"gfx942", MATRIX}, {"gfx1201", TINY_HIP}, {"sm_90", TINY_CUDA}, {"cpu:cdna3", TINY_CPU}};
    srand(seed);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_toolchain tc;
        kgen_error err;
        if (kgen_toolchain_find(&tc, target_of(rows[i].arch), &err) != KGEN_OK) {
            print_message("  without %s: %s\n", rows[i].arch, err.text);
            continue;
        }
        object o = compiled(&tc, rows[i].arch, rows[i].source);
        torture(&o, rows[i].arch);
        free(o.code);
    }
}

/* ---- disassembly ---- */

static kgen_entry *entry_of(const object *o, const char *arch, const char *symbol) {
    static kgen_entry e;
    e = (kgen_entry){.code = o->code, .code_size = o->size};
    snprintf(e.target, sizeof e.target, "%s", arch);
    snprintf(e.symbol, sizeof e.symbol, "%s", symbol);
    return &e;
}

/* From the first instruction of kg_x to its end, one a line. */
static void test_disassemble(void **state) {
    (void)state;
    hiprtc_or_skip();
    for (int i = 0; i < AMD_ARCHS; i++) {
        kgen_toolchain tc = toolchain_or_skip(amd_archs[i]);
        object o = compiled(&tc, amd_archs[i], TINY_HIP);
        kgen_resources r = inspected(&o, amd_archs[i], 0);
        char *text, *again;
        kgen_error err;
        if (kgen_disassemble(&text, entry_of(&o, amd_archs[i], "kg_x"), &err) != KGEN_OK)
            fail_msg("%s: %s", amd_archs[i], err.text);
        assert_int_equal(strncmp(text, "     0: ", 8), 0);
        const char *end = strstr(text, ": s_endpgm\n");
        assert_non_null(strstr(text, ": global_load_"));
        assert_non_null(strstr(text, ": global_store_"));
        assert_null(strstr(text, ".long"));
        assert_non_null(end);
        assert_string_equal(end, ": s_endpgm\n");
        while (end > text && end[-1] != ' ') end--;
        assert_int_equal(strtol(end, NULL, 16), r.code_bytes - 4);
        assert_int_equal(kgen_disassemble(&again, entry_of(&o, amd_archs[i], "kg_x"), &err),
                         KGEN_OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        free(o.code);
    }
}

static void expect_no_listing(const object *o, const char *arch, const char *symbol,
                              kgen_status status, const char *words) {
    char *text = (char *)files;
    kgen_error err;
    assert_int_equal(kgen_disassemble(&text, entry_of(o, arch, symbol), &err), status);
    assert_null(text);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void test_disassemble_refusals(void **state) {
    (void)state;
    const object none = {(uint8_t *)files, sizeof files, 0};
    expect_no_listing(&none, "sm_90", "kg_x", KGEN_E_UNSUPPORTED, "sm_90: only kernels of AMD");
    expect_no_listing(&none, "cpu:cdna3", "kg_x", KGEN_E_UNSUPPORTED, "cpu:cdna3");
    expect_no_listing(&none, "gfx1", "kg_x", KGEN_E_TARGET, "gfx1");
    expect_no_listing(&none, "gfx942", "kg_x", KGEN_E_COMPILE, "the ELF header");
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942", TINY_HIP);
    expect_no_listing(&o, "gfx950", "kg_x", KGEN_E_COMPILE, "gfx950");
    expect_no_listing(&o, "gfx942", "kg_y", KGEN_E_COMPILE, "kg_y");
    const char *was = getenv("KGEN_ROCM_PATH");
    char keep[1024] = "";
    if (was) snprintf(keep, sizeof keep, "%s", was);
    setenv("KGEN_ROCM_PATH", "/nonexistent/place", 1);
    expect_no_listing(&o, "gfx942", "kg_x", KGEN_E_TOOLCHAIN, "/nonexistent/place");
    if (was)
        setenv("KGEN_ROCM_PATH", keep, 1);
    else
        unsetenv("KGEN_ROCM_PATH");
    free(o.code);
}

/* What the helper itself refuses: the library, the isa. */
static void test_disassemble_helper(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    const char *const no_flags[] = {NULL};
    kgen__unit unit = {.toolchain = &tc,
                       .flags = no_flags,
                       .source = "\0\0\0",
                       .source_size = 3,
                       .spec = "attn:test",
                       .arch = "gfx942",
                       .isa = "amdgcn-amd-amdhsa--gfx942"};
    uint8_t *code;
    size_t size;
    uint32_t ms;
    kgen_error err;
    /* hipRTC's own library has no such functions. */
    assert_int_equal(kgen__compile(&unit, &code, &size, &ms, &err), KGEN_E_TOOLCHAIN);
    assert_non_null(strstr(err.text, "amd_comgr_create_disassembly_info"));
    char comgr[sizeof tc.path];
    assert_int_equal(kgen__toolchain_comgr(comgr, &tc, &err), KGEN_OK);
    snprintf(tc.path, sizeof tc.path, "%s", comgr);
    assert_int_equal(kgen__compile(&unit, &code, &size, &ms, &err), KGEN_OK);
    assert_string_equal((char *)code, "     0: .long 0x00000000\n"); /* half an instruction */
    free(code);
    unit.isa = "amdgcn-amd-amdhsa--gfx0";
    assert_int_equal(kgen__compile(&unit, &code, &size, &ms, &err), KGEN_E_COMPILE);
    assert_non_null(strstr(err.text, "comgr cannot disassemble for amdgcn-amd-amdhsa--gfx0"));
}

/* Any bytes: a listing or an error, in time. */
static void test_disassemble_hostile(void **state) {
    (void)state;
    kgen_toolchain tc = hiprtc_or_skip();
    object o = compiled(&tc, "gfx942", TINY_HIP);
    srand(seed);
    for (int round = 0; round < 40; round++) {
        object bad = {malloc(o.size), o.size, 0};
        char *text;
        kgen_error err;
        assert_non_null(bad.code);
        memcpy(bad.code, o.code, o.size);
        for (int flips = 1 + rand() % 64; flips > 0; flips--)
            bad.code[64 + (size_t)rand() % (o.size - 64)] = (uint8_t)rand();
        kgen_status status = kgen_disassemble(&text, entry_of(&bad, "gfx942", "kg_x"), &err);
        if (status != KGEN_OK && status != KGEN_E_COMPILE) fail_msg("%s", err.text);
        free(text);
        free(bad.code);
    }
    free(o.code);
}

/* ---- kgen_build ---- */

static const char *const lines[] = {
    "attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd",
    "attn:phase=decode,q=bf16,kv=bf16,d=64,g=8,page=16,layout=nhd",
    "attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd", /* again */
};
enum { LINES = sizeof lines / sizeof lines[0] };

static void make_jobs(kgen_job jobs[LINES], const char *arch) {
    kgen_error err;
    for (int i = 0; i < LINES; i++) {
        jobs[i].target = target_of(arch);
        if (kgen_spec_parse(&jobs[i].spec, lines[i], &err) != KGEN_OK) fail_msg("%s", err.text);
    }
}

typedef struct seen {
    size_t calls, last_done, total;
} seen;

static void count_progress(const kgen_job_result *result, const kgen_job *job, size_t done,
                           size_t total, void *user) {
    seen *s = user;
    assert_non_null(result);
    assert_non_null(job);
    assert_int_equal(done, s->last_done + 1);
    s->last_done = done;
    s->total = total;
    s->calls++;
}

static void free_results(kgen_job_result *results) {
    for (int i = 0; i < LINES; i++) kgen_entry_free(results[i].entry);
}

/* Lies of an entry about its code object, each alone. */
static void examine_lies(kgen_entry *e) {
    kgen_error err;
    int current, rebuilt;
    if (kgen_entry_examine(e, &current, &err) != KGEN_OK) fail_msg("%s", err.text);
    assert_int_equal(current, 1);
    e->resources.code_bytes++;
    assert_int_equal(kgen_entry_examine(e, &current, &err), KGEN_E_MISMATCH);
    assert_non_null(strstr(err.text, "code_bytes"));
    e->resources.code_bytes--;
    e->resources.workgroup_size += 64;
    assert_int_equal(kgen_entry_examine(e, &current, &err), KGEN_E_MISMATCH);
    e->resources.workgroup_size -= 64;
    e->symbol[3] ^= 1;
    assert_int_equal(kgen_entry_examine(e, &current, &err), KGEN_E_COMPILE);
    e->symbol[3] ^= 1;
    e->source_digest[5] ^= 1;
    assert_int_equal(kgen_entry_examine(e, &current, &err), KGEN_E_MISMATCH);
    e->source_digest[5] ^= 1;
    e->key.bytes[7] ^= 1; /* another compiler's, as it seems */
    assert_int_equal(kgen_entry_rebuild(e, &rebuilt, &err), KGEN_OK);
    assert_int_equal(rebuilt, 0);
    e->key.bytes[7] ^= 1;
    e->code[e->code_size - 1] ^= 1;
    assert_int_equal(kgen_entry_rebuild(e, &rebuilt, &err), KGEN_E_MISMATCH);
    e->code[e->code_size - 1] ^= 1;
}

static void build_twice(const char *arch) {
    char dir[300];
    kgen_job jobs[LINES];
    kgen_job_result results[LINES];
    kgen_cache *cache;
    kgen_error err;
    kgen_key key;
    snprintf(dir, sizeof dir, "%s/cache-%s", files, arch);
    make_jobs(jobs, arch);
    for (int round = 0; round < 2; round++) {
        seen s = {0};
        kgen_build_options options = {
            .size = sizeof options, .workers = 2, .progress = count_progress, .user = &s};
        assert_int_equal(kgen_cache_open(&cache, dir, &err), KGEN_OK);
        if (kgen_build(cache, jobs, LINES, &options, results, &err) != KGEN_OK)
            fail_msg("%s", err.text);
        assert_int_equal(s.calls, LINES);
        assert_int_equal(s.total, LINES);
        for (int i = 0; i < LINES; i++) {
            kgen_outcome want = round == 0 && i < 2 ? KGEN_JOB_BUILT : KGEN_JOB_CACHED;
            assert_int_equal(results[i].outcome, want);
            assert_non_null(results[i].entry);
            assert_int_equal(kgen_job_key(&key, &jobs[i], &err), KGEN_OK);
            assert_memory_equal(&key, &results[i].entry->key, sizeof key);
            assert_string_equal(results[i].entry->target, arch);
            if (round == 0 && i < 2)
                print_message("  %s %s: %u ms, %d VGPRs, %d waves a SIMD\n", arch,
                              results[i].entry->symbol, results[i].entry->record.compile_ms,
                              results[i].entry->resources.vgprs,
                              results[i].entry->resources.waves_per_simd);
        }
        assert_memory_equal(results[0].entry->code, results[2].entry->code,
                            results[0].entry->code_size);
        if (jobs[0].target->vendor == KGEN_VENDOR_CPU) {
            void *library = load_cpu(results[0].entry->code, results[0].entry->code_size);
            assert_non_null(dlsym(library, results[0].entry->symbol));
            dlclose(library);
        }
        if (round == 1) examine_lies(results[1].entry);
        free_results(results);
        kgen_cache_close(cache);
    }
}

static void test_build_amd(void **state) {
    (void)state;
    hiprtc_or_skip();
    build_twice("gfx942");
}

static void test_build_cpu(void **state) {
    (void)state;
    toolchain_or_skip("cpu:cdna3");
    build_twice("cpu:cdna3");
}

/* One job of several fails: the others are built, the status is its own. */
static void test_build_failure(void **state) {
    (void)state;
    toolchain_or_skip("cpu:cdna3");
    kgen_job jobs[LINES];
    kgen_job_result results[LINES];
    kgen_cache *cache;
    kgen_error err;
    make_jobs(jobs, "cpu:cdna3");
    jobs[1].spec.attn.head_dim = -7;
    assert_int_equal(kgen_cache_open(&cache, "", &err), KGEN_OK);
    kgen_status status = kgen_build(cache, jobs, LINES, NULL, results, &err);
    assert_int_equal(status, KGEN_E_SPEC);
    assert_int_equal(results[0].outcome, KGEN_JOB_BUILT);
    assert_int_equal(results[1].outcome, KGEN_JOB_FAILED);
    assert_int_equal(results[1].error.status, KGEN_E_SPEC);
    assert_string_equal(results[1].error.text, err.text);
    assert_null(results[1].entry);
    assert_int_equal(results[2].outcome, KGEN_JOB_CACHED);
    free_results(results);
    kgen_cache_close(cache);
}

static int build_in_child(const char *dir, const char *arch) {
    kgen_job jobs[LINES];
    kgen_job_result results[LINES];
    kgen_cache *cache;
    kgen_error err;
    make_jobs(jobs, arch);
    if (kgen_cache_open(&cache, dir, &err) != KGEN_OK) return 1;
    int failed = kgen_build(cache, jobs, 1, NULL, results, &err) != KGEN_OK;
    if (!failed) kgen_entry_free(results[0].entry);
    kgen_cache_close(cache);
    return failed;
}

/* Four processes want the same kernel: one compiles. */
static void test_single_flight(void **state) {
    (void)state;
    toolchain_or_skip("cpu:cdna3");
    const char *bin = getenv("KGEN_BIN_DIR");
    if (!bin) {
        print_message("skipped, KGEN_BIN_DIR is not set\n");
        skip();
    }
    enum { PROCESSES = 4 };
    char script[700], path[300], dir[300];
    pid_t pids[PROCESSES];
    snprintf(script, sizeof script,
             "#!/bin/sh\ncase \"$*\" in *kgen_kernel*) echo run >> %s/flights; sleep 1;; esac\n"
             "exec %s/kgen-cc \"$@\"\n",
             files, bin);
    write_script(path, "counting.sh", script);
    snprintf(dir, sizeof dir, "%s/cache-flight", files);
    setenv("KGEN_CC", path, 1);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) _exit(build_in_child(dir, "cpu:cdna3"));
        assert_true(pids[i] > 0);
    }
    unsetenv("KGEN_CC");
    for (int i = 0; i < PROCESSES; i++) {
        int status = 1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(lines_of("flights"), 1);
}

static void test_flags(void **state) {
    (void)state;
    for (size_t i = 0; i < kgen_target_count(); i++) {
        const kgen_target *t = kgen_target_at(i);
        int known = 0;
        for (int c = KGEN_TOOLCHAIN_HIPRTC; c <= KGEN_TOOLCHAIN_NVRTC; c++)
            known += kgen_target_flags(t, (kgen_compiler)c)[0] != NULL;
        assert_int_equal(known, t->vendor == KGEN_VENDOR_AMD ? 2 : 1);
    }
    assert_null(kgen_target_flags(target_of("gfx942"), KGEN_TOOLCHAIN_NVRTC)[0]);
}

/* Last: nothing of all this is left in TMPDIR. */
static void test_nothing_left(void **state) {
    (void)state;
    DIR *dir = opendir(scratch);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') fail_msg("left behind: %s/%s", scratch, e->d_name);
    closedir(dir);
}

static int remove_files(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", scratch, files);
    return system(command) != 0;
}

int main(void) {
    seed = (unsigned)test_seed();
    snprintf(scratch, sizeof scratch, "/tmp/kgen-test-tmp-XXXXXX");
    snprintf(files, sizeof files, "/tmp/kgen-test-build-XXXXXX");
    if (!mkdtemp(scratch) || !mkdtemp(files) || setenv("TMPDIR", scratch, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_amd_every_arch),
        cmocka_unit_test(test_same_bytes_hip),
        cmocka_unit_test(test_same_bytes_cpu),
        cmocka_unit_test(test_clang_is_not_started),
        cmocka_unit_test(test_clang_amd),
        cmocka_unit_test(test_nvrtc),
        cmocka_unit_test(test_nvrtc_local_memory),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_cpu_sanitize_flags),
        cmocka_unit_test(test_error_line_hip),
        cmocka_unit_test(test_error_line_cpu),
        cmocka_unit_test(test_error_line_nvrtc),
        cmocka_unit_test(test_undefined_macro),
        cmocka_unit_test(test_wrong_paths),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_crash_is_retried_once),
        cmocka_unit_test(test_hang_is_killed_with_children),
        cmocka_unit_test(test_helper_without_an_answer),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_odd_hosts),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_gate_of_moves),
        cmocka_unit_test(test_occupancy),
        cmocka_unit_test(test_occupancy_by_lds),
        cmocka_unit_test(test_wrong_object),
        cmocka_unit_test(test_hostile_objects),
        cmocka_unit_test(test_disassemble),
        cmocka_unit_test(test_disassemble_refusals),
        cmocka_unit_test(test_disassemble_helper),
        cmocka_unit_test(test_disassemble_hostile),
        cmocka_unit_test(test_build_amd),
        cmocka_unit_test(test_build_cpu),
        cmocka_unit_test(test_build_failure),
        cmocka_unit_test(test_single_flight),
        cmocka_unit_test(test_nothing_left),
    };
    return cmocka_run_group_tests_name("build", tests, NULL, remove_files);
}
