/* Open tuning keys of attention, filled from the target: of the choices that fit, which reads
 * least. */
#include "attn_keys.h"
#include "attn_needs.h"
#include "family.h"
#include "templates/kg/attn/attn_shape.h"

/* Of a sequence, where the phase sets no bound. */
enum { MANY_TOKENS = 256 };

/* What a KV head's rows read: every row block reads all keys and values, and
 * every wave that shares the values reads all keys. Fewer than two waves a SIMD
 * leave latencies uncovered: a quarter more. */
static int32_t traffic(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t rows = kgen__attn_rows_of(s, kgen__attn_isa_of(target));
    int32_t tokens =
        kgen_attn_phase_of(s->phase)->bounded && !s->cascade ? s->q_tokens : MANY_TOKENS;
    int32_t reads =
        kg_attn_row_blocks(s->group, tokens, rows) * (s->head_dim * s->v_split + s->v_dim);
    int32_t waves = s->waves * s->v_split * s->occupancy;
    /* Each wave reads for itself what all could share. */
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int should =
        isa->by == KGEN__BY_MATRICES && kgen__attn_has_many_rows(s, isa) && s->v_dim <= 256;
    if (should && kgen__attn_way_of(s, isa) == KGEN__BY_WAVE) reads *= s->waves;
    return waves < 2 * target->simds ? reads * 5 : reads * 4;
}

/* Waves that share values read keys for themselves: only where values are too wide to
 * come by way of LDS. */
static int32_t most_splits(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    kgen_attn_spec whole = *s;
    whole.v_split = 1;
    if (!whole.waves) whole.waves = 4;
    if (!whole.row_tiles) whole.row_tiles = 2;
    return kgen__attn_way_of(&whole, isa) == KGEN__BY_MATRICES && s->v_dim <= 256 ? 1
                                                                                  : isa->v_split;
}

/* The candidate numbered `n`, keeping what the spec asks for. */
static kgen_attn_spec candidate(const kgen_attn_spec *s, const kgen__attn_isa *isa, int n) {
    kgen_attn_spec c = *s;
    if (!c.v_split) c.v_split = smaller(most_splits(s, isa), 1 << n / 8 % 3);
    if (!c.row_tiles) c.row_tiles = 1 + n / 2 % 4;
    if (!c.occupancy) c.occupancy = smaller(isa->occupancy, 2 - n % 2);
    if (!c.waves) c.waves = larger(1, smaller(isa->waves, isa->all_waves / c.v_split) >> n / 24);
    return c;
}

/* 1: a candidate before this one is the same, because the spec or the target leaves no choice. */
static int is_repeated(const kgen_attn_spec *s, int32_t splits, int n) {
    return (s->occupancy && n % 2) || (s->row_tiles && n / 2 % 4) || (s->waves && n / 24) ||
           (n / 8 % 3 && 1 << n / 8 % 3 > splits);
}

/* Of the choices whose registers and LDS fit, the one that reads least. */
static kgen_attn_spec best_candidate(const kgen_attn_spec *s, const kgen_target *target) {
    /* v_split 1 2 4, row_tiles 1..4, occupancy 2 1; all waves, a half, a quarter */
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int settled = s->v_split && s->row_tiles && s->occupancy && s->waves;
    int candidates = settled ? 1 : kgen__attn_has_many_rows(s, isa) ? 3 * 4 * 2 * 3 : 3 * 4 * 2;
    kgen_attn_spec best = candidate(s, isa, 0);
    int32_t least = candidates > 1 ? kgen__attn_excess(&best, target) : 0;
    int32_t splits = s->v_split ? 1 : most_splits(s, isa);
    for (int n = 1; n < candidates; n++) {
        if (is_repeated(s, splits, n)) continue;
        kgen_attn_spec next = candidate(s, isa, n);
        int32_t over = kgen__attn_excess(&next, target);
        if (over > least || (over == least && traffic(&next, target) >= traffic(&best, target)))
            continue;
        best = next;
        least = over;
    }
    return best;
}

static int sees_few_keys(const kgen_attn_spec *s) {
    int32_t seen = kgen__attn_seen_keys(s);
    return seen > 0 && seen <= 1024;
}

/* Conversions of 8-bit caches, short windows and long queries are bound by latency:
 * on sm_90 two or three small workgroups then beat one large one
 * (docs/performance.md). How many; 0: one as it comes. */
