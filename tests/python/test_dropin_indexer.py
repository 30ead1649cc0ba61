"""The indexer's drop-ins beside plain torch, on the cpu device: keys into a pool and out of it, logits of both
forms, and the rows that are chosen."""
import sys
import unittest

import torch
import references  # noqa: F401  seeds torch, and prints the seed

from kgen.dropin import aiter, vllm

D, PAGE, HEADS, FP8 = 128, 64, 5, torch.float8_e4m3fnuz  # of the device that the cpu stands for: gfx942


def largest(row, count):
    """Their columns in rising order, of equal ones the lower: a key that no head likes has a logit of 0, and is one of many."""
    return row.sort(descending=True, stable=True).indices[:count].sort().values


class Indexer(unittest.TestCase):
    def setUp(self):
        self.lengths = [70, 9]
        self.table = torch.tensor([[3, 1], [2, 0]], dtype=torch.int32)
        self.pool = torch.zeros(5, PAGE, D + 4, dtype=torch.uint8)
        self.k = torch.randn(sum(self.lengths), D).to(torch.bfloat16)
        slots = [int(self.table[s, i // PAGE]) * PAGE + i % PAGE for s, n in enumerate(self.lengths) for i in range(n)]
        vllm.indexer_k_quant_and_cache(self.k, self.pool, torch.tensor(slots), D, None)
        self.codes = torch.zeros(80, D, dtype=torch.uint8)
        self.scales = torch.full((80, 4), 7, dtype=torch.uint8)
        ends = torch.tensor([0, 70, 79], dtype=torch.int32)
        vllm.cp_gather_indexer_k_quant_cache(self.pool, self.codes, self.scales, self.table, ends)

    def logits(self, q, weights, first, count):
        """In double, of queries [T][H][D] and gathered keys."""
        keys = self.codes[first:first + count].view(FP8).double()
        scale = self.scales[first:first + count].view(torch.float32).double().view(-1)
        dots = torch.einsum("thd,kd->thk", q.double(), keys).clamp(min=0)
        return torch.einsum("thk,th->tk", dots, weights.double()) * scale

    def test_cache(self):
        scale = self.k.float().abs().amax(1).clamp(min=1e-4) / 224
        torch.testing.assert_close(self.scales.view(torch.float32)[:79, 0], scale, rtol=0, atol=0)
        want = (self.k.float() / scale[:, None]).to(FP8)
        self.assertTrue(torch.equal(self.codes[:79], want.view(torch.uint8)))
        self.assertFalse(self.codes[79:].any() or self.scales[79:].any())

    def test_decode(self):
        q = torch.randn(2, 2, HEADS, D).to(FP8)
        weights, lens = torch.randn(4, HEADS), torch.tensor(self.lengths, dtype=torch.int32)
        for pool in (self.pool, self.pool.unsqueeze(2)):
            got = vllm.fp8_paged_mqa_logits(q, pool, weights, lens, self.table, None, 90)
            for row in range(4):
                seq, seen = row // 2, self.lengths[row // 2] - 1 + row % 2
                want = self.logits(q.view(4, HEADS, D)[row:row + 1], weights[row:row + 1], 70 * seq, seen)
                torch.testing.assert_close(got[row:row + 1, :seen].double(), want, rtol=1e-4, atol=1e-4)
                self.assertTrue((got[row, seen:] == -torch.inf).all())
        each = torch.tensor([[69, 70], [8, 9]], dtype=torch.int32)
        again = vllm.fp8_paged_mqa_logits(q, self.pool, weights, each, self.table, None, 90)
        self.assertTrue(torch.equal(got, again))
        chosen = torch.full((4, 16), 77, dtype=torch.int32)
        vllm.top_k_per_row_decode(got, 2, lens, chosen, 4, 90, 1, 16)
        for row in range(4):
            count = min(16, self.lengths[row // 2] - 1 + row % 2)
            want = largest(got[row], count)
            self.assertEqual(chosen[row].tolist(), want.tolist() + [-1] * (16 - count))

    def test_prefill(self):
        q = torch.randn(3, HEADS, D).to(FP8)
        weights = torch.randn(3, HEADS)
        starts, ends = (torch.tensor(x, dtype=torch.int32) for x in ([0, 0, 70], [69, 70, 79]))
        got = vllm.fp8_mqa_logits(q, (self.codes, self.scales), weights, starts, ends)
        chosen = torch.empty(3, 8, dtype=torch.int32)
        vllm.top_k_per_row_prefill(got, starts, ends, chosen, 3, got.stride(0), 1, 8)
        for row in range(3):
            first, end = int(starts[row]), int(ends[row])
            want = self.logits(q[row:row + 1], weights[row:row + 1], first, end - first)
            torch.testing.assert_close(got[row:row + 1, first:end].double(), want, rtol=1e-4, atol=1e-4)
            self.assertTrue((got[row, :first] == -torch.inf).all() and (got[row, end:] == -torch.inf).all())
            self.assertEqual(chosen[row].tolist(), largest(got[row, first:end], 8).tolist())

    def test_of_aiter(self):
        """The same results by AITER's names."""
        pool, slots = torch.zeros_like(self.pool), torch.arange(79)
        vllm.indexer_k_quant_and_cache(self.k, self.pool.zero_(), slots, D, "ue8m0")
        aiter.indexer_k_quant_and_cache(self.k, pool, slots, D, "ue8m0")
        self.assertTrue(torch.equal(pool, self.pool))
        codes, scales = torch.zeros_like(self.codes), torch.zeros_like(self.scales)
        table, ends = torch.tensor([[0, 1]], dtype=torch.int32), torch.tensor([0, 79], dtype=torch.int32)
        aiter.cp_gather_indexer_k_quant_cache(pool, codes, scales, table, ends)
        q, weights, starts = torch.randn(2, HEADS, D).to(FP8), torch.randn(2, HEADS), torch.zeros(2, dtype=torch.int32)
        lens = torch.tensor([50, 79], dtype=torch.int32)
        got = aiter.fp8_mqa_logits(q, codes.view(FP8), scales.view(torch.float32), weights, starts, lens)
        want = vllm.fp8_paged_mqa_logits(q[1:, None], pool, weights[1:], lens[1:], table, None, 80)
        self.assertTrue(torch.equal(got[1, :79], want[0, :79]) and (got[0, 50:] == -torch.inf).all())
        chosen = torch.empty(2, 2, 8, dtype=torch.int32)
        aiter.top_k_per_row_prefill(got, starts, lens, chosen[0], None, 2, got.stride(0), 1, 8, True)
        aiter.top_k_per_row_decode(got, 1, lens, chosen[1], 2, got.stride(0), 1, 8)
        self.assertEqual(chosen[0].tolist(), [row[:n].topk(8).indices.sort().values.tolist() for row, n in zip(got, lens)])
        self.assertTrue(torch.equal(*chosen))
        with self.assertRaisesRegex(NotImplementedError, "preshuffle"):
            aiter.indexer_k_quant_and_cache(self.k, pool, slots, D, None, True)
        with self.assertRaisesRegex(NotImplementedError, "values"):
            aiter.top_k_per_row_prefill(got, starts, lens, chosen[0], got, 2, got.stride(0), 1, 8)

    def test_what_is_not_offered(self):
        with self.assertRaisesRegex(NotImplementedError, "quant_block_size=64"):
            vllm.indexer_k_quant_and_cache(self.k, self.pool, torch.arange(79), 64, None)
        with self.assertRaisesRegex(NotImplementedError, "kv_cache: rows of 132"):
            vllm.indexer_k_quant_and_cache(self.k[:, :64], self.pool, torch.arange(79), 64, None)
        with self.assertRaisesRegex(NotImplementedError, "kv_cache: strides"):
            vllm.indexer_k_quant_and_cache(self.k, torch.zeros(5, 2 * PAGE, D + 4, dtype=torch.uint8)[:, ::2], torch.arange(79), D, None)
        with self.assertRaisesRegex(NotImplementedError, "stride1=2"):
            vllm.top_k_per_row_decode(torch.zeros(1, 4), 1, torch.ones(1), torch.zeros(1, 1), 1, 4, 2, 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
