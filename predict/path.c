/* The way through a turn that most turns take: it has every product and every wide load and store
 * that some way has, and the fewest instructions besides. Masks of the last keys and rescaling are
 * branches beside it. */
#include <stdlib.h>

#include "listing.h"

enum { WIDE = 8, NO_WAY = INT32_MIN, A_MARK = 1 << 16 };

typedef struct step {
    int32_t score; /* of the best way that ends with this block */
    int32_t before;
} step;

static int32_t score_of(const kgen__listing *l, const kgen__block *b) {
    int32_t marks = 0;
    for (int32_t i = b->first; i < b->end; i++) {
        int op = l->code[i].op, memory = op == KGEN__OP_LOAD || op == KGEN__OP_STORE;
        marks += op == KGEN__OP_MATRIX || (memory && l->code[i].bytes >= WIDE);
    }
    return marks * A_MARK - (b->end - b->first);
}

static int is_inside(const kgen__listing *l, const kgen__loop *loop, int32_t block) {
    return block >= 0 && l->blocks[block].order >= 0 && (!loop || loop->has[block]);
}

/* Blocks of the turn by their order, so that what comes before comes first. */
static int32_t *in_order(const kgen__listing *l, const kgen__loop *loop, int32_t *count) {
    int32_t *list = malloc((size_t)l->block_count * sizeof *list);
    if (!list) return NULL;
    for (int32_t i = 0; i < l->block_count; i++) list[i] = -1;
    for (int32_t b = 0; b < l->block_count; b++)
        if (is_inside(l, loop, b)) list[l->blocks[b].order] = b;
    *count = 0;
    for (int32_t i = 0; i < l->block_count; i++)
        if (list[i] >= 0) list[(*count)++] = list[i];
    return list;
}

static void relax(step *steps, const kgen__listing *l, const kgen__loop *loop, int32_t from) {
    for (int n = 0; n < 2; n++) {
        int32_t to = l->blocks[from].next[n];
        if (!is_inside(l, loop, to) || l->blocks[to].order <= l->blocks[from].order) continue;
        int32_t score = steps[from].score + score_of(l, &l->blocks[to]);
        if (score <= steps[to].score) continue;
        steps[to] = (step){score, from};
    }
}

/* Whether a turn may end here: with a branch to the header, or with the program. */
static int ends(const kgen__listing *l, const kgen__loop *loop, int32_t b) {
    const int32_t *next = l->blocks[b].next;
    if (loop) return next[0] == loop->header || next[1] == loop->header;
    return next[0] < 0 && next[1] < 0;
}

static kgen_status write_way(kgen__path *out, const kgen__listing *l, const step *steps,
                             int32_t last, kgen_error *err) {
    int32_t count = 0;
    for (int32_t b = last; b >= 0; b = steps[b].before)
        count += l->blocks[b].end - l->blocks[b].first;
    out->steps = malloc((size_t)count * sizeof *out->steps);
    if (!out->steps) return kgen_fail(err, KGEN_E_NOMEM, "listing: no memory for a turn");
    out->count = count;
    for (int32_t b = last; b >= 0; b = steps[b].before)
        for (int32_t i = l->blocks[b].end; i > l->blocks[b].first; i--)
            out->steps[--count] = l->code[i - 1];
    return KGEN_OK;
}

kgen_status kgen__listing_path(kgen__path *out, const kgen__listing *l, const kgen__loop *loop,
                               kgen_error *err) {
    *out = (kgen__path){0};
    int32_t count = 0, last = -1, first = loop ? loop->header : 0;
    int32_t *list = in_order(l, loop, &count);
    step *steps = malloc((size_t)l->block_count * sizeof *steps);
    kgen_status status = KGEN_OK;
    if (!list || !steps) status = kgen_fail(err, KGEN_E_NOMEM, "listing: no memory for a turn");
    for (int32_t b = 0; status == KGEN_OK && b < l->block_count; b++) steps[b] = (step){NO_WAY, -1};
    if (status == KGEN_OK) steps[first].score = score_of(l, &l->blocks[first]);
    for (int32_t i = 0; status == KGEN_OK && i < count; i++) {
        int32_t b = list[i];
        if (steps[b].score == NO_WAY) continue;
        relax(steps, l, loop, b);
        if (ends(l, loop, b) && (last < 0 || steps[b].score > steps[last].score)) last = b;
    }
    if (status == KGEN_OK && last >= 0) status = write_way(out, l, steps, last, err);
    free(list);
    free(steps);
    return status;
}

void kgen__path_free(kgen__path *path) {
    free(path->steps);
    *path = (kgen__path){0};
}
