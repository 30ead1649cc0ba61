/* Outputs of attn against the answer, guards included. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_layout.h"
#include "check_attn.h"

typedef struct sight {
    kgen__check_result *result;
    double row_error, row_expected; /* sums of squares */
} sight;

static double saturated(kgen_dtype dtype, double value) {
    double most = kgen__number_max(dtype);
    return kgen_dtype_size(dtype) == 1 ? fmax(-most, fmin(most, value)) : value;
}

static void look(sight *s, const char *tensor, const int64_t at[3], double got, double want,
                 double tolerance) {
    kgen__check_result *r = s->result;
    double error = got == want ? 0 : fabs(got - want);
    double ratio = kgen__error_ratio(got, want, tolerance);
    s->row_error += error * error;
    if (error > r->max_abs || isnan(error)) r->max_abs = error;
    if (ratio <= r->max_ratio && r->tensor[0]) return;
    r->max_ratio = ratio;
    snprintf(r->tensor, sizeof r->tensor, "%s", tensor);
    r->token = at[0];
    r->head = at[1];
    r->dim = at[2];
    r->got = got;
    r->want = want;
    r->tolerance = tolerance;
}

static void look_at_row(sight *s, const kgen__data *data, const kgen__attn_answer *a, int64_t token,
                        int64_t head) {
    const kgen_tensor *out = &data->args.attn->out;
    s->row_error = s->row_expected = 0;
    for (int64_t d = 0; d < a->v_dim; d++) {
        int64_t i = (token * a->heads + head) * a->v_dim + d;
        int64_t at = token * out->stride[0] + head * out->stride[1] + d * out->stride[2];
        look(s, "out", (int64_t[]){token, head, d}, kgen__number_load(out->dtype, out->data, at),
             saturated(out->dtype, a->out[i]), a->out_tol[i]);
        s->row_expected += a->out_rms[i] * a->out_rms[i];
    }
    double rms = sqrt(s->row_error / s->row_expected);
    if (s->row_expected > 0 && !(rms <= s->result->rms_ratio)) s->result->rms_ratio = rms;
    const kgen_tensor *lse = &data->args.attn->lse;
    if (!data->spec.attn.lse) return;
    int64_t i = head * a->tokens + token;
    look(s, "lse", (int64_t[]){token, head, 0},
         kgen__number_load(KGEN_DTYPE_F32, lse->data,
                           kgen__lse_index(&data->spec.attn, lse, token, head)),
         a->lse[i], a->lse_tol[i]);
}

/* What the launch found there. */
static unsigned char found_at(const kgen__slot *slot, size_t at) {
    return slot->before ? slot->before[at] : 0xff;
}

/* Bytes of an output slot that belong to no element: its guards, and what lies
 * between the tokens. Returns the first that changed, or -1. */
static int64_t broken_guard(const kgen__slot *slot, const kgen_tensor *t) {
    size_t element = (size_t)kgen_dtype_size(t->dtype);
    size_t stride = (size_t)t->stride[0] * element, row = element;
    for (int32_t i = 1; i < t->rank; i++) row *= (size_t)t->shape[i];
    size_t end = slot->size - KGEN__GUARD_BYTES;
    for (size_t at = 0; at < slot->size; at++) {
        int inside = at >= slot->offset && at < end && (at - slot->offset) % stride < row;
        if (!inside && slot->bytes[at] != found_at(slot, at)) return (int64_t)at;
    }
    return -1;
}

static int guards_broken(kgen__check_result *result, const kgen__data *data) {
    for (int i = 0; i < KGEN__ATTN_SLOTS; i++) {
        const kgen__slot *slot = &data->slot[i];
        if (slot->role == KGEN_USE_IN || !slot->bytes) continue;
        int64_t at = broken_guard(slot, kgen__slot_tensor(&data->args, i));
        if (at < 0) continue;
        snprintf(result->message, sizeof result->message,
                 "%s: byte %lld was written; the tensor is %zu bytes, guards included "
                 "(%d on each side)",
                 kgen__slot_name(&data->args, i), (long long)at, slot->size, KGEN__GUARD_BYTES);
        return 1;
    }
    return 0;
}

