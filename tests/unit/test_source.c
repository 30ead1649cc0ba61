/* Generated text: the same bytes everywhere, nothing of the machine in it,
 * every parameter in it, and every parameter of the shape in the code. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "gen/family.h"
#include "gen/templates.h"
#include "compile/unit.h"
#include "seed.h"

static kgen__rng rng;
static uint64_t run_seed;
static char folder[] = "/tmp/kgen-source-XXXXXX";

static const kgen_target *target_of(const char *name) {
    const kgen_target *target;
    kgen_error err;
    if (kgen_target_find(&target, name, &err) != KGEN_OK) fail_msg("%s", err.text);
    return target;
}

static kgen_source rendered(const char *line, const char *target) {
    kgen_spec spec;
    kgen_source source;
    kgen_error err;
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK ||
        kgen_source_render(&source, &spec, target_of(target), &err) != KGEN_OK)
        fail_msg("%s on %s: %s", line, target, err.text);
    assert_int_equal(strlen(source.text), source.size);
    return source;
}

static const char *const targets[] = {
#define KGEN_TARGET(name, ...) name,
#include <kgen/targets.def>
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

static kgen_spec random_spec(const kgen_target *target) {
    kgen__case c;
    kgen_error err;
    kgen_family_id id = (kgen_family_id)kgen__rng_range(&rng, 0, KGEN_FAMILY_COUNT - 1);
    if (kgen__case_random(&c, id, &rng, target, 0, &err) != KGEN_OK) fail_msg("%s", err.text);
    return c.spec;
}

/* ---- the same bytes ------------------------------------------------------ */

/* What another process of this program prints, started elsewhere with another
 * environment. */
static char *rendered_elsewhere(const char *line, const char *target, size_t *size) {
    char command[2048], self[1024];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = 0;
    snprintf(command, sizeof command,
             "cd / && exec env -i LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo HOME=/nonexistent '%s' "
             "--render '%s' '%s'",
             self, line, target);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    enum { MOST = 1 << 20 };
    char *text = malloc(MOST);
    assert_non_null(text);
    *size = fread(text, 1, MOST, pipe);
    int status = pclose(pipe);
    if (status != 0) fail_msg("%s: exit status %d", command, status);
    return text;
}

static int print_rendered(const char *line, const char *target) {
    const kgen_target *t;
    kgen_spec spec;
    kgen_source source;
    setlocale(LC_ALL, "");
    if (kgen_target_find(&t, target, NULL) != KGEN_OK ||
        kgen_spec_parse(&spec, line, NULL) != KGEN_OK ||
        kgen_source_render(&source, &spec, t, NULL) != KGEN_OK)
        return 1;
    size_t written = fwrite(source.text, 1, source.size, stdout);
    int bad = written != source.size || fflush(stdout) != 0;
    kgen_source_free(&source);
    return bad;
}

static void assert_same(const kgen_source *a, const kgen_source *b) {
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->text, b->text, a->size);
}

/* A look-up has the digest before there is a text. */
static void test_a_name_has_no_text(void **state) {
    (void)state;
    for (int n = 0; n < TARGETS; n++) {
        const kgen_target *target = target_of(targets[n]);
        char line[KGEN_SPEC_LINE_MAX];
        kgen_source named;
        kgen_spec spec = random_spec(target);
        kgen_spec_print(line, &spec);
        kgen_source whole = rendered(line, target->name);
        assert_int_equal(kgen_source_name(&named, &spec, target, NULL), KGEN_OK);
        assert_null(named.text);
        assert_true(named.has_digest && whole.has_digest);
        assert_memory_equal(named.digest, whole.digest, sizeof whole.digest);
        assert_string_equal(named.symbol, whole.symbol);
        for (int i = 0; i < 2; i++) { /* once is enough */
            assert_int_equal(kgen_source_write(&named, NULL), KGEN_OK);
            assert_same(&named, &whole);
        }
        kgen_source_free(&named);
        kgen_source_free(&whole);
    }
}

static void test_same_bytes_everywhere(void **state) {
    (void)state;
    char home[1024], line[KGEN_SPEC_LINE_MAX];
    assert_non_null(getcwd(home, sizeof home));
    for (int n = 0; n < 3 * TARGETS; n++) {
        const char *target = targets[n % TARGETS];
        kgen_spec spec = random_spec(target_of(target));
        size_t size;
        kgen_spec_print(line, &spec);
        kgen_source here = rendered(line, target), again = rendered(line, target);
        assert_same(&here, &again);
        kgen_source_free(&again);
        assert_int_equal(chdir("/"), 0);
        again = rendered(line, target);
        assert_int_equal(chdir(home), 0);
        assert_same(&here, &again);
        char *elsewhere = rendered_elsewhere(line, target, &size);
        assert_int_equal(size, here.size);
        assert_memory_equal(elsewhere, here.text, size);
        free(elsewhere);
        kgen_source_free(&again);
        kgen_source_free(&here);
    }
}

static void test_same_bytes_in_other_locales(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.utf8", "tr_TR.utf8"};
    kgen_source want = rendered("attn:kv=fp8,page=65536,window=16777216", "gfx942");
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!setlocale(LC_ALL, names[i])) continue;
        found++;
        kgen_source got = rendered("attn:kv=fp8,page=65536,window=16777216", "gfx942");
        assert_same(&want, &got);
        kgen_source_free(&got);
    }
    setlocale(LC_ALL, "C");
    kgen_source_free(&want);
    if (found) return;
    print_message("skipped: none of the locales de_DE, fr_FR, tr_TR is installed\n");
    skip();
}

/* An equal spec, said in another way, is the same text. */
static void test_spelling_does_not_matter(void **state) {
    (void)state;
    static const char *const lines[] = {"attn:d=64,g=4,kv=fp8", "attn:kv=fp8,g=4,d=64",
                                        "attn:kv=e4m3fnuz,g=4,d=64,dv=64,descale=head,o=bf16"};
    kgen_source want = rendered(lines[0], "gfx942");
    for (int i = 1; i < 3; i++) {
        kgen_source got = rendered(lines[i], "gfx942");
        assert_same(&want, &got);
        kgen_source_free(&got);
    }
    kgen_source_free(&want);
}

/* ---- what is in it, and what is not -------------------------------------- */

static void assert_without(const kgen_source *source, const char *words) {
    if (*words && strstr(source->text, words)) fail_msg("the text has '%s'", words);
}

