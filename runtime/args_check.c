/* The arguments of a launch against the rows of its family. */
#include "args_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "checks.h"

/* --- what a kernel wants -------------------------------------------------- */

static int32_t key_at(const kgen_spec *spec, size_t at) {
    return *(const int32_t *)((const char *)&spec->attn + at);
}

kgen_dtype kgen__args_type(const kgen__type *type, const kgen_spec *spec) {
    if (type->rule == KGEN__TYPE_FIXED) return (kgen_dtype)type->at;
    int32_t key = key_at(spec, type->at);
    if (type->rule == KGEN__TYPE_WIDE)
        return key == (int32_t)type->other ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32;
    if (type->rule == KGEN__TYPE_EITHER && !key) key = key_at(spec, type->other);
    return (kgen_dtype)key;
}

static uint32_t alignment_of(int32_t flags, kgen_dtype dtype) {
    uint32_t size = (uint32_t)kgen_dtype_size(dtype), want = size;
    if (flags & KGEN__ROW_WORDS) want = 4;
    if (flags & KGEN__ROW_PIECES) want = 4 * size;
    if (flags & KGEN__ROW_LINES) want = 16;
    return (want > size ? want : size) - 1;
}

_Static_assert(offsetof(kgen_tensor, layout) == offsetof(kgen_tensor, dtype) + 4 &&
                   sizeof(kgen_dtype) == 4 && sizeof(kgen_layout) == 4,
               "type and layout of a tensor are one word");

static uint64_t head_of(const kgen_tensor *t) {
    uint64_t head;
    memcpy(&head, &t->dtype, sizeof head);
    return head;
}

static void bind_head(kgen__bound *b) {
    const kgen_tensor wanted = {.dtype = b->dtype,
                                .layout = (kgen_layout)(b->tag < 0 ? 0 : b->tag)};
    const kgen_tensor type = {.dtype = (kgen_dtype)-1,
                              .layout = (kgen_layout)(b->tag < 0 ? 0 : -1)};
    b->head = head_of(&wanted);
    b->head_mask = head_of(&type);
}

static kgen__bound bound_of(const kgen__row *row, kgen__place place, const kgen_spec *spec) {
    kgen_dtype dtype = kgen__args_type(&row->type, spec);
    int32_t loose = row->flags & KGEN__ROW_LOOSE;
    kgen__bound b = {.row = row,
                     .offset = (uint32_t)row->offset,
                     .align = alignment_of(row->flags, dtype),
                     .shares = row->use != KGEN_USE_IN && !loose ? 0 : -1,
                     .tag = row->tag < 0 ? row->tag : key_at(spec, (size_t)row->tag),
                     .dtype = dtype,
                     .rank = (uint8_t)row->rank,
                     .free = (uint8_t)row->free,
                     .bytes = (uint8_t)kgen_dtype_size(dtype),
                     .is_optional = !!(row->flags & KGEN__ROW_OPTIONAL)};
    b.step_align = ((int64_t)b.align + 1) / b.bytes - 1;
    bind_head(&b);
    for (int i = 0; i < row->rank; i++) {
        b.dims[i] = row->dims[i] & ~KGEN__MORE;
        b.more |= (uint8_t)(!!(row->dims[i] & KGEN__MORE) << i);
    }
    b.to = (uint16_t)place.pointer;
    b.unit = place.bytes ? b.bytes : 1;
    while (b.strides < 3 && b.strides < row->rank && place.strides[b.strides]) {
        b.stride_to[b.strides] = (uint16_t)place.strides[b.strides];
        b.strides++;
    }
    return b;
}

/* Once the dims are known. */
static void bind_tail(kgen__bound *b, const kgen__binding *binding) {
    const kgen__size_row *sizes = binding->rows->sizes;
    for (b->lead = b->rank; b->lead > b->free; b->lead--) {
        int i = b->lead - 1, id = b->dims[i];
        if (b->more >> i & 1 || sizes[id].from != KGEN__SIZE_GIVEN || binding->size[id] < 1) return;
        b->shape[i] = binding->size[id];
        b->stride[i] = b->last + 1;
        b->last += (b->shape[i] - 1) * b->stride[i];
    }
}

