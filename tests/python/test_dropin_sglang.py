"""SGLang's drop-ins beside Python's own loops, on the cpu device. Run by with_torch.sh."""
import sys
import unittest

import torch
from references import attention, close, delta_rule, gates

import kgen
from kgen.dropin import common, sglang


class Reference(unittest.TestCase):
    def test_rounding_of_large_values(self):
        """One number more than 4 of a normal distribution's is rounded by up to 1/64 in bf16; that is nobody's fault."""
        want = torch.tensor([-4.0772, 0.3, 4.0078])
        close(want.bfloat16(), want, "rounded", 1e-3)
        for off in (torch.tensor([0.0, 0.0, 0.02]), torch.tensor([0.0, 0.004, 0.0]), torch.full((3,), float("nan"))):
            self.assertRaises(AssertionError, close, (want + off).bfloat16(), want, "off", 1e-3)


class Merge(unittest.TestCase):
    def test_two_parts(self):
        rows, sums = torch.randn(2, 5, 4, 64).bfloat16(), torch.randn(2, 5, 4)
        want = (rows.float() * sums.softmax(0)[..., None]).sum(0)
        out, lse = sglang.merge_state_v2(rows[0], sums[0], rows[1], sums[1])
        close(out, want, "merged")
        close(lse, sums.logsumexp(0), "merged lse", 1e-5)
        same = sglang.merge_state_v2(rows[0], sums[0], rows[1], sums[1], rows[1], sums[1])
        self.assertTrue(same[0] is not out and torch.equal(rows[1], out) and torch.equal(sums[1], lse))

    def test_sums_to_base_two(self):
        rows, sums = torch.randn(2, 5, 4, 64).bfloat16(), torch.randn(2, 5, 4) * 3
        parts = sums.double().exp2()
        out, lse = sglang.merge_state(rows[0], sums[0], rows[1], sums[1])
        close(out, (rows.double() * (parts / parts.sum(0))[..., None]).sum(0), "merged")
        close(lse, parts.sum(0).log2(), "merged lse", 1e-5)
        sglang.merge_state(rows[0], sums[0], rows[1], sums[1], rows[1], sums[1])
        self.assertTrue(torch.equal(rows[1], out) and torch.equal(sums[1], lse))


class Decode(unittest.TestCase):
    def test_listed_slots(self):
        """Ten heads of five groups, slots of either width; a cap and sinks; a sequence without keys."""
        q, pool, sinks = torch.randn(3, 10, 64).bfloat16(), torch.randn(2, 30, 5, 64).bfloat16(), torch.randn(10)
        ends, slots = torch.tensor([0, 7, 7, 18, 99], dtype=torch.int32), torch.randperm(30)[:18]
        for indices, cap, sink in ((slots, 0.0, None), (slots.int(), 5.0, sinks)):
            out = torch.full_like(q, float("nan"))
            sglang.decode_attention_fwd(q, *pool, out, ends, indices, None, None, None, 8, 0.125, logit_cap=cap, sinks=sink)
            for s in range(3):
                k, v = (x[slots[ends[s]:ends[s + 1]]].float().repeat_interleave(2, 1) for x in pool)
                scores = torch.einsum("hd,khd->hk", q[s].float(), k) * 0.125
                scores = cap * (scores / cap).tanh() if cap else scores
                more = torch.zeros(10, 0) if sink is None else sink[:, None]
                shares = torch.cat((scores, more), 1).softmax(1)[:, :len(k)]
                close(out[s], torch.einsum("hk,khd->hd", shares, v), f"decode {s}")
        with self.assertRaisesRegex(NotImplementedError, "xai_temperature_len"):
            sglang.decode_attention_fwd(q, *pool, out, ends, slots, None, None, None, 8, 0.125, xai_temperature_len=4)
        with self.assertRaisesRegex(NotImplementedError, "v_scale=2.0"):
            sglang.decode_attention_fwd(q, *pool, out, ends, slots, None, None, None, 8, 0.125, 1.0, 2.0)

    def test_scales(self):
        """Of a cache of 8 bits both, of one of 16 bits the keys'; the inner functions have that in the scale."""
        q, pool = torch.randn(2, 4, 64).bfloat16(), torch.randn(2, 20, 2, 64)
        ends, slots = torch.tensor([0, 7, 18]), torch.randperm(20)[:18]
        for dtype, v_scale in ((torch.float8_e4m3fnuz, 0.25), (torch.bfloat16, 1.0)):
            cache, out, inner = pool.to(dtype), torch.empty_like(q), torch.empty_like(q)
            rest = (None, None, None, 8)
            sglang.decode_attention_fwd(q, *cache, out, ends, slots, *rest, 0.125, 2.0, v_scale)
            sglang.decode_attention_fwd_grouped(q, *cache, inner, ends, slots, *rest, 0.25, v_scale)
            for s in range(2):
                k, v = cache[:, slots[ends[s]:ends[s + 1]]].float()
                want, _ = attention(q[s:s + 1], k, v * v_scale, 0.25)
                close(out[s:s + 1], want, f"decode {dtype}")
                close(inner[s:s + 1], want, f"inner decode {dtype}")


