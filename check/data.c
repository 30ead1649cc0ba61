/* The tensors of a case in host memory. Every allocation ends with its last
 * element; what may be written has guards on both sides. */
#include <stdlib.h>
#include <string.h>

#include "check_family.h"

int kgen__slot_count(const kgen_args *args) { return kgen_args_count(args); }

kgen_tensor *kgen__slot_tensor(const kgen_args *args, int slot) {
    return kgen_args_tensor(args, slot);
}

const char *kgen__slot_name(const kgen_args *args, int slot) { return kgen_args_name(args, slot); }

/* ---- tensors --------------------------------------------------------------- */

kgen_tensor kgen__tensor_strided(kgen_dtype dtype, int32_t rank, const int64_t *shape,
                                 const int64_t *stride) {
    kgen_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.shape, shape, (size_t)rank * sizeof *shape);
    memcpy(t.stride, stride, (size_t)rank * sizeof *stride);
    return t;
}

void kgen__tensor_pad(kgen_tensor *t, const int64_t *pad) {
    int64_t inside = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = inside + pad[i];
        inside = t->stride[i] * t->shape[i];
    }
}

size_t kgen__tensor_bytes(const kgen_tensor *t) {
    int64_t last = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] == 0) return 0;
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return (size_t)(last + 1) * (size_t)kgen_dtype_size(t->dtype);
}

int64_t kgen__int_load(const kgen_tensor *t, int64_t index) {
    switch (t->dtype) {
    case KGEN_DTYPE_I64:
        return ((const int64_t *)t->data)[index];
    case KGEN_DTYPE_U16:
        return ((const uint16_t *)t->data)[index];
    case KGEN_DTYPE_U8:
        return ((const uint8_t *)t->data)[index];
    default:
        return ((const int32_t *)t->data)[index];
    }
}

void kgen__int_store(const kgen_tensor *t, int64_t index, int64_t value) {
    size_t size = (size_t)kgen_dtype_size(t->dtype);
    memcpy((char *)t->data + (size_t)index * size, &value, size); /* little-endian hosts */
}

kgen_status kgen__sound_offsets(const char *name, const kgen_tensor *t, int64_t count, int64_t rows,
                                int64_t most, kgen_error *err) {
    int64_t before = 0;
    for (int64_t i = 0; i <= count; i++) {
        int64_t at = kgen__int_load(t, i), high = i && rows - before > most ? before + most : rows;
        KGEN__SOUND(at >= before && at <= high, "%s[%lld]=%lld: must be %lld..%lld", name,
                    (long long)i, (long long)at, (long long)before, (long long)high);
        before = at;
    }
    return KGEN_OK;
}

void kgen__slot_cover(kgen__data *data, int index, kgen__rng *rng, int poison) {
    enum { CODES = 61 };
    kgen_dtype dtype = kgen__slot_tensor(&data->args, index)->dtype;
    const kgen__slot *slot = &data->slot[index];
    size_t size = (size_t)kgen_dtype_size(dtype);
    uint32_t code[CODES];
    for (int i = 0; i < CODES; i++)
        code[i] = poison ? kgen__number_poison(dtype, (uint32_t)kgen__rng_next(rng))
                         : kgen__number_encode(dtype, kgen__rng_normal(rng));
    for (size_t at = 0; slot->bytes && at + size <= slot->size; at += size)
        memcpy(slot->bytes + at, &code[at / size % CODES], size);
}

/* ---- shapes ------------------------------------------------------------------ */

kgen_status kgen__data_shape(kgen__data *data, const kgen_arg_size *sizes, size_t count,
                             uint64_t absent, kgen_error *err) {
    for (int i = 0; i < kgen__slot_count(&data->args); i++) {
        int64_t shape[KGEN_TENSOR_RANK_MAX];
        kgen_tensor *t = kgen__slot_tensor(&data->args, i);
        kgen_arg arg;
        if (absent >> i & 1 || !kgen_args_want(&arg, &data->spec, i)) continue;
        KGEN_TRY(kgen_arg_shape(shape, &arg, sizes, count, err));
        *t = kgen_tensor_dense(NULL, arg.dtype, arg.rank, shape);
        t->layout = arg.layout;
        data->slot[i].role = arg.use;
    }
    return KGEN_OK;
}