static int32_t small_groups(const kgen_attn_spec *s, const kgen_target *target) {
    if (target->isa != KGEN_ISA_SM90 || s->waves || s->occupancy ||
        kgen__attn_mixes_conversions(s, target))
        return 0;
    int narrow =
        s->v_dim <= 128 || (kgen_attn_phase_of(s->phase)->bounded && kgen__bits_of(s->kv) == 16);
    if (kgen__attn_queued_tiles(s, kgen__attn_isa_of(target))) return 2;
    if (kgen__attn_has_many_rows(s, kgen__attn_isa_of(target))) return narrow ? 2 : 0;
    return kgen__is_8bit(s->kv) || sees_few_keys(s) ? 3 : 0;
}

/* A short window of one token: with a wave for each of its blocks none takes two turns. */
static int32_t waves_of_window(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t blocks = s->window > 0 ? ceil_div(s->window - 1, isa->keys) + 1 : 0;
    int32_t fits = target->wave_size == 64 && blocks > isa->waves && blocks <= isa->waves + 2;
    int32_t free = !s->waves && s->v_split <= 1 && !s->keep && !s->invariant;
    return s->phase == KGEN_PHASE_DECODE && free && fits ? blocks : 0;
}

/* Each wave of one workgroup of all converts half of what it would as one of two. */
static int converts_dearly(const kgen_attn_spec *s) {
    return s->descale == KGEN_DESCALE_TOKEN || kgen__attn_is_integer(s->kv);
}

/* Lines are for several waves of a SIMD, of which one has products while another has exponentials:
 * of two workgroups, where those find room, a set is not too short for it and converting it not too
 * dear. */
static int tune_lines(kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    for (int32_t n = 0; n < isa->line_groups && !s->waves && !s->occupancy; n++) {
        int32_t occupancy = converts_dearly(s) ? 1 + n : isa->line_groups - n;
        kgen_attn_spec two = *s;
        two.occupancy = occupancy;
        two.waves = isa->line_waves * target->simds / occupancy;
        if (!two.v_split) two.v_split = 1;
        two = best_candidate(&two, target);
        if (kgen__attn_way_of(&two, isa) != KGEN__BY_LINES || kgen__attn_excess(&two, target))
            continue;
        *s = two;
        return 1;
    }
    return 0;
}

/* As many as small_groups says, unless a bounded number of rows would be cut for it, of which each
 * block reads all keys. */
static int tune_small(kgen_attn_spec *s, const kgen_target *target) {
    enum { SLACK = 8 }; /* by which the count of registers is known to be high */
    kgen_attn_spec small = *s;
    small.occupancy = small_groups(s, target);
    if (!small.occupancy) return 0;
    small.waves = 4;
    if (!s->row_tiles && !s->v_split)
        small.row_tiles = kgen__attn_queued_tiles(s, kgen__attn_isa_of(target));
    small = best_candidate(&small, target);
    int32_t rows = kgen_attn_phase_of(s->phase)->bounded ? s->group * s->q_tokens : 0;
    int reads_again = kgen__attn_way_of(&small, kgen__attn_isa_of(target)) == KGEN__BY_WAVE &&
                      !sees_few_keys(s) &&
                      rows > kgen__attn_rows_of(&small, kgen__attn_isa_of(target));
    if (reads_again || small.v_split != 1 || kgen__attn_excess(&small, target) > SLACK) return 0;
    *s = small;
    return 1;
}

/* As many waves as there are registers for. */
static int tune_own(kgen_attn_spec *s, const kgen_target *target) {
    int32_t tiles = kgen__attn_own_tiles(s, kgen__attn_isa_of(target));
    if (!tiles || s->waves || s->row_tiles || s->v_split || s->occupancy) return 0;
    s->waves = 8, s->row_tiles = tiles, s->v_split = 1, s->occupancy = 1;
    return 1;
}

void kgen__attn_fill_keys(kgen_attn_spec *s, const kgen_target *target) {
    if (tune_lines(s, target) || tune_own(s, target) || tune_small(s, target)) return;
    kgen_attn_spec best = best_candidate(s, target), wide = *s;
    wide.waves = waves_of_window(s, target);
    if (wide.waves) {
        wide.occupancy = best.occupancy;
        wide = best_candidate(&wide, target);
        if (kgen__attn_excess(&wide, target) == 0) best = wide;
    }
    *s = best;
}