/* What a number may be, as a range of its bits. A float that is right and outside, such as
 * -0, is looked at a second time. */
static kgen__bound_number bound_number_of(const kgen__number_row *row, int held) {
    enum { LARGEST = 0x7f7fffff, SIGN = INT32_MIN };
    static const struct {
        int64_t low, high;
    } floats[] = {[KGEN__NUMBER_ABOVE_0] = {1, LARGEST},
                  [KGEN__NUMBER_NOT_BELOW_0] = {0, LARGEST},
                  [KGEN__NUMBER_BELOW_0] = {SIGN + 1, (int64_t)SIGN + LARGEST},
                  [KGEN__NUMBER_NOT_0] = {1, LARGEST}};
    int is_wide = row->size == 8, rule = row->bound.rule;
    int64_t low = is_wide ? INT64_MIN : INT32_MIN, high = is_wide ? INT64_MAX : INT32_MAX;
    if (!held) {
        low = high = 0;
    } else if (rule == KGEN__NUMBER_RANGE) {
        low = row->bound.low > low ? row->bound.low : low;
        high = row->bound.high < high ? row->bound.high : high;
    } else if (rule != KGEN__NUMBER_ANY) {
        low = floats[rule].low;
        high = floats[rule].high;
    }
    return (kgen__bound_number){.row = row,
                                .offset = (uint32_t)row->offset,
                                .pointer = (uint32_t)row->pointer,
                                .is_wide = (uint8_t)is_wide,
                                .held = (uint8_t)held,
                                .low = (uint64_t)low,
                                .span = (uint64_t)high - (uint64_t)low};
}

enum { FLAGS_OF_TURN = KGEN__ROW_FIRST | KGEN__ROW_BY_LAYOUT };

/* The rows with these of the flags of a turn. */
static int bind_rows(kgen__binding *b, const kgen_spec *spec, int32_t flags) {
    for (int i = 0; i < b->rows->row_count; i++) {
        const kgen__row *row = &b->rows->rows[i];
        int held = (row->when & b->conditions) == row->when;
        if (!held || (row->flags & FLAGS_OF_TURN) != flags) continue;
        kgen__bound *bound = &b->bound[b->count];
        b->index_of[row->id] = (uint8_t)b->count++;
        *bound = bound_of(
            row, b->rows->place_of ? b->rows->place_of(row) : b->rows->places[row->id], spec);
        bound->forward = (uint8_t)b->rows->forward;
        bind_tail(bound, b);
        if (row->flags & KGEN__ROW_APART) b->apart_at[b->apart++] = (uint8_t)(b->count - 1);
    }
    return b->count;
}

const kgen__row *kgen__args_row(const kgen__args_rows *rows, const kgen_spec *spec, size_t offset) {
    uint32_t conditions = rows->conditions(spec);
    for (int i = 0; i < rows->row_count; i++) {
        const kgen__row *row = &rows->rows[i];
        if (row->offset == offset && (row->when & conditions) == row->when) return row;
    }
    return NULL;
}

static void bind_absent(kgen__binding *b, const kgen_spec *spec) {
    const kgen__args_rows *rows = b->rows;
    for (int i = 0; i < rows->row_count; i++) {
        const kgen__row *row = &rows->rows[i];
        if (row->flags & KGEN__ROW_FORM || kgen__args_row(rows, spec, row->offset)) continue;
        b->without_at[b->absent] = (uint32_t)(row->offset + offsetof(kgen_tensor, data));
        b->without[b->absent++] = row;
    }
    for (int i = b->absent; b->absent && i % KGEN__AT_ONCE; i++)
        b->without_at[i] = b->without_at[b->absent - 1];
}