/* ---- make -------------------------------------------------------------------- */

static size_t guard_of(const kgen__slot *slot) {
    return slot->role == KGEN_USE_IN ? 0 : KGEN__GUARD_BYTES;
}

static kgen_status place(kgen__data *data, int index, kgen_error *err) {
    kgen_tensor *t = kgen__slot_tensor(&data->args, index);
    kgen__slot *slot = &data->slot[index];
    if (t->rank == 0) return KGEN_OK;
    if (slot->view_of != index) {
        slot->offset += guard_of(&data->slot[slot->view_of]);
        t->data = data->slot[slot->view_of].bytes + slot->offset;
        return KGEN_OK;
    }
    size_t guard = guard_of(slot);
    size_t bytes = kgen__tensor_bytes(t), body = slot->size > bytes ? slot->size : bytes;
    slot->offset += guard;
    slot->size = slot->offset + body + guard;
    if (slot->size == 0) slot->size = 1; /* a tensor without elements still has an address */
    slot->bytes = calloc(1, slot->size);
    if (slot->role == KGEN_USE_INOUT) slot->before = calloc(1, slot->size);
    if (!slot->bytes || (slot->role == KGEN_USE_INOUT && !slot->before))
        return kgen_fail(err, KGEN_E_NOMEM, "%s: %zu bytes: out of memory",
                         kgen__slot_name(&data->args, index), slot->size);
    t->data = slot->bytes + slot->offset;
    return KGEN_OK;
}

kgen_status kgen__data_make(kgen__data *data, const kgen__case *c, const kgen_spec *spec,
                            kgen_error *err) {
    const kgen__check_family *family = kgen__check_family_of(spec->family);
    memset(data, 0, sizeof *data);
    data->shape = *c;
    data->spec = *spec;
    kgen_args_init(&data->args, &data->room, spec);
    int count = kgen__slot_count(&data->args);
    for (int i = 0; i < count; i++)
        data->slot[i] = (kgen__slot){.view_of = i, .role = kgen_args_use(&data->args, i)};
    KGEN_TRY(family->shape(data, err));
    for (int i = 0; i < count; i++) {
        kgen_status status = place(data, i, err);
        if (status == KGEN_OK) continue;
        kgen__data_free(data);
        return status;
    }
    return KGEN_OK;
}

void kgen__data_free(kgen__data *data) {
    for (int i = 0; i < KGEN__SLOT_MAX; i++) {
        free(data->slot[i].bytes);
        free(data->slot[i].before);
    }
    memset(data, 0, sizeof *data);
}

/* ---- contents ---------------------------------------------------------------- */

kgen_status kgen__data_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    return kgen__check_family_of(data->spec.family)->fill(data, seed, err);
}

kgen_status kgen__data_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    return kgen__check_family_of(data->spec.family)->refill(data, rng, err);
}

void kgen__data_remember(kgen__data *data) {
    for (int i = 0; i < KGEN__SLOT_MAX; i++) {
        kgen__slot *slot = &data->slot[i];
        if (slot->before) memcpy(slot->before, slot->bytes, slot->size);
    }
}

void kgen__data_poison_outputs(kgen__data *data) {
    for (int i = 0; i < KGEN__SLOT_MAX; i++) {
        kgen__slot *slot = &data->slot[i];
        if (slot->before)
            memcpy(slot->bytes, slot->before, slot->size);
        else if (slot->bytes && slot->role == KGEN_USE_OUT)
            memset(slot->bytes, 0xff, slot->size);
    }
}
