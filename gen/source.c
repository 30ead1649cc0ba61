/* Source text: the spec as a comment, typed constants, then the template and
 * each kg/ header once. What is written here is what is hashed and compiled. */
#include <kgen/source.h>

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "digest.h"
#include "family.h"

enum { MAX_INCLUDED = 64 };

typedef struct flattener {
    kgen__buf *buf;       /* NULL: not written */
    kgen__digest *digest; /* NULL: not asked for */
    const kgen_target *target;
    const char *done[MAX_INCLUDED];
    size_t done_count;
    kgen_error *err;
} flattener;

/* --- prelude ------------------------------------------------------------ */

/* Only kg/core/isa.h and its like look at it: headers that stand for another. */
static const char *const isa_macros[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = "KG_ISA_" #NAME,
#include <kgen/targets.def>
};

/* What headers of all families name (kg/core/num_soft.h), whatever the parameters are. */
static const kgen_symbol core_types[] = {
    NAMED("bf16", DTYPE_BF16),         NAMED("fp16", DTYPE_FP16), NAMED("e4m3fn", DTYPE_E4M3FN),
    NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2), NO_SYMBOL};

static int has_constant(const kgen_symbol *symbols, const char *constant) {
    for (; symbols->name; symbols++)
        if (symbols->constant && strcmp(symbols->constant, constant) == 0) return 1;
    return 0;
}

/* Parameters share words: each is written once. */
static int is_written(const kgen_param *params, size_t count, const char *constant) {
    for (size_t i = 0; i < count; i++)
        if (has_constant(params[i].symbols, constant)) return 1;
    return has_constant(core_types, constant);
}

static void write_constant(kgen__buf *buf, const char *name, int32_t value) {
    kgen__buf_printf(buf, "constexpr int %s = %d;\n", name, value);
}

/* "constexpr int LAYOUT_NHD = 1;" and the others, then "constexpr int LAYOUT = 1;" */
static void write_param(kgen__buf *buf, const kgen_param *params, size_t index, int32_t value) {
    for (const kgen_symbol *s = params[index].symbols; s->name; s++)
        if (s->constant && !is_written(params, index, s->constant))
            write_constant(buf, s->constant, s->value);
    write_constant(buf, params[index].constant, value);
}

static void write_prelude(kgen__buf *buf, const kgen_source *source, const kgen__family *family) {
    const kgen_target *target = source->target;
    kgen__buf_printf(buf, "#define KG_KERNEL %s\n", source->symbol);
    kgen__buf_printf(buf, "#define %s 1\n", isa_macros[target->isa]);
    kgen__buf_printf(buf, "#define KG_WORKGROUP %d\n", source->workgroup_size);
    kgen__buf_printf(buf, "#define KG_WAVE %d\n", target->wave_size);
    kgen__buf_printf(buf, "#define KG_SIMDS %d\n", target->simds);
    if (source->lds_bytes) kgen__buf_printf(buf, "#define KG_LAUNCH_LDS 1\n");
    int32_t cluster = kgen_spec_cluster(&source->spec);
    if (cluster) kgen__buf_printf(buf, "#define KG_CLUSTER %d\n", cluster);
    kgen__buf_printf(buf, "#define KG_LDS_BYTES %d\nnamespace kg {\n",
                     source->lds_bytes ? source->lds_bytes : target->lds_bytes);
    for (const kgen_symbol *s = core_types; s->name; s++)
        write_constant(buf, s->constant, s->value);
    for (size_t i = 0; i < family->param_count; i++)
        write_param(buf, family->params, i, kgen_param_get(&source->spec, &family->params[i]));
    for (const kgen__fact *f = family->facts; f && f->constant; f++)
        write_constant(buf, f->constant, f->of(&source->spec, target));
    kgen__buf_printf(buf, "}\n");
}

/* --- flatten ------------------------------------------------------------ */

static int compare_name(const void *name, const void *file) {
    return strcmp(name, ((const kgen__template *)file)->name);
}

static const kgen__template *find_template(const char *name) {
    return bsearch(name, kgen__templates, kgen__template_count, sizeof *kgen__templates,
                   compare_name);
}

/* Names that stand for a file of the target: that of its vendor, or of its isa. */
static const struct {
    const char *name;
    const char *file[KGEN_VENDOR_CPU + 1];
} aliases[] = {
#define BY_VENDOR(name)                        \
    {name ".h",                                \
     {[KGEN_VENDOR_AMD] = name "_amd.h",       \
      [KGEN_VENDOR_NVIDIA] = name "_nvidia.h", \
      [KGEN_VENDOR_CPU] = name "_cpu.h"}}
    BY_VENDOR("kg/core/macros"),
    BY_VENDOR("kg/core/machine"),
    BY_VENDOR("kg/core/gates"),
    BY_VENDOR("kg/core/fp8_read"),
    BY_VENDOR("kg/attn/mma"),
    BY_VENDOR("kg/attn/fp8"),
    BY_VENDOR("kg/kv/kv_fp8"),
    BY_VENDOR("kg/indexer/index_lds"),
#undef BY_VENDOR
    {"kg/attn/lds_nvidia.h",
     {[KGEN_VENDOR_NVIDIA] = "kg/attn/lds_nvidia.h", [KGEN_VENDOR_CPU] = "kg/attn/lds_cpu.h"}},
    {"kg/attn/boxes_nvidia.h",
     {[KGEN_VENDOR_NVIDIA] = "kg/attn/boxes_nvidia.h", [KGEN_VENDOR_CPU] = "kg/attn/boxes_cpu.h"}},
    {"kg/mla/mla_mma_nvidia.h",
     {[KGEN_VENDOR_NVIDIA] = "kg/mla/mla_mma_nvidia.h",
      [KGEN_VENDOR_CPU] = "kg/mla/mla_mma_cpu.h"}},
};
enum { ISA_FILES = 8 };
static const char *const isa_names[ISA_FILES] = {
    "kg/core/isa.h",   "kg/core/frag.h",  "kg/attn/mma_step.h", "kg/attn/key_loop.h",
    "kg/attn/lines.h", "kg/attn/parts.h", "kg/mla/mla_loop.h",  "kg/indexer/index_way.h"};