void kgen__args_bind(kgen__binding *b, const kgen__args_rows *rows, const kgen_spec *spec) {
    memset(b, 0, sizeof *b);
    b->rows = rows;
    b->conditions = rows->conditions(spec);
    rows->given(b->size, spec);
    for (int i = 0; i < rows->size_count; i++)
        b->learned |= (uint64_t)(rows->sizes[i].from <= KGEN__SIZE_LONG) << i;
    for (int i = 0; i < rows->number_count; i++) {
        const kgen__number_row *row = &rows->numbers[i];
        b->numbers[b->number_count++] =
            bound_number_of(row, (row->when & b->conditions) == row->when);
    }
    b->first = bind_rows(b, spec, KGEN__ROW_FIRST);
    b->checked = bind_rows(b, spec, 0);
    bind_rows(b, spec, KGEN__ROW_BY_LAYOUT);
    bind_absent(b, spec);
}

/* --- forms that engines have ---------------------------------------------- */

/* A tensor of another rank that is the same one: a scalar for one element,
 * [T][H D] for [T][H][D], [C][1][w] for [C][w]. Anything else stays as it is. */
static const kgen_tensor *unfold(kgen_tensor *room, const kgen_tensor *t, const kgen__row *row,
                                 const int64_t *size) {
    int32_t last = row->rank - 1;
    int64_t inner = size[row->dims[last] & ~KGEN__MORE];
    *room = *t;
    room->rank = row->rank;
    if (row->flags & KGEN__ROW_JOINED && t->rank == last && t->stride[last - 1] == 1 &&
        t->shape[last - 1] == inner * size[row->dims[last - 1] & ~KGEN__MORE]) {
        room->shape[last - 1] = size[row->dims[last - 1] & ~KGEN__MORE];
        room->shape[last] = inner;
        room->stride[last - 1] = inner;
        room->stride[last] = 1;
        return room;
    }
    if (row->flags & KGEN__ROW_SQUEEZED && t->rank == row->rank + 1 && t->shape[last] == 1) {
        room->shape[last] = t->shape[row->rank];
        room->stride[last] = t->stride[row->rank];
        return room;
    }
    if (row->rank != 1 || inner != 1 || kgen__tensor_elements(t) != 1) return t;
    room->shape[0] = room->stride[0] = 1;
    return room;
}

/* --- one tensor ------------------------------------------------------------ */

static kgen_status check_size(const kgen__bound *b, const kgen_tensor *t, int i,
                              const kgen__size_row *sizes, int64_t *size, kgen_error *err) {
    int id = b->dims[i];
    int64_t got = t->shape[i], *want = &size[id];
    if (*want < 0 && sizes[id].from != KGEN__SIZE_DERIVED) {
        NEED(got <= INT32_MAX || sizes[id].from == KGEN__SIZE_LONG,
             "%s: shape[%d]=%lld, at most 2^31-1", b->row->name, i, (long long)got);
        *want = got;
        return KGEN_OK;
    }
    if (!(b->more >> i & 1)) return kgen__check_dim(b->row->name, t, i, *want, err);
    NEED(got >= *want, "%s: shape[%d]=%lld, at least %lld expected", b->row->name, i,
         (long long)got, (long long)*want);
    return KGEN_OK;
}

/* From the smallest stride up, each must step over all that lies below it. */
static kgen_status check_distinct(const kgen__row *row, const kgen_tensor *t, int64_t below,
                                  kgen_error *err) {
    unsigned done = 0;
    for (int n = 0; n < row->free; n++) {
        int least = -1;
        for (int i = 0; i < row->free; i++)
            if (!(done >> i & 1) && (least < 0 || t->stride[i] < t->stride[least])) least = i;
        done |= 1u << least;
        if (t->shape[least] <= 1) continue;
        NEED(t->stride[least] >= below, "%s: stride[%d]=%lld, at least %lld, or its parts overlap",
             row->name, least, (long long)t->stride[least], (long long)below);
        below += (t->shape[least] - 1) * t->stride[least];
    }
    return KGEN_OK;
}

/* Dense behind the free strides, which keep to the alignment; what is written
 * must not lie in itself. */
