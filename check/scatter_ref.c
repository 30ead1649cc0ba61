/* The scatter family, one element at a time, from the rules in scatter_args.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_scatter.h"

typedef struct ref {
    const kgen_scatter_spec *s;
    const kgen__scatter_all *a;
    int64_t rows, live;
} ref;

/* ---- elements ------------------------------------------------------- */

static int64_t load(const kgen_tensor *t, int64_t at) {
    switch (kgen_dtype_size(t->dtype)) {
    case 1:
        return ((const uint8_t *)t->data)[at];
    case 2:
        return ((const uint16_t *)t->data)[at];
    default:
        return kgen__int_load(t, at);
    }
}

static void store(const kgen_tensor *t, int64_t at, int64_t value) {
    switch (kgen_dtype_size(t->dtype)) {
    case 1:
        ((uint8_t *)t->data)[at] = (uint8_t)value;
        return;
    case 2:
        ((uint16_t *)t->data)[at] = (uint16_t)value;
        return;
    default:
        kgen__int_store(t, at, value);
    }
}

static int64_t load2(const kgen_tensor *t, int64_t row, int64_t column) {
    return load(t, row * t->stride[0] + column);
}
static void store2(const kgen_tensor *t, int64_t row, int64_t column, int64_t value) {
    store(t, row * t->stride[0] + column, value);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void flag(const ref *r, int32_t bit) {
    if (r->a->error.data) *(int32_t *)r->a->error.data |= bit;
}

static int64_t length(const kgen_tensor *t, int64_t n) { return most(load(t, n), 0); }

static int64_t fill_of(const ref *r) { return r->s->tail == KGEN_TAIL_VALUE ? r->a->fill : 0; }

/* ---- slots ---------------------------------------------------------- */

/* Slot of a request's column. */
static int64_t column_slot(const ref *r, int64_t n, int64_t column) {
    const kgen_tensor *t = &r->a->req_to_token;
    int64_t request = load(&r->a->requests, n);
    if (request < 0 || request >= t->shape[0]) {
        flag(r, KGEN_SCATTER_REQUEST | KGEN_SCATTER_COLUMN);
        return -1;
    }
    if (column < 0 || column >= t->shape[1]) {
        flag(r, KGEN_SCATTER_COLUMN);
        return -1;
    }
    return load2(t, request, column);
}

static int64_t window_slot(const ref *r, int64_t slot) {
    if (slot < 0) return -1;
    if (slot >= r->a->mapping.shape[0]) {
        flag(r, KGEN_SCATTER_MAPPING);
        return -1;
    }
    return most(load(&r->a->mapping, slot), -1);
}

static int64_t page_of(const ref *r, int64_t slot) { return slot < 0 ? -1 : slot / r->s->page; }

/* A request that does not exist is said even where none of its tokens is read. */
static void check_request(const ref *r, int64_t n) {
    int64_t request = load(&r->a->requests, n);
    if (request < 0 || request >= r->a->req_to_token.shape[0]) flag(r, KGEN_SCATTER_REQUEST);
}

/* ---- page tables ---------------------------------------------------- */

/* A row's tokens: slots[first ..], or columns first .. of request n, from the
 * token `held` on the drafts of branch k. */
typedef struct list {
    int64_t n, count, first, held, k;
    int ragged;
} list;

/* Column of draft t of branch k. */
static int64_t draft_column(const ref *r, int64_t held, int64_t k, int64_t t) {
    int64_t page = r->s->page, last = held % page, steps = r->a->steps;
    if (page == 1 || r->a->topk == 1) return held + k * steps + t;
    return held - last + k * kgen__divide_up(last + steps, page) * page + last + t;
}

static int64_t list_slot(const ref *r, const list *l, int64_t t) {
    int64_t at = l->first + t;
    if (!l->ragged)
        return column_slot(r, l->n, t < l->held ? at : draft_column(r, l->held, l->k, t - l->held));
    if (l->first >= 0 && at < r->a->slots.shape[0]) return load(&r->a->slots, at);
    flag(r, KGEN_SCATTER_COLUMN);
    return -1;
}

static int64_t offset_of(const ref *r, const list *l) {
    return r->s->unaligned && l->count ? most(list_slot(r, l, 0), 0) % r->s->page : 0;
}

/* Blocks from .. of one row; cells behind the last block up to `end`. */
static void write_row(const ref *r, const list *l, const kgen_tensor *table, int64_t at, int window,
                      int64_t from, int64_t end) {
    int64_t page = r->s->page, width = table->shape[table->rank - 1], offset = offset_of(r, l);
    int64_t blocks = l->count ? kgen__divide_up(offset + l->count, page) : 0;
    if (blocks > width) flag(r, KGEN_SCATTER_WIDTH);
    for (int64_t j = from; j < least(width, most(blocks, end)); j++) {
        int64_t value = fill_of(r);
        int64_t token =
            r->s->pick ? most(j * page - offset, 0) : least((j + 1) * page - offset, l->count) - 1;
        if (j < blocks) {
            int64_t slot = list_slot(r, l, token);
            value = page_of(r, window ? window_slot(r, slot) : slot);
        } else if (r->s->tail == KGEN_TAIL_KEEP) {
            break;
        }
        store(table, at + j, value);
    }
}

static void write_tables(const ref *r, const list *l, int64_t n) {
    const kgen__scatter_all *a = r->a;
    write_row(r, l, &a->table, n * a->table.stride[0], 0, 0, a->table.shape[1]);
    if (r->s->swa)
        write_row(r, l, &a->swa_table, n * a->swa_table.stride[0], 1, 0, a->swa_table.shape[1]);
    if (r->s->unaligned) store(&a->row_offsets, n, offset_of(r, l));
}

static void page_table_ragged(const ref *r) {
    for (int64_t n = 0; n < r->rows; n++) {
        list l = {.n = n, .ragged = 1};
        if (n < r->live) {
            l.first = load(&r->a->indptr, n);
            l.count = most(load(&r->a->indptr, n + 1) - l.first, 0);
        }
        write_tables(r, &l, n);
    }
}

/* A request that there is not has no tokens. */
static int64_t row_length(const ref *r, int64_t n) {
    if (!r->s->by_request) return load(&r->a->lens, n);
    int64_t request = load(&r->a->requests, n);
    if (request < 0 || request >= r->a->lens.shape[0]) return -r->a->tokens;
    return load(&r->a->lens, request);
}

static void page_table_requests(const ref *r) {
    for (int64_t n = 0; n < r->rows; n++) {
        list l = {.n = n, .held = INT64_MAX};
        if (n < r->live) {
            check_request(r, n);
            l.first = r->s->starts ? length(&r->a->starts, n) : 0;
            l.count = most(row_length(r, n) + r->a->tokens, 0);
        }
        write_tables(r, &l, n);
    }
}

static list draft_list(const ref *r, int64_t n, int64_t k, int64_t step) {
    int64_t held = length(&r->a->lens, n);
    return (list){.n = n, .count = held + step, .held = held, .k = k};
}

static void draft_page_table(const ref *r) {
    const kgen_tensor *table = &r->a->table;
    for (int64_t step = 1; step <= r->a->steps; step++)
        for (int64_t z = 0; z < r->rows * r->a->topk; z++) {
            int64_t n = z / r->a->topk, at = (step - 1) * table->stride[0] + z * table->stride[1];
            list l = {.n = n};
            if (n < r->live) {
                check_request(r, n);
                l = draft_list(r, n, z % r->a->topk, step);
            }
            write_row(r, &l, table, at, 0, 0, table->shape[2]);
        }
}

/* ---- spec_prepare --------------------------------------------------- */

static int64_t committed(const ref *r, int64_t n) {
    int64_t held = length(&r->a->lens, n);
    return r->s->accept ? most(held + load(&r->a->accepted, n), 0) : held;
}

static int64_t fresh(const ref *r, int64_t n) {
    return r->s->ragged ? length(&r->a->q_lens, n) : r->a->tokens;
}

static void prepare_sums(const ref *r) {
    int64_t qo = 0, kv = 0;
    for (int64_t n = 0; n <= r->rows; n++) {
        if (r->s->qo) store(&r->a->qo_indptr, n, qo);
        if (r->s->kv) store(&r->a->kv_indptr, n, kv);
        if (n == r->rows) return;
        int live = n < r->live;
        int64_t held = live ? committed(r, n) + fresh(r, n) : r->a->pad_len;
        if (r->s->seq) store(&r->a->seq_lens, n, held);
        qo += live ? fresh(r, n) : r->s->ragged ? 0 : r->a->tokens;
        kv += held;
    }
}

static void put_token(const ref *r, int64_t at, int64_t slot, int64_t mapped, int64_t position) {
    if (r->s->locs) store(&r->a->locs, at, slot);
    if (r->s->locs && r->s->swa) store(&r->a->swa_locs, at, mapped);
    if (r->s->pos) store(&r->a->positions_out, at, position);
}

static void prepare_tokens(const ref *r) {
    int64_t at = 0, room = r->s->locs ? r->a->locs.shape[0] : r->a->positions_out.shape[0];
    if (!r->s->locs && !r->s->pos) return;
    for (int64_t n = 0; n < r->live; n++) {
        for (int64_t t = 0; t < fresh(r, n); t++, at++) {
            int64_t position = committed(r, n) + t, slot = 0;
            if (at >= room) {
                flag(r, KGEN_SCATTER_CAPACITY);
                continue;
            }
            if (r->s->locs) slot = column_slot(r, n, position);
            put_token(r, at, slot, r->s->locs && r->s->swa ? window_slot(r, slot) : 0, position);
        }
    }
    for (; at < room; at++) put_token(r, at, r->a->fill, r->a->fill, 0);
}

/* Where the row begins to differ from what the launch before left. */
static int64_t first_change(const ref *r, int64_t n, int64_t *end) {
    int64_t id = n < r->live ? load(&r->a->ids, n) : -1;
    int64_t held = n < r->live ? committed(r, n) : 0;
    int64_t old_id = load2(&r->a->state, n, 0), old_held = load2(&r->a->state, n, 1);
    int64_t old_blocks = load2(&r->a->state, n, 2);
    int64_t blocks = n < r->live ? kgen__divide_up(held + fresh(r, n), r->s->page) : 0;
    if (old_blocks >= 0) *end = old_blocks;
    store2(&r->a->state, n, 0, id);
    store2(&r->a->state, n, 1, held);
    store2(&r->a->state, n, 2, blocks);
    int same = id >= 0 && id == old_id && old_held >= 0 && held >= old_held;
    return same ? old_held / r->s->page : 0;
}

static void prepare_table(const ref *r, int64_t n) {
    const kgen__scatter_all *a = r->a;
    list l = {.n = n, .held = INT64_MAX};
    if (n < r->live) {
        check_request(r, n);
        l.count = committed(r, n) + fresh(r, n);
    }
    int64_t end = INT64_MAX, from = r->s->delta ? first_change(r, n, &end) : 0;
    write_row(r, &l, &a->table, n * a->table.stride[0], 0, from, end);
    if (r->s->swa) write_row(r, &l, &a->swa_table, n * a->swa_table.stride[0], 1, from, end);
}

static void spec_prepare(const ref *r) {
    prepare_sums(r);
    prepare_tokens(r);
    for (int64_t n = 0; r->s->pages && n < r->rows; n++) prepare_table(r, n);
}

/* ---- indices -------------------------------------------------------- */

static void draft_kv_indices(const ref *r) {
    const kgen_tensor *out = &r->a->indices, *ends = &r->a->kv_indptr;
    for (int64_t step = 1; step <= r->a->steps; step++) {
        int64_t at = 0, z = 0, base = (step - 1) * out->stride[0];
        for (; z < r->live * r->a->topk; z++) {
            list l = draft_list(r, z / r->a->topk, z % r->a->topk, step);
            store2(ends, step - 1, z, at);
            check_request(r, z / r->a->topk);
            int64_t fit = most(least(l.count, out->shape[1] - at), 0);
            for (int64_t t = 0; t < fit; t++) store(out, base + at + t, list_slot(r, &l, t));
            if (fit < l.count) flag(r, KGEN_SCATTER_CAPACITY);
            at += l.count;
        }
        for (; z <= r->rows * r->a->topk; z++) store2(ends, step - 1, z, at);
    }
}

static int64_t indexed_slot(const ref *r, int64_t n, int64_t column) {
    int64_t page = r->s->page, entry = column_slot(r, n, column / page);
    return entry < 0 ? -1 : entry * page + column % page;
}

static void kv_indices(const ref *r) {
    const kgen_tensor *out = &r->a->indices;
    for (int64_t n = 0; n < r->live; n++) {
        int64_t start = r->s->starts ? length(&r->a->starts, n) : 0;
        check_request(r, n);
        int64_t at = load(&r->a->indptr, n), count = length(&r->a->lens, n);
        int64_t room = at < 0 ? 0 : most(out->shape[0] - at, 0);
        if (count > room) flag(r, KGEN_SCATTER_CAPACITY);
        for (int64_t t = 0; t < least(count, room); t++) {
            int64_t slot = indexed_slot(r, n, start + t);
            store(out, at + t, r->s->swa ? window_slot(r, slot) : slot);
        }
    }
    int64_t at = load(&r->a->indptr, r->live);
    for (int64_t i = 0; i < r->a->padding && r->s->tail != KGEN_TAIL_KEEP && at >= 0; i++)
        if (at + i < out->shape[0]) store(out, at + i, fill_of(r));
}

/* Columns of row n, in order; their number. */
static int64_t loc_columns(const ref *r, int64_t n, int64_t *column, int64_t room) {
    const kgen__scatter_all *a = r->a;
    int64_t count = 0, k = 0, t = 0;
    switch ((kgen_scatter_form)r->s->form) {
    case KGEN_FORM_UNIFORM:
        for (; count < a->tokens && count < room; count++)
            column[count] = length(&a->starts, n) + count;
        break;
    case KGEN_FORM_RAGGED:
        for (int64_t c = length(&a->starts, n); c < load(&a->lens, n) && count < room; c++)
            column[count++] = c;
        break;
    case KGEN_FORM_DRAFT:
        for (k = 0; k < a->topk; k++)
            for (t = 0; t < a->steps && count < room; t++)
                column[count++] = draft_column(r, length(&a->lens, n), k, t);
        break;
    case KGEN_FORM_LAST:
        column[count++] = length(&a->lens, n) - 1;
        break;
    }
    return count;
}

static int64_t loc_count(const ref *r, int64_t n) {
    if (r->s->form == KGEN_FORM_UNIFORM) return r->a->tokens;
    if (r->s->form == KGEN_FORM_DRAFT) return (int64_t)r->a->topk * r->a->steps;
    if (r->s->form == KGEN_FORM_LAST) return 1;
    return n < r->live ? most(load(&r->a->lens, n) - length(&r->a->starts, n), 0) : 0;
}

static void cache_locs(const ref *r) {
    int64_t room = r->a->locs.shape[0], at = 0;
    int64_t *column = malloc((size_t)(room + 1) * sizeof *column);
    for (int64_t n = 0; n < r->live && column; n++) {
        int64_t want = loc_count(r, n), count = loc_columns(r, n, column, room - at);
        if (want > count) flag(r, KGEN_SCATTER_CAPACITY);
        check_request(r, n);
        for (int64_t i = 0; i < count; i++) {
            int none = r->s->form == KGEN_FORM_LAST && column[i] < 0;
            store(&r->a->locs, at + i, none ? -1 : column_slot(r, n, column[i]));
        }
        at += count;
    }
    for (; at < room; at++) store(&r->a->locs, at, r->a->fill);
    free(column);
}

static void assign_locs(const ref *r) {
    const kgen_tensor *t = &r->a->req_to_token;
    int64_t at = 0;
    for (int64_t n = 0; n < r->live; n++) {
        int64_t request = load(&r->a->requests, n), count = loc_count(r, n);
        int known = request >= 0 && request < t->shape[0];
        check_request(r, n);
        for (int64_t i = 0; i < count; i++, at++) {
            int64_t column = length(&r->a->starts, n) + i;
            if (!known || column >= t->shape[1] || at >= r->a->locs.shape[0])
                flag(r, KGEN_SCATTER_COLUMN);
            else
                store2(t, request, column, load(&r->a->locs, at));
        }
    }
}

/* ---- engines' rules ------------------------------------------------- */

static void draft_lens(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t extends = a->extends.data ? load(&a->extends, 0) : 0;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t used = n < r->live ? length(&a->lens, n) : 0, first = a->pad_len, base = used;
        int decode = n < r->live && n >= extends;
        if (n < r->live) first = used;
        if (decode) {
            int64_t accepted = load(&a->accepted, n);
            if (accepted < 1 || accepted > a->tokens) flag(r, KGEN_SCATTER_COUNT);
            accepted = least(most(accepted, 1), a->tokens);
            if (r->s->sliced)
                first = most(used - (a->tokens - accepted), 1);
            else if (a->tokens > 1)
                first = most(used, a->tokens);
            base = length(&a->valid, n) + accepted;
        }
        store(&a->seq_lens, n, first);
        for (int64_t i = 1; i <= a->steps; i++) {
            int64_t held = least(base + i, a->max_len);
            store2(&a->step_lens, i - 1, n, n < r->live ? held : a->pad_len);
            store2(&a->positions_out, i - 1, n, n < r->live ? held - 1 : 0);
        }
    }
}

