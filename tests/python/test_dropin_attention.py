"""The attention and cache drop-ins beside plain torch, on the cpu device."""
import itertools
import re
import sys
import types
import unittest
import unittest.mock

import torch
from references import Pages, attention, close

from kgen import KgenError, contexts
from kgen.dropin import aiter, flash, vllm

D, HKV, G = 64, 2, 2
SCALE = D ** -0.5


def ends_of(counts):
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)


def queries(count, dtype=torch.bfloat16):
    return torch.randn(count, HKV * G, D).to(dtype)


class Unified(unittest.TestCase):
    def run_one(self, lengths, counts, function=vllm.unified_attention, kv=None, window=0, softcap=0.0,
                slopes=None, sinks=None, q_scale=None, **more):
        cache = Pages(lengths, HKV, D)
        k, v, scales = cache.k, cache.v, (1.0, 1.0)
        k_descale = v_descale = torch.tensor(1.0)  # engines pass them with every cache, of rank 0
        if kv:
            scales = (0.5, 0.25)
            k, v = (cache.k.float() / 0.5).to(kv), (cache.v.float() / 0.25).to(kv)
            k_descale, v_descale = torch.tensor([0.5]).expand(len(lengths), HKV), torch.tensor(0.25)
        q = seen = queries(sum(counts))
        out = torch.full_like(q, float("nan"))
        if q_scale is not None:
            q = (q.float() / q_scale).to(kv)
            seen = q.float() * q_scale
        function(q, k, v, out, ends_of(counts), max(counts), cache.lengths, max(lengths), SCALE, True,
                 (window - 1, 0) if window else (-1, -1), cache.table, softcap, q_scale, k_descale,
                 v_descale, alibi_slopes=slopes, sinks=sinks, **more)
        at = 0
        for row, count in enumerate(counts):
            want, _ = attention(seen[at:at + count], cache.of(k, row, scales[0]), cache.of(v, row, scales[1]), SCALE,
                                window=window, softcap=softcap, slopes=slopes, sinks=sinks,
                                root=more.get("use_alibi_sqrt", False))
            close(out[at:at + count], want, f"sequence {row}")
            at += count

    def test_verify(self):
        self.run_one([33, 18, 5], [4, 1, 2])

    def test_keys_wider_than_values(self):
        """Views of one row; the longest number of new tokens is not said."""
        wide = Pages([33, 20], HKV, 96 + D)
        k, v = wide.k[..., :96], wide.v[..., 96:]
        for counts in ([4, 20], [1, 1]):
            q = torch.randn(sum(counts), HKV * G, 96).bfloat16()
            out = torch.full((sum(counts), HKV * G, D), float("nan")).bfloat16()
            vllm.unified_attention_diffkv(q, k, v, out, ends_of(counts), wide.lengths, SCALE, True, (-1, -1), wide.table, 0.0)
            at = 0
            for row, count in enumerate(counts):
                want, _ = attention(q[at:at + count], wide.of(k, row), wide.of(v, row), SCALE)
                close(out[at:at + count], want, f"{count} tokens of sequence {row}")
                at += count

    def test_classes(self):
        """One kernel for every window and page of a multiple of 16, one without a window."""
        before, dim = set(contexts.kernels), 32  # which no other test has
        with unittest.mock.patch.dict(contexts.settings, classes=True):
            for page, window in itertools.product((16, 48), (0, 5, 20)):
                cache, q = Pages([40, 7], HKV, dim, page=page), torch.randn(2, HKV * G, dim).bfloat16()
                out = torch.empty_like(q)
                vllm.unified_attention(q, cache.k, cache.v, out, ends_of([1, 1]), 1, cache.lengths, 40, dim ** -0.5, True,
                                       (window - 1, 0) if window else (-1, -1), cache.table, 0.0, None, None, None)
                for row in range(2):
                    want, _ = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), dim ** -0.5,
                                        window=window)
                    close(out[row:row + 1], want, f"sequence {row}, pages of {page}, window {window}")
        lines = {key[1] for key in set(contexts.kernels) - before}
        self.assertEqual(sorted(re.search("page=[^,]*|$", line)[0] + re.search("window=[^,]*|$", line)[0] for line in lines),
                         ["page=x16window=off", "page=x16window=rt"])

    def test_aiter_with_everything(self):
        self.run_one([40, 7], [3, 2], aiter.unified_attention, window=16, softcap=20.0,
                     slopes=torch.rand(HKV * G), sinks=torch.randn(HKV * G))

    def test_fp8(self):
        self.run_one([33, 18], [1, 2], kv=torch.float8_e4m3fnuz)

    def test_queries_of_8_bits(self):
        """And slopes of the square root of the distance."""
        self.run_one([33, 18], [3, 1], kv=torch.float8_e4m3fnuz, q_scale=torch.tensor([0.03125]),
                     slopes=torch.rand(HKV * G), use_alibi_sqrt=True)

    def test_scales_of_each_token(self):
        """Written by the one function, read by the other."""
        lengths, counts = [33, 18], [2, 1]
        cache, q = Pages(lengths, HKV, D), queries(3)
        k, v = torch.full((2, *cache.k.shape), 77, dtype=torch.int8)
        scales = torch.full((2, *cache.k.shape[:3]), float("nan"))
        for row, length in enumerate(lengths):
            at = torch.arange(length)
            slots = cache.table[row, at // 16].long() * 16 + at % 16
            keys, values = (cache.of(x, row).bfloat16() for x in (cache.k, cache.v))
            vllm.triton_reshape_and_cache_flash_per_token_head_quant(keys, values, k, v, scales[0], scales[1], slots, 2)
        out = torch.empty_like(q)
        vllm.unified_attention(q, k, v, out, ends_of(counts), 2, cache.lengths, 33, SCALE, True, (-1, -1), cache.table,
                               0, None, None, None, kv_quant_mode=2, k_scale_cache=scales[0], v_scale_cache=scales[1],
                               use_td=True)
        for row, part in enumerate((slice(0, 2), slice(2, 3))):
            want, _ = attention(q[part], *(cache.of(x.float() * scale[..., None], row)
                                           for x, scale in ((k, scales[0]), (v, scales[1]))), SCALE)
            close(out[part], want, f"sequence {row}")
            close(out[part], attention(q[part], cache.of(cache.k, row), cache.of(cache.v, row), SCALE)[0], "int8", 6e-2)

    def test_spans_and_chunks(self):
        """Images in a prompt see their own end; chunks of 16 see one before."""
        lengths, counts = [30, 20], [30, 5]
        cache, q, out = Pages(lengths, HKV, D), queries(35), torch.empty(35, HKV * G, D, dtype=torch.bfloat16)
        given = (q, cache.k, cache.v, out, ends_of(counts), 30, cache.lengths, 30, SCALE, True)
        ranges = torch.tensor([[[4, 11], [20, 25]], [[16, 18], [0, 0]]], dtype=torch.int32)
        vllm.unified_attention(*given, (-1, -1), cache.table, 0, None, None, None, mm_prefix_range=ranges)
        for row, (part, inside) in enumerate(((slice(0, 30), ranges[0]), (slice(30, 35), ranges[1]))):
            k, v = (cache.of(x, row) for x in (cache.k, cache.v))
            for n in range(counts[row]):
                at = lengths[row] - counts[row] + n
                seen = max([at] + [last for first, last in inside.tolist() if first <= at <= last and first < last]) + 1
                want, _ = attention(q[part][n:n + 1], k[:seen], v[:seen], SCALE)
                close(out[part][n:n + 1], want, f"sequence {row}, position {at}")
        vllm.unified_attention(*given, (31, 0), cache.table, 0, None, None, None, chunk_lookback=1)
        k, v = (cache.of(x, 1) for x in (cache.k, cache.v))
        close(out[34:], attention(q[34:], k, v, SCALE)[0], "chunks")

    def test_slots_and_sums_of_16_bits(self):
        cache, q = Pages([33, 7], HKV, D), queries(2)
        out, lse = torch.empty_like(q), torch.empty(2, HKV * G, dtype=torch.bfloat16)
        vllm.decode_attention_fwd(q, cache.k, cache.v, out, lse, cache.table[..., None].long(), cache.lengths.long(), None,
                                  8, SCALE, 16)
        for row in range(2):
            want, sums = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE)
            close(out[row:row + 1], want, f"sequence {row}")
            close(lse[row], sums[:, 0], f"lse of {row}", 3e-2)

    def test_refuses(self):
        cache, q = Pages([5], HKV, D), queries(1)
        given = (q, cache.k, cache.v, torch.empty_like(q), ends_of([1]), 1, cache.lengths, 5, SCALE)
        rest = (cache.table, 0.0)
        with self.assertRaisesRegex(NotImplementedError, "q_descale"):
            vllm.unified_attention(*given, True, (-1, -1), *rest, torch.ones(1), None, None)
        with self.assertRaisesRegex(NotImplementedError, "qq_bias"):
            vllm.unified_attention(*given, True, (-1, -1), *rest, None, None, None, qq_bias=torch.ones(1, 1))
        ranges = torch.zeros(1, 1, 2, dtype=torch.int32)
        with self.assertRaisesRegex(NotImplementedError, "mm_prefix_range"):
            vllm.unified_attention(*given, True, (3, 0), *rest, None, None, None, mm_prefix_range=ranges)
        with self.assertRaisesRegex(NotImplementedError, "kv_quant_mode=4"):
            vllm.unified_attention(*given, True, (-1, -1), *rest, None, None, None, kv_quant_mode=4)
        with self.assertRaisesRegex(NotImplementedError, "brand_new"):
            vllm.unified_attention(*given, True, (-1, -1), *rest, None, None, None, brand_new=3)
        with self.assertRaisesRegex(KgenError, "cu_seqlens_q: shape"):
            vllm.unified_attention(q, cache.k, cache.v, torch.empty_like(q), ends_of([1, 1]), 1, cache.lengths, 5,
                                   SCALE, True, (-1, -1), *rest, None, None, None)


    def test_prompt(self):
        """More query tokens than verify has: chunks and decodes in one launch."""
        self.run_one([40, 18, 60], [40, 1, 19])