static int is_touched(const kgen__data *data, int index, const kgen_tensor *t, int64_t at,
                      int64_t count) {
    const kgen__slot *slot = &data->slot[index];
    size_t size = (size_t)kgen_dtype_size(t->dtype), from = slot->offset + (size_t)at * size;
    for (size_t i = 0; slot->bytes && i < (size_t)count * size; i++)
        if (slot->bytes[from + i] != found_at(slot, from + i)) return 1;
    return 0;
}

/* A sequence that is left out leaves its tokens as they were. */
static int strangers_written(kgen__check_result *result, const kgen__data *data,
                             const kgen__attn_answer *answer) {
    const kgen_tensor *out = &data->args.attn->out, *lse = &data->args.attn->lse;
    for (int64_t token = 0; token < answer->tokens; token++)
        for (int64_t head = 0; head < answer->heads && !answer->claims[token]; head++) {
            int64_t at = token * out->stride[0] + head * out->stride[1];
            int wrong = is_touched(data, OUT, out, at, answer->v_dim);
            if (data->spec.attn.lse)
                wrong |= is_touched(data, LSE, lse,
                                    kgen__lse_index(&data->spec.attn, lse, token, head), 1);
            if (!wrong) continue;
            snprintf(result->message, sizeof result->message,
                     "token %lld, head %lld was written; no sequence has it", (long long)token,
                     (long long)head);
            return 1;
        }
    return 0;
}

static int errors_wrong(kgen__check_result *result, const kgen__data *data,
                        const kgen__attn_answer *answer) {
    const kgen__slot *slot = &data->slot[ERROR];
    for (int64_t s = 0; slot->before && s < answer->seqs; s++) {
        int32_t before, got;
        memcpy(&before, slot->before + slot->offset + (size_t)s * sizeof before, sizeof before);
        memcpy(&got, slot->bytes + slot->offset + (size_t)s * sizeof got, sizeof got);
        if (got == (before | answer->wrong[s])) continue;
        snprintf(result->message, sizeof result->message,
                 "error[%lld] is %#x, must be %#x: it was %#x, and %#x is to be added",
                 (long long)s, (unsigned)got, (unsigned)(before | answer->wrong[s]),
                 (unsigned)before, (unsigned)answer->wrong[s]);
        return 1;
    }
    return 0;
}

static void describe(kgen__check_result *r) {
    snprintf(r->message, sizeof r->message,
             "%s of token %lld, head %lld, dim %lld is %.9g, must be %.9g within %.3g; "
             "largest error %.3g tolerances, row error %.3g of what rounding explains",
             r->tensor, (long long)r->token, (long long)r->head, (long long)r->dim, r->got, r->want,
             r->tolerance, r->max_ratio, r->rms_ratio);
}

kgen_status kgen__attn_compare(kgen__check_result *result, const kgen__data *data,
                               const kgen__attn_answer *answer, kgen_error *err) {
    sight s = {.result = result};
    memset(result, 0, sizeof *result);
    for (int64_t token = 0; token < answer->tokens; token++)
        for (int64_t head = 0; head < answer->heads && answer->claims[token] == 1; head++)
            look_at_row(&s, data, answer, token, head);
    if (!guards_broken(result, data) && !strangers_written(result, data, answer) &&
        !errors_wrong(result, data, answer)) {
        if (result->max_ratio <= 1 && result->rms_ratio <= 1) return KGEN_OK;
        describe(result);
    }
    return kgen_fail(err, KGEN_E_MISMATCH, "%s", result->message);
}

kgen_status kgen__attn_check(kgen__check_result *result, const kgen__data *data, kgen_error *err) {
    kgen__attn_answer answer;
    KGEN_TRY(kgen__attn_reference(&answer, &data->spec, data->args.attn, err));
    kgen_status status = kgen__attn_compare(result, data, &answer, err);
    kgen__attn_free(&answer);
    return status;
}
