/* What one turn of a loop issues, and how many bytes of loads it has under way. */
#include <stdlib.h>

#include "listing.h"

/* A loop is taken to turn this often for one pass of what is around it. */
enum { TURNS = 8, MOST_DEPTH = 6 };

/* The opcode that the hot code is known by: matrix products; else the widest
 * loads, for data comes 16 bytes a lane and narrower loads are indices. */
typedef struct mark {
    int16_t op, bytes; /* as in kgen__instruction */
} mark;

static mark mark_of(const kgen__listing *l) {
    mark best = {KGEN__OP_LOAD, 0};
    for (size_t i = 0; i < l->count; i++) {
        if (l->code[i].op == KGEN__OP_MATRIX) return (mark){KGEN__OP_MATRIX, 0};
        if (l->code[i].op == KGEN__OP_LOAD && l->code[i].bytes > best.bytes)
            best.bytes = l->code[i].bytes;
    }
    return best;
}

static int64_t weight_of(const kgen__listing *l, int32_t loop, mark by) {
    int64_t sum = 0;
    for (int32_t b = 0; b < l->block_count; b++) {
        const kgen__block *block = &l->blocks[b];
        if (block->loop != loop || block->order < 0) continue;
        for (int32_t i = block->first; i < block->end; i++)
            sum += l->code[i].op == by.op && l->code[i].bytes == by.bytes;
    }
    int32_t depth = loop < 0 ? 0 : l->loops[loop].depth;
    for (int32_t d = 0; d < depth && d < MOST_DEPTH; d++) sum *= TURNS;
    return sum;
}

const kgen__loop *kgen__listing_hottest(const kgen__listing *listing) {
    mark by = mark_of(listing);
    int64_t most = weight_of(listing, -1, by);
    const kgen__loop *best = NULL;
    for (int32_t i = 0; i < listing->loop_count; i++) {
        int64_t weight = weight_of(listing, i, by);
        if (weight <= most) continue;
        most = weight;
        best = &listing->loops[i];
    }
    return best;
}

static int inside(const kgen__listing *l, const kgen__loop *loop, int32_t block) {
    return l->blocks[block].order >= 0 && (!loop || loop->has[block]);
}

static void count_one(kgen__mix *m, const kgen__instruction *i, int32_t lanes) {
    int32_t *const counts[] = {
        [KGEN__OP_SCALAR] = &m->scalar, [KGEN__OP_VALU] = &m->valu,
        [KGEN__OP_MATRIX] = &m->matrix, [KGEN__OP_LOAD] = &m->loads,
        [KGEN__OP_STORE] = &m->stores,  [KGEN__OP_LDS] = &m->lds,
        [KGEN__OP_WAIT] = &m->wait,     [KGEN__OP_END] = &m->scalar,
    };
    m->instructions++;
    ++*counts[i->op];
    if (i->op == KGEN__OP_VALU) m->valu_cycles += i->cycles;
    if (i->op == KGEN__OP_MATRIX) m->matrix_cycles += i->cycles;
    if (i->op == KGEN__OP_LOAD) m->load_bytes += i->bytes * lanes;
    if (i->op == KGEN__OP_LOAD) m->wide_loads += i->bytes >= 16;
    if (i->op == KGEN__OP_STORE) m->store_bytes += i->bytes * lanes;
}

/* 1: the counter of loads under way counts stores as well. */
enum {
    STORES_CDNA1 = 1,
    STORES_CDNA2 = 1,
    STORES_CDNA3 = 1,
    STORES_CDNA4 = 1,
    STORES_RDNA2 = 0,
    STORES_RDNA3 = 0,
    STORES_RDNA4 = 0,
    STORES_SM90 = 0,
};
static const char counts_stores[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = STORES_##NAME,
#include <kgen/targets.def>
};

/* Loads that are under way, oldest first. Stores that are counted are entries
 * of 0 bytes. */
typedef struct queue {
    int32_t *bytes;
    size_t first, end;
    int64_t sum, most;
} queue;

static void issue(queue *q, const kgen__listing *l, const kgen__instruction *i, int32_t lanes) {
    int load = i->op == KGEN__OP_LOAD;
    if (!load && (i->op != KGEN__OP_STORE || !counts_stores[l->isa])) return;
    q->bytes[q->end++] = load ? i->bytes * lanes : 0;
    if (load) q->sum += (int64_t)i->bytes * lanes;
    if (q->sum > q->most) q->most = q->sum;
}

static void wait(queue *q, int32_t allowed) {
    while (q->end - q->first > (size_t)allowed) q->sum -= q->bytes[q->first++];
}

static void walk(queue *q, const kgen__listing *l, const kgen__loop *loop, int32_t first,
                 int32_t end, int32_t lanes) {
    for (int32_t b = first; b < end; b++) {
        if (!inside(l, loop, b)) continue;
        for (int32_t n = l->blocks[b].first; n < l->blocks[b].end; n++) {
            issue(q, l, &l->code[n], lanes);
            if (l->code[n].allowed >= 0) wait(q, l->code[n].allowed);
        }
    }
}

/* Two turns in the order of the code, from the header round: loads that the
 * first leaves for the second are under way while it begins. */
static int32_t most_in_flight(const kgen__listing *l, const kgen__loop *loop, int32_t lanes) {
    queue q = {calloc(2 * l->count, sizeof *q.bytes), 0, 0, 0, 0};
    if (!q.bytes) return 0;
    int32_t header = loop ? loop->header : 0;
    for (int turn = 0; turn < (loop ? 2 : 1); turn++) {
        walk(&q, l, loop, header, l->block_count, lanes);
        walk(&q, l, loop, 0, header, lanes);
    }
    free(q.bytes);
    return (int32_t)q.most;
}

void kgen__listing_mix(kgen__mix *out, const kgen__listing *listing, const kgen__loop *loop,
                       int32_t wave_size) {
    *out = (kgen__mix){.looped = loop != NULL};
    for (int32_t b = 0; b < listing->block_count; b++)
        for (int32_t i = listing->blocks[b].first; i < listing->blocks[b].end; i++)
            if (inside(listing, loop, b)) count_one(out, &listing->code[i], wave_size);
    out->in_flight_bytes = most_in_flight(listing, loop, wave_size);
}

static kgen_status mix_of_listing(kgen__mix *out, const kgen__listing *l, const kgen_target *target,
                                  kgen_error *err) {
    const kgen__loop *loop = kgen__listing_hottest(l);
    kgen__path path;
    kgen__listing_mix(out, l, loop, target->wave_size);
    KGEN_TRY(kgen__listing_path(&path, l, loop, err));
    kgen_status status = kgen__predict_pace(out, &path, target, err);
    kgen__path_free(&path);
    return status;
}

kgen_status kgen__predict_mix(kgen__mix *out, const kgen_entry *entry, const kgen_target *target,
                              kgen_error *err) {
    kgen__listing listing;
    char *text;
    KGEN_TRY(kgen_disassemble(&text, entry, err));
    kgen_status status = kgen__listing_parse(&listing, text, target->isa, err);
    free(text);
    if (status != KGEN_OK) return status;
    status = mix_of_listing(out, &listing, target, err);
    kgen__listing_free(&listing);
    return status;
}