class Varlen(unittest.TestCase):
    def test_prompts_without_pages(self):
        counts = [21, 3]
        q, (k, v) = queries(24), torch.randn(2, 24, HKV, D).bfloat16()
        out, lse = flash.flash_attn_varlen_func(q, k, v, ends_of(counts), ends_of(counts), 21, 21, causal=True,
                                                return_attn_probs=True)
        for row in (slice(0, 21), slice(21, 24)):
            want, sums = attention(q[row], k[row], v[row], SCALE)
            close(out[row], want, f"rows {row}")
            close(lse[:, row], sums, f"lse of {row}", 1e-2)

    def test_not_causal(self):
        """Every key is seen, or those within a window on both sides; or each sequence says which."""
        counts = [21, 3]
        q, (k, v) = queries(24), torch.randn(2, 24, HKV, D).bfloat16()
        out = flash.flash_attn_varlen_func(q, k, v, ends_of(counts), ends_of(counts), 21, 21, window_size=(4, 2))
        for row in (slice(0, 21), slice(21, 24)):
            close(out[row], attention(q[row], k[row], v[row], SCALE, causal=False, window=5, right=3)[0], f"{row}")
        cache, q = Pages([30, 9], HKV, D), queries(5)
        out = torch.empty_like(q)
        vllm.unified_attention(q, cache.k, cache.v, out, ends_of([3, 2]).long(), 3, cache.lengths.long(), 30, SCALE,
                               torch.tensor([False, True]), (-1, -1), cache.table, 0.0, None, None, None)
        for row, part in enumerate((slice(0, 3), slice(3, 5))):
            want, _ = attention(q[part], cache.of(cache.k, row), cache.of(cache.v, row), SCALE, causal=row == 1)
            close(out[part], want, f"sequence {row}")

    def test_both_sides_of_a_causal_window(self):
        """As transformers passes it: nothing is seen behind a causal query, nor behind the only one."""
        counts = [21, 3]
        q, (k, v) = queries(24), torch.randn(2, 24, HKV, D).bfloat16()
        out = flash.flash_attn_varlen_func(q, k, v, ends_of(counts), ends_of(counts), 21, 21, causal=True, window_size=(6, 6))
        for row in (slice(0, 21), slice(21, 24)):
            close(out[row], attention(q[row], k[row], v[row], SCALE, window=7)[0], f"rows {row}")
        cache, q = Pages([50, 30], HKV, D), queries(2)
        for causal in (True, False):
            out = flash.flash_attn_with_kvcache(q[:, None], cache.k, cache.v, cache_seqlens=cache.lengths, block_table=cache.table,
                                                causal=causal, window_size=(6, 6))
            for row in range(2):
                want, _ = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE, window=7)
                close(out[row], want, f"sequence {row}, causal {causal}")

    def test_a_cached_prefix(self):
        cache, q = Pages([50, 30], HKV, D), queries(22)
        out = vllm.flash_attn_varlen_func(q, cache.k, cache.v, 20, ends_of([20, 2]), 50, seqused_k=cache.lengths,
                                          causal=True, block_table=cache.table, window_size=(7, 0))
        for row, part in enumerate((slice(0, 20), slice(20, 22))):
            want, _ = attention(q[part], cache.of(cache.k, row), cache.of(cache.v, row), SCALE, window=8)
            close(out[part], want, f"sequence {row}")


    def test_some_of_the_keys(self):
        q, (k, v) = queries(5), torch.randn(2, 12, HKV, D).bfloat16()
        used = torch.tensor([6, 2], dtype=torch.int32)
        out = vllm.flash_attn_varlen_func(q, k, v, 3, ends_of([3, 2]), 8, ends_of([8, 4]), used, causal=True)
        for part, keys in ((slice(0, 3), slice(0, 6)), (slice(3, 5), slice(8, 10))):
            close(out[part], attention(q[part], k[keys], v[keys], SCALE)[0], f"{part}")

    def test_a_context_in_pieces(self):
        """Fewer queries than keys; and the same in two pieces, merged in place."""
        counts, cached = [3, 2], [20, 7]
        q, (k, v) = queries(5), torch.randn(2, 27, HKV, D).bfloat16()
        whole, sums = flash.flash_attn_varlen_func(q, k, v, ends_of(counts), ends_of(cached).long().int(), 3, 20,
                                                   causal=True, return_attn_probs=True)
        old = torch.cat((torch.arange(17), torch.arange(20, 25)))
        new = torch.cat((torch.arange(17, 20), torch.arange(25, 27)))
        out, lse = flash.flash_attn_varlen_func(q, k[old], v[old], ends_of(counts), ends_of([17, 5]), 3, 17,
                                                return_attn_probs=True)
        fresh = flash.flash_attn_varlen_func(q, k[new], v[new], ends_of(counts), ends_of(counts), 3, 3, causal=True,
                                             return_attn_probs=True)
        vllm.merge_attn_states(out, out, lse, *fresh, output_lse=lse)
        close(out, whole, "merged")
        close(lse, sums, "merged lse", 1e-2)


