/* What a captured launch must leave. The reference of the family is computed
 * on tensors of their own, as for a case, and laid over the regions: tensors
 * that share memory, K and V of a packed cache or two states of one page, find
 * each other's outputs there. What no output covers stays as it was. */
#include "replay_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

/* ---- memory -------------------------------------------------------------------- */

static const kgen_capture_region *region_at(const kgen__replay_check *j, size_t index) {
    return &j->capture->regions[index];
}

static kgen_status no_memory(kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "replay: out of memory");
}

/* Addresses are what they were on the device, modulo ALIGNMENT. */
static kgen_status copy_regions(kgen__replay_check *j, kgen_error *err) {
    const kgen_capture *c = j->capture;
    j->memory = calloc(c->region_count + 1, sizeof *j->memory);
    j->expected = calloc(c->region_count + 1, sizeof *j->expected);
    j->loose = calloc(c->region_count + 1, sizeof *j->loose);
    if (!j->memory || !j->expected || !j->loose) return no_memory(err);
    for (size_t i = 0; i < c->region_count; i++) {
        const kgen_capture_region *r = region_at(j, i);
        size_t bytes = (r->phase + r->size) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
        j->memory[i] = aligned_alloc(ALIGNMENT, bytes);
        j->loose[i] = calloc(r->size + 1, 1);
        if (!j->memory[i] || !j->loose[i]) return no_memory(err);
        j->expected[i] = j->memory[i] + r->phase;
        memcpy(j->expected[i], r->before, r->size);
    }
    return KGEN_OK;
}

/* here: addresses of this memory; else the captured ones. */
static void set_addresses(const kgen__replay_check *j, int here) {
    const kgen_capture *c = j->capture;
    for (size_t i = 0; i < c->address_count; i++) {
        const kgen_capture_place *word = &c->addresses[i].word, *at = &c->addresses[i].at;
        int64_t address = (int64_t)(intptr_t)(j->expected[at->region] + at->offset);
        memcpy(j->expected[word->region] + word->offset,
               here ? (const void *)&address
                    : region_at(j, (size_t)word->region)->before + word->offset,
               sizeof address);
    }
}

static size_t extent_of(const kgen_tensor *t) {
    kgen_tensor simple = *t;
    for (int32_t i = 0; i < t->rank; i++)
        if (t->shape[i] <= 1) simple.stride[i] = 0; /* any number may stand there */
    return kgen__tensor_bytes(&simple);
}

/* Memory of its own for a tensor that may be written, guards on both sides. */
static kgen_status make_slot(kgen__replay_check *j, int index, kgen_error *err) {
    kgen__slot *slot = &j->data->slot[index];
    kgen_tensor *t = kgen__slot_tensor(&j->data->args, index);
    size_t bytes = extent_of(t);
    if (!t->data || slot->role == KGEN_USE_IN) return KGEN_OK;
    slot->role = KGEN_USE_INOUT; /* what it is not to write is known too */
    slot->offset = KGEN__GUARD_BYTES + (uintptr_t)t->data % ALIGNMENT;
    slot->size = slot->offset + bytes + KGEN__GUARD_BYTES;
    size_t rounded = slot->size / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    slot->bytes = aligned_alloc(ALIGNMENT, rounded);
    slot->before = aligned_alloc(ALIGNMENT, rounded);
    if (!slot->bytes || !slot->before) return no_memory(err);
    memset(slot->before, 0xff, slot->size);
    memcpy(slot->before + slot->offset, t->data, bytes);
    memcpy(slot->bytes, slot->before, slot->size);
    t->data = slot->bytes + slot->offset;
    return KGEN_OK;
}

/* Engines give some tensors in another rank: [T][H D] for [T][H][D], [C][1][w] for [C][w],
 * a scalar. The references know the row's own, which the launch took it for. */
static void unfold(kgen_tensor *t, const kgen_arg *arg) {
    int32_t rank = arg->rank, last = rank - 1;
    int64_t inner = last >= 0 ? arg->given[last] : 0;
    if (!t->data || arg->by_layout || t->rank == rank || last < 0) return;
    if (rank == 1) {
        t->shape[0] = t->stride[0] = 1;
    } else if (t->rank == rank + 1 && t->shape[last] == 1) {
        t->shape[last] = t->shape[rank];
        t->stride[last] = t->stride[rank];
    } else if (t->rank == last && inner > 0) {
        t->shape[last - 1] /= inner;
        t->stride[last - 1] = t->shape[last] = inner;
        t->stride[last] = 1;
    } else {
        return;
    }
    t->rank = rank;
}