static kgen_status check_strides(const kgen__bound *b, const kgen_tensor *t, kgen_error *err) {
    const kgen__row *row = b->row;
    int64_t dense = 1;
    for (int i = row->rank - 1; i >= row->free; i--) {
        KGEN_TRY(kgen__check_unit_stride(row->name, t, i, dense, err));
        dense *= t->shape[i];
    }
    for (int i = 0; i < row->free && b->forward; i++)
        NEED(t->stride[i] >= 0 || t->shape[i] <= 1, "%s: stride[%d]=%lld, at least 0", row->name, i,
             (long long)t->stride[i]);
    if (b->align >= b->bytes)
        KGEN_TRY(kgen__check_alignment(row->name, t, row->free, (int)b->align + 1, err));
    int spreads = !b->shares && kgen__tensor_elements(t);
    return spreads ? check_distinct(row, t, dense, err) : KGEN_OK;
}

static kgen_status check_tensor(const kgen__bound *b, const kgen_tensor *t,
                                const kgen__size_row *sizes, int64_t *size, kgen_error *err) {
    const kgen__row *row = b->row;
    KGEN_TRY(kgen__check_type(row->name, t, b->dtype, row->rank, err));
    if (b->tag >= 0) KGEN_TRY(kgen__check_layout(row->name, t, b->tag, err));
    for (int i = 0; i < row->rank; i++) KGEN_TRY(check_size(b, t, i, sizes, size, err));
    KGEN_TRY(kgen__check_span(row->name, t, err));
    return check_strides(b, t, err);
}

/* Of the dimensions that a launch decides, from the last to the first; `last` is what is
 * behind them. *above: elements from the first to behind the last. */
static inline int lead_is_usual(const kgen__bound *b, const kgen_tensor *t, uint64_t learned,
                                int64_t *size, int64_t *above) {
    int64_t last = b->last, part;
    for (int i = b->lead - 1; i >= 0; i--) {
        int64_t n = t->shape[i], step = t->stride[i], *want = &size[b->dims[i]];
        if (n <= 0) return 0;
        if (n != *want) {
            if (*want < 0 && n <= INT32_MAX && learned >> b->dims[i] & 1)
                *want = n;
            else if (!(b->more >> i & 1) || n < *want)
                return 0;
        }
        if (n == 1) continue;
        if (i >= b->free ? step != last + 1 : (step <= (last | b->shares)) | (step & b->step_align))
            return 0;
        if (__builtin_mul_overflow(n - 1, step, &part) ||
            __builtin_add_overflow(last, part, &last) || last >= INT64_MAX / 16)
            return 0;
    }
    *above = last + 1;
    return 1;
}

/* All of check_tensor without its words, for the tensors that launches have: in
 * the usual order of strides, with data. What does not pass is looked at again. */
static inline int is_usual(const kgen__bound *b, const kgen_tensor *t, uint64_t learned,
                           int64_t *size, int64_t *above) {
    int64_t differ = 0;
    if (!t->data || (uintptr_t)t->data & b->align) return 0;
    if (((head_of(t) ^ b->head) & b->head_mask) || t->rank != b->rank) return 0;
    for (int i = b->lead; i < b->rank; i++)
        differ |= (t->shape[i] ^ b->shape[i]) | (t->stride[i] ^ b->stride[i]);
    return !differ && lead_is_usual(b, t, learned, size, above);
}

static inline void pack(void *packed, const kgen__bound *b, const kgen_tensor *t) {
    if (!b->to) return;
    memcpy((char *)packed + b->to - 1, &t->data, sizeof t->data);
    for (int i = 0; i < b->strides; i++) {
        long long stride = t->stride[i] * b->unit;
        memcpy((char *)packed + b->stride_to[i] - 1, &stride, sizeof stride);
    }
}

/* --- all -------------------------------------------------------------------- */

static inline const kgen_tensor *tensor_at(const void *args, size_t offset) {
    return (const kgen_tensor *)((const char *)args + offset);
}

/* What is not usual: empty, of another rank, of strides in another order, wrong. */
static kgen_status take_unusual(void *packed, int64_t *size, const kgen__binding *b,
                                const kgen__bound *bound, const kgen_tensor *t, kgen_error *err) {
    kgen_tensor room;
    if (t->rank != bound->rank && (unsigned)t->rank <= KGEN_TENSOR_RANK_MAX)
        t = unfold(&room, t, bound->row, size);
    KGEN_TRY(check_tensor(bound, t, b->rows->sizes, size, err));
    pack(packed, bound, t);
    return KGEN_OK;
}