static int64_t block_entry(const ref *r, int64_t n, int64_t column) {
    if (column >= 0 && column < r->a->block_table.shape[1])
        return load2(&r->a->block_table, n, column);
    flag(r, KGEN_SCATTER_COLUMN);
    return -1;
}

static int64_t mapped_token(const ref *r, int64_t n, int64_t i) {
    const kgen__scatter_all *a = r->a;
    int64_t position = load(&a->positions, i), virtual_page = (int64_t)r->s->page * a->cp_size;
    if (a->rejected.data && load(&a->rejected, i)) return -1;
    if (a->max_len > 0 && position >= a->max_len) return -1;
    if (position < 0) {
        flag(r, KGEN_SCATTER_COLUMN);
        return -1;
    }
    int64_t inside = position % virtual_page, chunk = a->cp_interleave;
    if (inside / chunk % a->cp_size != a->cp_rank) return -1;
    int64_t block = block_entry(r, n, position / virtual_page);
    if (block < 0) return -1;
    return block * r->s->page + inside / (a->cp_size * chunk) * chunk + inside % chunk;
}

/* The row of block_table that row n reads, or -1. */
static int64_t table_row(const ref *r, int64_t n) {
    if (!r->s->by_request) return n;
    int64_t request = load(&r->a->requests, n);
    if (request >= 0 && request < r->a->block_table.shape[0]) return request;
    flag(r, KGEN_SCATTER_REQUEST);
    return -1;
}