class Merge(unittest.TestCase):
    def parts(self, tokens, dtype=torch.bfloat16):
        """Outputs and sums, of which some say of no keys; what those merge to."""
        rows, sums = torch.randn(2, tokens, HKV * G, D).to(dtype), torch.randn(2, HKV * G, tokens) * 3
        sums[0, 0, :3], sums[1, 1, :3], sums[:, 2, :3] = float("inf"), float("-inf"), float("-inf")
        weights = sums.masked_fill(sums.isinf(), float("-inf")).softmax(0).nan_to_num()
        lse = sums.masked_fill(sums.isinf(), float("-inf")).logsumexp(0)
        rows = rows.masked_fill(sums.isinf().transpose(1, 2)[..., None], float("nan"))
        merged = (rows.float().nan_to_num() * weights.transpose(1, 2)[..., None]).sum(0)
        return rows, sums, merged, lse

    def test_with_lse(self):
        for dtype in (torch.bfloat16, torch.float32):
            rows, sums, merged, want = self.parts(9, dtype)
            out, lse = torch.empty_like(rows[0]), torch.empty_like(sums[0])
            vllm.merge_attn_states(out, rows[0], sums[0], rows[1], sums[1], lse)
            close(out, merged, f"{dtype}")
            self.assertTrue(torch.allclose(lse, want, atol=1e-5))

    def test_tokens_of_the_suffix(self):
        rows, sums, merged, want = self.parts(9)
        out, lse = torch.empty_like(rows[0]), torch.empty_like(sums[0])
        vllm.merge_attn_states(out, rows[0], sums[0], rows[1], sums[1], lse, prefill_tokens_with_context=5)
        close(out[:5], merged[:5], "merged")
        self.assertTrue(torch.equal(out[5:], rows[1, 5:]) and torch.equal(lse[:, 5:], sums[1, :, 5:]))
        self.assertTrue(torch.allclose(lse[:, :5], want[:, :5], atol=1e-5))

    def test_padded_heads_and_sums_by_token(self):
        rows, sums, merged, want = self.parts(7)
        padded = torch.full((2, 7, HKV * G, 2 * D), float("nan"), dtype=torch.bfloat16)
        padded[..., :D] = rows
        sums = sums.transpose(1, 2).contiguous().transpose(1, 2)
        out, lse = torch.empty_like(rows[0]), torch.empty_like(sums[0])
        vllm.merge_attn_states(out, padded[0, ..., :D], sums[0], padded[1, ..., :D], sums[1], lse)
        close(out, merged, "merged")
        self.assertTrue(torch.allclose(lse, want, atol=1e-5))

    def test_fp8(self):
        rows, sums, merged, _ = self.parts(9)
        out = torch.empty(9, HKV * G, D, dtype=torch.float8_e4m3fnuz)
        vllm.merge_attn_states(out, rows[0], sums[0], rows[1], sums[1], output_scale=torch.tensor([0.05]))
        close(out.float() * 0.05, merged, "merged", 0.25)

    def test_refuses(self):
        rows, sums, _, _ = self.parts(4)
        with self.assertRaisesRegex(KgenError, "suffix: shape"):
            vllm.merge_attn_states(rows[0], rows[0], sums[0], rows[1, :3], sums[1])
        with self.assertRaisesRegex(KgenError, "out_scale: given"):
            vllm.merge_attn_states(rows[0], rows[0], sums[0], rows[1], sums[1], output_scale=torch.ones(1))
        with self.assertRaisesRegex(NotImplementedError, "d=100"):
            wide = torch.randn(2, 4, HKV * G, 100).bfloat16()
            vllm.merge_attn_states(wide[0], wide[0], sums[0], wide[1], sums[1])