/* Names that stand for a file of the target. */
static const char *const forwarding[] = {
    "kg/core/isa.h",          "kg/attn/mma_step.h", "kg/attn/key_loop.h",     "kg/attn/parts.h",
    "kg/core/macros.h",       "kg/core/machine.h",  "kg/core/frag.h",         "kg/attn/mma.h",
    "kg/attn/fp8.h",          "kg/kv/kv_fp8.h",     "kg/core/fp8_read.h",     "kg/mla/mla_loop.h",
    "kg/indexer/index_way.h", "kg/attn/lines.h",    "kg/indexer/index_lds.h", "kg/core/gates.h"};
enum { FORWARDING = sizeof forwarding / sizeof forwarding[0] };

static int is_forwarding(const char *name) {
    for (int i = 0; i < FORWARDING; i++)
        if (strcmp(name, forwarding[i]) == 0) return 1;
    return 0;
}

static void check_no_machine(const kgen_source *source) {
    static const char *const never[] = {"\"/",           "/tmp",     "/home",    "/usr",
                                        "/root",         "/opt",     "__DATE__", "__TIME__",
                                        "__TIMESTAMP__", "__FILE__", "#include", "#pragma once",
                                        "prelude",       "\r",       "\t"};
    static const char *const formats[] = {"%Y-%m-%d", "%b %e %Y", "%d.%m.%Y"};
    char text[1024];
    time_t now = time(NULL);
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) assert_without(source, never[i]);
    for (int i = 0; i < FORWARDING; i++) {
        snprintf(text, sizeof text, "\"%s\"", forwarding[i]);
        assert_without(source, text);
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        strftime(text, sizeof text, formats[i], localtime(&now));
        assert_without(source, text);
    }
    assert_without(source, getcwd(text, sizeof text));
    for (const char *c = source->text; *c; c++)
        if ((unsigned char)*c > 126 || ((unsigned char)*c < 32 && *c != '\n'))
            fail_msg("byte 0x%02x at %zu", (unsigned char)*c, (size_t)(c - source->text));
}

static void assert_line(const kgen_source *source, const char *fmt, const char *name, int value) {
    char line[256];
    snprintf(line, sizeof line, fmt, name, value);
    const char *first = strstr(source->text, line);
    if (!first) fail_msg("no line '%.60s'", line + 1);
    if (strstr(first + 1, line)) fail_msg("twice: '%.60s'", line + 1);
}

static const char *const isa_macros[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = "KG_ISA_" #NAME,
#include <kgen/targets.def>
};

/* What targets.def says of 8-bit floats, the isa's file says as well. */
static void check_conversions(const kgen_source *source) {
    const kgen_target *t = source->target;
    if (t->isa == KGEN_ISA_SM90) return; /* it converts to fp16 only */
    assert_int_equal(strstr(source->text, "CONVERTS_E4M3FN = true") != NULL,
                     t->fp8_converts && !t->fp8_fnuz);
    assert_int_equal(strstr(source->text, "CONVERTS_E4M3FNUZ = true") != NULL,
                     t->fp8_converts && t->fp8_fnuz);
}

static void check_constants(const kgen_source *source) {
    const kgen__family *family = kgen__family_of(source->spec.family);
    char line[KGEN_SPEC_LINE_MAX], head[KGEN_SPEC_LINE_MAX + 8];
    kgen_spec_print(line, &source->spec);
    snprintf(head, sizeof head, "// %s\n", line);
    assert_memory_equal(source->text, head, strlen(head));
    for (size_t i = 0; i < family->param_count; i++)
        assert_line(source, "\nconstexpr int %s = %d;\n", family->params[i].constant,
                    kgen_param_get(&source->spec, &family->params[i]));
    assert_line(source, "\n#define %s %d\n", "KG_WORKGROUP", source->workgroup_size);
    assert_line(source, "\n#define %s %d\n", "KG_LDS_BYTES",
                source->lds_bytes ? source->lds_bytes : source->target->lds_bytes);
    assert_line(source, "\n#define %s %d\n", isa_macros[source->target->isa], 1);
    for (kgen_isa isa = 0; isa < KGEN_ISA_COUNT; isa++)
        if (isa != source->target->isa) assert_without(source, isa_macros[isa]);
    snprintf(head, sizeof head, "\n#define KG_KERNEL %s\n", source->symbol);
    assert_line(source, "%s%.0d", head, 0);
    assert_int_equal(source->workgroup_size % source->target->wave_size, 0);
}

static void test_text_has_the_spec_and_no_machine(void **state) {
    (void)state;
    for (size_t i = 0; i < kgen_target_count(); i++) {
        for (int n = 0; n < 60; n++) {
            kgen_spec spec = random_spec(kgen_target_at(i));
            kgen_source source;
            kgen_error err;
            if (kgen_source_render(&source, &spec, kgen_target_at(i), &err) != KGEN_OK)
                fail_msg("%s", err.text);
            check_no_machine(&source);
            check_constants(&source);
            check_conversions(&source);
            kgen_source_free(&source);
        }
    }
}

static void test_a_bad_spec_has_no_text(void **state) {
    (void)state;
    kgen_spec spec;
    kgen_source source, before;
    kgen_error err;
    assert_int_equal(kgen_spec_parse(&spec, "attn:", &err), KGEN_OK);
    spec.attn.group = 129;
    memset(&source, 0x5a, sizeof source);
    before = source;
    assert_int_equal(kgen_source_render(&source, &spec, target_of("gfx942"), &err), KGEN_E_SPEC);
    assert_non_null(strstr(err.text, "g=129"));
    assert_memory_equal(&source, &before, sizeof source);
    memset(&source, 0, sizeof source);
    kgen_source_free(&source);
}

static void check_keys(const kgen__family *family) {
    static const char *const never[] = {"batch", "seq", "len", "stride", "scale", "pages",
                                        "heads", "hkv", "hq",  "eps",    "ptr",   "grid"};
    static const char *const fine[] = {"descale", "scale", "varlen", "batch",
                                       "seq",     "len",   "pages"}; /* kinds, not numbers */
    for (size_t i = 0; i < family->param_count; i++) {
        const char *key = family->params[i].key;
        int found = 0, excused = 0;
        for (size_t n = 0; n < sizeof never / sizeof never[0]; n++)
            found |= strstr(key, never[n]) != NULL;
        for (size_t n = 0; n < sizeof fine / sizeof fine[0]; n++)
            excused |= strcmp(key, fine[n]) == 0 && !family->params[i].domain->step;
        if (found && !excused) fail_msg("%s is a run-time value", key);
    }
}

