/* Which rows, slots and lines a sequence of gdn has, from <kgen/gdn_args.h>. */
#include "check_gdn.h"

static int64_t valid(const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t slot) {
    int64_t count = kgen__gdn_has_step(s) ? a->state.shape[0] : a->conv_state.shape[0];
    int64_t first = s->sentinel == KGEN_SENTINEL_NONPOS ? 1 : 0;
    int pad = s->sentinel == KGEN_SENTINEL_VALUE && slot == a->pad_slot;
    return slot >= first && slot < count && !pad ? slot : -1;
}

/* Entry of [N] or [N][columns]; -1 outside of the columns. */
static int64_t entry(const kgen_gdn_spec *s, const kgen_gdn_args *a, const kgen_tensor *t,
                     int64_t n, int64_t column) {
    int64_t columns = t->rank == 2 ? t->shape[1] : 1;
    if (column < 0 || column >= columns) return -1;
    int64_t at = n * t->stride[0] + (t->rank == 2 ? column * t->stride[1] : 0);
    return valid(s, a, kgen__int_load(t, at));
}

int64_t kgen__gdn_token_slot(const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n, int64_t t) {
    return entry(s, a, s->index == KGEN_INDEX_SPEC ? &a->slots : &a->write_slots, n, t);
}

int64_t kgen__gdn_parent(const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n, int64_t t) {
    if (!s->tree) return t - 1;
    int64_t parent = kgen__int_load(&a->parents, n * a->parents.stride[0] + t);
    return parent < 0 ? -1 : parent;
}

static void find_slots(kgen__gdn_seq *q, const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n,
                       int64_t accepted) {
    int64_t read_col = 0, write_col = 0;
    if (s->index == KGEN_INDEX_BLOCKS) {
        read_col = kgen__int_load(&a->read_col, n);
        write_col = kgen__int_load(&a->write_col, n);
    }
    q->read = q->conv_read = entry(s, a, &a->slots, n, read_col);
    q->write = q->conv_write = entry(s, a, &a->slots, n, write_col);
    if (s->index == KGEN_INDEX_PAIR) q->write = q->conv_write = entry(s, a, &a->write_slots, n, 0);
    if (s->index == KGEN_INDEX_SPEC) q->read = entry(s, a, &a->slots, n, accepted - 1);
}

static void find_ring(kgen__gdn_seq *q, const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n) {
    if (s->save != KGEN_SAVE_REPLAY) return;
    q->ring_start = kgen__int_load(&a->ring_start, n);
    q->ring_len = kgen__int_load(&a->ring_len, n);
    q->folds = q->ring_len + q->count > s->ring;
}

int64_t kgen__gdn_begin(const kgen_gdn_args *a, int64_t n) {
    int64_t at = kgen__int_load(&a->cu_seqlens, n), rows = a->out.shape[0];
    return at < 0 ? 0 : at > rows ? rows : at;
}

static int begins_inside(const kgen_gdn_args *a, int64_t n) {
    return kgen__gdn_begin(a, n) == kgen__int_load(&a->cu_seqlens, n);
}

kgen__gdn_seq kgen__gdn_sequence(const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n) {
    kgen__gdn_seq q = {.first = n * s->tokens, .count = s->tokens, .line = n};
    int64_t accepted = 1, columns = a->conv_state.shape[s->conv_layout == KGEN_CONV_SD ? 1 : 2];
    if (s->varlen) {
        q.first = kgen__gdn_begin(a, n);
        q.count = kgen__gdn_begin(a, n + 1) - q.first;
    }
    if (s->accept) accepted = kgen__int_load(&a->accepted, n);
    q.offset = accepted - 1;
    find_slots(&q, s, a, n, accepted);
    q.live = accepted >= 1 && q.read >= 0;
    if (s->varlen) q.live &= begins_inside(a, n) && begins_inside(a, n + 1);
    if (kgen__gdn_has_conv(s))
        q.live &= q.offset + s->conv_width - 1 <= columns && q.conv_read >= 0;
    if (s->circular) q.offset = kgen__int_load(&a->cache_seqlens, n) - (s->conv_width - 1);
    if (a->has_initial.data) q.fresh = kgen__int_load(&a->has_initial, n) == 0;
    if (a->lines.data) q.line = kgen__int_load(&a->lines, n);
    if (q.line >= (kgen__gdn_has_step(s) ? a->buffer : a->conv_windows).shape[0]) q.line = -1;
    find_ring(&q, s, a, n);
    return q;
}

int64_t kgen__gdn_state_at(const kgen_gdn_spec *s, int64_t hv, int64_t v, int64_t k) {
    int64_t head = hv * s->v_dim * s->k_dim;
    return head + (s->state_layout == KGEN_STATE_VK ? v * s->k_dim + k : k * s->v_dim + v);
}

int64_t kgen__gdn_time(const kgen_gdn_spec *s, const kgen_gdn_args *a, const kgen__gdn_seq *q,
                       int64_t m) {
    int64_t columns = a->conv_state.shape[s->conv_layout == KGEN_CONV_SD ? 1 : 2];
    int64_t time = q->offset + m;
    return s->circular ? (time % columns + columns) % columns : time;
}

int64_t kgen__gdn_conv_at(const kgen_tensor *t, int64_t slot, int64_t channel, int64_t time) {
    int64_t first = t->layout == KGEN_CONV_DS ? channel : time;
    int64_t second = t->layout == KGEN_CONV_DS ? time : channel;
    return slot * t->stride[0] + first * t->stride[1] + second * t->stride[2];
}

/* ---- of captured launches -------------------------------------------------------- */

static kgen_status sound_parents(const kgen_gdn_args *a, int64_t n, int64_t count,
                                 kgen_error *err) {
    for (int64_t i = 0; i < count; i++) {
        int64_t parent = kgen__int_load(&a->parents, n * a->parents.stride[0] + i);
        KGEN__SOUND(parent < i, "parents[%lld][%lld]=%lld: must be below %lld", (long long)n,
                    (long long)i, (long long)parent, (long long)i);
    }
    return KGEN_OK;
}

static kgen_status sound_ring(const kgen_gdn_spec *s, const kgen_gdn_args *a, int64_t n,
                              kgen_error *err) {
    int64_t start = kgen__int_load(&a->ring_start, n), length = kgen__int_load(&a->ring_len, n);
    KGEN__SOUND(start >= 0, "ring_start[%lld]=%lld: at least 0", (long long)n, (long long)start);
    KGEN__SOUND(length >= 0 && length <= s->ring, "ring_len[%lld]=%lld: must be 0..%d",
                (long long)n, (long long)length, s->ring);
    return KGEN_OK;
}

kgen_status kgen__gdn_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err) {
    const kgen_gdn_spec *s = &spec->gdn;
    const kgen_gdn_args *a = args->gdn;
    int64_t seqs = a->slots.shape[0];
    if (s->varlen)
        KGEN_TRY(kgen__sound_offsets("cu_seqlens", &a->cu_seqlens, seqs, a->out.shape[0], s->tokens,
                                     err));
    for (int64_t n = 0; n < seqs; n++) {
        kgen__gdn_seq q = kgen__gdn_sequence(s, a, n);
        if (q.live && s->tree) KGEN_TRY(sound_parents(a, n, q.count, err));
        if (q.live && s->save == KGEN_SAVE_REPLAY) KGEN_TRY(sound_ring(s, a, n, err));
    }
    return KGEN_OK;
}