static void slot_mapping(const ref *r) {
    int64_t room = r->a->locs.shape[0];
    int64_t end = most(load(&r->a->indptr, r->live), 0);
    for (int64_t n = 0; n < r->live; n++) {
        int64_t first = load(&r->a->indptr, n), last = load(&r->a->indptr, n + 1);
        int64_t row = table_row(r, n);
        if (first < 0 || last > room) flag(r, KGEN_SCATTER_CAPACITY);
        for (int64_t i = most(first, 0); i < least(last, room); i++)
            store(&r->a->locs, i, row < 0 ? -1 : mapped_token(r, row, i));
    }
    if (load(&r->a->indptr, r->live) < 0) flag(r, KGEN_SCATTER_CAPACITY);
    for (int64_t i = end; i < room; i++) store(&r->a->locs, i, -1);
}

static void eagle_step(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t position = 0, slot = -1, held = 0;
        if (n < r->live && load(&a->positions, n) + 1 >= a->max_len) {
            held = 1;
        } else if (n < r->live) {
            position = most(load(&a->positions, n) + 1, 0);
            held = least(length(&a->lens, n) + 1, a->max_len);
            int64_t column = least(position / r->s->page, a->block_table.shape[1] - 1);
            int64_t block = block_entry(r, n, column);
            if (block >= 0) slot = block * r->s->page + position % r->s->page;
        }
        store(&a->positions_out, n, position);
        store(&a->locs, n, slot);
        store(&a->seq_lens, n, held);
    }
}