class Extend(unittest.TestCase):
    """Sequences with listed slots and new tokens, with new ones alone, with one of each; slots of nobody are NaN."""

    def setUp(self):
        self.before, self.new = [37, 0, 1, 90], [5, 20, 1, 33]
        self.ends, self.starts = (torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int() for lengths in (self.before, self.new))
        self.slots = torch.randperm(200)[:sum(self.before)]
        self.pool = torch.full((2, 200, 2, 64), float("nan"))
        self.pool[:, self.slots] = torch.randn(2, len(self.slots), 2, 64)
        self.pool = self.pool.bfloat16()
        self.fresh, self.q = torch.randn(2, sum(self.new), 2, 64).bfloat16(), torch.randn(sum(self.new), 4, 64).bfloat16()

    def run_it(self, mask=None, causal=True, mask_at=None, ends=None, slots=None, **more):
        out = torch.full_like(self.q, float("nan"))
        sglang.extend_attention_fwd(self.q, *self.fresh, out, *more.pop("pool", self.pool), self.starts, self.ends if ends is None else ends,
                                    self.slots if slots is None else slots, mask, causal, mask_at, max(self.new), **more)
        return out

    def sequences(self):
        """Rows of queries, listed and new keys and values."""
        for s in range(4):
            rows, of = slice(self.starts[s], self.starts[s + 1]), self.slots[self.ends[s]:self.ends[s + 1]]
            yield rows, self.pool[:, of].float(), self.fresh[:, rows].float()

    def check(self, out, lse=None, tolerance=1e-2, scale=0.125, **more):
        for rows, listed, new in self.sequences():
            want, sums = attention(self.q[rows], *torch.cat((listed, new), 1), scale, **more)
            close(out[rows], want, f"extend {more}", tolerance)
            if lse is not None:
                close(lse[rows], sums.t(), f"sums {more}", 1e-2)

    def test_both_parts(self):
        sinks, ends = torch.randn(4), torch.cat((self.ends, torch.tensor([999], dtype=torch.int32)))  # of a larger batch
        lse = torch.full((sum(self.new), 4), float("nan"))
        self.check(self.run_it(lse_extend=lse, ends=ends), lse)
        self.check(self.run_it(slots=self.slots.int(), logit_cap=3.0, sinks=sinks, lse_extend=lse, sm_scale=0.2), lse,
                   scale=0.2, softcap=3.0, sinks=sinks)
        self.check(self.run_it(causal=False, lse_extend=lse), lse, causal=False)

    def test_windows(self):
        for size in (1, 40):
            lse, sinks = torch.full((sum(self.new), 4), float("nan")), torch.randn(4)
            stale = torch.cat((self.slots, torch.tensor([1 << 40, -5])))  # behind the last end
            out = self.run_it(slots=stale, sliding_window_size=size, sinks=sinks, lse_extend=lse)
            self.check(out, lse, window=size + 1, sinks=sinks)
            self.check(self.run_it(causal=False, sliding_window_size=size), causal=False, window=size + 1, right=size + 1)

    def test_one_part(self):
        """Rows without keys are zeros with a sum of -inf; parts make the whole."""
        sums = torch.full((2, sum(self.new), 4), float("nan"))
        listed = self.run_it(skip_extend=True, lse_extend=sums[0])
        new = self.run_it(skip_prefix=True, lse_extend=sums[1])
        for at, (rows, cached, fresh) in enumerate(self.sequences()):
            close(new[rows], attention(self.q[rows], *fresh, 0.125)[0], "new")
            if self.before[at]:
                close(listed[rows], attention(self.q[rows], *cached, 0.125, causal=False)[0], "listed")
            else:
                self.assertTrue(listed[rows].abs().max() == 0 and (sums[0, rows] == float("-inf")).all())
        self.check(sglang.merge_state_v2(listed, sums[0], new, sums[1])[0])
        self.assertTrue(torch.equal(self.run_it(skip_prefix=True), self.run_it(slots=self.slots[:0], ends=self.ends * 0)))

    def test_trees(self):
        """Masks [new][listed + new] of each sequence; bits of what is listed are not read."""
        for most in (33, 20):  # words of 64 bits and of 32
            self.setUp()
            self.new[3] = most
            self.starts = torch.tensor([0, *self.new]).cumsum(0).int()
            self.q, self.fresh = self.q[:sum(self.new)], self.fresh[:, :sum(self.new)]
            trees = [torch.rand(n, n).lt(0.5).tril(-1) | torch.eye(n, dtype=torch.bool) for n in self.new]
            masks = [torch.cat((torch.rand(n, listed) < 0.5, tree), 1) for tree, n, listed in zip(trees, self.new, self.before)]
            at = torch.tensor([0, *(mask.numel() for mask in masks)]).cumsum(0)
            out = self.run_it(torch.cat([mask.flatten() for mask in masks]).to(torch.int8), True, at)
            for tree, (rows, listed, new) in zip(trees, self.sequences()):
                seen = torch.cat((torch.ones(len(tree), listed.shape[1], dtype=torch.bool), tree), 1)
                k, v = torch.cat((listed, new), 1).repeat_interleave(2, 2)
                scores = torch.einsum("thd,shd->hts", self.q[rows].float(), k) * 0.125
                close(out[rows], torch.einsum("hts,shd->thd", scores.masked_fill(~seen, float("-inf")).softmax(2), v), "tree", 1e-2)
        self.refused("skip_prefix_custom_mask", mask=masks[0], mask_at=at, skip_prefix_custom_mask=False)
        self.refused("sliding_window_size=4 with custom_mask", mask=masks[0], mask_at=at, sliding_window_size=4)
        self.new[0] = 65
        self.refused("65 new tokens", mask=masks[0], mask_at=at)

    def refused(self, words, **more):
        with self.assertRaisesRegex(NotImplementedError, words):
            self.run_it(**more)

    def test_bytes(self):
        """A cache of 8 bits beside new rows of 16, with a window too."""
        cache, scales = self.pool.to(torch.float8_e4m3fnuz), (0.5, 2.0)
        self.pool = cache.float() * torch.tensor(scales)[:, None, None, None]
        for size in (-1, 9):
            out = self.run_it(pool=cache, k_scale=0.5, v_scale=2.0, sliding_window_size=size)
            self.check(out, tolerance=2e-2, window=size + 1)

    def test_refusals(self):
        self.refused("xai_temperature_len=8", xai_temperature_len=8)
        self.refused("score_mod", score_mod=len)
        self.refused("skip_extend=True", skip_extend=True, sliding_window_size=4)
        self.refused("v_scale=2.0", v_scale=2.0)

    def test_unified(self):
        """New tokens in slots of their own: one list of both."""
        own = torch.tensor(list({*range(200)} - {*self.slots.tolist()}))[:sum(self.new)]
        self.pool[:, own] = self.fresh
        ends, slots, lengths = sglang.build_unified_kv_indices(self.ends, self.slots, self.starts[:-1], self.starts.diff(), own, 4)
        want = [torch.cat((self.slots[a:b], own[c:d])) for a, b, c, d in zip(self.ends, self.ends[1:], self.starts, self.starts[1:])]
        self.assertTrue(torch.equal(slots, torch.cat(want)))
        self.assertEqual(ends.tolist(), (self.ends + self.starts).tolist())
        self.assertEqual(lengths.tolist(), self.before)

        def unified(**more):
            out = torch.full_like(self.q, float("nan"))
            sglang.extend_attention_fwd_unified(self.q, out, *self.pool, 1.0, 1.0, self.starts, ends, slots, lengths, max(self.new), **more)
            return out

        sinks = torch.randn(4)
        self.check(unified(logit_cap=3.0, sinks=sinks), softcap=3.0, sinks=sinks)
        self.check(unified(sliding_window_size=6, window_start_pos=torch.arange(4)), window=7)
        self.check(unified(is_causal=False, sliding_window_size=6), causal=False, window=7, right=7)
        with self.assertRaisesRegex(NotImplementedError, "custom_mask"):
            unified(custom_mask=torch.ones(1))


