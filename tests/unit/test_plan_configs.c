/* Published configs, and what a plan says of each: tests/configs/expected.txt.
 * What the classes of model types have in the place of missing fields:
 * tests/configs/classes.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <kgen/plan.h>

#define FOLDER "tests/configs"

enum { LINE = 1024, TEXT = 65536 };

/* What is open: the plan of the config that the lines before spoke of. */
typedef struct reading {
    char name[64];
    kgen_plan plan;
    kgen_error err;
    kgen_status status;
    size_t items; /* that a line has confirmed */
    int configs, classes;
} reading;

static int is_prompt_kernel(const kgen_plan_item *item) {
    return item->spec.family == KGEN_FAMILY_ATTN &&
           !kgen_attn_phase_of(item->spec.attn.phase)->bounded;
}

static int is_layer_kernel(const kgen_plan_item *item) {
    kgen_family_id family = item->spec.family;
    return (family == KGEN_FAMILY_ATTN || family == KGEN_FAMILY_GDN || family == KGEN_FAMILY_MLA) &&
           !is_prompt_kernel(item);
}

/* What decodes has a kernel for prompts of the same keys. */
static void check_prompts(const reading *r) {
    for (size_t n = 0; n < r->plan.count; n++) {
        const kgen_plan_item *item = &r->plan.items[n];
        kgen_spec want = item->spec;
        int found =
            item->spec.family != KGEN_FAMILY_ATTN || item->spec.attn.phase != KGEN_PHASE_DECODE;
        want.attn.phase = KGEN_PHASE_EXTEND;
        for (size_t i = 0; i < r->plan.count && !found; i++)
            found = kgen_spec_equal(&r->plan.items[i].spec, &want) &&
                    r->plan.items[i].layers == item->layers &&
                    r->plan.items[i].scale == item->scale;
        if (!found) fail_msg("%s: item %zu decodes and has no extend", r->name, n);
    }
}

static void print_item(char *out, size_t size, const kgen_plan_item *item) {
    char spec[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(spec, &item->spec);
    snprintf(out, size, "%d x %s heads %d/%d scale %.6g", item->layers, spec, item->q_heads,
             item->kv_heads, item->scale);
}

/* Attention, latent attention and DeltaNet have kernels, other layers none, and the map agrees
 * with the counts of the items. */
static void check_map(const reading *r) {
    const kgen_plan *plan = &r->plan;
    for (size_t n = 0; n < plan->count; n++) {
        int layers = 0;
        for (size_t i = 0; i < plan->layer_count; i++)
            for (uint32_t k = 0; k < plan->layers[i].count; k++)
                layers += plan->layers[i].items[k] == n;
        if (layers != plan->items[n].layers)
            fail_msg("%s: item %zu has %d layers in the map, %d of its own", r->name, n, layers,
                     plan->items[n].layers);
    }
    for (size_t i = 0; i < plan->layer_count; i++) {
        int known = strcmp(plan->layers[i].kind, "attention") == 0 ||
                    strcmp(plan->layers[i].kind, "linear attention") == 0 ||
                    strcmp(plan->layers[i].kind, "MLA") == 0;
        if (known != (plan->layers[i].count > 0))
            fail_msg("%s: layer %zu (%s) has %u kernels", r->name, i, plan->layers[i].kind,
                     plan->layers[i].count);
    }
}

static void close_config(reading *r) {
    if (!r->name[0]) return;
    size_t layer_kernels = 0;
    for (size_t n = 0; n < r->plan.count; n++) layer_kernels += is_layer_kernel(&r->plan.items[n]);
    if (layer_kernels != r->items)
        fail_msg("%s: %zu kernels of layers, %zu expected", r->name, layer_kernels, r->items);
    if (r->status == KGEN_OK) check_map(r);
    if (r->status == KGEN_OK) check_prompts(r);
    kgen_plan_free(&r->plan);
    r->name[0] = 0;
}

static size_t read_config(char *text, size_t room, const char *name) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "/%s.json", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    size_t size = fread(text, 1, room, file);
    fclose(file);
    assert_true(size > 0 && size < room);
    return size;
}

/* A language part that names its class and leaves the rest to it. */
static size_t make_config(char *text, size_t room, const char *type) {
    return (size_t)snprintf(
        text, room, "{\"model_type\":\"whole\",\"text_config\":{\"model_type\":\"%s\"}}", type);
}

static void open_config(reading *r, const char *name) {
    static char text[TEXT];
    close_config(r);
    size_t size =
        r->classes ? make_config(text, sizeof text, name) : read_config(text, sizeof text, name);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->err.text[0] = 0;
    r->status = kgen_plan_make(&r->plan, text, size, NULL, &r->err);
    r->items = 0;
    r->configs++;
}

static void expect_refused(const reading *r, const char *words) {
    if (r->status != KGEN_E_UNSUPPORTED || !strstr(r->err.text, words))
        fail_msg("%s: %s '%s', to be refused with '%s'", r->name, kgen_status_name(r->status),
                 r->err.text, words);
    assert_int_equal(kgen_status_exit_code(r->status), 3);
}

static void expect_missing(const reading *r, const char *words) {
    for (size_t i = 0; i < r->plan.unsupported_count; i++)
        if (strstr(r->plan.unsupported[i], words)) return;
    fail_msg("%s: nothing of '%s' among what is not covered", r->name, words);
}

static void expect_item(reading *r, const char *want) {
    char got[LINE];
    if (r->status != KGEN_OK) fail_msg("%s: %s", r->name, r->err.text);
    for (size_t n = 0; n < r->plan.count; n++) {
        if (!is_layer_kernel(&r->plan.items[n])) continue;
        print_item(got, sizeof got, &r->plan.items[n]);
        if (strcmp(got, want)) continue;
        r->items++;
        return;
    }
    print_item(got, sizeof got, &r->plan.items[0]);
    fail_msg("%s: no item '%s'; the first is '%s'", r->name, want, got);
}

/* NAME: refused WORDS | NAME: missing WORDS | NAME: LAYERS x SPEC heads Q/KV scale S */
static void check_line(reading *r, char *line) {
    char *rest = strstr(line, ": ");
    if (!rest) fail_msg("%s: no name", line);
    *rest = 0;
    rest += 2;
    if (strcmp(r->name, line)) open_config(r, line);
    if (strncmp(rest, "refused ", 8) == 0)
        expect_refused(r, rest + 8);
    else if (strncmp(rest, "missing ", 8) == 0)
        expect_missing(r, rest + 8);
    else
        expect_item(r, rest);
}

static int check_file(const char *path, int classes) {
    static reading r;
    char line[LINE];
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s", path);
    memset(&r, 0, sizeof r);
    r.classes = classes;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] && line[0] != '#') check_line(&r, line);
    }
    fclose(file);
    close_config(&r);
    return r.configs;
}

static void test_published_configs(void **state) {
    (void)state;
    assert_true(check_file(FOLDER "/expected.txt", 0) > 70);
}

static void test_classes(void **state) {
    (void)state;
    assert_true(check_file(FOLDER "/classes.txt", 1) > 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_configs),
                                       cmocka_unit_test(test_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