static void padded_inputs(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t rejected = 0, sample = 0;
        if (n < r->live) {
            int64_t drafts = load(&a->draft_ends, n) - (n ? load(&a->draft_ends, n - 1) : 0);
            int64_t wanted = drafts > 0 ? drafts + 1 - load(&a->accepted, n) : 0;
            rejected = most(least(wanted, drafts), 0);
            if (rejected != wanted) flag(r, KGEN_SCATTER_COUNT);
            sample = load(&a->indptr, n + 1) - 1 - rejected;
        }
        store(&a->counts, n, rejected);
        store(&a->sample_index, n, sample);
    }
}

static void next_token(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t count = 0, next = n < r->live ? load(&a->backup, n) : 0;
        int skipped = n >= r->live || (a->discarded.data && load(&a->discarded, n));
        for (int64_t t = 0; t < a->tokens && !skipped; t++) {
            int64_t token = load2(&a->tokens_in, n, t);
            if (token < 0 || token >= a->vocab) continue;
            next = token;
            count++;
        }
        store(&a->next, n, next);
        store(&a->counts, n, count);
    }
}

static void bonus_tokens(const ref *r) {
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t count = n < r->live ? load(&r->a->accepted, n) : 0, next = n < r->live ? -1 : 0;
        if (count >= 1 && count <= r->a->tokens)
            next = load2(&r->a->tokens_in, n, count - 1);
        else if (n < r->live)
            flag(r, KGEN_SCATTER_COUNT);
        store(&r->a->next, n, next);
    }
}

static void accept_locs(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t count = 0, columns = a->accept_index.shape[1];
    for (int64_t n = 0; n < r->live; n++)
        for (int64_t i = 0; i < columns; i++) {
            int64_t index = load2(&a->accept_index, n, i);
            if (index < 0) continue;
            int inside = index < a->source_locs.shape[0];
            if (!inside) flag(r, KGEN_SCATTER_COLUMN);
            store(&a->locs, count++, inside ? load(&a->source_locs, index) : -1);
        }
    store(&a->counts, 0, count);
    for (; count < a->locs.shape[0]; count++) store(&a->locs, count, a->fill);
}

static void keep_locs(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t moved = 0, freed = 0, d = a->tokens;
    for (int64_t n = 0; n < r->live; n++) {
        int64_t accepted = load(&a->accepted, n), held = length(&a->lens, n);
        if (accepted < 0 || accepted >= d) flag(r, KGEN_SCATTER_COUNT);
        accepted = least(most(accepted, 0), d - 1);
        int64_t rounded = kgen__divide_up(held + accepted + 1, r->s->page) * r->s->page;
        int64_t keep = least(rounded, held + d) - held;
        for (int64_t t = 0; t <= accepted; t++)
            store(&a->locs, moved++, load(&a->source_locs, n * d + t));
        for (int64_t t = keep; t < d; t++)
            store(&a->free_locs, freed++, load(&a->source_locs, n * d + t));
    }
    store(&a->counts, 0, moved);
    store(&a->counts, 1, freed);
    for (; moved < a->locs.shape[0]; moved++) store(&a->locs, moved, a->fill);
    for (; freed < a->free_locs.shape[0]; freed++) store(&a->free_locs, freed, a->fill);
}

