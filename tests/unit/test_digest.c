/* The digest of a source text: what a compiler does not see does not change it,
 * and whatever it sees does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "gen/buf.h"
#include "gen/family.h"
#include "seed.h"

#include <kgen/source.h>

static kgen__rng rng;

typedef struct digest {
    uint8_t bytes[KGEN_SOURCE_DIGEST_BYTES];
} digest;

static digest digest_of(const char *text, size_t size) {
    digest d;
    char *exact = malloc(size ? size : 1); /* a read past the end is seen */
    assert_non_null(exact);
    memcpy(exact, text, size);
    kgen_source_digest(d.bytes, exact, size);
    free(exact);
    return d;
}

static int same(const char *a, const char *b) {
    digest x = digest_of(a, strlen(a)), y = digest_of(b, strlen(b));
    return memcmp(&x, &y, sizeof x) == 0;
}

static void test_what_is_not_seen(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"int a;", "  int\n\ta ;  "},
        {"int a;", "int/* a comment */a; // it's another"},
        {"int a;", "// \"\nint a;"},
        {"int a;", "#line 3 \"f.h\"\nint a;\n#line 4 \"f.h\""},
        {"f(x);", "f (x) ;"},
        {"a+=b->c;", "a += b -> c ;"},
        {"#define F(x) x\nint a;", "#define  F(x)   x // c\n\nint a;"},
        {"#define F(x) x\nint a;", "#define F(x) \\\n    x\nint a;"},
        {"#define A 1", "#define A 1\n"},
        {"constexpr int A = 1;\n#line 1 \"f\"\nint b;", "\n#line 1 \"f\"\nint b;"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (!same(pairs[i][0], pairs[i][1]))
            fail_msg("'%s' and '%s' are not the same", pairs[i][0], pairs[i][1]);
}

static void test_what_is_seen(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"", "a"},
        {"int a;", "inta;"},
        {"int a;", "int a; /* b */ b"},
        {"a + +b", "a ++b"},
        {"a+++b", "a+ ++b"},
        {"a >> b", "a > > b"},
        {"x = 1.5", "x = 1 .5"},
        {"x = 1e+5", "x = 1e +5"},
        {"\"a b\"", "\"a  b\""},
        {"\"//x\"", "\"//y\""},
        {"\"/*\" a \"*/\"", "\"/*\" b \"*/\""},
        {"\"\\\"\" // x", "\"\\\" // x\""},
        {"'\"' a '\"'", "'\"' b '\"'"},
        {"#define F(x) x", "#define F (x) x"},
        {"#define A 1\nint b;", "#define A 1 int b;"},
        {"#define A\nB", "#define A B"},
        {"constexpr int A = 1;\n#line 1 \"f\"\nint b[A];",
         "constexpr int A = 2;\n#line 1 \"f\"\nint b[A];"},
        {"int f;\n#line 1 \"f\"\nconstexpr int A = 1;", "int f;\n#line 1 \"f\"\n"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (same(pairs[i][0], pairs[i][1]))
            fail_msg("'%s' and '%s' are the same", pairs[i][0], pairs[i][1]);
}

static kgen_source random_source(void) {
    kgen__case c;
    kgen_source source = {0};
    kgen_error err;
    kgen_family_id id = (kgen_family_id)kgen__rng_range(&rng, 0, KGEN_FAMILY_COUNT - 1);
    const kgen_target *target =
        kgen_target_at((size_t)kgen__rng_range(&rng, 0, (int)kgen_target_count() - 1));
    if (kgen__case_random(&c, id, &rng, target, 0, &err) != KGEN_OK ||
        kgen_source_render(&source, &c.spec, target, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    return source;
}

/* The text with comments and blank lines at the ends of lines. */
static char *with_noise(const char *text) {
    static const char *const noise[] = {" // it's \"new\"\n", "\n\n", "  \n"};
    kgen__buf buf = {0};
    char *out = NULL;
    size_t size;
    kgen_error err;
    for (const char *c = text; *c; c++) {
        if (*c == '\n' && c > text && c[-1] != '\\' && kgen__rng_range(&rng, 0, 9) == 0)
            kgen__buf_printf(&buf, "%s", noise[kgen__rng_range(&rng, 0, 2)]);
        else
            kgen__buf_add(&buf, c, 1);
    }
    assert_int_equal(kgen__buf_take(&buf, &out, &size, &err), KGEN_OK);
    return out;
}

static void test_rendered_texts(void **state) {
    (void)state;
    for (int n = 0; n < 100; n++) {
        kgen_source source = random_source();
        digest whole = digest_of(source.text, source.size); /* of pieces it is the same */
        assert_true(source.has_digest);
        assert_memory_equal(source.digest, &whole, sizeof whole);
        char *noisy = with_noise(source.text);
        if (!same(source.text, noisy)) fail_msg("%s: a comment changes it", source.symbol);
        free(noisy);
        noisy = malloc(source.size + 64);
        assert_non_null(noisy);
        sprintf(noisy, "#define KG_NOT_THERE 1\n%s", source.text);
        assert_false(same(source.text, noisy));
        free(noisy);
        /* A digit of the workgroup's size, which every kernel reads. */
        char *digit = strstr(source.text, "#define KG_WORKGROUP ") + 21;
        digest before = digest_of(source.text, source.size), after;
        *digit = (char)(*digit == '9' ? '1' : *digit + 1);
        after = digest_of(source.text, source.size);
        assert_memory_not_equal(&before, &after, sizeof before);
        kgen_source_free(&source);
    }
}

/* Any bytes will do: it ends, and reads nothing past the end. */
static void test_any_bytes(void **state) {
    (void)state;
    static const char some[] = "\"'/*\\\n#define x1.e+- (<>=\0";
    for (int n = 0; n < 2000; n++) {
        char text[64];
        size_t size = (size_t)kgen__rng_range(&rng, 0, sizeof text);
        for (size_t i = 0; i < size; i++)
            text[i] = some[kgen__rng_range(&rng, 0, (int)sizeof some - 1)];
        digest_of(text, size);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_seen),
        cmocka_unit_test(test_what_is_seen),
        cmocka_unit_test(test_rendered_texts),
        cmocka_unit_test(test_any_bytes),
    };
    uint64_t seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
