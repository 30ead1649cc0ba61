/* Basic blocks, dominators (Cooper, Harvey, Kennedy) and natural loops. Loops
 * are found by dominance, not by backward branches: compilers place cold
 * blocks behind the code and jump back, and enter loops in their middle. */
#include <stdlib.h>
#include <string.h>

#include "listing.h"

static kgen_status no_memory(kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "listing: no memory for its blocks and loops");
}

/* --- blocks --------------------------------------------------------------- */

/* *of: [instructions], the block of each. */
static kgen_status cut_blocks(kgen__listing *l, int32_t **of, kgen_error *err) {
    int32_t *block = calloc(l->count + 1, sizeof *block), count = 0;
    *of = block;
    if (!block) return no_memory(err);
    for (size_t i = 0; i < l->count; i++) { /* 1: a block begins here */
        const kgen__instruction *at = &l->code[i];
        if (i == 0) block[i] = 1;
        if (at->target >= 0) block[at->target] = 1;
        if (at->target >= 0 || !at->falls) block[i + 1] = 1;
    }
    for (size_t i = 0; i < l->count; i++) count += block[i];
    l->blocks = calloc((size_t)count, sizeof *l->blocks);
    if (!l->blocks) return no_memory(err);
    int32_t now = -1;
    for (size_t i = 0; i < l->count; i++) {
        now += block[i];
        if (block[i]) l->blocks[now].first = (int32_t)i;
        l->blocks[now].end = (int32_t)i + 1;
        block[i] = now;
    }
    l->block_count = count;
    return KGEN_OK;
}

static void link_blocks(kgen__listing *l, const int32_t *of) {
    for (int32_t b = 0; b < l->block_count; b++) {
        kgen__block *block = &l->blocks[b];
        const kgen__instruction *last = &l->code[block->end - 1];
        block->next[0] = last->falls && b + 1 < l->block_count ? b + 1 : -1;
        block->next[1] = last->target >= 0 ? of[last->target] : -1;
        block->order = block->dominator = block->loop = -1;
    }
}

/* --- order and dominators ------------------------------------------------- */

/* Blocks in reverse postorder, reachable ones only: their number. */
static int32_t sort_blocks(kgen__listing *l, int32_t *sorted, int32_t *stack, uint8_t *step) {
    int32_t depth = 0, left = l->block_count, done = 0;
    stack[depth++] = 0;
    step[0] = 1;
    while (depth) {
        int32_t b = stack[depth - 1];
        if (step[b] <= 2) {
            int32_t next = l->blocks[b].next[step[b]++ - 1];
            if (next < 0 || step[next]) continue;
            step[next] = 1;
            stack[depth++] = next;
        } else {
            sorted[--left] = b;
            done++;
            depth--;
        }
    }
    memmove(sorted, sorted + left, (size_t)done * sizeof *sorted);
    for (int32_t i = 0; i < done; i++) l->blocks[sorted[i]].order = i;
    return done;
}

static int32_t common(const kgen__block *blocks, int32_t a, int32_t b) {
    while (a != b) {
        while (blocks[a].order > blocks[b].order) a = blocks[a].dominator;
        while (blocks[b].order > blocks[a].order) b = blocks[b].dominator;
    }
    return a;
}

static void find_dominators(kgen__listing *l, const int32_t *sorted, int32_t count) {
    kgen__block *blocks = l->blocks;
    blocks[0].dominator = 0;
    for (int changed = 1; changed;) {
        changed = 0;
        for (int32_t i = 0; i < count; i++) {
            int32_t from = sorted[i];
            if (blocks[from].dominator < 0) continue;
            for (int s = 0; s < 2; s++) {
                int32_t to = blocks[from].next[s];
                if (to <= 0) continue;
                int32_t was = blocks[to].dominator;
                blocks[to].dominator = was < 0 ? from : common(blocks, was, from);
                changed |= blocks[to].dominator != was;
            }
        }
    }
}

static int dominates(const kgen__block *blocks, int32_t above, int32_t below) {
    while (blocks[below].order > blocks[above].order) below = blocks[below].dominator;
    return below == above;
}

/* --- loops ---------------------------------------------------------------- */

static kgen__loop *loop_of(kgen__listing *l, int32_t header) {
    for (int32_t i = 0; i < l->loop_count; i++)
        if (l->loops[i].header == header) return &l->loops[i];
    kgen__loop *loop = &l->loops[l->loop_count];
    *loop = (kgen__loop){header, 0, 1, calloc((size_t)l->block_count, 1)};
    if (!loop->has) return NULL;
    loop->has[header] = 1;
    l->loop_count++;
    return loop;
}

/* Adds what reaches `tail` without passing the header. */
static void add_body(const kgen__listing *l, kgen__loop *loop, int32_t tail) {
    loop->blocks += !loop->has[tail];
    loop->has[tail] = 1;
    for (int changed = 1; changed;) {
        changed = 0;
        for (int32_t b = l->block_count - 1; b >= 0; b--) {
            const int32_t *next = l->blocks[b].next;
            if (loop->has[b] || l->blocks[b].order < 0) continue;
            int inside = (next[0] >= 0 && next[0] != loop->header && loop->has[next[0]]) ||
                         (next[1] >= 0 && next[1] != loop->header && loop->has[next[1]]);
            if (!inside) continue;
            loop->has[b] = 1;
            loop->blocks++;
            changed = 1;
        }
    }
}

static kgen_status find_bodies(kgen__listing *l, kgen_error *err) {
    for (int32_t b = 0; b < l->block_count; b++) {
        for (int s = 0; s < 2; s++) {
            int32_t to = l->blocks[b].next[s];
            if (to < 0 || l->blocks[b].order < 0 || !dominates(l->blocks, to, b)) continue;
            kgen__loop *loop = loop_of(l, to);
            if (!loop) return no_memory(err);
            add_body(l, loop, b);
        }
    }
    return KGEN_OK;
}

/* Natural loops of different headers are nested or apart. */
static void nest(kgen__listing *l) {
    for (int32_t i = 0; i < l->loop_count; i++) {
        kgen__loop *loop = &l->loops[i];
        for (int32_t j = 0; j < l->loop_count; j++) loop->depth += l->loops[j].has[loop->header];
        for (int32_t b = 0; b < l->block_count; b++) {
            int32_t known = l->blocks[b].loop;
            if (loop->has[b] && (known < 0 || l->loops[known].blocks > loop->blocks))
                l->blocks[b].loop = i;
        }
    }
}

kgen_status kgen__listing_find_loops(kgen__listing *l, kgen_error *err) {
    int32_t *of = NULL, *lists = NULL;
    kgen_status status = cut_blocks(l, &of, err);
    if (status == KGEN_OK) {
        size_t count = (size_t)l->block_count;
        link_blocks(l, of);
        lists = calloc(count, 2 * sizeof *lists + 1);
        l->loops = calloc(count, sizeof *l->loops);
        if (lists && l->loops) {
            int32_t reached = sort_blocks(l, lists, lists + count, (uint8_t *)(lists + 2 * count));
            find_dominators(l, lists, reached);
            status = find_bodies(l, err);
        } else {
            status = no_memory(err);
        }
    }
    if (status == KGEN_OK) nest(l);
    free(lists);
    free(of);
    return status;
}