class Tables(unittest.TestCase):
    def setUp(self):
        self.pool = torch.randint(0, 1000, (6, 40), dtype=torch.int32)
        self.requests = torch.tensor([4, 1, 3])
        self.lengths = torch.tensor([7, 0, 20])

    def test_kv_indices(self):
        starts = torch.tensor([2, 0, 5], dtype=torch.int32)
        ends = torch.tensor([0, 7, 7, 27, 99], dtype=torch.int32)
        indices = torch.full((30,), -7, dtype=torch.int32)
        sglang.create_flashinfer_kv_indices_triton[(3,)](self.pool, self.requests, self.lengths, ends, starts, indices,
                                                        self.pool.shape[1])
        want = [self.pool[r, s:s + n] for r, s, n in zip(self.requests, starts, self.lengths)]
        self.assertTrue(torch.equal(indices, torch.cat((*want, torch.full((3,), -7, dtype=torch.int32)))))

    def test_page_tables(self):
        """Rows of whole pages of 4; a second pool for windows; columns behind a row's blocks stay."""
        pages = torch.stack([torch.randperm(60)[:10] for _ in range(6)])
        pool = (pages[:, :, None] * 4 + torch.arange(4)).reshape(6, 40).int()
        mapping = torch.cat([torch.arange(4) + 4 * page for page in torch.randperm(60).tolist()])
        table, window = torch.full((2, 4, 6), -7, dtype=torch.int32)
        sglang.scatter_req_to_token_to_page_table_kernel[(3, 1)](
            pool, self.requests, self.lengths, table, 40, 6, window, mapping, DRAFT_NUM=3, PAGE_SIZE=4,
            BLOCK_SIZE=256, HAS_SWA=True)
        want, of = torch.full((2, 4, 6), -7, dtype=torch.int32), mapping[::4] // 4
        for row, (request, length) in enumerate(zip(self.requests, self.lengths.tolist())):
            row_pages = pages[request, :-(-(length + 3) // 4)]
            want[0, row, :len(row_pages)], want[1, row, :len(row_pages)] = row_pages, of[row_pages]
        self.assertTrue(torch.equal(torch.stack((table, window)), want))
        ends, ragged = torch.tensor([0, 8, 8, 13], dtype=torch.int32), torch.full((3, 6), -7, dtype=torch.int32)
        flat = torch.cat((pool[1, :8], pool[2, :5]))
        sglang.scatter_ragged_to_page_table_kernel[(3, 1)](flat, ends, ragged, 6, None, None, 4, 256, False)
        self.assertEqual(ragged.tolist(), [[*pages[1, :2].tolist(), *[-7] * 4], [-7] * 6,
                                           [*pages[2, :2].tolist(), *[-7] * 4]])

    def test_slots_of_drafts(self):
        """Two branches over pages of 4: each has its own copy of the last page, and the drafts' slots come to the front."""
        page, topk, steps, lengths = 4, 2, 3, [7, 0, 9]
        for paged in (True, False):
            last = [n % page if paged else 0 for n in lengths]
            step = [-(-(n + steps) // page) * page for n in last]
            extend = [topk * n if paged else topk * steps for n in step]
            given, pool = torch.randperm(900)[:sum(extend)], self.pool.clone()
            locs, copies = given.clone(), torch.full((2, sum(last) * (topk - 1)), -7)
            sglang.assign_draft_cache_locs[(3,)](
                self.requests, pool, torch.tensor(lengths), torch.tensor(extend), torch.tensor([n // page for n in step]),
                locs, *copies, torch.tensor(last).cumsum(0), copies.shape[1], 40, topk, steps, page if paged else 1, 4, 8)
            want, sources, targets, fronts = self.pool.clone(), [], [], []
            for request, length, tail, stride, part in zip(self.requests, lengths, last, step, given.split(extend)):
                row = want[request]
                row[length:length + len(part)] = part
                for branch in range(topk):
                    start = length - tail + branch * (stride if paged else steps)
                    fronts += row[start + tail:start + tail + steps].tolist()
                    if branch:
                        sources += row[length - tail:length].tolist()
                        targets += row[start:start + tail].tolist()
            self.assertTrue(torch.equal(pool, want))
            self.assertEqual(locs[:len(fronts)].tolist(), fronts)
            self.assertEqual(copies.tolist(), [sources, targets])

    def test_slots_in_and_out(self):
        starts = torch.tensor([2, 9, 5])
        ends, before = starts + torch.tensor([3, 1, 2]), self.pool.clone()
        slots = torch.arange(500, 506)
        sglang.assign_req_to_token_pool_func(self.requests, self.pool, starts, ends, slots, 3)
        want, at = before, 0
        for request, start, end in zip(self.requests.tolist(), starts.tolist(), ends.tolist()):
            want[request, start:end] = slots[at:at + end - start].int()
            at += end - start
        self.assertTrue(torch.equal(self.pool, want))
        got = sglang.assign_extend_cache_locs_func(self.requests, self.pool, starts, ends, 3, 2, "cpu")
        self.assertTrue(torch.equal(got, slots))


class Rows(unittest.TestCase):
    def test_stored(self):
        """Of 2 heads of 96, and of 1 of 64; rows of 98 are none."""
        for width in (192, 64):
            k, v = torch.randn(2, 3, width).bfloat16()
            caches, slots = torch.zeros(2, 7, width).bfloat16(), torch.tensor([6, 0, 3])
            want = caches.clone()
            want[0, slots], want[1, slots] = k, v
            sglang.store_cache(k, v, caches[0], caches[1], slots)
            self.assertTrue(torch.equal(caches, want))
        with self.assertRaisesRegex(NotImplementedError, "rows of 98"):
            sglang.store_cache(k[:, :98].repeat(1, 2)[:, :98], v, caches[0], caches[1], slots)


class Trees(unittest.TestCase):
    """Two candidates a step, two steps: the root, its children 0 and 1, and 2 (of the first), 4 (of the second)."""

    def build(self, mode, mask):
        shape = (1, 5)
        out = [torch.full(shape, -9) for _ in range(3)]
        positions = torch.full((5,), -9)
        sglang.build_tree_kernel_efficient(torch.tensor([[-1, 0, 1]]), torch.tensor([[0, 1, 2, 4]]), torch.tensor([3]),
                                           mask, positions, *out, 2, 2, 5, mode)
        return positions, *out

    def test_built(self):
        seen = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]])
        small = torch.zeros(25, dtype=torch.bool)
        positions, index, child, sibling = self.build(1, small)
        self.assertEqual(positions.tolist(), [3, 4, 4, 5, 5])
        self.assertEqual(index.tolist(), [[0, 1, 2, 3, 4]])
        self.assertEqual(child.tolist(), [[1, 3, 4, -1, -1]])
        self.assertEqual(sibling.tolist(), [[-1, 2, -1, -1, -1]])
        self.assertTrue(torch.equal(small.view(5, 5), seen.bool()))
        full = torch.zeros(5 * 8, dtype=torch.bool)
        self.build(0, full)
        self.assertTrue(torch.equal(full.view(5, 8), torch.cat((torch.ones(5, 3), seen), 1).bool()))
        with self.assertRaisesRegex(NotImplementedError, "tree_mask_mode=2"):
            self.build(2, small)

    def test_links_of_a_mask(self):
        seen = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]).bool()
        out, positions = [torch.full((1, 5), -9) for _ in range(3)], torch.full((5,), -9)
        sglang.reconstruct_indices_from_tree_mask(seen.flatten(), torch.tensor([3]), positions, *out, 1, 5)
        for got, want in zip((positions, *out), self.build(1, torch.zeros(25, dtype=torch.bool))):
            self.assertTrue(torch.equal(got, want), f"{got} {want}")

    def outputs(self):
        return torch.full((5,), -9, dtype=torch.int32), torch.full((1, 3), -9, dtype=torch.int32), \
            torch.full((1,), -9, dtype=torch.int32)

    def test_verified(self):
        _, index, child, sibling = self.build(1, torch.zeros(25, dtype=torch.bool))
        candidates, targets = torch.tensor([[10, 20, 21, 30, 31]]), torch.tensor([[21, 50, 31, 51, 77]])
        predicts, accepted, count = self.outputs()
        sglang.verify_tree_greedy(predicts, accepted, count, candidates, index, child, sibling, targets)
        self.assertEqual((accepted.tolist(), count.tolist()), ([[0, 2, 4]], [2]))
        self.assertEqual(predicts[[0, 2, 4]].tolist(), [21, 31, 77])

    def test_sampled(self):
        _, index, child, sibling = self.build(1, torch.zeros(25, dtype=torch.bool))
        candidates, probs = torch.tensor([[1, 2, 3, 4, 5]]), torch.zeros(1, 5, 8)
        probs[0, 0, 3] = probs[0, 2, 6] = 1.0  # the second child is sure, then none of its children
        predicts, accepted, count = self.outputs()
        sglang.tree_speculative_sampling_target_only(predicts, accepted, count, candidates, index, child, sibling,
                                                     torch.full((1, 5), 0.5), torch.tensor([0.5]), probs,
                                                     torch.zeros_like(probs))
        self.assertEqual((accepted.tolist(), count.tolist()), ([[0, 2, -1]], [1]))
        self.assertEqual(predicts[[0, 2]].tolist(), [3, 6])


class Constants(unittest.TestCase):
    def test_none_is_kept_of_a_capture(self):
        device, capturing = torch.device("cpu"), kgen.describe.is_capturing
        try:
            kgen.describe.is_capturing = lambda: True
            of_graph = common.constant(device, 3, 77)
        finally:
            kgen.describe.is_capturing = capturing
        kept = common.constant(device, 5, 77)
        self.assertNotEqual(kept.data_ptr(), of_graph.data_ptr())
        self.assertEqual(common.constant(device, 60, 77).data_ptr(), kept.data_ptr())
        self.assertEqual(kept.tolist(), [77] * 5)
        self.assertEqual(common.counted(device, 65).tolist(), list(range(65)))


class DeltaNet(unittest.TestCase):
    def test_decode_step(self):
        """The convolution into a new tensor, then the recurrence on it."""
        heads, size = 2, 64
        channels, slots = 4 * size, torch.tensor([2, -1], dtype=torch.int32)
        x, weight = torch.randn(2, channels).bfloat16(), torch.randn(channels, 4).bfloat16()
        pool, before = torch.randn(3, channels, 3).bfloat16(), torch.randn(3, heads, size, size) * 0.1
        window = torch.cat((pool[2], x[0][:, None]), 1).float()
        rows = sglang.causal_conv1d_update(x, pool, weight, activation="silu", conv_state_indices=slots)
        close(rows[0], torch.nn.functional.silu((window * weight.float()).sum(1)), "convolution", 6e-2)
        a, b = torch.randn(2, 2, heads).bfloat16()
        a_log, dt_bias, state = torch.rand(heads), torch.randn(heads).bfloat16(), before.clone()
        q, k, v = (part.view(2, 1, -1, size) for part in rows.split((size, size, heads * size), 1))
        out = sglang.fused_sigmoid_gating_delta_rule_update(a_log, a, dt_bias, 1.0, 20.0, q, k, v, b, state, slots,
                                                            use_qk_l2norm_in_kernel=True)
        want = delta_rule(q[0], k[0], v[0], *gates(a[:1], b[:1], a_log, dt_bias), before[2], size ** -0.5)
        close(out[0], want, "recurrence")
        close(state[2], before[2], "state", 1e-3)
        self.assertEqual(out[1].abs().max().item(), 0)
        with self.assertRaisesRegex(NotImplementedError, "intermediate_conv_window"):
            sglang.causal_conv1d_update(x, pool, weight, intermediate_conv_window=pool)
        with self.assertRaisesRegex(NotImplementedError, "intermediate_states_buffer"):
            sglang.fused_sigmoid_gating_delta_rule_update(a_log, a, dt_bias, 1.0, 20.0, q, k, v, b, state, slots,
                                                          intermediate_states_buffer=state)

    def test_convolution_in_place(self):
        x, weight, bias = torch.randn(2, 6, 2), torch.randn(6, 3), torch.randn(6)
        pool, slots = torch.randn(4, 6, 2), torch.tensor([3, 1], dtype=torch.int32)
        window, inner = torch.cat((pool[slots.long()], x), 2), pool.clone()
        inner[slots.long()] = x
        want = sum(window[:, :, n:n + 2] * weight[:, n, None] for n in range(3)) + bias[:, None]
        sglang.causal_conv1d_update_in_place(x, pool, weight, bias, True, None, slots, -1)
        close(x, torch.nn.functional.silu(want), "convolution", 1e-5)
        self.assertTrue(torch.equal(pool, inner))
        with self.assertRaisesRegex(NotImplementedError, "conv_state: 4 columns"):
            sglang.causal_conv1d_update_in_place(x, torch.randn(4, 6, 4), weight, bias, True, None, slots, -1)

    def test_gates_of_channels_with_a_rank_of_four(self):
        """A_log [1][1][H][1], as SGLang's KDA layers have it, is that of H elements."""
        q, k, v, a = torch.randn(4, 1, 2, 2, 64).bfloat16()
        b, a_log, bias, outs = torch.randn(1, 2, 2).bfloat16(), torch.rand(2), torch.randn(128).bfloat16(), []
        for log in (a_log, a_log.view(1, 1, 2, 1)):
            outs.append(sglang.fused_sigmoid_gating_delta_rule_update(
                log, a.flatten(2), bias, 1.0, 20.0, q, k, v, b, torch.zeros(2, 2, 64, 64), torch.tensor([0, 1]),
                use_qk_l2norm_in_kernel=True, cu_seqlens=torch.arange(3), is_kda=True))
        self.assertTrue(torch.equal(*outs) and outs[0].abs().max() > 0)

    def test_circular_window(self):
        """The input of token i of a sequence is in column i mod L, and is read from there."""
        channels, columns, before = 6, 5, 7
        inputs, weight = torch.randn(before + 1, channels), torch.randn(channels, 4)
        pool = torch.zeros(1, channels, columns)
        for i in range(before):
            pool[0, :, i % columns] = inputs[i]
        rows = sglang.causal_conv1d_update(inputs[before:].clone(), pool, weight,
                                           cache_seqlens=torch.tensor([before], dtype=torch.int32))
        close(rows[0], (inputs[before - 3:] * weight.T).sum(0), "convolution", 1e-5)
        self.assertTrue(torch.equal(pool[0, :, before % columns], inputs[before]))
        self.assertTrue(torch.equal(pool[0, :, (before - 1) % columns], inputs[before - 1]))


if __name__ == "__main__":
    sys.exit(unittest.main())