/* The spec is its parameters: nothing of a batch can get into the text. */
static void test_no_run_time_value_is_a_parameter(void **state) {
    (void)state;
    static const size_t sizes[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = sizeof(kgen_##name##_spec),
#include <kgen/families.def>
    };
    for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++) {
        assert_int_equal(sizes[id], kgen__family_of(id)->param_count * sizeof(int32_t));
        check_keys(kgen__family_of(id));
    }
}

/* ---- no dead axes -------------------------------------------------------- */

/* Two specs that differ in one parameter. */
typedef struct axis {
    const char *key, *one, *other;
} axis;

static const axis attn_axes[] = {
    {"phase", "phase=verify", "phase=decode"},
    {"q", "q=bf16", "q=fp16,o=bf16"},
    {"kv", "kv=bf16", "kv=fp16"},
    {"kv", "kv=e4m3fn", "kv=e4m3fnuz"},
    {"kv", "kv=e4m3fn", "kv=e5m2"},
    {"kv", "kv=e5m2", "kv=i8"},
    {"kv", "kv=i8,descale=token", "kv=i4"},
    {"o", "o=bf16", "o=fp16"},
    {"o", "o=e4m3fnuz", "o=e5m2"},
    {"d", "d=64", "d=80,dv=64"},
    {"dv", "d=128", "d=128,dv=112"},
    {"g", "g=2", "g=3"},
    {"g", "g=1", "g=16"},
    {"t", "phase=verify,t=2", "phase=verify,t=3"},
    {"phase", "phase=verify", "phase=extend"},
    {"phase", "phase=verify,t=2", "phase=tree,t=2"},
    {"phase", "phase=prefill,page=1", "phase=extend,page=1"},
    {"word", "phase=tree,t=2,word=u8", "phase=tree,t=2,word=u64"},
    {"causal", "phase=verify,t=2,causal=0", "phase=verify,t=2,causal=1"},
    {"causal", "phase=verify,t=2,causal=0", "phase=verify,t=2,causal=seq"},
    {"right", "phase=verify,t=2,causal=0", "phase=verify,t=2,causal=0,right=3"},
    {"right", "phase=verify,t=2,causal=0,right=rt", "phase=verify,t=2,causal=0,right=3"},
    {"page", "page=16", "page=32"},
    {"page", "page=16", "page=1"},
    {"page", "page=16", "page=x16"},
    {"layout", "layout=nhd", "layout=shuffle"}, /* nhd and hnd differ in strides alone */
    {"layout", "layout=shuffle", "layout=xpacked"},
    {"table", "table=i32", "table=i64"},
    {"window", "window=off", "window=128"},
    {"window", "window=128", "window=129"},
    {"window", "window=128", "window=rt"},
    {"chunk", "chunk=off", "chunk=64"},
    {"lookback", "chunk=64", "chunk=64,lookback=1"},
    {"keep", "window=128", "window=128,keep=4"},
    {"keep", "window=128,keep=4", "window=128,keep=rt"},
    {"invariant", "invariant=0", "invariant=1"},
    {"invariant", "invariant=1", "invariant=4096"},
    {"spans", "phase=extend,spans=0", "phase=extend,spans=1"},
    {"cascade", "cascade=0", "cascade=1"},
    {"softcap", "softcap=0", "softcap=1"},
    {"alibi", "alibi=0", "alibi=1"},
    {"alibi", "alibi=1", "alibi=sqrt"},
    {"order", "softcap=1,alibi=1,order=cap", "softcap=1,alibi=1,order=alibi"},
    {"sinks", "sinks=0", "sinks=1"},
    {"flat", "flat=0", "flat=1"},
    {"len", "len=i32", "len=i64"},
    {"cu", "phase=verify,t=2,cu=i32", "phase=verify,t=2,cu=i64"},
    {"lse", "lse=0", "lse=1"},
    {"lse", "lse=1", "lse=th"},
    {"descale", "kv=fp8,descale=none", "kv=fp8,descale=head"},
    {"descale", "kv=fp8,descale=head", "kv=fp8,descale=token"},
    {"gate", "gate=off", "gate=bf16"},
    {"gate", "gate=fp16", "gate=bf16"},
};

#define SMALL "hk=1,hv=2,dk=64"
#define FLAT "layout=flat," SMALL
#define PRE "layout=presplit," SMALL
#define TYPES ",cs=bf16,cw=bf16,ab=bf16,dt=bf16,nw=bf16,o=bf16"