/* at: the memory of each tensor. */
static inline kgen_status take(void *packed, int64_t *size, const kgen__binding *b, int from,
                               int to, const void *args, kgen__stretch *at, kgen_error *err) {
    for (int i = from; i < to; i++) {
        const kgen__bound *bound = &b->bound[i];
        const kgen_tensor *t = tensor_at(args, bound->offset);
        int64_t above = 0;
        at[i] = (kgen__stretch){0, 0};
        if (!is_usual(bound, t, b->learned, size, &above)) {
            if (bound->is_optional && !t->data) continue;
            KGEN_TRY(take_unusual(packed, size, b, bound, t, err));
            at[i] = kgen__tensor_memory(t);
            continue;
        }
        pack(packed, bound, t);
        at[i].first = (uintptr_t)t->data;
        at[i].end = (uintptr_t)t->data + (uintptr_t)above * bound->bytes;
    }
    return KGEN_OK;
}

static kgen_status say_present(const kgen__binding *b, const void *args, kgen_error *err) {
    for (int i = 0; i < b->absent; i++)
        NEED(!tensor_at(args, b->without[i]->offset)->data, "%s: given, kernel built without it",
             b->without[i]->name);
    return KGEN_OK;
}

/* --- numbers ---------------------------------------------------------------- */

static double number_at(const kgen__number_row *row, const void *args, int64_t *whole) {
    const char *at = (const char *)args + row->offset;
    float x;
    int32_t n;
    if (row->type[0] != 'f') {
        memcpy(&n, at, sizeof n);
        *whole = n;
        if (row->size == sizeof *whole) memcpy(whole, at, sizeof *whole);
        return (double)*whole;
    }
    memcpy(&x, at, sizeof x);
    return x;
}

static kgen_status check_float(const kgen__number_row *row, double x, kgen_error *err) {
    static const char *const says[] = {[KGEN__NUMBER_ABOVE_0] = "finite and above 0",
                                       [KGEN__NUMBER_NOT_BELOW_0] = "finite, at least 0",
                                       [KGEN__NUMBER_BELOW_0] = "finite and below 0",
                                       [KGEN__NUMBER_NOT_0] = "finite and not 0"};
    int rule = row->bound.rule;
    int right = rule == KGEN__NUMBER_ABOVE_0       ? x > 0
                : rule == KGEN__NUMBER_NOT_BELOW_0 ? x >= 0
                : rule == KGEN__NUMBER_BELOW_0     ? x < 0
                                                   : x != 0;
    NEED(isfinite(x) && right, "%s=%g: %s", row->name, x, says[rule]);
    return KGEN_OK;
}

static kgen_status check_whole(const kgen__number_row *row, int64_t x, kgen_error *err) {
    int64_t low = row->bound.low, high = row->bound.high;
    if (high == INT64_MAX)
        NEED(x >= low, "%s=%lld: at least %lld", row->name, (long long)x, (long long)low);
    NEED(x >= low && x <= high, "%s=%lld: must be %lld..%lld", row->name, (long long)x,
         (long long)low, (long long)high);
    return KGEN_OK;
}

static kgen_status check_number(const kgen__number_row *row, int held, const void *args,
                                kgen_error *err) {
    int64_t whole = 0;
    double x = number_at(row, args, &whole);
    NEED(held || x == 0, "%s=%g: kernel built without it, 0 expected", row->name, x);
    if (!held || row->bound.rule == KGEN__NUMBER_ANY) return KGEN_OK;
    if (row->bound.rule == KGEN__NUMBER_RANGE) return check_whole(row, whole, err);
    return check_float(row, x, err);
}

