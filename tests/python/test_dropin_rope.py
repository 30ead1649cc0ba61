"""AITER's functions that rotate and write at once beside plain torch, on the cpu device."""
import itertools
import random
import sys
import unittest

import torch
from references import close

from kgen import KgenError
from kgen.dropin import aiter

HQ, HKV, D, PAGE, LATENT, ROPE = 4, 2, 64, 16, 128, 64
SCALES = (torch.tensor(0.5), torch.tensor([0.25]))  # engines' are of rank 0 or 1


def tables(positions, dim, full, dtype):
    """Where a table has an entry a dim, the two of a pair differ."""
    angles = torch.rand(positions, dim if full else dim // 2) * 6
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x, cos, sin, at, neox):
    """x [T][H][D] by rows at of the tables."""
    x, c, s, half = x.float(), cos.float()[at], sin.float()[at], x.shape[-1] // 2
    if c.shape[-1] == half:
        c, s = (t.repeat(1, 2) if neox else t.repeat_interleave(2, 1) for t in (c, s))
    if neox:
        other = torch.cat((-x[..., half:], x[..., :half]), -1)
    else:
        other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * c[:, None] + other * s[:, None]


def rows(*shape):
    return torch.randn(*shape).bfloat16()


class Pages(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = rows(6, HQ + 2 * HKV, D).split((HQ, HKV, HKV), 1)  # views of one row, as engines have them
        self.slots = torch.tensor([5, -1, 40, 17, 63, 0])
        self.at = torch.tensor([3, 0, 9, 1, 8, 7])

    def caches(self, layout, dtype):
        x = 16 // dtype.itemsize
        key, value = (torch.zeros(2, 4, PAGE, HKV, D).to(dtype) if layout == "nhd" else
                      (torch.zeros(4, HKV, D // x, PAGE, x).to(dtype),
                       torch.zeros(4, HKV, D, PAGE).to(dtype) if layout == "xpacked" else
                       torch.zeros(4, HKV, PAGE // x, D, x).to(dtype)))
        return key, value

    @staticmethod
    def natural(key, value, layout):
        """[slots][Hkv][D]"""
        if layout != "nhd":
            key = key.permute(0, 3, 1, 2, 4).flatten(3)
            value = value.permute(0, 3, 1, 2) if layout == "xpacked" else value.permute(0, 2, 4, 1, 3).flatten(1, 2)
        return key.flatten(0, 1).float(), value.flatten(0, 1).float()

    def run_one(self, layout, dtype, neox, full, table, apply_scale=True, offs=None, **more):
        cos, sin = tables(12, D, full, table)
        key, value = self.caches(layout, dtype)
        kept = self.k.clone(), self.v.clone()
        want_q, want_k = (rotated(x, cos, sin, self.at if offs is None else self.at + offs, neox) for x in (self.q, self.k))
        answer = aiter.fused_qk_rope_reshape_and_cache(self.q, self.k, self.v, key, value, self.slots, self.at, cos, sin, *SCALES,
                                                       neox, layout == "nhd", apply_scale, offs, **more)
        q_out, k_out = answer[:2]
        self.assertTrue(answer[2] is key and answer[3] is value)
        close(q_out, want_q, "q_out", 5e-2)
        close(k_out, want_k, "k_out", 5e-2)
        scales = SCALES if apply_scale else (1.0, 1.0)
        narrow = dtype.itemsize == 1
        for got, want, scale in zip(self.natural(key, value, layout), (want_k, kept[1].float()), scales):
            written = torch.zeros_like(got)
            written[self.slots[self.slots >= 0]] = (want / scale)[self.slots >= 0]
            self.assertTrue(torch.allclose(got, written, rtol=0.07 if narrow else 1e-2, atol=0.01 if narrow else 5e-2))
        return answer

    def test_layouts(self):
        fp8 = torch.float8_e4m3fnuz
        for layout, dtype in itertools.product(("nhd", "xpacked", "shuffle"), (torch.bfloat16, fp8)):
            drawn = random.random() < 0.5, random.random() < 0.5, random.choice((torch.bfloat16, torch.float32))
            with self.subTest(layout=layout, dtype=dtype, drawn=drawn):
                self.run_one(layout, dtype, *drawn)

    def test_tables_of_every_dim(self):
        for neox in (True, False):
            self.run_one("nhd", torch.bfloat16, neox, True, torch.float32, upcast_operand=True)

    def test_without_scales_and_with_offsets(self):
        answer = self.run_one("nhd", torch.float8_e4m3fnuz, True, False, torch.float32, apply_scale=False,
                              offs=torch.tensor([1, 2, -3, 0, 3, 1]), output_zeros=False)
        self.assertEqual(len(answer), 4)

    def test_in_place(self):
        """What vLLM passes: rows of qkv rotate where they are; k_out and the written keys are of the same rows."""
        zeros = torch.full((6, HQ, D), float("nan"), dtype=torch.bfloat16)
        q, k, v = self.q, self.k, self.v
        answer = self.run_one("nhd", torch.bfloat16, True, False, torch.bfloat16, apply_scale=False, q_out=q, k_out=k,
                              zeros_out=zeros)
        self.assertTrue(answer[0] is q and answer[1] is k and answer[4] is zeros and not zeros.any())
        key, value = (x.flatten(0, 1) for x in answer[2:4])
        used = self.slots >= 0
        self.assertTrue(torch.equal(key[self.slots[used]], k[used]) and torch.equal(value[self.slots[used]], v[used]))

    def test_rows_at_odd_places(self):
        packed = rows(6, (HQ + 2 * HKV) * D + 1)[:, 1:].unflatten(1, (-1, D))
        self.q, self.k, self.v = packed.split((HQ, HKV, HKV), 1)
        self.run_one("nhd", torch.bfloat16, True, False, torch.float32)

    def test_rows_of_sequences(self):
        """A row of the cache a sequence, whose slots count within it; one is padded, one behind the end of its row."""
        cos, sin = tables(12, D, False, torch.float32)
        caches = torch.zeros(2, 6, 23, HKV, D).bfloat16()
        slots = torch.tensor([5, -1, 22, 17, 23, 0])
        q_out, key, value = aiter.fused_qk_rope_cosine_cache_llama(
            self.q, self.k, self.v, caches[0], caches[1], slots, self.at, cos, sin, None, None, False, True)
        close(q_out, rotated(self.q, cos, sin, self.at, False), "q_out", 5e-2)
        want = torch.zeros(2, 6, 23, HKV, D)
        for row in (0, 2, 3, 5):
            want[0, row, slots[row]] = rotated(self.k, cos, sin, self.at, False)[row]
            want[1, row, slots[row]] = self.v[row].float()
        close(key, want[0], "keys", 5e-2)
        self.assertTrue(torch.equal(value.float(), want[1]))

    def test_refuses(self):
        cos, sin = tables(12, D, False, torch.float32)
        key, value = self.caches("nhd", torch.bfloat16)

        def call(function=aiter.fused_qk_rope_reshape_and_cache, q=self.q, k=self.k, key=key, value=value, slots=self.slots,
                 cos=cos, scale=None, flash=True, **more):
            function(q, k, self.v, key, value, slots, self.at, cos, sin, scale, scale, True, flash, **more)

        for error, said, given in (
                (ValueError, "cos, sin: 48 columns, 32 or 64", {"cos": cos.new_zeros(12, 48)}),
                (ValueError, "slot_mapping: 5 rows, 6 of q", {"slots": self.slots[:5]}),
                (ValueError, "k: 5 rows, 6 of q", {"k": self.k[:5]}),
                (ValueError, "k_scale, v_scale: 2 numbers", {"scale": torch.ones(2)}),
                (NotImplementedError, "4-bit floats", {"key": key.view(torch.uint8)}),
                (NotImplementedError, "q_out: torch.float32", {"q_out": self.q.float()}),
                (NotImplementedError, "k_out: torch.float32", {"k_out": self.k.float()}),
                (ValueError, "q_out: .6, 2, 64.", {"q_out": self.q[:, :2]}),
                (KgenError, "k_cache", {"key": key[:, :, :1]})):
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                call(**given)
        llama = aiter.fused_qk_rope_cosine_cache_llama
        with self.assertRaisesRegex(NotImplementedError, "flash_layout=False"):
            call(llama, flash=False)
        with self.assertRaisesRegex(ValueError, "key_cache, value_cache: .* 6 sequences"):
            call(llama)  # four rows


class Latent(unittest.TestCase):
    def test_rotated_and_as_they_are(self):
        """Keys behind the last query are written as they are; 8-bit rows are divided by the scale, which torch does for others."""
        queries, keys = 3, 5
        slots = torch.tensor([5, -1, 9, 2, 7])
        at = torch.tensor([4, 1, 0, 11, 2])
        cos, sin = tables(12, ROPE, False, torch.bfloat16)
        cos, sin = cos[:, None, None], sin[:, None, None]  # as AITER's modules keep them
        q_nope, q_pe = rows(queries, HQ, LATENT + ROPE).split((LATENT, ROPE), 2)
        k_nope, k_pe = rows(keys, 1, LATENT), rows(keys, 1, ROPE)
        turned = torch.cat((rotated(k_pe[:queries], cos[:, 0, 0], sin[:, 0, 0], at[:queries], True), k_pe[queries:].float()))
        used = slots >= 0
        for dtype in (torch.bfloat16, torch.float8_e4m3fnuz):
            pool = torch.zeros(12, 1, LATENT + ROPE).to(dtype)
            q_out, q_pe_out, k_pe_out, zeros = aiter.fused_qk_rope_cat_and_cache_mla(
                q_nope, q_pe, k_nope, k_pe, pool, slots, at, cos, sin, SCALES[0], True, 2)
            want = rotated(q_pe, cos[:, 0, 0], sin[:, 0, 0], at[:queries], True)
            self.assertTrue(torch.equal(q_out[..., :LATENT], q_nope) and torch.equal(q_pe_out, q_out[:2, :, LATENT:]))
            close(q_out[..., LATENT:], want, "q_out", 5e-2)
            close(k_pe_out, turned, "k_pe_out", 5e-2)
            self.assertTrue(zeros.shape == (2, HQ, LATENT) and not zeros.any())
            written = torch.zeros(pool.shape)
            written[slots[used]] = (torch.cat((k_nope.float(), turned), 2) / SCALES[0])[used]
            self.assertTrue(torch.allclose(pool.float(), written, rtol=0.07 if dtype.itemsize == 1 else 1e-2, atol=5e-2))

    def test_written_alone(self):
        k_nope, k_pe, slots = rows(3, 2, LATENT), rows(3, 2, ROPE), torch.tensor([4, -1, 0])
        pool = torch.zeros(6, 2, LATENT + ROPE).bfloat16()
        aiter.cat_and_cache_mla(k_nope, k_pe, pool, slots, torch.tensor(1.0))
        self.assertTrue(torch.equal(pool[[4, 0]], torch.cat((k_nope, k_pe), 2)[[0, 2]]) and not pool[[1, 2, 3, 5]].any())

    def test_refuses(self):
        cos, sin = tables(12, ROPE, False, torch.float32)
        pool, slots = torch.zeros(6, 1, LATENT + ROPE).bfloat16(), torch.arange(3)
        k_nope, k_pe, q = rows(3, 1, LATENT), rows(3, 1, ROPE), rows(3, HQ, LATENT + ROPE)

        def call(slots=slots, **more):
            aiter.fused_qk_rope_cat_and_cache_mla(q[..., :LATENT], q[..., LATENT:], k_nope, k_pe, pool, slots, slots, cos, sin, None,
                                                  True, **more)

        for error, said, given in ((NotImplementedError, "shuffled_kv_cache", {"shuffled_kv_cache": True}),
                                   (NotImplementedError, "q_out: torch.float8", {"q_out_dtype": torch.float8_e4m3fnuz}),
                                   (ValueError, "slot_mapping: 2 slots, of 3 queries", {"slots": slots[:2]}),
                                   (ValueError, "slot_mapping: 4 slots", {"slots": torch.arange(4)}),
                                   (ValueError, "num_decode_toks_for_zeros: 4 of 3", {"num_decode_toks_for_zeros": 4})):
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                call(**given)
        with self.assertRaisesRegex(NotImplementedError, "shuffled_kv_cache"):
            aiter.cat_and_cache_mla(k_nope, k_pe, pool, slots, None, shuffled_kv_cache=True)


if __name__ == "__main__":
    sys.exit(unittest.main())