static const axis gdn_axes[] = {
    {"fuse", FLAT, "fuse=d," FLAT},
    {"fuse", FLAT, "fuse=b," FLAT},
    {"fuse", FLAT, "fuse=c," FLAT},
    {"fuse", "fuse=a," FLAT, "fuse=d," FLAT},
    {"layout", "layout=flat,hk=2,hv=4", "layout=interleaved,hk=2,hv=4"},
    {"layout", FLAT, PRE},
    {"layout", "fuse=c,layout=flat,hk=2,hv=4", "fuse=c,layout=interleaved,hk=2,hv=4"},
    {"x", FLAT TYPES, "x=fp16," FLAT TYPES},
    {"qkv", "fuse=a," FLAT, "fuse=a," FLAT ",qkv=split"},
    {"x", "fuse=c," PRE ",cs=bf16,cw=bf16,o=auto", "fuse=c," PRE ",cs=bf16,cw=bf16,x=f32"},
    {"ch", "fuse=c,layout=presplit,ch=64", "fuse=c,layout=presplit,ch=66"},
    {"hk", "layout=flat,hk=1,hv=2", "layout=flat,hk=2,hv=2"},
    {"hv", "layout=flat,hk=1,hv=2", "layout=flat,hk=1,hv=3"},
    {"dk", FLAT, "layout=flat,hk=1,hv=2"},
    {"dv", FLAT, FLAT ",dv=64"},
    {"state", FLAT, FLAT ",state=bf16"},
    {"state", FLAT ",state=fp16", FLAT ",state=bf16"},
    {"sl", FLAT, FLAT ",sl=kv"},
    {"map", "layout=flat,hk=2,hv=4", "layout=flat,hk=2,hv=4,map=tiled"},
    {"w", FLAT, FLAT ",w=3"},
    {"cl", FLAT, FLAT ",cl=ds"},
    {"cs", FLAT, FLAT ",cs=fp16"},
    {"cw", FLAT, FLAT ",cw=f32"},
    {"bias", FLAT, FLAT ",bias=1"},
    {"act", FLAT, FLAT ",act=none"},
    {"gate", PRE, PRE ",gate=kda"},
    {"gate", PRE ",gate=kda", PRE ",gate=kda_bound"},
    {"raw", PRE, PRE ",raw=1"},
    {"ab", FLAT, FLAT ",ab=f32"},
    {"alog", FLAT, FLAT ",alog=bf16"},
    {"dt", FLAT, FLAT ",dt=f32"},
    {"l2", FLAT, FLAT ",l2=0"},
    {"ogate", FLAT, FLAT ",ogate=sigmoid"},
    {"nw", FLAT, FLAT ",nw=f32"},
    {"o", FLAT, FLAT ",o=f32"},
    {"o", FLAT ",o=e4m3fn", FLAT ",o=e4m3fnuz"},
    {"t", FLAT, FLAT ",t=2"},
    {"t", FLAT ",t=3", FLAT ",t=2"},
    {"varlen", FLAT ",t=2", FLAT ",t=2,varlen=1"},
    {"cu", FLAT ",t=2,varlen=1", FLAT ",t=2,varlen=1,cu=i64"},
    {"acc", FLAT ",t=2,accept=1", FLAT ",t=2,accept=1,acc=i64"},
    {"index", FLAT, FLAT ",index=pair"},
    {"index", FLAT, FLAT ",index=blocks"},
    {"index", FLAT ",t=2,accept=1,save=slots,index=pair",
     FLAT ",t=2,accept=1,save=slots,index=spec"},
    {"idx", FLAT, FLAT ",idx=i64"},
    {"pad", FLAT, FLAT ",pad=nonpos"},
    {"pad", FLAT, FLAT ",pad=value"},
    {"accept", FLAT ",t=2", FLAT ",t=2,accept=1"},
    {"save", FLAT, FLAT ",save=none"},
    {"save", FLAT, FLAT ",save=buffer"},
    {"save", FLAT ",t=2,index=pair", FLAT ",t=2,index=pair,save=slots"},
    {"save", FLAT, FLAT ",save=replay,ring=4"},
    {"tree", FLAT ",t=3,save=buffer", FLAT ",t=3,save=buffer,tree=1"},
    {"ring", FLAT ",save=replay,ring=5", FLAT ",save=replay,ring=4"},
    {"convr", FLAT, FLAT ",convr=0"},
    {"betar", FLAT, FLAT ",betar=1"},
    {"circular", FLAT, FLAT ",circular=1"},
    {"or", FLAT, FLAT ",or=0"},
    {"sr", FLAT ",t=2,state=bf16", FLAT ",t=2,state=bf16,sr=1"},
};

static const axis kv_write_axes[] = {
    {"x", "kv=fp8,x=bf16", "kv=fp8,x=fp16"},
    {"x", "kv=bf16,x=bf16", "kv=bf16,x=f32"},
    {"kv", "kv=bf16", "kv=fp8"},
    {"kv", "kv=e4m3fn", "kv=e4m3fnuz"},
    {"kv", "kv=e5m2", "kv=i8"},
    {"kv", "kv=i8,scale=token", "kv=i4"},
    {"d", "d=64,dv=64", "d=80,dv=64"},
    {"dv", "dv=64", "dv=80"},
    {"page", "page=16", "page=32"},
    {"page", "page=16", "page=1"},
    {"page", "page=16", "page=x16"},
    {"layout", "layout=nhd", "layout=shuffle"}, /* within each pair strides differ alone */
    {"slots", "slots=i64", "slots=i32"},
    {"scale", "kv=fp8,scale=none", "kv=fp8,scale=head"},
    {"scale", "kv=fp8,scale=head", "kv=fp8,scale=token"},
    {"scale", "kv=fp8,scale=token", "kv=fp8,scale=row"},
    {"pow2", "kv=fp8,dv=128,scale=block", "kv=fp8,dv=128,scale=block,pow2=1"},
    {"remap", "remap=off", "remap=i32"},
    {"remap", "remap=i32", "remap=i64"},
    {"rope", "rope=off", "rope=neox"},
    {"rope", "rope=neox", "rope=interleaved"},
    {"rd", "rope=neox,rd=64", "rope=neox,rd=32"},
    {"rq", "rope=neox", "rope=neox,rq=1"},
    {"ct", "rope=neox", "rope=neox,ct=bf16"},
    {"tw", "rope=neox", "rope=neox,tw=full"},
    {"tw", "rope=interleaved", "rope=interleaved,tw=full"},
    {"al", "al=16", "al=4"},
    {"pos", "rope=neox", "rope=neox,pos=i32"},
};

static const axis kv_gather_axes[] = {
    {"kv", "kv=bf16", "kv=fp8"},
    {"kv", "kv=e5m2", "kv=i8"},
    {"kv", "kv=i8,descale=token", "kv=i4"},
    {"o", "kv=fp8,o=bf16", "kv=fp8,o=fp16"},
    {"d", "d=64,dv=64", "d=80,dv=64"},
    {"dv", "dv=64", "dv=80"},
    {"page", "page=16", "page=32"},
    {"page", "page=16", "page=x16"},
    {"layout", "layout=nhd", "layout=shuffle"},
    {"table", "table=i32", "table=i64"},
    {"descale", "kv=fp8,descale=none", "kv=fp8,descale=head"},
    {"descale", "kv=fp8,descale=head", "kv=fp8,descale=token"},
    {"from", "from=start", "from=end"},
    {"len", "len=i32", "len=i64"},
    {"cu", "cu=i32", "cu=i64"},
    {"al", "al=16", "al=4"},
};

static const axis attn_merge_axes[] = {
    {"x", "x=bf16,o=bf16", "x=f32,o=bf16"},
    {"x", "x=bf16,o=bf16", "x=fp16,o=bf16"},
    {"o", "o=bf16", "o=f32"},
    {"o", "o=e4m3fn", "o=e5m2"},
    {"d", "d=64", "d=72"},
    {"parts", "parts=pair", "parts=stack"},
    {"lse", "lse=1", "lse=th"},
};

static const axis mla_axes[] = {
    {"phase", "phase=decode", "phase=verify"},
    {"q", "q=bf16", "q=fp16"},
    {"kv", "kv=bf16", "kv=fp8"},
    {"o", "o=bf16", "o=fp16"},
    {"l", "l=512", "l=256"},
    {"r", "r=64", "r=32"},
    {"h", "h=8", "h=12"},
    {"phase", "phase=verify", "phase=tree"},
    {"t", "phase=verify,t=2", "phase=verify,t=3"},
    {"word", "phase=tree,t=2,word=u8", "phase=tree,t=2,word=u64"},
    {"page", "page=64", "page=1"},
    {"invariant", "invariant=0", "invariant=1"},
    {"sparse", "page=1,sparse=0", "page=1,sparse=1"},
    {"table", "table=i32", "table=i64"},
    {"flat", "flat=0", "flat=1"},
    {"len", "len=i32", "len=i64"},
    {"cu", "phase=verify,cu=i32", "phase=verify,cu=i64"},
    {"window", "window=off", "window=rt"},
    {"sinks", "sinks=0", "sinks=1"},
    {"lse", "lse=0", "lse=1"},
    {"lse", "lse=1", "lse=th"},
    {"descale", "kv=fp8,descale=none", "kv=fp8,descale=head"},
    {"rows", "rows=kv", "rows=fp8"},
};