class PagedV1(unittest.TestCase):
    def test_decode(self):
        cache, q = Pages([33, 7], HKV, D), queries(2)
        out = torch.empty_like(q)
        for starts in (None, ends_of([1, 1]), ends_of([1])):  # the last without its end, as vLLM passes it
            out.fill_(float("nan"))
            aiter.paged_attention_v1(out, None, q, cache.k, cache.v, SCALE, cache.table, starts, cache.lengths, 33,
                                     None, "auto", "NHD", 0.0, torch.tensor(1.0), torch.tensor(1.0))
            for row in range(2):
                want, _ = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE)
                close(out[row:row + 1], want, f"sequence {row}")

    def test_pages_by_heads(self):
        """With a scale for all, and one for each token and head."""
        cache, q, slopes = Pages([33, 7], HKV, D), queries(2), torch.rand(HKV * G)
        k, v = (x.transpose(1, 2).contiguous().float() for x in (cache.k, cache.v))
        each = torch.rand(k.shape[:3]) + 0.5
        for scale in (torch.tensor([0.5]), each):
            wide = scale[..., None] if scale.numel() > 1 else scale
            narrow = [(x / wide).to(torch.float8_e4m3fnuz) for x in (k, v)]
            seen = [(x.float() * wide).transpose(1, 2) for x in narrow]
            out = torch.empty_like(q)
            aiter.paged_attention_decode(out, q, *narrow, cache.lengths, cache.table, SCALE, 33, None, scale, scale,
                                         alibi_slopes=slopes)
            for row in range(2):
                want, _ = attention(q[row:row + 1], cache.of(seen[0], row), cache.of(seen[1], row), SCALE, slopes=slopes)
                close(out[row:row + 1], want, f"sequence {row}, {scale.numel()} scales")

    def test_queries_of_int8(self):
        """Beside the same numbers as bf16, to the bit."""
        cache, q = Pages([33, 7], HKV, D), (queries(2) * 20).clamp(-127, 127).to(torch.int8)
        k, v = ((x.transpose(1, 2) * 20).clamp(-127, 127).to(torch.int8).contiguous() for x in (cache.k, cache.v))
        scale, out = torch.tensor([0.05]), torch.empty(2, *q.shape, dtype=torch.bfloat16)
        for rows, given in zip(out, (q, q.bfloat16())):
            aiter.paged_attention_decode(rows, given, k, v, cache.lengths, cache.table, SCALE / 20, 33, None, scale, scale)
        seen = [x.float().transpose(1, 2) * 0.05 for x in (k, v)]
        want, _ = attention(q[:1].bfloat16(), cache.of(seen[0], 0), cache.of(seen[1], 0), SCALE / 20)
        close(out[0, :1], want, "int8")
        self.assertTrue(torch.equal(*out))

    def test_slopes_before_the_cap(self):
        cache, q, slopes = Pages([33, 7], HKV, D), queries(2) * 4, torch.rand(HKV * G)
        out = torch.empty_like(q)
        aiter.paged_attention_v1(out, None, q, cache.k.transpose(1, 2).contiguous(),
                                 cache.v.transpose(1, 2).contiguous(), SCALE, cache.table, None, cache.lengths, 33,
                                 slopes, "auto", "HND", 5.0, torch.tensor(1.0), torch.tensor(1.0))
        for row in range(2):
            want, _ = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE,
                                softcap=5.0, slopes=slopes, cap_last=True)
            close(out[row:row + 1], want, f"sequence {row}")


    def test_pages_in_one_list(self):
        cache, q = Pages([33, 7, 0], HKV, D), queries(3)
        out, counts = torch.empty_like(q), [3, 1, 0]
        pages = torch.cat([cache.table[row, :count] for row, count in enumerate(counts)])
        given = (q, cache.k, cache.v, SCALE, ends_of(counts), pages, torch.tensor([1, 7, 0], dtype=torch.int32), 16, 1, None,
                 "auto", "NHD", 0.0, torch.tensor(1.0), torch.tensor(1.0))
        aiter.paged_attention_ragged(out, None, *given)
        for row in range(2):
            want, _ = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE)
            close(out[row:row + 1], want, f"sequence {row}")
        self.assertTrue((out[2] == 0).all())
        with self.assertRaisesRegex(NotImplementedError, "mtp=2"):
            aiter.paged_attention_ragged(out, None, *given, mtp=2)