static inline kgen_status take_number(void *packed, const kgen__bound_number *n, const void *args,
                                      kgen_error *err) {
    const char *at = (const char *)args + n->offset;
    uint64_t wide;
    uint32_t half;
    if (n->is_wide) {
        memcpy(&wide, at, sizeof wide);
        if (wide - n->low > n->span) KGEN_TRY(check_number(n->row, n->held, args, err));
        if (n->pointer) memcpy((char *)packed + n->pointer - 1, &wide, sizeof wide);
    } else {
        memcpy(&half, at, sizeof half);
        if (half - (uint32_t)n->low > n->span) KGEN_TRY(check_number(n->row, n->held, args, err));
        if (n->pointer) memcpy((char *)packed + n->pointer - 1, &half, sizeof half);
    }
    return KGEN_OK;
}

/* --- overlap ----------------------------------------------------------------- */

/* From the first byte of a row to behind its last. */
static uint64_t row_bytes(const kgen__bound *b, const kgen_tensor *t) {
    uint64_t last = 0;
    for (int i = 1; i < t->rank; i++) last += (uint64_t)((t->shape[i] - 1) * t->stride[i]);
    return (last + 1) * b->bytes;
}

/* Two tensors may lie beside each other in rows of one allocation. */
static int are_columns(const kgen__bound *a, const kgen__bound *b, const void *args) {
    const kgen_tensor *s = tensor_at(args, a->offset), *t = tensor_at(args, b->offset);
    if (s->rank < 2 || t->rank < 2) return 0;
    uint64_t row = (uint64_t)s->stride[0] * a->bytes;
    if (!row || row != (uint64_t)t->stride[0] * b->bytes) return 0;
    uintptr_t low = (uintptr_t)s->data, high = (uintptr_t)t->data;
    if (low > high) return are_columns(b, a, args);
    uint64_t apart = (high - low) % row;
    return apart >= row_bytes(a, s) && apart + row_bytes(b, t) <= row;
}

/* An input of which each element is read before it is written, and by nobody else. */
static int is_in_place(const kgen__bound *out, const kgen__bound *in, const void *args) {
    const kgen_tensor *s = tensor_at(args, out->offset), *t = tensor_at(args, in->offset);
    if (!(out->row->flags & KGEN__ROW_IN_PLACE) || in->row->use != KGEN_USE_IN) return 0;
    if (s->data != t->data || s->dtype != t->dtype || s->rank != t->rank) return 0;
    for (int i = 0; i < s->rank; i++)
        if (s->stride[i] != t->stride[i] || (i && s->shape[i] != t->shape[i])) return 0;
    return 1;
}

/* Of one that is written, and meets others. */
static kgen_status say_met(const kgen__binding *b, const kgen__stretch *at, int i, const void *args,
                           kgen_error *err) {
    const kgen__bound *out = &b->bound[i];
    const kgen__stretch written = at[i];
    for (int j = 0; j < b->checked; j++) {
        const kgen__bound *in = &b->bound[j];
        const kgen__stretch other = at[j];
        int apart = i == j || written.end <= other.first || other.end <= written.first;
        NEED(apart || are_columns(out, in, args) || is_in_place(out, in, args),
             "%s: overlaps %s, which the kernel writes", in->row->name, out->row->name);
    }
    return KGEN_OK;
}

kgen_status kgen__args_take(void *packed, int64_t *size, const kgen__binding *b,
                            const kgen_spec *spec, const void *args, kgen_error *err) {
    kgen__stretch at[KGEN__BOUND_MAX];
    if (kgen__args_present(b, args)) KGEN_TRY(say_present(b, args, err));
    memcpy(size, b->size, (size_t)b->rows->size_count * sizeof *size);
    for (int i = 0; i < b->number_count; i++)
        KGEN_TRY(take_number(packed, &b->numbers[i], args, err));
    if (b->rows->counted) b->rows->counted(size, packed);
    KGEN_TRY(take(packed, size, b, 0, b->first, args, at, err));
    KGEN_TRY(b->rows->derive(size, spec, err));
    KGEN_TRY(take(packed, size, b, b->first, b->checked, args, at, err));
    for (int i = 0; i < b->apart; i++)
        if (!kgen__args_apart(b, at, b->apart_at[i]))
            KGEN_TRY(say_met(b, at, b->apart_at[i], args, err));
    return KGEN_OK;
}