static const axis indexer_axes[] = {
    {"op", "op=write", "op=gather"},
    {"op", "op=decode", "op=prefill"},
    {"op", "op=decode", "op=topk"},
    {"x", "op=write", "op=write,x=f32"},
    {"kv", "op=decode,kv=e4m3fn", "op=decode,kv=e4m3fnuz"},
    {"d", "op=write", "op=write,d=64"},
    {"h", "op=decode", "op=decode,h=20"},
    {"t", "op=decode", "op=decode,t=2"},
    {"page", "op=gather", "op=gather,page=1"},
    {"pow2", "op=write", "op=write,pow2=1"},
    {"clean", "op=prefill", "op=prefill,clean=0"},
    {"ranges", "op=topk", "op=topk,ranges=1"},
    {"to", "op=topk", "op=topk,to=slot"},
    {"to", "op=topk", "op=topk,to=column"},
    {"slots", "op=write", "op=write,slots=i32"},
    {"table", "op=gather", "op=gather,table=i64"},
    {"len", "op=topk", "op=topk,len=i64"},
    {"cu", "op=gather", "op=gather,cu=i64"},
};

#define TABLE "op=page_table_requests,page=16"
#define PREPARE "op=spec_prepare,page=16"
#define INDICES "op=draft_kv_indices,page=4"

static const axis scatter_axes[] = {
    {"op", "op=page_table_ragged", "op=page_table_requests"},
    {"op", "op=draft_kv_indices", "op=keep_locs"},
    {"page", "op=page_table_requests", TABLE},
    {"page", "op=page_table_requests,page=48", TABLE},
    {"swa", TABLE, TABLE ",swa=1"},
    {"pick", TABLE, TABLE ",pick=first"},
    {"tail", TABLE, TABLE ",tail=keep"},
    {"tail", TABLE, TABLE ",tail=value"},
    {"starts", TABLE, TABLE ",starts=1"},
    {"unaligned", TABLE, TABLE ",unaligned=1"},
    {"ragged", PREPARE, PREPARE ",ragged=1"},
    {"accept", PREPARE, PREPARE ",accept=1"},
    {"seq", PREPARE, PREPARE ",seq=0"},
    {"qo", PREPARE, PREPARE ",qo=0"},
    {"kv", PREPARE, PREPARE ",kv=0"},
    {"pages", PREPARE, PREPARE ",pages=0"},
    {"locs", PREPARE, PREPARE ",locs=0"},
    {"pos", PREPARE, PREPARE ",pos=0"},
    {"delta", PREPARE, PREPARE ",delta=1"},
    {"byreq", TABLE, TABLE ",byreq=1"},
    {"sliced", "op=draft_lens", "op=draft_lens,sliced=1"},
    {"form", "op=cache_locs", "op=cache_locs,form=ragged"},
    {"form", "op=cache_locs,form=last", "op=cache_locs,form=draft"},
    {"sampling", "op=tree_verify", "op=tree_verify,sampling=1"},
    {"race", "op=reject,sampling=1", "op=reject,sampling=1,race=1"},
    {"mask", "op=tree_build", "op=tree_build,mask=qlen"},
    {"mask", "op=tree_build,mask=full", "op=tree_build,mask=qlen"},
    {"word", "op=tree_build", "op=tree_build,word=u64"},
    {"word", "op=tree_build,word=u8", "op=tree_build,word=u16"},
    {"unit", "op=kv_compact", "op=kv_compact,unit=4"},
    {"unit", "op=kv_compact,unit=1", "op=kv_compact,unit=2"},
    {"pack", "op=kv_compact,page=16", "op=kv_compact,page=16,pack=8"},
    {"len", TABLE, TABLE ",len=i64"},
    {"req", TABLE, TABLE ",req=i32"},
    {"slot", TABLE, TABLE ",slot=i64"},
    {"map", TABLE ",swa=1", TABLE ",swa=1,map=i32"},
    {"table", TABLE, TABLE ",table=i64"},
    {"out", INDICES, INDICES ",out=i64"},
    {"loc", PREPARE, PREPARE ",loc=i32"},
    {"acc", "op=bonus_tokens", "op=bonus_tokens,acc=i64"},
    {"token", "op=tree_verify", "op=tree_verify,token=i32"},
    {"target", "op=reject", "op=reject,target=i32"},
    {"link", "op=tree_verify", "op=tree_verify,link=i32"},
};

/* For each family: what a pair of lines has in common, and the pairs. */
static const struct {
    const char *head;
    const axis *axes;
    int count;
} families[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = {"attn:d=64,", attn_axes, sizeof attn_axes / sizeof attn_axes[0]},
    [KGEN_FAMILY_GDN] = {"gdn:", gdn_axes, sizeof gdn_axes / sizeof gdn_axes[0]},
    [KGEN_FAMILY_SCATTER] = {"scatter:", scatter_axes,
                             sizeof scatter_axes / sizeof scatter_axes[0]},
    [KGEN_FAMILY_KV_WRITE] = {"kv_write:", kv_write_axes,
                              sizeof kv_write_axes / sizeof kv_write_axes[0]},
    [KGEN_FAMILY_KV_GATHER] = {"kv_gather:", kv_gather_axes,
                               sizeof kv_gather_axes / sizeof kv_gather_axes[0]},
    [KGEN_FAMILY_ATTN_MERGE] = {"attn_merge:", attn_merge_axes,
                                sizeof attn_merge_axes / sizeof attn_merge_axes[0]},
    [KGEN_FAMILY_MLA] = {"mla:", mla_axes, sizeof mla_axes / sizeof mla_axes[0]},
    [KGEN_FAMILY_INDEXER] = {"indexer:", indexer_axes,
                             sizeof indexer_axes / sizeof indexer_axes[0]},
};