class Flash(unittest.TestCase):
    def test_decode_with_lse(self):
        cache, q = Pages([33, 7], HKV, D), queries(2)
        out, lse = flash.flash_attn_with_kvcache(q[:, None], cache.k, cache.v, cache_seqlens=cache.lengths,
                                                 block_table=cache.table, causal=True, return_softmax_lse=True)
        for row in range(2):
            want, sums = attention(q[row:row + 1], cache.of(cache.k, row), cache.of(cache.v, row), SCALE)
            close(out[row], want, f"sequence {row}")
            close(lse[row], sums, f"lse of {row}", 1e-2)

    def test_new_keys_rotated_and_appended(self):
        cache, tokens = torch.randn(2, 32, HKV, D).bfloat16(), 2
        q, k, v = queries(4).view(2, 2, HKV * G, D), *torch.randn(2, 2, tokens, HKV, D).bfloat16()
        angles = torch.rand(40, D // 2) * 3
        cos, sin = angles.cos(), angles.sin()
        used = torch.tensor([5, 20], dtype=torch.int32)
        k_cache, v_cache = cache.clone(), cache.clone()
        out = flash.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cos, sin, used, causal=True,
                                            rotary_interleaved=False)

        def rotated(x, at):
            c, s = cos[at:at + tokens, None], sin[at:at + tokens, None]
            low, high = x.float().chunk(2, -1)
            return torch.cat((low * c - high * s, high * c + low * s), -1)

        for row, at in enumerate(used.tolist()):
            keys = torch.cat((cache[row, :at].float(), rotated(k[row], at)))
            values = torch.cat((cache[row, :at], v[row]))
            close(k_cache[row, at:at + tokens], rotated(k[row], at), "written keys")
            self.assertTrue(torch.equal(v_cache[row, at:at + tokens], v[row]))
            want, _ = attention(rotated(q[row], at), keys, values, SCALE)
            close(out[row], want, f"sequence {row}", 4e-2)

    def test_sinks_of_the_models_type(self):
        cache, q, sinks = Pages([33, 7], HKV, D), queries(2), torch.randn(HKV * G).bfloat16()
        given = {"cache_seqlens": cache.lengths, "block_table": cache.table, "causal": True}
        got = [flash.flash_attn_with_kvcache(q[:, None], cache.k, cache.v, **given, s_aux=s) for s in (sinks, sinks.float())]
        without = flash.flash_attn_with_kvcache(q[:, None], cache.k, cache.v, **given)
        self.assertTrue(torch.equal(*got) and not torch.equal(got[0], without))

    def test_refuses(self):
        cache, q = Pages([5], HKV, D), queries(2)
        new, turned = torch.randn(1, 2, HKV, D).bfloat16(), torch.rand(40, D // 2)
        with self.assertRaisesRegex(NotImplementedError, "rotary_cos, causal=False"):
            flash.flash_attn_with_kvcache(q[None], cache.k, cache.v, new, new, turned, turned, 3, block_table=cache.table)
        with self.assertRaisesRegex(NotImplementedError, "cache_leftpad"):
            flash.flash_attn_with_kvcache(q[None], cache.k, cache.v, cache_seqlens=5, cache_leftpad=cache.lengths)
        with self.assertRaisesRegex(NotImplementedError, "cache_seqlens=None"):
            flash.flash_attn_with_kvcache(q[None], cache.k, cache.v, block_table=cache.table)
        with self.assertRaisesRegex(NotImplementedError, "dropout_p"):
            flash.flash_attn_varlen_func(q, cache.k, cache.v, ends_of([2]), ends_of([5]), 2, 5, dropout_p=0.1)


class Caches(unittest.TestCase):
    def test_flash_layout(self):
        packed = torch.randn(6, 3, HKV, D).bfloat16()  # padded rows of qkv
        key, value = packed[:, 1], packed[:, 2]
        slots = torch.tensor([5, -1, 40, 17])
        caches = torch.zeros(2, 3, 16, HKV, D, dtype=torch.bfloat16)
        vllm.reshape_and_cache_flash(key, value, caches[0], caches[1], slots, "auto", torch.ones(()), torch.ones(()))
        want = torch.zeros_like(caches)
        for row, slot in enumerate(slots.tolist()):
            if slot >= 0:
                want[0, slot // 16, slot % 16], want[1, slot // 16, slot % 16] = key[row], value[row]
        self.assertTrue(torch.equal(caches, want))

    def test_rows_at_odd_places(self):
        """Addresses that are multiples of 2 bytes alone; and pages [NB][Hkv][D/x][page][x] beside [NB][Hkv][D][page]."""
        packed = torch.randn(3, 2 * HKV * D + 1).bfloat16()
        key, value = (packed[:, 1 + n * HKV * D:][:, :HKV * D].view(3, HKV, D) for n in range(2))
        caches = torch.zeros(2, 1, 16, HKV, D, dtype=torch.bfloat16)
        vllm.triton_reshape_and_cache_flash(key, value, caches[0], caches[1], torch.arange(3), "auto", None, None)
        self.assertTrue(torch.equal(caches[0, 0, :3], key) and torch.equal(caches[1, 0, :3], value))
        k, v = torch.zeros(1, HKV, D // 8, 16, 8).bfloat16(), torch.zeros(1, HKV, D, 16).bfloat16()
        vllm.reshape_and_cache(key.contiguous(), value.contiguous(), k, v, torch.arange(3), "auto", None, None)
        self.assertTrue(torch.equal(k[0].permute(2, 0, 1, 3).flatten(2)[:3], key))
        self.assertTrue(torch.equal(v[0].permute(2, 0, 1)[:3], value))

    def test_packed_pages(self):
        """vLLM's own kernel of ROCm, on what reshape_and_cache has written: values by dims, and with tokens side by side."""
        tokens, q, lengths = [37, 5], queries(2), torch.tensor([37, 5], dtype=torch.int32)
        rows, table = torch.randn(2, 42, HKV, D).bfloat16(), torch.tensor([[4, 0, 2], [3, 1, 1]], dtype=torch.int32)
        slots = torch.tensor([int(table[s, t // 16]) * 16 + t % 16 for s, count in enumerate(tokens) for t in range(count)])
        for interleaved in (False, True):
            k, v = torch.zeros(5, HKV, D // 8, 16, 8).bfloat16(), torch.zeros(5, HKV, D, 16).bfloat16()
            vllm.reshape_and_cache(rows[0], rows[1], k, v, slots, "auto", None, None, interleaved)
            twice = torch.zeros_like(v)
            vllm.triton_reshape_and_cache_flash(rows[0], rows[1], torch.zeros_like(k), twice, slots, "auto", None, None,
                                                8 if interleaved else 0)
            self.assertTrue(torch.equal(v, twice))
            self.assertTrue(torch.equal(v[4].view(HKV, 2, D, 8)[:, 0, :, 3] if interleaved else v[4, :, :, 3], rows[1, 3]))
            out = torch.empty_like(q)
            given = (out, None, None, None, q, k, v, HKV, SCALE, table, lengths)
            vllm.paged_attention_rocm(*given, None, 16, 37, None, "auto", None, None, use_interleaved_v_cache=interleaved)
            for row, (first, last) in enumerate(((0, 37), (37, 42))):
                want, _ = attention(q[row:row + 1], rows[0, first:last], rows[1, first:last], SCALE)
                close(out[row:row + 1], want, f"sequence {row}, interleaved {interleaved}")
        with self.assertRaisesRegex(NotImplementedError, "query_start_loc: 2 tokens of 1"):
            vllm.paged_attention_rocm(*given[:-1], lengths[:1], ends_of([2]), 16, 37, None, "auto", None, None)
        with self.assertRaisesRegex(NotImplementedError, "interleaved_v_pack_factor=4"):
            vllm.triton_reshape_and_cache_flash(rows[0], rows[1], k, v, slots, "auto", None, None, 4)

    def test_latent_rows(self):
        """Written, and gathered: as they are, and out of 8 bits."""
        latent, rope, scale = torch.randn(20, 256).bfloat16(), torch.randn(20, 64).bfloat16(), torch.tensor([0.05])
        rows, table, starts = torch.cat((latent, rope), 1), torch.tensor([[2, 1]], dtype=torch.int32), torch.tensor([7])
        slots = torch.cat((32 + torch.arange(16), 16 + torch.arange(4)))
        for cache in (torch.zeros(3, 16, 320).bfloat16(), torch.zeros(3, 16, 320, dtype=torch.float8_e4m3fnuz)):
            eight = cache.element_size() == 1
            vllm.concat_and_cache_mla(latent, rope, cache, slots, "fp8" if eight else "auto", scale)
            out = torch.zeros(9, 320, dtype=cache.dtype)
            vllm.cp_gather_cache(cache, out, table, ends_of([9]), 1, starts)
            self.assertTrue(torch.equal(out.view(torch.uint8), cache.view(torch.uint8).flatten(0, 1)[slots[7:16]]))
            wide = torch.zeros(9, 320).bfloat16()
            vllm.gather_and_maybe_dequant_cache(cache, wide, table, ends_of([9]), None, 9, "fp8" if eight else "auto", scale,
                                                starts)
            close(wide, rows[7:16], f"{cache.dtype}", 0.2 if eight else 0)
        with self.assertRaisesRegex(NotImplementedError, "odd addresses"):
            bytes_of = torch.zeros(3 * 16 * 320 + 1, dtype=torch.uint8)[1:].view(3, 16, 320)
            vllm.cp_gather_cache(bytes_of, out, table, ends_of([9]), 1)
        with self.assertRaisesRegex(NotImplementedError, "rows of 100"):
            vllm.cp_gather_cache(torch.zeros(3, 16, 100).bfloat16(), wide, table, ends_of([9]), 1)

    def test_latent_rows_with_scales(self):
        """512 codes, 4 scales that are powers of two, 64 dims of the rope part; without one zeros."""
        latent, rope = torch.randn(20, 512).bfloat16() * torch.rand(20, 1).mul(12).sub(10).exp2().bfloat16(), torch.randn(20, 64).bfloat16()
        latent[3, :128] = 0
        cache, wide = torch.full((3, 16, 656), 0xff, dtype=torch.uint8), torch.zeros(9, 576).bfloat16()
        slots = torch.cat((32 + torch.arange(16), 16 + torch.arange(3), torch.tensor([-1])))
        vllm.concat_and_cache_mla(latent, rope, cache, slots, "fp8_ds_mla", None)
        rows, most = cache.flatten(0, 1)[slots[:19]], torch.finfo(torch.float8_e4m3fnuz).max
        scales = rows[:, 512:528].view(torch.float32)
        amax = latent[:19].float().unflatten(1, (4, 128)).abs().amax(2)
        self.assertTrue(torch.equal(scales, (amax.double() / most).log2().ceil().clamp(min=-13).exp2().float()))
        codes = (latent[:19].float().unflatten(1, (4, 128)) / scales[..., None]).to(torch.float8_e4m3fnuz)
        self.assertTrue(torch.equal(rows[:, :512].view(torch.float8_e4m3fnuz).float(), codes.flatten(1).float()))
        self.assertTrue(torch.equal(rows[:, 528:].view(torch.bfloat16), rope[:19]))
        self.assertTrue((cache[0] == 0xff).all() and (cache[1, 3:] == 0xff).all())
        vllm.cp_gather_and_upconvert_fp8_kv_cache(cache, wide, torch.tensor([[2, 1], [1, 0]], dtype=torch.int32),
                                                  torch.tensor([0, 7], dtype=torch.int32), 2,
                                                  torch.tensor([10, 1], dtype=torch.int32))
        seen = torch.cat((torch.arange(10, 17), torch.arange(17, 19)))
        read = (codes.float() * scales[..., None]).flatten(1)[seen].bfloat16()
        self.assertTrue(torch.equal(wide, torch.cat((read, rope[seen]), 1)))
        vllm.concat_and_cache_mla(latent, rope[:, :0], cache, slots, "fp8_ds_mla", None)
        self.assertTrue((cache.flatten(0, 1)[slots[:19], 528:] == 0).all())
        with self.assertRaisesRegex(NotImplementedError, "rows of 640"):
            vllm.concat_and_cache_mla(latent, rope, cache[..., :640], slots, "fp8_ds_mla", None)

    def test_whole_pages(self):
        pages, after = torch.randn(6, 2, 16, 8).bfloat16(), torch.zeros(6, 2, 16, 8).bfloat16()
        vllm.swap_blocks(pages, after, 512, torch.tensor([[0, 5], [4, 1]]))
        self.assertTrue(torch.equal(after[[5, 1]], pages[[0, 4]]) and (after[[0, 2, 3, 4]] == 0).all())
        vllm.copy_blocks([after], [pages], torch.tensor([[5, 3]]))
        self.assertTrue(torch.equal(after[3], after[5]) and torch.equal(pages[3], pages[5]))

    def test_rejected_drafts(self):
        """Of 3, 0 and 2 drafts: by the target's tokens; by probabilities that decide, and a row that is greedy."""
        ends, drafts = torch.tensor([3, 3, 5], dtype=torch.int32), torch.tensor([1, 2, 3, 4, 5], dtype=torch.int32)
        bonus, counts = torch.tensor([[7], [8], [9]], dtype=torch.int32), [3, 0, 2]
        logits = torch.full((5, 10), -100.0)
        logits[torch.arange(5), torch.tensor([1, 6, 3, 4, 5])] = 100.0
        want = [[1, 6, -1, -1], [8, -1, -1, -1], [4, 5, 9, -1]]
        for all_greedy, temperature in ((True, None), (False, torch.ones(3)), (False, torch.tensor([0.0, 1, 0]))):
            how = types.SimpleNamespace(all_greedy=all_greedy, all_random=temperature is not None and bool((temperature > 0).all()),
                                        temperature=temperature, generators={0: torch.Generator().manual_seed(3)})
            got = vllm.rejection_sample(drafts, counts, 3, ends, None, logits, bonus, how)
            self.assertEqual(got.tolist(), want)
        how.all_random = False
        certain = torch.zeros(5, 10).scatter_(1, drafts.long()[:, None], 1.0)
        self.assertEqual(vllm.rejection_sample(drafts, counts, 3, ends, certain, logits, bonus, how).tolist(), want)
        with self.assertRaisesRegex(NotImplementedError, "synthetic_mode"):
            vllm.rejection_sample(drafts, counts, 3, ends, None, logits, bonus, how, synthetic_mode=True)

    def test_next_draft_step(self):
        lens, positions = torch.tensor([5, 40], dtype=torch.int32), torch.tensor([4, 39])
        table, after, slots = torch.tensor([[3, 1, 2], [7, 5, 6]], dtype=torch.int32), torch.zeros(2).long(), torch.zeros(3).long()
        vllm.eagle_step_update_slot_mapping_and_metadata(positions, table, lens, 16, 40, after, slots, 3)
        self.assertEqual([lens.tolist(), after.tolist(), slots.tolist()], [[6, 1], [5, 0], [53, -1, -1]])

    def test_next_draft_step_by_its_kernel(self):
        lens, positions = torch.tensor([5, 40, 7], dtype=torch.int32), torch.tensor([4, 39, 6])
        table, after, slots = torch.tensor([[3, 1, 2], [7, 5, 6]], dtype=torch.int32), torch.zeros(2).long(), torch.zeros(3).long()
        given = (positions, table, 3, lens, after, slots)
        named = {"block_size": 16, "max_model_len": 40, "n_blocks_per_req": 3, "batch_size": 2}
        vllm.eagle_step_slot_mapping_metadata_kernel[(3,)](*given, **named, PAD_ID=-1)
        self.assertEqual([lens.tolist(), after.tolist(), slots.tolist()], [[6, 1, 7], [5, 0], [53, -1, -1]])
        with self.assertRaisesRegex(NotImplementedError, "PAD_ID"):
            vllm.eagle_step_slot_mapping_metadata_kernel[(3,)](*given, **named, PAD_ID=0)

    def test_inputs_of_a_padded_drafter(self):
        """Three requests: 3 drafts of which 1 stays, none, 2 of which all stay; a fourth row is of nobody."""
        ends, starts = torch.tensor([3, 3, 5, 9], dtype=torch.int32), torch.tensor([0, 4, 5, 8, 99], dtype=torch.int32)
        valid = torch.tensor([2, 1, 3, 9], dtype=torch.int32)
        sample, rejected = torch.full((2, 4), -7, dtype=torch.int32)
        vllm.eagle_prepare_inputs_padded_kernel[(3,)](ends, valid, starts, sample, rejected, 3)
        self.assertEqual([sample.tolist(), rejected.tolist()], [[1, 4, 7, -7], [2, 0, 0, -7]])

    def test_next_tokens_of_a_padded_drafter(self):
        rows = torch.tensor([[5, 6, -1], [-1, -1, -1], [9, 99, 4], [3, 3, 3]], dtype=torch.int32)
        discarded, backup = torch.tensor([False, False, False, True]), torch.tensor([70, 71, 72, 73], dtype=torch.int32)
        after, counts = torch.full((2, 4), -7, dtype=torch.int32)
        vllm.eagle_prepare_next_token_padded_kernel[(4,)](rows, discarded, backup, after, counts, 50, 3, 4, 3, BLOCK_SIZE_TOKENS=4)
        self.assertEqual([after.tolist(), counts.tolist()], [[6, 71, 4, 73], [2, 0, 2, 0]])

    def test_slot_mapping(self):
        """Two requests of a table of three, and padding; then as rank 1 of 2, tokens in turn."""
        starts, positions = torch.tensor([0, 2, 5], dtype=torch.int32), torch.tensor([15, 16, 0, 1, 33])
        table = torch.tensor([[3, 1, 2], [7, 5, 6], [8, 9, 9]], dtype=torch.int32)
        slots = torch.full((9,), -7)
        vllm.compute_slot_mapping(2, 5, 7, starts, positions, table, 3, slots, 16)
        self.assertEqual(slots.tolist(), [63, 16, 112, 113, 97, -1, -1, -7, -7])
        narrow = torch.full((9,), -7)  # what is written has its own width, whatever is read beside it
        vllm.compute_slot_mapping(2, 5, 7, starts, positions.int(), table, 3, narrow, 16)
        self.assertTrue(torch.equal(narrow, slots))
        with self.assertRaisesRegex(NotImplementedError, "positions_out: torch.int32, .* is torch.int64"):
            vllm.eagle_step_update_slot_mapping_and_metadata(positions[:2], table[:2], starts[1:], 16, 40, starts[:2], slots)
        slots.fill_(-7)
        vllm._compute_slot_mapping_kernel[(3,)](5, 7, starts, positions, table, 3, slots, KV_CACHE_BLOCK_SIZE=16, TOTAL_CP_WORLD_SIZE=2,
                                                TOTAL_CP_RANK=1, CP_KV_CACHE_INTERLEAVE_SIZE=1, PAD_ID=-1, BLOCK_SIZE=1024)
        self.assertEqual(slots.tolist(), [55, -1, -1, 112, 80, -1, -1, -7, -7])

    def test_pages_of_a_table(self):
        table, ends = torch.tensor([[3, 1, 2], [7, 5, 6]], dtype=torch.int32), torch.tensor([0, 2, 5], dtype=torch.int32)
        pages = torch.full((6,), -7, dtype=torch.int32)
        vllm._copy_page_indices_kernel[(2,)](pages, table, 3, ends, BLOCK_SIZE=1024)
        self.assertEqual(pages.tolist(), [3, 1, 7, 5, 6, -7])

    def test_values_of_tokens(self):
        """Of 3, 0 and 2 tokens, types of 4 and 8 bytes, one of them replaced; then with a row of nobody."""
        ends = torch.tensor([3, 3, 5], dtype=torch.int32)
        for values, change in ((torch.tensor([0.5, 7.0, 0.0]), (0, 1)), (torch.tensor([-1, 3, 9]), (-1, 1 << 40))):
            want = torch.where(values == change[0], change[1], values)[[0, 0, 0, 2, 2]]
            self.assertTrue(torch.equal(vllm.expand_batch_to_tokens(values, ends, 5, *change), want))
            longer = torch.full((6,), 99, dtype=values.dtype)
            vllm.expand_kernel[(3,)](longer, values, ends, *change, MAX_NUM_TOKENS=32)
            self.assertTrue(torch.equal(longer, torch.cat((want, want.new_zeros(1)))))

    def test_initial_states(self):
        pool = torch.randn(5, 7, 6, 3)[:, :4]  # rows with room behind them
        has, rows = torch.tensor([True, False, True]), torch.tensor([4, 2, 0], dtype=torch.int32)
        for state in (pool, pool.bfloat16(), pool.contiguous()):
            got = vllm.gather_initial_states(state, rows, has)
            self.assertTrue(torch.equal(got, state[rows.long()] * has[:, None, None, None]))
        with self.assertRaisesRegex(NotImplementedError, "state: strides"):
            vllm.gather_initial_states(pool.transpose(1, 2), rows, has)

    def test_bytes_as_fp8(self):
        key, value = torch.randn(2, 3, HKV, D).bfloat16()
        caches = torch.zeros(2, 1, 16, HKV, D, dtype=torch.uint8)
        scale = torch.tensor([0.5])
        vllm.reshape_and_cache_flash(key, value, caches[0], caches[1], torch.arange(3), "fp8", scale, scale)
        want = (key.float() / 0.5).to(torch.float8_e4m3fnuz)
        self.assertTrue(torch.equal(caches[0, 0, :3], want.view(torch.uint8)))

    def test_shuffled_and_gathered(self):
        key, value = torch.randn(2, 20, HKV, D).bfloat16()
        k_cache, v_cache = torch.zeros(2, 4, 16, HKV, D, dtype=torch.bfloat16)
        table = torch.tensor([[3, 1]], dtype=torch.int32)
        slots = torch.cat((48 + torch.arange(16), 16 + torch.arange(4)))
        vllm.reshape_and_cache_shuffle_triton(key, value, k_cache, v_cache, slots, "auto", None, None)
        rows = torch.full((2, 12, HKV, D), float("nan"), dtype=torch.bfloat16)
        vllm.cp_mha_gather_cache(k_cache, v_cache, rows[0], rows[1], table, None, None, ends_of([9]), None,
                                 torch.tensor([7], dtype=torch.int32), False, "SHUFFLE", 9)
        self.assertTrue(torch.equal(rows[0, :9], key[7:16]) and torch.equal(rows[1, :9], value[7:16]))
        self.assertTrue(rows[:, 9:].isnan().all())

    def test_refuses(self):
        key, cache = torch.randn(3, HKV, D).bfloat16(), torch.zeros(1, 16, HKV, D).bfloat16()
        with self.assertRaisesRegex(NotImplementedError, "kv_cache_dtype=int4"):
            vllm.reshape_and_cache_flash(key, key, cache, cache, torch.arange(3), "int4_per_token_head", None, None)
        with self.assertRaisesRegex(ValueError, "kv_cache_dtype=fp8"):
            vllm.reshape_and_cache_flash(key, key, cache, cache, torch.arange(3), "fp8", None, None)
        with self.assertRaisesRegex(KgenError, "slots: dtype|k: shape|k_cache"):
            vllm.reshape_and_cache_flash(key, key, cache[:, :, :1], cache, torch.arange(3), "auto", None, None)


if __name__ == "__main__":
    sys.exit(unittest.main())
