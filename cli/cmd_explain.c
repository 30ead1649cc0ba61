/* kgen explain: the keys of a family; of a spec, what is chosen and why. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct question {
    kgen_problem problem;
    const char *device; /* NULL: any */
    kgen__archs archs;
    int json;
} question;

static kgen_status explain_family(const char *name, const question *q, kgen_error *err) {
    kgen_family_id family = (kgen_family_id)0;
    char *text;
    KGEN_TRY(kgen_family_find(&family, name, err));
    if (q->json) return kgen__explain_json(family) ? KGEN_E_IO : KGEN_OK;
    KGEN_TRY(kgen_spec_help(&text, family, err));
    fputs(text, stdout);
    free(text);
    return KGEN_OK;
}

static kgen_status explain_on(const kgen_spec *spec, const kgen_tuning *db, const question *q,
                              const kgen_target *target, json_t *list, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec chosen;
    kgen_tuning_match match;
    KGEN_TRY(kgen_tuning_resolve(&chosen, &match, db, spec, &q->problem, target, q->device, err));
    kgen_spec_print(line, &chosen);
    if (!q->json) printf("%s @%s\n  %s\n", line, target->name, match.reason);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "spec", line, "arch", target->name,
                                          "reason", match.reason));
    return KGEN_OK;
}

static kgen_status explain_spec(const char *line, const question *q, kgen_error *err) {
    kgen_spec spec;
    kgen_tuning *db;
    KGEN_TRY(kgen_spec_parse(&spec, line, err));
    KGEN_TRY(kgen_tuning_open(&db, NULL, err));
    json_t *list = json_array();
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < q->archs.count && status == KGEN_OK; i++)
        status = explain_on(&spec, db, q, q->archs.list[i], list, err);
    kgen_tuning_close(db);
    if (status == KGEN_OK && q->json && kgen__json_print(json_incref(list)))
        status = kgen_fail(err, KGEN_E_IO, "standard output: cannot be written");
    json_decref(list);
    return status;
}

/* clang-format off */
static const char about[] =
    "Explains the keys of a spec line. FAMILY is one of\n "
#define KGEN_FAMILY(name, NAME) " " #name
#include <kgen/families.def>
    "\nOf a SPEC: which tuning values it gets for a problem, and why.\n"
    "Of two KEYs of `kgen list`: what differs.";
/* clang-format on */

int kgen__command_explain(int argc, char **argv) {
    question q = {0};
    int first, code;
    kgen__syntax s = {
        .command = "explain", .arguments = "[FAMILY|SPEC|KEY KEY]", .about = about, .most = 2};
    const char *cache_dir = NULL;
    kgen__syntax_add(&s, (kgen__option){"problem", 0, "batch=N,...", kgen__read_problem, &q.problem,
                                        0, 0, "also context=N, heads=N (KV heads); not known"});
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &q.archs,
                                        KGEN__ARCHS_DEFAULT, 0, "architectures"});
    kgen__syntax_add(&s, (kgen__option){"device", 0, "NAME", kgen__read_text, &q.device, 0, 0,
                                        "as rows name it, \"NVIDIA H200\" (any)"});
    kgen__syntax_add(&s, (kgen__option){"json", 0, NULL, NULL, &q.json, 0, 0,
                                        "print JSON; of a FAMILY parameters and arguments"});
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    kgen__archs_default(&q.archs);
    const char *what = first < argc ? argv[first] : "attn";
    kgen_error err;
    kgen_status status = argc - first == 2
                             ? kgen__explain_keys(what, argv[first + 1], cache_dir, q.json, &err)
                         : strchr(what, ':') ? explain_spec(what, &q, &err)
                                             : explain_family(what, &q, &err);
    return status == KGEN_OK ? 0 : kgen__cli_fail(&err);
}