static void unfold_all(kgen__data *data) {
    kgen_arg arg;
    for (int i = 0; i < kgen__slot_count(&data->args); i++)
        if (kgen_args_want(&arg, &data->spec, i)) unfold(kgen__slot_tensor(&data->args, i), &arg);
}

kgen_status kgen__replay_check_make(kgen__replay_check *j, const kgen_capture *capture,
                                    kgen_error *err) {
    *j = (kgen__replay_check){.capture = capture,
                              .family = kgen__check_family_of(capture->spec.family)};
    j->data = calloc(1, sizeof *j->data);
    if (!j->data) return no_memory(err);
    KGEN_TRY(copy_regions(j, err));
    kgen__data *data = j->data;
    data->spec = capture->spec;
    kgen_capture_args(&data->args, &data->room, capture, (void *const *)j->expected);
    unfold_all(data);
    for (int i = 0; i < KGEN__SLOT_MAX; i++)
        data->slot[i] = (kgen__slot){.view_of = i, .role = kgen_args_use(&data->args, i)};
    return KGEN_OK;
}

void kgen__replay_check_free(kgen__replay_check *j) {
    for (size_t i = 0; j->memory && i < j->capture->region_count; i++) free(j->memory[i]);
    for (size_t i = 0; j->loose && i < j->capture->region_count; i++) free(j->loose[i]);
    free(j->memory);
    free(j->expected);
    free(j->loose);
    if (j->data) kgen__data_free(j->data);
    free(j->data);
    kgen__answer_free(&j->answer);
    kgen__attn_free(&j->attn);
}

/* ---- before ---------------------------------------------------------------------- */

kgen_status kgen__replay_check_sound(const kgen__replay_check *j, kgen_error *err) {
    return j->family->sound ? j->family->sound(&j->data->spec, &j->data->args, err) : KGEN_OK;
}

int kgen__replay_check_can(const kgen__replay_check *j) {
    for (int i = 0; i < kgen__slot_count(&j->data->args); i++) {
        const kgen_tensor *t = kgen__slot_tensor(&j->data->args, i);
        for (int32_t n = 0; t->data && n < t->rank; n++)
            if (t->stride[n] < 0 && t->shape[n] > 1) return 0;
    }
    return 1;
}

/* ---- what is expected --------------------------------------------------------------- */

/* Where byte `at` of a slot lies in its region. */
static size_t region_byte(const kgen__replay_check *j, int slot, size_t at) {
    return j->capture->place[slot].offset + at - j->data->slot[slot].offset;
}

static void lay_image(kgen__replay_check *j, int index) {
    const kgen__slot *slot = &j->data->slot[index];
    const kgen__image *image = &j->answer.image[index];
    size_t size = (size_t)kgen_dtype_size(kgen__slot_tensor(&j->data->args, index)->dtype);
    int32_t region = j->capture->place[index].region;
    for (size_t at = slot->offset; at < slot->size - KGEN__GUARD_BYTES; at++) {
        size_t place = region_byte(j, index, at);
        if (image->tolerance[(at - slot->offset) / size] >= 0)
            j->loose[region][place] = 1;
        else if (image->bytes[at] != slot->before[at])
            j->expected[region][place] = image->bytes[at];
    }
}

/* Elements of an output of attn, all of which a tolerance decides. */
static void loosen(kgen__replay_check *j, const kgen_tensor *t) {
    int index = 0;
    int64_t at[KGEN_TENSOR_RANK_MAX] = {0}, size = kgen_dtype_size(t->dtype), count = 1;
    while (memcmp(kgen__slot_tensor(&j->data->args, index), t, sizeof *t) != 0) index++;
    const kgen_capture_place *place = &j->capture->place[index];
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    for (int64_t n = 0; n < count; n++) {
        int64_t element = 0;
        for (int32_t i = 0; i < t->rank; i++) element += at[i] * t->stride[i];
        memset(j->loose[place->region] + place->offset + element * size, 1, (size_t)size);
        for (int32_t i = t->rank - 1; i >= 0 && ++at[i] == t->shape[i]; i--) at[i] = 0;
    }
}

static kgen_status answer_attn(kgen__replay_check *j, kgen_error *err) {
    const kgen_attn_args *a = j->data->args.attn;
    KGEN_TRY(kgen__attn_reference(&j->attn, &j->data->spec, a, err));
    loosen(j, &a->out);
    if (j->data->spec.attn.lse) loosen(j, &a->lse);
    return KGEN_OK;
}

