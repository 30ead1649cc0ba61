/* Which memory a launch may touch: the extents of its tensors, those that
 * overlap united, so that what was one place stays one place. */
#include <stdlib.h>
#include <string.h>

#include "runtime/args_rows.h"
#include "capture_parts.h"
#include "runtime/checks.h"
#include "runtime/launch.h"

/* ---- extents ----------------------------------------------------------------- */

kgen_status kgen__tensor_extent(kgen__extent *out, const char *name, const kgen_tensor *t,
                                kgen_error *err) {
    int64_t size = kgen_dtype_size(t->dtype);
    *out = (kgen__extent){0, size};
    NEED(size > 0, "%s: dtype %d, no type of a tensor", name, (int)t->dtype);
    NEED(t->rank >= 1 && t->rank <= KGEN_TENSOR_RANK_MAX, "%s: rank %d, 1 to %d expected", name,
         t->rank, KGEN_TENSOR_RANK_MAX);
    int empty = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        NEED(t->shape[i] >= 0, "%s: shape[%d]=%lld, at least 0", name, i, (long long)t->shape[i]);
        empty |= t->shape[i] == 0;
    }
    KGEN_TRY(kgen__check_span(name, t, err));
    for (int32_t i = 0; i < t->rank && !empty; i++) {
        int64_t far = (t->shape[i] - 1) * (t->shape[i] > 1 ? t->stride[i] : 0) * size;
        if (far < 0)
            out->low += far;
        else
            out->end += far;
    }
    if (empty) *out = (kgen__extent){0, 0};
    return KGEN_OK;
}

/* ---- what there is ------------------------------------------------------------- */

/* A piece of memory that something points at. */
typedef struct piece {
    uintptr_t start;
    size_t size;
    uintptr_t pointer;          /* the address that was given */
    kgen_capture_place *target; /* says where it is, once the regions are known */
} piece;

typedef struct finder {
    kgen__regions *out;
    const kgen_args *args;
    piece *pieces;
    size_t count;
    int holder; /* the tensor of addresses */
} finder;

/* A launch refuses what its kernel has no use for: what is given is taken. */
static kgen_status add_tensors(finder *f, kgen_error *err) {
    const kgen_args *args = f->args;
    for (int i = 0; i < kgen_args_count(args); i++) {
        const kgen_tensor *t = kgen_args_tensor(args, i);
        kgen__extent extent;
        f->out->place[i] = (kgen_capture_place){-1, 0};
        if (!t->data) continue;
        KGEN_TRY(kgen__tensor_extent(&extent, kgen_args_name(args, i), t, err));
        uintptr_t data = (uintptr_t)t->data;
        f->pieces[f->count++] = (piece){data + (uintptr_t)extent.low,
                                        (size_t)(extent.end - extent.low), data, &f->out->place[i]};
    }
    return KGEN_OK;
}

/* ---- addresses in memory --------------------------------------------------------- */

static kgen_status read_addresses(int64_t **out, const kgen_kernel *kernel, const kgen_tensor *t,
                                  kgen_error *err) {
    const kgen_context *ctx = kernel->ctx;
    size_t count = (size_t)t->shape[0], bytes = count * sizeof **out;
    NEED(count <= KGEN__ADDRESSES_MAX, "pools: shape[0]=%zu, at most %d in a capture", count,
         KGEN__ADDRESSES_MAX);
    *out = malloc(bytes ? bytes : 1);
    if (!*out) return kgen_fail(err, KGEN_E_NOMEM, "pools: no %zu bytes", bytes);
    return ctx->api->read(ctx->device, *out, t->data, bytes, err);
}

static kgen_status grow_pieces(finder *f, size_t more, kgen_error *err) {
    piece *pieces = realloc(f->pieces, (f->count + more) * sizeof *pieces);
    if (!pieces) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    f->pieces = pieces;
    f->out->addresses = calloc(more, sizeof *f->out->addresses);
    return f->out->addresses ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
}

/* Of a tensor that holds addresses, the memory behind each. */
static kgen_status add_addresses(finder *f, const kgen_kernel *kernel, kgen_error *err) {
    int64_t *list = NULL;
    size_t bytes = 0;
    KGEN_TRY(kgen__launch_addresses(&f->holder, &bytes, kernel, f->args, err));
    if (f->holder < 0) return KGEN_OK;
    const kgen_tensor *t = kgen_args_tensor(f->args, f->holder);
    kgen_status status = read_addresses(&list, kernel, t, err);
    if (status == KGEN_OK) status = grow_pieces(f, (size_t)t->shape[0], err);
    for (int64_t i = 0; status == KGEN_OK && i < t->shape[0]; i++) {
        uintptr_t at = (uintptr_t)list[i];
        f->out->addresses[i].word.offset = (size_t)i * sizeof *list;
        f->pieces[f->count++] = (piece){at, bytes, at, &f->out->addresses[i].at};
        f->out->address_count++;
    }
    free(list);
    return status;
}

/* ---- united ---------------------------------------------------------------------- */

static int by_start(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

/* Pieces that only touch may be two allocations, which no one copy may cross;
 * pieces of no bytes are regions of their own. */
static void place_piece(kgen__regions *out, int32_t *open, const piece *p) {
    kgen__region *last = *open >= 0 ? &out->list[*open] : NULL;
    int32_t at = *open;
    if (!last || !p->size || p->start >= last->start + last->size) {
        at = (int32_t)out->count++;
        out->list[at] = (kgen__region){p->start, p->size, -1, -1};
        if (p->size) *open = at;
    } else if (p->start + p->size > last->start + last->size) {
        last->size = p->start + p->size - last->start;
    }
    *p->target = (kgen_capture_place){at, p->pointer - out->list[at].start};
}

static kgen_status unite(finder *f, kgen_error *err) {
    kgen__regions *out = f->out;
    int32_t open = -1;
    out->list = calloc(f->count ? f->count : 1, sizeof *out->list);
    if (!out->list) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    qsort(f->pieces, f->count, sizeof *f->pieces, by_start);
    for (size_t i = 0; i < f->count; i++) place_piece(out, &open, &f->pieces[i]);
    for (size_t i = 0; i < out->count; i++) out->bytes += out->list[i].size;
    return KGEN_OK;
}

static void place_words(finder *f) {
    kgen__regions *out = f->out;
    for (size_t i = 0; i < out->address_count; i++) {
        out->addresses[i].word.region = out->place[f->holder].region;
        out->addresses[i].word.offset += out->place[f->holder].offset;
    }
}

kgen_status kgen__regions_find(kgen__regions *out, const kgen_kernel *kernel, const kgen_args *args,
                               kgen_error *err) {
    finder f = {.out = out, .args = args};
    memset(out, 0, sizeof *out);
    f.pieces = malloc(KGEN_ARGS_TENSORS_MAX * sizeof *f.pieces);
    if (!f.pieces) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    kgen_status status = add_tensors(&f, err);
    if (status == KGEN_OK) status = add_addresses(&f, kernel, err);
    if (status == KGEN_OK) status = unite(&f, err);
    if (status == KGEN_OK) place_words(&f);
    free(f.pieces);
    return status;
}

void kgen__regions_free(kgen__regions *regions) {
    free(regions->list);
    free(regions->addresses);
    memset(regions, 0, sizeof *regions);
}