/* The text without the spec's own line and with one name for all kernels. */
static char *neutral_text(kgen_family_id id, const char *pairs, const char *target) {
    char line[KGEN_SPEC_LINE_MAX];
    int whole = id == KGEN_FAMILY_ATTN && strncmp(pairs, "d=", 2) == 0;
    const char *head = whole ? "attn:" : families[id].head;
    snprintf(line, sizeof line, "%s%s", head, pairs);
    kgen_source source = rendered(line, target);
    static const char name[] = "#define KG_KERNEL kg_axis";
    const char *rest = strchr(strstr(source.text, "#define KG_KERNEL"), '\n');
    size_t size = sizeof name + strlen(rest);
    char *text = malloc(size);
    assert_non_null(text);
    snprintf(text, size, "%s%s", name, rest);
    kgen_source_free(&source);
    return text;
}

static void check_texts(kgen_family_id id, const axis *pair, const char *target) {
    char *one = neutral_text(id, pair->one, target), *other = neutral_text(id, pair->other, target);
    if (strcmp(one, other) == 0)
        fail_msg("%s: %s and %s have one text", target, pair->one, pair->other);
    free(one);
    free(other);
}

static void test_every_shape_parameter_is_in_the_text(void **state) {
    (void)state;
    static const char *const some[] = {"cpu:cdna3", "gfx942", "sm_90"};
    for (int t = 0; t < 3; t++)
        for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++)
            for (int i = 0; i < families[id].count; i++)
                check_texts(id, &families[id].axes[i], some[t]);
}

static void check_rows(kgen_family_id id) {
    const kgen__family *family = kgen__family_of(id);
    for (size_t i = 0; i < family->param_count; i++) {
        int rows = 0;
        for (int n = 0; n < families[id].count; n++)
            rows += strcmp(families[id].axes[n].key, family->params[i].key) == 0;
        if (family->params[i].role == KGEN_ROLE_SHAPE && !rows)
            fail_msg("%s: no row for %s", kgen_family_name(id), family->params[i].key);
    }
}

static void test_every_shape_parameter_has_a_row(void **state) {
    (void)state;
    for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++) check_rows(id);
}

static uint8_t *machine_code(const kgen_toolchain *tc, const char *text, size_t *size) {
    const kgen_target *target = target_of("gfx942");
    kgen__unit unit = {.toolchain = tc,
                       .flags = kgen_target_flags(target, tc->compiler),
                       .source = text,
                       .source_size = strlen(text),
                       .spec = "axis",
                       .arch = target->name};
    uint8_t *object, *code;
    size_t object_size;
    uint32_t ms;
    kgen_error err;
    kgen__elf elf;
    kgen__section section;
    if (kgen__compile(&unit, &object, &object_size, &ms, &err) != KGEN_OK) fail_msg("%s", err.text);
    assert_true(kgen__elf_open(&elf, object, object_size));
    assert_true(kgen__elf_section_named(&elf, ".text", &section) && section.data);
    *size = (size_t)section.header.sh_size;
    assert_true(*size > 500);
    code = malloc(*size);
    assert_non_null(code);
    memcpy(code, section.data, *size);
    free(object);
    return code;
}

/* Most texts stand in several axes: each is compiled once. */
typedef struct compiled {
    char *text;
    uint8_t *code;
    size_t size;
} compiled;

enum { MOST_TEXTS = 1024 };
static compiled texts[MOST_TEXTS];
static int text_count;

/* Takes `text`. */
static const compiled *compiled_of(const kgen_toolchain *tc, char *text) {
    for (int i = 0; i < text_count; i++)
        if (strcmp(texts[i].text, text) == 0) {
            free(text);
            return &texts[i];
        }
    assert_true(text_count < MOST_TEXTS);
    compiled *c = &texts[text_count++];
    c->text = text;
    c->code = machine_code(tc, text, &c->size);
    return c;
}

/* 1 when an axis changes nothing in the code object. */
static int is_dead(const kgen_toolchain *tc, kgen_family_id id, const axis *pair) {
    const compiled *one = compiled_of(tc, neutral_text(id, pair->one, "gfx942"));
    const compiled *other = compiled_of(tc, neutral_text(id, pair->other, "gfx942"));
    int dead = one->size == other->size && memcmp(one->code, other->code, one->size) == 0;
    if (dead)
        print_message("%s: %s and %s are one code object\n", pair->key, pair->one, pair->other);
    return dead;
}

/* A run compiles some of the axes; --full all. */
static int is_drawn(void) {
    static const int one_in[] = {[LEVEL_FAST] = 8, [LEVEL_NORMAL] = 6, [LEVEL_FULL] = 1};
    return kgen__rng_range(&rng, 1, one_in[test_level()]) == 1;
}