kgen_status kgen__replay_check_answer(kgen__replay_check *j, kgen_error *err) {
    kgen__data *data = j->data;
    if (!j->family->answer) return answer_attn(j, err);
    int count = kgen__slot_count(&data->args);
    for (int i = 0; i < count; i++) KGEN_TRY(make_slot(j, i, err));
    if (j->family->rows) data->shape.seqs = (int32_t)j->family->rows(&data->args, &data->spec);
    set_addresses(j, 1);
    KGEN_TRY(j->family->answer(&j->answer, data, err));
    set_addresses(j, 0);
    for (int i = 0; i < count; i++)
        if (j->answer.image[i].bytes) lay_image(j, i);
    return KGEN_OK;
}

/* ---- looking ------------------------------------------------------------------------- */

/* An outcome as the outputs of `data`; what overlaps is expected, or loose, alike. */
static void take_outcome(kgen__replay_check *j, int index, unsigned char *const *outcome) {
    kgen__slot *slot = &j->data->slot[index];
    kgen__image *image = &j->answer.image[index];
    size_t size = (size_t)kgen_dtype_size(kgen__slot_tensor(&j->data->args, index)->dtype);
    int32_t region = j->capture->place[index].region;
    for (size_t at = slot->offset; at < slot->size - KGEN__GUARD_BYTES; at++) {
        size_t place = region_byte(j, index, at);
        slot->bytes[at] = outcome[region][place];
        if (image->tolerance[(at - slot->offset) / size] < 0)
            image->bytes[at] =
                j->loose[region][place] ? outcome[region][place] : j->expected[region][place];
    }
}

static kgen_status look_at_attn(kgen__check_result *result, const kgen__replay_check *j,
                                unsigned char *const *outcome, kgen_error *err) {
    kgen__data *data = j->data;
    kgen_attn_args kept = *data->args.attn, *a = data->args.attn;
    kgen_args seen;
    kgen_args_room room;
    kgen_capture_args(&seen, &room, j->capture, (void *const *)outcome);
    a->out.data = seen.attn->out.data;
    a->lse.data = seen.attn->lse.data;
    kgen_status status = kgen__attn_compare(result, data, &j->attn, err);
    *a = kept;
    return status;
}

static kgen_status look_at_outputs(kgen__check_result *result, kgen__replay_check *j,
                                   unsigned char *const *outcome, kgen_error *err) {
    if (!j->family->answer) return look_at_attn(result, j, outcome, err);
    for (int i = 0; i < KGEN__SLOT_MAX; i++)
        if (j->answer.image[i].bytes) take_outcome(j, i, outcome);
    return kgen__answer_compare(result, j->data, &j->answer, err);
}

/* A tensor that has this byte in its extent; outputs are not asked for. */
static const char *owner_of(const kgen__replay_check *j, size_t region, size_t at) {
    for (int i = 0; i < kgen__slot_count(&j->data->args); i++) {
        const kgen_capture_place *place = &j->capture->place[i];
        if (place->region != (int32_t)region || at < place->offset) continue;
        if (at - place->offset < extent_of(kgen__slot_tensor(&j->data->args, i)))
            return kgen__slot_name(&j->data->args, i);
    }
    return j->capture->address_count ? "pools" : "memory beside a tensor";
}

static kgen_status look_at_rest(kgen__check_result *result, const kgen__replay_check *j,
                                unsigned char *const *outcome, kgen_error *err) {
    for (size_t i = 0; i < j->capture->region_count; i++)
        for (size_t at = 0; at < region_at(j, i)->size; at++) {
            if (outcome[i][at] == j->expected[i][at] || j->loose[i][at]) continue;
            int stays = j->expected[i][at] == region_at(j, i)->before[at];
            snprintf(result->message, sizeof result->message,
                     "%s: byte %zu of its memory is 0x%02x, must %s 0x%02x", owner_of(j, i, at), at,
                     outcome[i][at], stays ? "stay" : "be", j->expected[i][at]);
            return kgen_fail(err, KGEN_E_MISMATCH, "%s", result->message);
        }
    return KGEN_OK;
}

kgen_status kgen__replay_check_look(kgen__check_result *result, kgen__replay_check *j,
                                    unsigned char *const *outcome, kgen_error *err) {
    KGEN_TRY(look_at_outputs(result, j, outcome, err));
    return look_at_rest(result, j, outcome, err);
}