static const char *const isa_files[KGEN_ISA_COUNT][ISA_FILES] = {
#define KGEN_ISA(NAME, name, fragments, products, key_loop, lines, parts, latent, index) \
    [KGEN_ISA_##NAME] = {                                                                \
        "kg/core/isa_" #name ".h", fragments, products, key_loop, lines, parts, latent, index},
#include <kgen/targets.def>
};

static const char *resolve_name(const char *name, const kgen_target *target) {
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(name, aliases[i].name) == 0) return aliases[i].file[target->vendor];
    for (size_t i = 0; i < ISA_FILES; i++)
        if (strcmp(name, isa_names[i]) == 0) return isa_files[target->isa][i];
    return name;
}

static int already_done(const flattener *f, const char *name) {
    for (size_t i = 0; i < f->done_count; i++)
        if (strcmp(f->done[i], name) == 0) return 1;
    return 0;
}

static void mark_line(flattener *f, int line, const char *name) {
    if (f->buf) kgen__buf_printf(f->buf, "#line %d \"%s\"\n", line, name);
}

/* Recursion depth is bounded: every file enters once. */
static kgen_status flatten(flattener *f, const char *wanted) {
    const char *name = resolve_name(wanted, f->target);
    if (already_done(f, name)) return KGEN_OK;
    const kgen__template *file = find_template(name);
    if (!file) return kgen_fail(f->err, KGEN_E_INTERNAL, "template %s: missing", name);
    if (f->done_count == MAX_INCLUDED)
        return kgen_fail(f->err, KGEN_E_INTERNAL, "template %s: file %d, at most %d", name,
                         MAX_INCLUDED + 1, MAX_INCLUDED);
    f->done[f->done_count++] = file->name;
    mark_line(f, 1, name);
    for (size_t i = 0; i < file->piece_count; i++) {
        const kgen__piece *piece = &file->pieces[i];
        if (f->buf) kgen__buf_add(f->buf, piece->text, piece->size);
        if (f->digest) kgen__digest_piece(f->digest, piece);
        if (!piece->includes) continue;
        KGEN_TRY(flatten(f, piece->includes));
        mark_line(f, piece->line, name);
    }
    return KGEN_OK;
}

/* --- public ------------------------------------------------------------- */

/* What stands before the templates; free() its text. */
static void make_prelude(kgen__buf *out, const kgen_source *source) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &source->spec);
    kgen__buf_printf(out, "// %s\n// for %s, written by kgen\n", line, source->target->name);
    write_prelude(out, source, kgen__family_of(source->spec.family));
}

static kgen_status take_digest(kgen_source *source, kgen_error *err) {
    kgen__buf prelude = {0};
    kgen__digest digest;
    flattener f = {.digest = &digest, .target = source->target, .err = err};
    make_prelude(&prelude, source);
    if (prelude.failed) {
        free(prelude.text);
        return kgen_fail(err, KGEN_E_NOMEM, "source: out of memory");
    }
    kgen__digest_begin(&digest, prelude.text, prelude.size);
    kgen_status status = flatten(&f, kgen__template_of(&source->spec));
    kgen__digest_end(&digest, source->digest);
    source->has_digest = 1;
    free(prelude.text);
    return status;
}

kgen_status kgen_source_name(kgen_source *out, const kgen_spec *spec, const kgen_target *target,
                             kgen_error *err) {
    kgen_source source;
    memset(&source, 0, sizeof source);
    source.target = target;
    KGEN_TRY(kgen_spec_resolve(&source.spec, spec, target, err));
    kgen_spec_symbol(source.symbol, &source.spec);
    const kgen__family *family = kgen__family_of(spec->family);
    source.workgroup_size = family->launch_shape(&source.spec, target);
    source.lds_bytes = family->launch_lds ? family->launch_lds(&source.spec, target) : 0;
    KGEN_TRY(take_digest(&source, err));
    *out = source;
    return KGEN_OK;
}

kgen_status kgen_source_write(kgen_source *source, kgen_error *err) {
    kgen__buf buf = {0};
    flattener f = {.buf = &buf, .target = source->target, .err = err};
    if (source->text) return KGEN_OK;
    make_prelude(&buf, source);
    kgen_status status = flatten(&f, kgen__template_of(&source->spec));
    if (status == KGEN_OK) return kgen__buf_take(&buf, &source->text, &source->size, err);
    free(buf.text);
    return status;
}

kgen_status kgen_source_render(kgen_source *out, const kgen_spec *spec, const kgen_target *target,
                               kgen_error *err) {
    kgen_source source;
    KGEN_TRY(kgen_source_name(&source, spec, target, err));
    KGEN_TRY(kgen_source_write(&source, err));
    *out = source;
    return KGEN_OK;
}

void kgen_source_free(kgen_source *source) {
    free(source->text);
    memset(source, 0, sizeof *source);
}