static void evict_mask(const ref *r) {
    int64_t page = r->s->page;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t held = n < r->live ? length(&r->a->lens, n) : 0, kept = 0;
        for (int64_t t = 0; t < r->a->tokens; t++)
            kept += n < r->live && load2(&r->a->mask, n, t) == 0;
        int64_t first = held + kept > 0 ? (held + kept - 1) / page * page - held : 0;
        for (int64_t t = 0; t < r->a->tokens; t++) {
            int shared = held + kept > 0 && t >= first && t < first + page;
            int evicted = n < r->live && load2(&r->a->mask, n, t) != 0 && !shared;
            store2(&r->a->mask_out, n, t, evicted);
        }
    }
}

/* The engine's own formula, which takes a logarithm in floating point. */
static void kv_splits(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t longest = 1, shortest = INT64_MAX, group = most(a->heads / a->kv_heads, 1);
    for (int64_t n = 0; n < r->live; n++) {
        longest = most(longest, length(&a->lens, n));
        shortest = least(shortest, length(&a->lens, n));
    }
    shortest = r->live ? most(shortest, 1) : 1;
    if (longest * 8 < shortest * 10) shortest = longest;
    int64_t chunk =
        kgen__divide_up(longest, least(kgen__divide_up(longest, shortest), a->max_splits));
    double stretched = a->compute_units * fmax(log2((double)longest / 64), 1);
    int64_t heads = group == 1 ? a->heads : kgen__divide_up(a->heads, least(16, group));
    int64_t grid = most(r->live * a->groups * heads, 1);
    int64_t splits = least(kgen__divide_up((int64_t)stretched, grid), a->max_splits);
    int64_t other = kgen__divide_up(longest, splits);
    for (int64_t i = 0; i < r->rows * a->groups; i++) {
        int64_t n = i / a->groups, held = n < r->live ? length(&a->lens, n) : 0;
        store(&a->counts, i, most(kgen__divide_up(held, chunk), kgen__divide_up(held, other)));
    }
}

/* ---- trees ---------------------------------------------------------- */

enum { NODES = 64, ORPHAN = -1 };

static int64_t parent_of(const ref *r, int64_t n, int64_t j) {
    const kgen__scatter_all *a = r->a;
    if (r->s->op == KGEN_OP_TREE_FROM_MASK) {
        for (int64_t i = j - 1; i >= 0; i--) {
            int64_t seen = r->s->mask == KGEN_MASK_WORDS
                               ? load2(&a->words, n, j) >> i & 1
                               : load(&a->mask, n * a->mask.stride[0] + j * a->mask.stride[1] + i);
            if (seen) return i;
        }
        return ORPHAN;
    }
    int64_t id = load2(&a->selected, n, j - 1);
    if (id < 0) return ORPHAN;
    if (id / a->topk == 0) return 0;
    if (id / a->topk >= a->parents.shape[1]) return ORPHAN;
    int64_t wanted = load2(&a->parents, n, id / a->topk);
    for (int64_t i = 1; i < j; i++)
        if (load2(&a->selected, n, i - 1) == wanted) return i;
    return ORPHAN;
}

typedef struct tree {
    int64_t parent[NODES], depth[NODES];
    uint64_t bits[NODES];
} tree;

static tree tree_of(const ref *r, int64_t n, int live) {
    tree t;
    t.parent[0] = -2;
    t.depth[0] = 0;
    t.bits[0] = 1;
    for (int64_t j = 1; j < r->a->tokens; j++) {
        int64_t parent = t.parent[j] = live ? parent_of(r, n, j) : ORPHAN;
        if (live && parent == ORPHAN) flag(r, KGEN_SCATTER_TREE);
        t.depth[j] = parent == ORPHAN ? 1 : t.depth[parent] + 1;
        t.bits[j] = (uint64_t)1 << j | (parent == ORPHAN ? 1 : t.bits[parent]);
    }
    return t;
}

static void write_links(const ref *r, const tree *t, int64_t n, int live) {
    const kgen__scatter_all *a = r->a;
    int64_t d = a->tokens;
    for (int64_t j = 0; j < d; j++) {
        int64_t child = -1, sibling = -1;
        for (int64_t i = d - 1; i > j; i--) {
            if (t->parent[i] == j) child = i;
            if (t->parent[j] >= 0 && t->parent[i] == t->parent[j]) sibling = i;
        }
        store(&a->positions_out, n * d + j, live ? length(&a->lens, n) + t->depth[j] : 0);
        store2(&a->tree_index, n, j, n * d + j);
        store2(&a->next_token, n, j, child);
        store2(&a->next_sibling, n, j, sibling);
    }
}

static int64_t full_start(const ref *r, int64_t n) {
    int64_t d = r->a->tokens, before = 0;
    for (int64_t m = 0; m < n; m++) before += length(&r->a->lens, m);
    return d * before + n * d * d;
}

static void write_full(const ref *r, const tree *t, int64_t n) {
    int64_t d = r->a->tokens, held = length(&r->a->lens, n), at = full_start(r, n);
    for (int64_t j = 0; j < d; j++)
        for (int64_t c = 0; c < held + d; c++, at++) {
            int seen = c < held || (t->bits[j] >> (c - held) & 1);
            if (at < r->a->mask_out.shape[0])
                store(&r->a->mask_out, at, seen);
            else
                flag(r, KGEN_SCATTER_CAPACITY);
        }
}

