/* Slots against what they must hold, guards and gaps included. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_family.h"

double kgen__error_ratio(double got, double want, double tolerance) {
    if (got == want) return 0;
    double error = fabs(got - want);
    return tolerance > 0 && !isnan(error) ? error / tolerance : INFINITY;
}

typedef struct sight {
    kgen__check_result *result;
    int slot;
    int64_t at;   /* of the worst element */
    int64_t byte; /* first that had to stay, or to be exact, and is not; -1 */
} sight;

static void look(sight *s, kgen_dtype dtype, const kgen__slot *slot, const kgen__image *image,
                 int64_t at) {
    kgen__check_result *r = s->result;
    double got = kgen__number_load(dtype, slot->bytes + slot->offset, at);
    double want = image->want[at], tolerance = (double)image->tolerance[at];
    int is_nan = isnan(want) && isnan(got) && tolerance == 0; /* any NaN is right */
    double error = got == want || is_nan ? 0 : fabs(got - want);
    double ratio = is_nan ? 0 : kgen__error_ratio(got, want, tolerance);
    if (error > r->max_abs || isnan(error)) r->max_abs = error;
    if (ratio <= r->max_ratio && s->at >= 0) return;
    r->max_ratio = ratio;
    r->got = got;
    r->want = want;
    r->tolerance = tolerance;
    s->at = at;
}

static void look_at_bytes(sight *s, const kgen__slot *slot, const kgen__image *image, size_t from,
                          size_t end) {
    if (s->byte >= 0 || memcmp(slot->bytes + from, image->bytes + from, end - from) == 0) return;
    while (slot->bytes[from] == image->bytes[from]) from++;
    s->byte = (int64_t)from;
}

static void look_at_slot(sight *s, const kgen__data *data, const kgen__image *image) {
    const kgen__slot *slot = &data->slot[s->slot];
    kgen_dtype dtype = kgen__slot_tensor(&data->args, s->slot)->dtype;
    size_t size = (size_t)kgen_dtype_size(dtype), first = slot->offset;
    look_at_bytes(s, slot, image, 0, first);
    for (int64_t at = 0; at < image->count; at++, first += size) {
        if (image->tolerance[at] < 0)
            look_at_bytes(s, slot, image, first, first + size);
        else
            look(s, dtype, slot, image, at);
    }
    look_at_bytes(s, slot, image, first, slot->size);
}

/* "[2][0][17]" of an element; a place between rows has the nearest below. */
static void print_place(char out[96], const kgen_tensor *t, int64_t at) {
    size_t used = 0;
    int done[KGEN_TENSOR_RANK_MAX] = {0};
    int64_t index[KGEN_TENSOR_RANK_MAX] = {0};
    for (int32_t n = 0; n < t->rank; n++) { /* the largest stride first */
        int32_t pick = -1;
        for (int32_t i = 0; i < t->rank; i++)
            if (!done[i] && (pick < 0 || t->stride[i] > t->stride[pick])) pick = i;
        done[pick] = 1;
        if (t->stride[pick] < 1) continue;
        index[pick] = at / t->stride[pick];
        if (index[pick] >= t->shape[pick]) index[pick] = t->shape[pick] - 1;
        at -= index[pick] * t->stride[pick];
    }
    for (int32_t i = 0; i < t->rank; i++)
        used += (size_t)snprintf(out + used, 96 - used, "[%lld]", (long long)index[i]);
    if (at) snprintf(out + used, 96 - used, "+%lld", (long long)at);
}

static void describe_value(const sight *s, const kgen__data *data) {
    kgen__check_result *r = s->result;
    char place[96];
    print_place(place, kgen__slot_tensor(&data->args, s->slot), s->at);
    snprintf(r->message, sizeof r->message,
             "%s%s is %.9g, must be %.9g within %.3g; largest error %.3g tolerances", r->tensor,
             place, r->got, r->want, r->tolerance, r->max_ratio);
}