static void check_axes(kgen_family_id id) {
    kgen_toolchain tc;
    kgen_error err;
    if (kgen_toolchain_find(&tc, target_of("gfx942"), &err) != KGEN_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    int dead = 0;
    for (int i = 0; i < families[id].count; i++)
        if (is_drawn()) dead += is_dead(&tc, id, &families[id].axes[i]);
    assert_int_equal(dead, 0);
}

static void test_no_axis_of_attn_is_dead(void **state) {
    (void)state;
    check_axes(KGEN_FAMILY_ATTN);
    check_axes(KGEN_FAMILY_MLA);
}

static void test_no_axis_of_gdn_is_dead(void **state) {
    (void)state;
    check_axes(KGEN_FAMILY_GDN);
}

static void test_no_axis_of_kv_is_dead(void **state) {
    (void)state;
    check_axes(KGEN_FAMILY_KV_WRITE);
    check_axes(KGEN_FAMILY_KV_GATHER);
}

static void test_no_axis_of_scatter_is_dead(void **state) {
    (void)state;
    check_axes(KGEN_FAMILY_SCATTER);
}

/* So equal code is seen as equal. */
static void test_a_dead_axis_is_seen(void **state) {
    (void)state;
    static const axis strides = {"layout", "g=2", "g=2,layout=hnd"};
    kgen_toolchain tc;
    kgen_error err;
    if (kgen_toolchain_find(&tc, target_of("gfx942"), &err) != KGEN_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    check_texts(KGEN_FAMILY_ATTN, &strides, "gfx942");
    assert_true(is_dead(&tc, KGEN_FAMILY_ATTN, &strides));
}

/* ---- the template by itself ---------------------------------------------- */

static char *file_text(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s: cannot be opened", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void write_text(const char *name, const char *text, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* What comes before the template. */
static size_t prelude_size(const kgen_source *source) {
    return (size_t)(strstr(source->text, "#line") - source->text);
}

/* The sample of constants with which a template compiles by itself. */
static const char *const samples[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = "attn:",
    [KGEN_FAMILY_GDN] = "gdn:layout=flat",
    [KGEN_FAMILY_SCATTER] = "scatter:op=spec_prepare,page=16",
    [KGEN_FAMILY_KV_WRITE] = "kv_write:",
    [KGEN_FAMILY_KV_GATHER] = "kv_gather:",
    [KGEN_FAMILY_ATTN_MERGE] = "attn_merge:",
    [KGEN_FAMILY_MLA] = "mla:",
    [KGEN_FAMILY_INDEXER] = "indexer:op=decode",
};

static void test_sample_preludes_are_up_to_date(void **state) {
    (void)state;
    for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++) {
        char path[64];
        snprintf(path, sizeof path, "templates/kg/prelude/prelude_%s.h", kgen_family_name(id));
        kgen_source source = rendered(samples[id], "gfx942");
        char *text = file_text(path);
        size_t size = prelude_size(&source);
        if (strlen(text) != size || memcmp(text, source.text, size) != 0)
            fail_msg("%s is stale: kgen source %s --arch gfx942 | sed '/^#line/,$d' > %s", path,
                     samples[id], path);
        free(text);
        kgen_source_free(&source);
    }
}

/* Any clang that knows the architecture, whatever $KGEN_CLANG names for the cpu device. */
static kgen_toolchain clang_or_skip(const char *arch) {
    kgen_toolchain tc;
    kgen_error err;
    const char *named = getenv("KGEN_CLANG");
    char *saved = named ? strdup(named) : NULL;
    unsetenv("KGEN_CLANG");
    kgen_status status = kgen__toolchain_clang(&tc, target_of(arch), NULL, &err);
    if (saved) setenv("KGEN_CLANG", saved, 1);
    free(saved);
    if (status != KGEN_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    return tc;
}

/* Runs clang for `target` on `rest` of the command; what it says is in the log. */
static void run_clang(const kgen_toolchain *tc, const char *target, const char *rest) {
    char command[8192];
    size_t used = (size_t)snprintf(command, sizeof command, "'%s'", tc->path);
    const char *const *flags = kgen_target_flags(target_of(target), KGEN_TOOLCHAIN_CLANG);
    for (; *flags; flags++)
        used += (size_t)snprintf(command + used, sizeof command - used, " '%s'", *flags);
    used += (size_t)snprintf(command + used, sizeof command - used,
                             " -Wall -Wextra -I templates %s 2>'%s/log'", rest, folder);
    assert_true(used < sizeof command);
    int status = system(command);
    if (status == 0) return;
    char path[512];
    snprintf(path, sizeof path, "%s/log", folder);
    char *log = file_text(path);
    fail_msg("%s: exit status %d\n%.4000s", command, status, log);
}

static void compile_template(const kgen_toolchain *tc, const char *name) {
    char rest[1024];
    snprintf(rest, sizeof rest, "-Werror=uninitialized -c templates/%s -o '%s/o'", name, folder);
    run_clang(tc, "gfx942", rest);
}

static void test_templates_compile_by_themselves(void **state) {
    (void)state;
    kgen_toolchain tc = clang_or_skip("gfx942");
    for (size_t i = 0; i < kgen__template_count; i++)
        if (strstr(kgen__templates[i].name, ".hip")) compile_template(&tc, kgen__templates[i].name);
}

static void check_syntax(const kgen_toolchain *tc, const char *spec, const char *arch) {
    char rest[600];
    kgen_source source = rendered(spec, arch);
    write_text("machine.hip", source.text, source.size);
    kgen_source_free(&source);
    snprintf(rest, sizeof rest, "-fsyntax-only '%s/machine.hip'", folder);
    run_clang(tc, arch, rest);
}

/* What is one function of the cpu device is several of a machine, by the words of a load: those of
 * 4-bit caches are the most. */
static void test_machines_take_every_width(void **state) {
    (void)state;
    static const char *const archs[] = {"gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        const kgen_toolchain tc = clang_or_skip(archs[i]);
        check_syntax(&tc, "attn:d=128,g=8,page=16,kv=i4", archs[i]);
    }
}

/* ---- each header by itself ------------------------------------------------ */

/* Whose constants a header is read with: the first row that its name begins with. */
static const struct {
    const char *begin;
    kgen_family_id family;
} header_rows[] = {
    {"kg/core/", KGEN_FAMILY_ATTN},
    {"kg/attn/", KGEN_FAMILY_ATTN},
    {"kg/attn_merge/", KGEN_FAMILY_ATTN_MERGE},
    {"kg/gdn/", KGEN_FAMILY_GDN},
    {"kg/scatter/", KGEN_FAMILY_SCATTER},
    {"kg/kv/kv_gather", KGEN_FAMILY_KV_GATHER},
    {"kg/kv/kv_find", KGEN_FAMILY_KV_GATHER},
    {"kg/kv/", KGEN_FAMILY_KV_WRITE},
    {"kg/mla/", KGEN_FAMILY_MLA},
    {"kg/indexer/", KGEN_FAMILY_INDEXER},
};

static kgen_family_id family_of_header(const char *name) {
    for (size_t i = 0; i < sizeof header_rows / sizeof header_rows[0]; i++)
        if (strncmp(name, header_rows[i].begin, strlen(header_rows[i].begin)) == 0)
            return header_rows[i].family;
    fail_msg("%s: no row says whose header it is", name);
    return KGEN_FAMILY_COUNT;
}

static int ends_with(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Other vendors' files need other compilers, which see them in whole kernels. */
static int is_header_for_clang(const char *name) {
    return strncmp(name, "kg/", 3) == 0 && strncmp(name, "kg/prelude/", 11) != 0 &&
           !ends_with(name, "_nvidia.h") && !ends_with(name, "_cpu.h");
}

/* Matrix instructions, how operands lie that are read from LDS, how cached rows come there. */
enum { OF_ISA = 3 };
static const char *const of_isa[OF_ISA][KGEN_ISA_COUNT] = {
    {
#define KGEN_ISA(NAME, name, fragments, header, key_loop, lines, parts, latent, index) \
    [KGEN_ISA_##NAME] = header,
#include <kgen/targets.def>
    },
    {
#define KGEN_ISA(NAME, name, fragments, header, key_loop, lines, parts, latent, index) \
    [KGEN_ISA_##NAME] = lines,
#include <kgen/targets.def>
    },
    {
#define KGEN_ISA(NAME, name, fragments, header, key_loop, lines, parts, latent, index) \
    [KGEN_ISA_##NAME] = latent,
#include <kgen/targets.def>
    },
};

/* Only another isa has what it needs. */
static int is_foreign(const char *name, kgen_isa isa) {
    int foreign = 0;
    for (int n = 0; n < OF_ISA; n++)
        for (int i = 0; i < KGEN_ISA_COUNT; i++)
            foreign |= strcmp(name, of_isa[n][i]) == 0 && strcmp(name, of_isa[n][isa]) != 0;
    return foreign;
}

/* One process for those headers of a family whose turn it is. Returns how many there are. */
static int check_headers(const kgen_toolchain *tc, kgen_family_id id, const char *target) {
    char rest[4096], path[64];
    kgen_source source = rendered(samples[id], target);
    write_text("prelude.h", source.text, prelude_size(&source));
    kgen_source_free(&source);
    snprintf(path, sizeof path, "%s/prelude.h", folder);
    size_t used = (size_t)snprintf(rest, sizeof rest,
                                   "-fsyntax-only -Werror -Wno-unused "
                                   "-Wno-pragma-once-outside-header -include '%s'",
                                   path);
    int count = 0, taken = 0;
    for (size_t i = 0; i < kgen__template_count; i++) {
        const char *name = kgen__templates[i].name;
        if (!is_header_for_clang(name) || family_of_header(name) != id) continue;
        if (is_foreign(name, target_of(target)->isa)) continue;
        count++;
        if (!test_takes(run_seed, i, 3, 3)) continue;
        used += (size_t)snprintf(rest + used, sizeof rest - used, " templates/%s", name);
        assert_true(used < sizeof rest);
        taken++;
    }
    if (taken > 0) run_clang(tc, target, rest);
    return count;
}

/* So it can be opened, checked and included alone, in any order. */
static void test_headers_compile_by_themselves(void **state) {
    (void)state;
    static const char *const some[] = {"gfx942", "gfx1201"};
    kgen_toolchain tc = clang_or_skip("gfx942");
    for (int i = 0; i < 2; i++) {
        int count = 0;
        for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++)
            count += check_headers(&tc, id, some[i]);
        assert_true(count > 40);
    }
}

/* ---- forwarding headers --------------------------------------------------- */

static const char *template_of(kgen_family_id id) {
    kgen_spec spec;
    assert_int_equal(kgen_spec_parse(&spec, samples[id], NULL), KGEN_OK);
    return kgen__template_of(&spec);
}

/* The files of a text, in order, by their #line or preprocessor marks. */
static void list_files(char *out, size_t size, const char *text, const char *mark) {
    size_t used = 0;
    out[0] = 0;
    for (const char *at = text; (at = strstr(at, mark)); at++) {
        const char *name = strchr(at, '"') + 1, *end = strchr(name, '"');
        if (at != text && at[-1] != '\n') continue;
        const char *kg = strstr(name, "kg/");
        if (!kg || kg > end) continue;
        char file[256];
        snprintf(file, sizeof file, "%.*s", (int)(end - kg), kg);
        if (is_forwarding(file) || strncmp(file, "kg/prelude", 10) == 0) continue;
        used += (size_t)snprintf(out + used, size - used, "%s\n", file);
    }
}

static void check_forwarding(const kgen_toolchain *tc, kgen_family_id id, const char *target) {
    const char *name = template_of(id);
    char path[512], command[4096], want[2048], got[2048];
    kgen_source source = rendered(samples[id], target);
    snprintf(path, sizeof path, "kg/prelude/prelude_%s.h", kgen_family_name(id));
    write_text(path, source.text, prelude_size(&source));
    snprintf(command, sizeof command,
             "'%s' -E -x c++ -Wundef -Werror=undef -I '%s' -I templates '%s/%s' "
             "-o '%s/out' 2>'%s/log'",
             tc->path, folder, folder, name, folder, folder);
    int status = system(command);
    if (status != 0) fail_msg("%s: exit status %d", command, status);
    snprintf(path, sizeof path, "%s/out", folder);
    char *out = file_text(path);
    list_files(want, sizeof want, source.text, "#line 1 \"");
    list_files(got, sizeof got, out, "# 1 \"");
    assert_string_equal(got, want);
    assert_true(strlen(want) > 100);
    free(out);
    kgen_source_free(&source);
}

/* The forwarding headers lead where gen/source.c leads. */
static void test_forwarding_headers_agree(void **state) {
    (void)state;
    kgen_toolchain tc = clang_or_skip("gfx942");
    char path[512];
    snprintf(path, sizeof path, "%s/kg", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/kg/prelude", folder);
    mkdir(path, 0700);
    for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++) {
        const char *name = template_of(id);
        snprintf(path, sizeof path, "templates/%s", name);
        char *hip = file_text(path);
        write_text(name, hip, strlen(hip));
        free(hip);
        for (int i = 0; i < TARGETS; i++)
            if (target_of(targets[i])->vendor != KGEN_VENDOR_CPU)
                check_forwarding(&tc, id, targets[i]);
    }
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    char command[512];
    (void)state;
    for (int i = 0; i < text_count; i++) {
        free(texts[i].text);
        free(texts[i].code);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_has_no_text),
        cmocka_unit_test(test_same_bytes_everywhere),
        cmocka_unit_test(test_same_bytes_in_other_locales),
        cmocka_unit_test(test_spelling_does_not_matter),
        cmocka_unit_test(test_text_has_the_spec_and_no_machine),
        cmocka_unit_test(test_a_bad_spec_has_no_text),
        cmocka_unit_test(test_no_run_time_value_is_a_parameter),
        cmocka_unit_test(test_every_shape_parameter_is_in_the_text),
        cmocka_unit_test(test_every_shape_parameter_has_a_row),
        cmocka_unit_test(test_no_axis_of_attn_is_dead),
        cmocka_unit_test(test_no_axis_of_gdn_is_dead),
        cmocka_unit_test(test_no_axis_of_scatter_is_dead),
        cmocka_unit_test(test_no_axis_of_kv_is_dead),
        cmocka_unit_test(test_a_dead_axis_is_seen),
        cmocka_unit_test(test_sample_preludes_are_up_to_date),
        cmocka_unit_test(test_templates_compile_by_themselves),
        cmocka_unit_test(test_machines_take_every_width),
        cmocka_unit_test(test_headers_compile_by_themselves),
        cmocka_unit_test(test_forwarding_headers_agree),
    };
    if (argc == 4 && strcmp(argv[1], "--render") == 0) return print_rendered(argv[2], argv[3]);
    run_seed = test_seed();
    kgen__rng_seed(&rng, run_seed, 0);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
