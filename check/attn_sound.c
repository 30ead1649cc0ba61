/* Lengths and pages of a launch of attn that was captured somewhere. Kernel and
 * reference bound them; who replays a launch wants to know what it was given. */
#include "check_attn.h"
#include "attn_extent.h"
#include "attn_layout.h"

static kgen_status sound_pages(const kgen_attn_args *a, int64_t seq, int64_t kept, int64_t first,
                               int64_t end, kgen_error *err) {
    kgen__attn_pages own = kgen__attn_pages_of(a, seq);
    const char *table = a->block_table.data ? "block_table" : "kv_indices";
    int64_t page = kgen__cache_page(&a->k), pages = a->k.shape[0];
    KGEN__SOUND(end <= own.count * page, "seq_lens[%lld]=%lld: %s has %lld pages of %lld",
                (long long)seq, (long long)end, table, (long long)own.count, (long long)page);
    for (int64_t i = 0; i * page < end; i++) {
        if (i < first / page && i * page >= kept) continue;
        int64_t number = kgen__int_load(own.table, own.first + i);
        KGEN__SOUND(number >= 0 && number < pages, "%s[%lld][%lld]=%lld: must be 0..%lld", table,
                    (long long)seq, (long long)i, (long long)number, (long long)pages - 1);
    }
    return KGEN_OK;
}

kgen_status kgen__attn_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err) {
    const kgen_attn_spec *s = &spec->attn;
    const kgen_attn_args *a = args->attn;
    int64_t seqs = kgen__attn_seqs(a);
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    int ragged = phase->ragged;
    if (ragged)
        KGEN_TRY(kgen__sound_offsets("cu_seqlens_q", &a->cu_seqlens_q, seqs, a->q.shape[0],
                                     phase->bounded ? s->q_tokens : a->q.shape[0], err));
    if (phase->dense)
        return kgen__sound_offsets("cu_seqlens_k", &a->cu_seqlens_k, seqs, a->k.shape[0],
                                   a->k.shape[0], err);
    for (int64_t n = 0; n < seqs; n++) {
        int64_t length = kgen__int_load(&a->seq_lens, n), count = 1;
        if (ragged)
            count = kgen__int_load(&a->cu_seqlens_q, n + 1) - kgen__int_load(&a->cu_seqlens_q, n);
        int64_t first = kgen__attn_first(s, a, length - count);
        if (count > 0 && length > 0)
            KGEN_TRY(sound_pages(a, n, kgen__attn_kept(s, a), first, length, err));
    }
    return KGEN_OK;
}