static void describe_byte(const sight *s, const kgen__data *data, const kgen__image *image) {
    const kgen__slot *slot = &data->slot[s->slot];
    const char *name = kgen__slot_name(&data->args, s->slot);
    const kgen_tensor *t = kgen__slot_tensor(&data->args, s->slot);
    int64_t size = kgen_dtype_size(t->dtype), at = (s->byte - (int64_t)slot->offset) / size;
    char place[96] = " (guard)";
    if (s->byte >= (int64_t)slot->offset && at < image->count) print_place(place, t, at);
    const unsigned char *first = slot->before ? slot->before : NULL;
    int stays = first ? first[s->byte] == image->bytes[s->byte] : image->bytes[s->byte] == 0xff;
    snprintf(s->result->message, sizeof s->result->message,
             "%s%s: byte %lld is 0x%02x, must %s 0x%02x", name, place, (long long)s->byte,
             slot->bytes[s->byte], stays ? "stay" : "be", image->bytes[s->byte]);
}

kgen_status kgen__answer_compare(kgen__check_result *result, const kgen__data *data,
                                 const kgen__answer *answer, kgen_error *err) {
    memset(result, 0, sizeof *result);
    int shown = 0;
    for (int i = 0; i < KGEN__SLOT_MAX; i++) {
        const kgen__image *image = &answer->image[i];
        double before = result->max_ratio;
        sight s = {.result = result, .slot = i, .at = -1, .byte = -1};
        if (!image->bytes) continue;
        kgen__check_result kept = *result;
        look_at_slot(&s, data, image);
        if (s.at >= 0 && result->max_ratio >= before)
            snprintf(result->tensor, sizeof result->tensor, "%s", kgen__slot_name(&data->args, i));
        else if (kept.tensor[0]) {
            kept.max_abs = result->max_abs;
            *result = kept;
        }
        if (shown) continue;
        if (s.byte >= 0)
            describe_byte(&s, data, image);
        else if (s.at >= 0 && !(result->max_ratio <= 1))
            describe_value(&s, data);
        shown = result->message[0] != 0;
    }
    return shown ? kgen_fail(err, KGEN_E_MISMATCH, "%s", result->message) : KGEN_OK;
}

static kgen_status make_image(kgen__image *image, const kgen__slot *slot, kgen_dtype dtype,
                              kgen_error *err) {
    size_t body = slot->size - slot->offset - KGEN__GUARD_BYTES;
    image->count = (int64_t)body / kgen_dtype_size(dtype);
    image->offset = slot->offset;
    image->bytes = malloc(slot->size);
    image->want = calloc((size_t)image->count + 1, sizeof *image->want);
    image->tolerance = malloc(((size_t)image->count + 1) * sizeof *image->tolerance);
    if (!image->bytes || !image->want || !image->tolerance)
        return kgen_fail(err, KGEN_E_NOMEM, "reference of %zu bytes: out of memory", slot->size);
    if (slot->before)
        memcpy(image->bytes, slot->before, slot->size);
    else
        memset(image->bytes, 0xff, slot->size);
    for (int64_t n = 0; n < image->count; n++) image->tolerance[n] = -1;
    return KGEN_OK;
}

kgen_status kgen__answer_make(kgen__answer *answer, kgen_args *before, kgen_args_room *room,
                              const kgen__data *data, kgen_error *err) {
    memset(answer, 0, sizeof *answer);
    kgen_args_copy(before, room, &data->args);
    for (int i = 0; i < kgen__slot_count(&data->args); i++) {
        const kgen__slot *slot = &data->slot[i], *memory = &data->slot[slot->view_of];
        kgen_tensor *t = kgen__slot_tensor(before, i);
        if (t->data && memory->before) t->data = memory->before + slot->offset;
        if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
        KGEN_TRY(make_image(&answer->image[i], slot, t->dtype, err));
    }
    return KGEN_OK;
}

void kgen__answer_free(kgen__answer *answer) {
    for (int i = 0; i < KGEN__SLOT_MAX; i++) {
        free(answer->image[i].bytes);
        free(answer->image[i].want);
        free(answer->image[i].tolerance);
    }
    memset(answer, 0, sizeof *answer);
}