static void write_mask(const ref *r, const tree *t, int64_t n, int live) {
    const kgen__scatter_all *a = r->a;
    if (r->s->mask == KGEN_MASK_FULL && live) write_full(r, t, n);
    for (int64_t j = 0; j < a->tokens; j++) {
        if (r->s->mask == KGEN_MASK_WORDS) store2(&a->words, n, j, (int64_t)t->bits[j]);
        for (int64_t c = 0; r->s->mask == KGEN_MASK_QLEN && c < a->tokens; c++)
            store(&a->mask_out, n * a->mask_out.stride[0] + j * a->mask_out.stride[1] + c,
                  (int64_t)(t->bits[j] >> c & 1));
    }
}

static void tree_build(const ref *r) {
    for (int64_t n = 0; n < r->rows; n++) {
        tree t = tree_of(r, n, n < r->live);
        write_links(r, &t, n, n < r->live);
        if (r->s->op == KGEN_OP_TREE_BUILD) write_mask(r, &t, n, n < r->live);
    }
}

static void tree_mask(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t d = a->tokens;
    for (int64_t n = 0; n < r->rows; n++)
        for (int64_t j = 0; j < d; j++) {
            uint64_t bits = 0;
            int64_t at = n * a->mask.stride[0] + j * a->mask.stride[1], room = INT64_MAX;
            if (r->s->mask == KGEN_MASK_FULL && n < r->live) {
                int64_t held = length(&a->lens, n);
                at = full_start(r, n) + j * (held + d) + held;
                room = a->mask.shape[0];
            }
            if (n < r->live && at + d > room) flag(r, KGEN_SCATTER_CAPACITY);
            for (int64_t c = 0; c < d && n < r->live && at + d <= room; c++)
                bits |= (uint64_t)(load(&a->mask, at + c) != 0) << c;
            store2(&a->words, n, j, (int64_t)bits);
        }
}

/* ---- verify --------------------------------------------------------- */

typedef struct walk {
    int64_t row, last, path[NODES], accepted;
    int64_t tried[NODES], tried_count;
} walk;

static float probability(const ref *r, const walk *w, int64_t token) {
    const kgen_tensor *t = &r->a->probs;
    if (token < 0 || token >= t->shape[2]) {
        flag(r, KGEN_SCATTER_TREE);
        return 0;
    }
    return ((const float *)t->data)[w->row * t->stride[0] + w->last * t->stride[1] + token];
}

static int accepts(const ref *r, walk *w, int64_t node, float *sum) {
    int64_t token = load2(&r->a->tokens_in, w->row, node);
    if (!r->s->sampling) return token == load2(&r->a->targets_in, w->row, w->last);
    float p = probability(r, w, token);
    const kgen_tensor *coins = &r->a->coins;
    float coin = ((const float *)coins->data)[w->row * coins->stride[0] + w->last];
    float factor = r->a->threshold_acc < 1e-9f ? 1e-9f : r->a->threshold_acc;
    *sum += p;
    if (coin * factor <= *sum || p >= r->a->threshold_single) return 1;
    w->tried[w->tried_count++] = token;
    return 0;
}

static int64_t link_of(const ref *r, const kgen_tensor *links, int64_t n, int64_t j,
                       int64_t chain) {
    if (!links->data) return chain;
    int64_t to = load2(links, n, j);
    return to >= -1 && to != 0 && to < r->a->tokens ? to : -1;
}

static void check_links(const ref *r, int64_t n) {
    const kgen_tensor *links[] = {&r->a->next_token, &r->a->next_sibling};
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < r->a->tokens && links[i]->data; j++) {
            int64_t to = load2(links[i], n, j);
            if (to < -1 || to == 0 || to >= r->a->tokens) flag(r, KGEN_SCATTER_TREE);
        }
}

/* The node after the last accepted one, or -1; 0: links that go in a circle. */
static int64_t next_node(const ref *r, walk *w, int64_t *visits) {
    int64_t d = r->a->tokens, chain = w->last + 1 < d ? w->last + 1 : -1;
    float sum = 0;
    for (int64_t c = link_of(r, &r->a->next_token, w->row, w->last, chain); c >= 0;
         c = link_of(r, &r->a->next_sibling, w->row, c, -1)) {
        if (*visits >= d) {
            flag(r, KGEN_SCATTER_TREE);
            return 0;
        }
        if (accepts(r, w, c, &sum)) return c;
        ++*visits;
    }
    return -1;
}

static int64_t units(const walk *w, float p, int64_t token) {
    for (int64_t i = 0; i < w->tried_count; i++)
        if (w->tried[i] == token) return 0;
    return p > 0 ? (int64_t)((double)(p < 1 ? p : 1) * 68719476736.0) : 0;
}

static int64_t drawn(const ref *r, const walk *w) {
    int64_t all = 0, sum = 0, vocab = r->a->probs.shape[2];
    float coin = ((const float *)r->a->final_coins.data)[w->row];
    int64_t parts = least(most((int64_t)((double)coin * 16777216.0), 0), 16777215);
    for (int64_t v = 0; v < vocab; v++) all += units(w, probability(r, w, v), v);
    int64_t limit = (int64_t)((uint64_t)all * (uint64_t)parts >> 24);
    for (int64_t v = 0; v < vocab; v++) {
        sum += units(w, probability(r, w, v), v);
        if (sum > limit) return v;
    }
    return -1;
}

static void tree_verify(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t d = a->tokens, columns = a->accept_index.shape[1];
    for (int64_t n = 0; n < r->rows; n++) {
        walk w = {.row = n};
        int64_t visits = 0, c;
        for (int64_t j = 0; j < d; j++) store2(&a->predicts, n, j, -1);
        for (int64_t i = 0; i < columns; i++) store2(&a->accept_index, n, i, -1);
        store(&a->accept_count, n, 0);
        if (n >= r->live) continue;
        check_links(r, n);
        while (w.accepted + 1 < columns && (c = next_node(r, &w, &visits)) > 0) {
            visits++;
            w.tried_count = 0;
            store2(&a->predicts, n, w.last, load2(&a->tokens_in, n, c));
            w.path[++w.accepted] = w.last = c;
        }
        store2(&a->predicts, n, w.last,
               r->s->sampling ? drawn(r, &w) : load2(&a->targets_in, n, w.last));
        for (int64_t i = 0; i <= w.accepted; i++) store2(&a->accept_index, n, i, n * d + w.path[i]);
        store(&a->accept_count, n, w.accepted);
    }
}

