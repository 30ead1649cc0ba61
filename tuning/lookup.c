/* The look-up: which row speaks for a problem, and why. Only problems, dates
 * and places are compared, never times. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"

/* log2 of the factor by which batch times heads, or the context, may differ. */
enum { FAR_LOG2 = 2 };

/* Whose measurement a row is, nearest first. */
typedef enum nearness { THIS_DEVICE, OTHER_DEVICE, PREDICTION } nearness;

typedef struct candidate {
    const kgen_tuning_row *row;
    nearness device;
    double distance;
    size_t layer;
} candidate;

typedef struct query {
    const kgen_tuning *db;
    const kgen_spec *given; /* with the caller's tuning keys */
    kgen_spec shape;        /* resolved */
    kgen_problem problem;
    const kgen_target *target;
    const char *device;
    candidate *list;
    size_t count, contradicting, stale;
    const kgen_tuning_row *far; /* the nearest of those too far away */
    double far_distance;
} query;

/* --- distance -------------------------------------------------------------- */

/* Of two numbers, in powers of two; 0 where one is not known. */
static double apart(double a, double b) { return a > 0 && b > 0 ? fabs(log2(a / b)) : 0; }

/* Batch and heads fill the machine together; where heads are not known the
 * batch alone is compared. */
static double work_apart(const kgen_problem *a, const kgen_problem *b) {
    if (!a->heads || !b->heads) return apart(a->batch, b->batch);
    return apart((double)a->batch * a->heads, (double)b->batch * b->heads);
}

static double context_apart(const kgen_problem *a, const kgen_problem *b) {
    return apart(a->context, b->context);
}

static int same_problem(const kgen_problem *asked, const kgen_problem *row) {
    return asked->batch == row->batch && asked->context == row->context &&
           (!asked->heads || asked->heads == row->heads);
}

static nearness nearness_of(const query *q, const kgen_tuning_row *row) {
    if (strcmp(row->environment.device, "prediction") == 0) return PREDICTION;
    return !q->device || strcmp(q->device, row->environment.device) == 0 ? THIS_DEVICE
                                                                         : OTHER_DEVICE;
}

/* --- candidates ------------------------------------------------------------ */

static void consider(query *q, const kgen_tuning_row *row, size_t layer) {
    if (row->target != q->target || !kgen_spec_same_shape(&row->spec, &q->shape)) return;
    if (!kgen__spec_keeps(&row->spec, q->given)) {
        q->contradicting++;
        return;
    }
    double work = work_apart(&q->problem, &row->problem);
    double context = context_apart(&q->problem, &row->problem);
    if (work > FAR_LOG2 || context > FAR_LOG2) {
        if (!q->far || work + context < q->far_distance) {
            q->far = row;
            q->far_distance = work + context;
        }
        return;
    }
    /* The row of this very problem comes before others of the same size. */
    double distance = same_problem(&q->problem, &row->problem) ? -1 : work + context;
    q->list[q->count++] = (candidate){row, nearness_of(q, row), distance, layer};
}

static size_t rows_of(const kgen_tuning *db) {
    size_t count = 0;
    for (size_t i = 0; i < db->count; i++) count += db->layers[i].count;
    return count;
}

/* Device, then problem, then layer, then date; the rest only makes the order
 * the same everywhere. */
static int by_rank(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    int order = strcmp(b->row->environment.date, a->row->environment.date);
    return order ? order : strcmp(a->row->kernel, b->row->kernel);
}

static kgen_status find_candidates(query *q, kgen_error *err) {
    size_t rows = rows_of(q->db);
    q->list = calloc(rows ? rows : 1, sizeof *q->list);
    if (!q->list) return kgen_fail(err, KGEN_E_NOMEM, "tuning: no memory for %zu rows", rows);
    for (size_t l = 0; l < q->db->count; l++)
        for (size_t i = 0; i < q->db->layers[l].count; i++)
            consider(q, &q->db->layers[l].rows[i], l);
    qsort(q->list, q->count, sizeof *q->list, by_rank);
    return KGEN_OK;
}

/* The first that is not stale; NULL: none. */
static kgen_status first_valid(query *q, const candidate **out, kgen_error *err) {
    *out = NULL;
    for (size_t i = 0; i < q->count; i++) {
        int stale;
        KGEN_TRY(kgen_tuning_row_stale(&stale, q->list[i].row, err));
        if (!stale) {
            *out = &q->list[i];
            return KGEN_OK;
        }
        q->stale++;
    }
    return KGEN_OK;
}

/* --- reasons --------------------------------------------------------------- */

static void problem_text(char *out, size_t size, const kgen_problem *p) {
    if (p->context)
        snprintf(out, size, "batch %d x %d", p->batch, p->context);
    else
        snprintf(out, size, "batch %d", p->batch);
}

static const char *plural(size_t count) { return count == 1 ? "" : "s"; }