/* ---- reject ---------------------------------------------------------- */

static float real(const kgen_tensor *t, int64_t row, int64_t column) {
    return ((const float *)t->data)[row * t->stride[0] + column];
}

/* Is the draft that stands at `at` accepted? */
static int passes(const ref *r, int64_t at, int64_t token) {
    const kgen__scatter_all *a = r->a;
    if (token < 0 || token >= a->probs.shape[1]) {
        flag(r, KGEN_SCATTER_TREE);
        return 0;
    }
    float p = real(&a->probs, at, token);
    float q = a->draft_probs.data ? real(&a->draft_probs, at, token) : 1;
    return q > 0 && p / q >= ((const float *)a->coins.data)[at];
}

/* What the target has more of than the draft. */
static float more_of(const ref *r, int64_t at, int64_t token, int64_t draft) {
    const kgen__scatter_all *a = r->a;
    float p = real(&a->probs, at, token);
    if (!a->draft_probs.data) return token == draft ? 0 : p;
    p -= real(&a->draft_probs, at, token);
    return p > 0 ? p : 0;
}

static int64_t raced(const ref *r, int64_t n, int64_t at, int64_t draft) {
    int64_t best = -1;
    float most_so_far = -1;
    for (int64_t v = 0; v < r->a->probs.shape[1]; v++) {
        float score = more_of(r, at, v, draft) / real(&r->a->noise, n, v);
        if (!(score > most_so_far)) continue;
        most_so_far = score;
        best = v;
    }
    return best;
}

static int64_t recovered(const ref *r, int64_t n, int64_t at, int64_t draft) {
    const walk none = {0};
    int64_t all = 0, sum = 0, vocab = r->a->probs.shape[1];
    if (r->s->race) return raced(r, n, at, draft);
    double coin = ((const float *)r->a->final_coins.data)[n];
    int64_t parts = least(most((int64_t)(coin * 16777216.0), 0), 16777215);
    for (int64_t v = 0; v < vocab; v++) all += units(&none, more_of(r, at, v, draft), v);
    int64_t limit = (int64_t)((uint64_t)all * (uint64_t)parts >> 24);
    for (int64_t v = 0; v < vocab; v++) {
        sum += units(&none, more_of(r, at, v, draft), v);
        if (sum > limit) return v;
    }
    return -1;
}

static void reject_row(const ref *r, int64_t n) {
    const kgen__scatter_all *a = r->a;
    int64_t first = n ? load(&a->draft_ends, n - 1) : 0, end = load(&a->draft_ends, n), kept = 0;
    int greedy = !r->s->sampling || (a->greedy.data && load(&a->greedy, n));
    if (first < 0 || end > a->drafts.shape[0] || end < first ||
        end - first >= a->predicts.shape[1]) {
        flag(r, KGEN_SCATTER_COUNT);
        end = first;
    }
    int64_t last = load(&a->bonus, n);
    for (; kept < end - first; kept++) {
        int64_t token = load(&a->drafts, first + kept), at = first + kept;
        if (greedy ? load(&a->targets_in, at) == token : passes(r, at, token)) {
            store2(&a->predicts, n, kept, token);
            continue;
        }
        last = greedy ? load(&a->targets_in, at) : recovered(r, n, at, token);
        break;
    }
    store2(&a->predicts, n, kept, last);
    store(&a->accept_count, n, kept);
}

static void reject(const ref *r) {
    for (int64_t n = 0; n < r->rows; n++) {
        for (int64_t i = 0; i < r->a->predicts.shape[1]; i++) store2(&r->a->predicts, n, i, -1);
        store(&r->a->accept_count, n, 0);
        if (n < r->live) reject_row(r, n);
    }
}

/* ---- movement ------------------------------------------------------- */

static int64_t byte_of_slot(const ref *r, int64_t slot) {
    const kgen__scatter_all *a = r->a;
    int64_t page = r->s->page, pack = r->s->pack, inside = slot % page;
    int64_t at = slot / page * a->page_bytes;
    if (pack == 1) return at + inside * a->token_bytes;
    return at + inside / pack * a->group_bytes + inside % pack * a->token_bytes;
}

/* Does all of pool b lie in `pool`, where its units are aligned? */
static int holds_pool(const ref *r, int64_t b) {
    const kgen__scatter_all *a = r->a;
    int64_t first = most(a->slot_count - 2 * r->s->page, 0), begin = load(&a->pools, b), end = 0;
    for (int64_t slot = first; slot < a->slot_count; slot++)
        end = most(end, byte_of_slot(r, slot) + (a->pieces - 1) * a->piece_stride + a->piece_bytes);
    if (begin % r->s->unit) return 0;
    return !a->pool.data || (begin >= 0 && begin <= a->pool.shape[0] - end);
}

static void kv_compact(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t held = 0;
    for (int64_t b = 0; r->live > 0 && b < a->pools.shape[0]; b++)
        if (holds_pool(r, b))
            held++;
        else
            flag(r, KGEN_SCATTER_CAPACITY);
    for (int64_t n = 0; held && n < r->live; n++)
        for (int64_t i = 0; i < a->sources.shape[1]; i++) {
            int64_t from = load2(&a->sources, n, i), to = load2(&a->targets, n, i);
            if (from >= a->slot_count || to >= a->slot_count) flag(r, KGEN_SCATTER_COLUMN);
            if (from < 0 || to < 0 || from >= a->slot_count || to >= a->slot_count) continue;
            for (int64_t b = 0; b < a->pools.shape[0]; b++) {
                if (!holds_pool(r, b)) continue;
                char *pool = (char *)((uintptr_t)a->pool.data + (uintptr_t)load(&a->pools, b));
                for (int64_t k = 0; k < a->pieces; k++) {
                    char *piece = pool + k * a->piece_stride;
                    memmove(piece + byte_of_slot(r, to), piece + byte_of_slot(r, from),
                            (size_t)a->piece_bytes);
                }
            }
        }
}

/* Row n of `out` is row n of `in`, both as bytes. */
static void copy_row(const kgen_tensor *out, int64_t to, const kgen_tensor *in, int64_t from) {
    char *target = (char *)out->data + to * out->stride[0];
    if (from < 0)
        memset(target, 0, (size_t)out->shape[1]);
    else
        memcpy(target, (char *)in->data + from * in->stride[0], (size_t)out->shape[1]);
}

/* A row of that many, or -1. */
static int64_t checked(const ref *r, int64_t row, int64_t count) {
    if (row < -1 || row >= count) flag(r, KGEN_SCATTER_COLUMN);
    return row < count ? most(row, -1) : -1;
}

static void gather_rows(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t n = 0; n < r->rows; n++)
        copy_row(&a->rows_out, n, &a->rows_in,
                 n < r->live ? checked(r, load(&a->row_index, n), a->rows_in.shape[0]) : -1);
}

static void copy_pages(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t n = 0; n < r->live; n++) {
        int64_t from = checked(r, load2(&a->pairs, n, 0), a->rows_in.shape[0]);
        int64_t to = checked(r, load2(&a->pairs, n, 1), a->rows_out.shape[0]);
        if (from >= 0 && to >= 0) copy_row(&a->rows_out, to, &a->rows_in, from);
    }
}

/* ---- parts of contexts ---------------------------------------------- */

static void chunk_context(const ref *r) {
    const kgen__scatter_all *a = r->a;
    for (int64_t i = 0; i < a->steps; i++) {
        int64_t sum = 0;
        for (int64_t n = 0; n < r->rows; n++) {
            int64_t held = n < r->live ? length(&a->lens, n) : 0;
            int64_t count = most(least(held, (i + 1) * a->chunk) - i * a->chunk, 0);
            if (held > a->steps * a->chunk) flag(r, KGEN_SCATTER_CAPACITY);
            store2(&a->step_starts, i, n, n < r->live ? i * a->chunk : 0);
            store2(&a->step_lens, i, n, count);
            store2(&a->kv_indptr, i, n, sum);
            sum += count;
        }
        store2(&a->kv_indptr, i, r->rows, sum);
    }
}

static void window_lens(const ref *r) {
    const kgen__scatter_all *a = r->a;
    int64_t sum = 0;
    for (int64_t n = 0; n < r->rows; n++) {
        int64_t held = n < r->live ? length(&a->lens, n) : 0;
        int64_t seen = n < r->live ? least(held, length(&a->q_lens, n) + a->window) : 0;
        store(&a->starts_out, n, held - seen);
        store(&a->seq_lens, n, seen);
        store(&a->kv_indptr, n, sum);
        sum += seen;
    }
    store(&a->kv_indptr, r->rows, sum);
}

/* ---- public --------------------------------------------------------- */

static void (*const ops[])(const ref *) = {
    [KGEN_OP_PAGE_TABLE_RAGGED] = page_table_ragged,
    [KGEN_OP_PAGE_TABLE_REQUESTS] = page_table_requests,
    [KGEN_OP_SPEC_PREPARE] = spec_prepare,
    [KGEN_OP_DRAFT_PAGE_TABLE] = draft_page_table,
    [KGEN_OP_DRAFT_KV_INDICES] = draft_kv_indices,
    [KGEN_OP_KV_INDICES] = kv_indices,
    [KGEN_OP_DRAFT_LENS] = draft_lens,
    [KGEN_OP_CACHE_LOCS] = cache_locs,
    [KGEN_OP_ASSIGN_LOCS] = assign_locs,
    [KGEN_OP_SLOT_MAPPING] = slot_mapping,
    [KGEN_OP_EAGLE_STEP] = eagle_step,
    [KGEN_OP_PADDED_INPUTS] = padded_inputs,
    [KGEN_OP_NEXT_TOKEN] = next_token,
    [KGEN_OP_BONUS_TOKENS] = bonus_tokens,
    [KGEN_OP_ACCEPT_LOCS] = accept_locs,
    [KGEN_OP_KEEP_LOCS] = keep_locs,
    [KGEN_OP_EVICT_MASK] = evict_mask,
    [KGEN_OP_KV_SPLITS] = kv_splits,
    [KGEN_OP_TREE_BUILD] = tree_build,
    [KGEN_OP_TREE_FROM_MASK] = tree_build,
    [KGEN_OP_TREE_MASK] = tree_mask,
    [KGEN_OP_TREE_VERIFY] = tree_verify,
    [KGEN_OP_KV_COMPACT] = kv_compact,
    [KGEN_OP_CHUNK_CONTEXT] = chunk_context,
    [KGEN_OP_WINDOW_LENS] = window_lens,
    [KGEN_OP_GATHER_ROWS] = gather_rows,
    [KGEN_OP_COPY_PAGES] = copy_pages,
    [KGEN_OP_REJECT] = reject,
};

void kgen__scatter_reference(const kgen_spec *spec, const kgen_scatter_args *args, int64_t rows) {
    kgen__scatter_all all;
    kgen__scatter_unpack(&all, args);
    ref r = {.s = &spec->scatter, .a = &all, .rows = rows, .live = rows};
    if (all.live.data) r.live = least(most(load(&all.live, 0), 0), rows);
    ops[spec->scatter.op](&r);
}