/* Why no row is used. */
static void explain_none(kgen_tuning_match *match, const query *q) {
    char text[64];
    if (q->stale) {
        snprintf(match->reason, sizeof match->reason,
                 "the family's rule: %zu row%s near this problem %s stale, the kernel's source has "
                 "changed since",
                 q->stale, plural(q->stale), q->stale == 1 ? "is" : "are");
    } else if (q->far) {
        problem_text(text, sizeof text, &q->far->problem);
        snprintf(match->reason, sizeof match->reason,
                 "the family's rule: the nearest row, of %s, %.60s, is more than a factor of %d "
                 "away",
                 text, q->far->environment.device, 1 << FAR_LOG2);
    } else if (q->contradicting) {
        snprintf(match->reason, sizeof match->reason,
                 "the family's rule: %zu row%s contradict%s the tuning keys that were given",
                 q->contradicting, plural(q->contradicting), q->contradicting == 1 ? "s" : "");
    } else {
        snprintf(match->reason, sizeof match->reason,
                 "the family's rule: no row of this kernel on %s", q->target->name);
    }
}

static void explain_row(kgen_tuning_match *match, const candidate *c, kgen__verdict_of_row says) {
    static const char *const heads[] = {[KGEN_MATCH_DEFAULT] = "",
                                        [KGEN_MATCH_EXACT] = "row of ",
                                        [KGEN_MATCH_NEAR] = "nearest row, of ",
                                        [KGEN_MATCH_ARCH] = "row of another device, of "};
    const kgen_tuning_row *row = c->row;
    const char *head = c->device == PREDICTION ? "prediction, of " : heads[match->kind];
    char text[64];
    problem_text(text, sizeof text, &row->problem);
    if (says == KGEN__ROW_DEFAULT) {
        match->kind = KGEN_MATCH_DEFAULT;
        snprintf(match->reason, sizeof match->reason,
                 "measured: the default is %s (%s%s, %.60s, %.10s: %.1f us, the default %.1f)",
                 strcmp(row->kernel, row->default_kernel) == 0 ? "the best" : "within 3 %", head,
                 text, row->environment.device, row->environment.date, row->us, row->default_us);
        return;
    }
    snprintf(match->reason, sizeof match->reason, "%s%s, %.60s, %.10s: %.1f us, the default %.1f",
             head, text, row->environment.device, row->environment.date, row->us, row->default_us);
}

static kgen_status use_row(kgen_spec *out, kgen_tuning_match *match, const query *q,
                           const candidate *c, kgen_error *err) {
    kgen__verdict_of_row says;
    KGEN_TRY(kgen__row_verdict(&says, c->row, err));
    if (says == KGEN__ROW_SPEC) *out = c->row->spec;
    match->kind = c->device != THIS_DEVICE                      ? KGEN_MATCH_ARCH
                  : same_problem(&q->problem, &c->row->problem) ? KGEN_MATCH_EXACT
                                                                : KGEN_MATCH_NEAR;
    match->problem = c->row->problem;
    match->us = c->row->us;
    match->default_us = c->row->default_us;
    explain_row(match, c, says);
    return KGEN_OK;
}

/* --- public ---------------------------------------------------------------- */

static kgen_status check_problem(const kgen_problem *problem, kgen_error *err) {
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {
        {"batch", problem->batch}, {"context", problem->context}, {"heads", problem->heads}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value < 0)
            return kgen_fail(err, KGEN_E_ARG, "problem: %s=%d: must be 0 (not known) or more",
                             numbers[i].name, numbers[i].value);
    return KGEN_OK;
}

static kgen_status look_up(kgen_spec *out, kgen_tuning_match *match, query *q, kgen_error *err) {
    const candidate *best;
    KGEN_TRY(kgen_spec_resolve(&q->shape, q->given, q->target, err));
    KGEN_TRY(find_candidates(q, err));
    KGEN_TRY(first_valid(q, &best, err));
    if (best) return use_row(out, match, q, best, err);
    explain_none(match, q);
    return KGEN_OK;
}

kgen_status kgen_tuning_resolve(kgen_spec *out, kgen_tuning_match *match, const kgen_tuning *db,
                                const kgen_spec *spec, const kgen_problem *problem,
                                const kgen_target *target, const char *device, kgen_error *err) {
    kgen_tuning_match unused, *m = match ? match : &unused;
    kgen_spec chosen;
    int known = problem && (problem->batch || problem->context);
    if (problem) KGEN_TRY(check_problem(problem, err));
    KGEN_TRY(kgen__family_rule(&chosen, spec, known ? problem : NULL, target, err));
    memset(m, 0, sizeof *m);
    kgen_status status = KGEN_OK;
    if (!known || !db || !db->count) {
        snprintf(m->reason, sizeof m->reason, "the family's rule: %s",
                 known ? "no tuning database" : "the size of the problem is not known");
    } else {
        query q = {
            .db = db, .given = spec, .problem = *problem, .target = target, .device = device};
        status = look_up(&chosen, m, &q, err);
        free(q.list);
    }
    if (status == KGEN_OK) *out = chosen;
    return status;
}
