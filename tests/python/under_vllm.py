"""vLLM's plugin beside plain torch, on the cpu device, under vLLM's own classes. KGEN_VLLM names a folder with its package."""
import itertools
import os
import sys
import types
import unittest

import torch
from references import attention, close

sys.path.insert(0, os.environ["KGEN_VLLM"])

from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum

import kgen
from kgen.dropin import attention as attention_dropin
from kgen.dropin import cache as cache_dropin
from kgen.plugins import vllm_attention
from kgen.plugins import vllm_plugin as plugin

D, HKV, G, PAGE = 64, 2, 2, 16
ONE = torch.tensor(1.0)


def backend():
    plugin.register()
    plugin.register()  # in every process, and more than once
    return AttentionBackendEnum["KGEN"].get_class()


class Selection(unittest.TestCase):
    def ask(self, head_size=D, block_size=PAGE, dtype=torch.bfloat16, kv="auto"):
        return backend().validate_configuration(
            head_size, dtype, kv, block_size, False, True, False, False, False, DeviceCapability(9, 4), "decoder",
            has_sliding_window=True, use_non_causal=True)

    def test_what_is_offered(self):
        self.assertEqual(self.ask(), [])
        self.assertEqual(self.ask(kv="fp8", head_size=128, block_size=64), [])

    def test_images_that_see_themselves(self):
        offered = backend().validate_configuration(D, torch.bfloat16, "auto", PAGE, False, False, False, True, False,
                                                   DeviceCapability(9, 4), "decoder")
        self.assertEqual(offered, [])

    def test_refusals_are_kgens(self):
        self.assertRegex(self.ask(head_size=100)[-1], "d=100: out of bounds")
        self.assertIn("dtype not supported", self.ask(dtype=torch.float32))

    def test_instead_of_another(self):
        os.environ["KGEN_VLLM_INSTEAD"] = "TRITON_ATTN"
        try:
            self.assertIs(backend(), AttentionBackendEnum.TRITON_ATTN.get_class())
        finally:
            del os.environ["KGEN_VLLM_INSTEAD"]
            AttentionBackendEnum.TRITON_ATTN.clear_override()

    def test_graphs(self):
        builder = backend().get_builder_cls()
        self.assertIs(builder.get_cudagraph_support(None, None), AttentionCGSupport.ALWAYS)
        images = types.SimpleNamespace(model_config=types.SimpleNamespace(is_mm_prefix_lm=True))
        self.assertIs(builder.get_cudagraph_support(images, None), AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE)


class Batch:
    """Sequences of a step: the cache of vLLM's shape, filled by the plugin, and the metadata that it builds."""

    def __init__(self, lengths, counts, order, **options):
        self.lengths, self.counts = lengths, counts
        columns = max(-(-length // PAGE) for length in lengths)
        shape = [len(lengths) * columns + 1, HKV, PAGE, 2 * D]
        self.cache = torch.full([shape[n] for n in order], float("nan"), dtype=torch.bfloat16)
        self.cache = self.cache.permute([order.index(n) for n in range(4)])  # [B][H][N][2 D]
        self.table = torch.randperm(shape[0])[:len(lengths) * columns].int().view(len(lengths), columns)
        self.k, self.v = ([torch.randn(length, HKV, D).bfloat16() for length in lengths] for _ in range(2))
        self.q = torch.randn(sum(counts) + 2, HKV * G, D).bfloat16()  # two rows of padding
        self.layer = types.SimpleNamespace(_k_scale=ONE, _v_scale=ONE, _q_scale=ONE)
        self.impl = backend().get_impl_cls()(HKV * G, D, D ** -0.5, HKV, **options)
        self.impl.process_weights_after_loading(torch.bfloat16)
        for row, length in enumerate(lengths):
            place = torch.arange(length)
            slots = self.table[row, place // PAGE].long() * PAGE + place % PAGE
            self.impl.do_kv_cache_update(self.layer, self.k[row], self.v[row], self.cache, slots)

    def metadata(self, spans):
        starts = torch.tensor([0, *torch.tensor(self.counts).cumsum(0).tolist()], dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=torch.tensor(self.lengths, dtype=torch.int32),
            num_reqs=len(self.counts), num_actual_tokens=sum(self.counts), max_query_len=max(self.counts),
            max_seq_len=max(self.lengths), block_table_tensor=self.table, slot_mapping=torch.zeros(0).long(),
            mm_req_doc_ranges=spans)
        builder = backend().get_builder_cls()(None, [], None, torch.device("cpu"))
        return builder.build(0, common)

    def check(self, case, spans=None, **options):
        """spans: of sequences, by their numbers, as vLLM's runner gives them."""
        out = torch.full((len(self.q), HKV * G * D), 7.0).bfloat16()
        self.impl.forward(self.layer, self.q, None, None, self.cache, self.metadata(spans), out)
        rows, at = out.view(len(self.q), HKV * G, D), 0
        for row, count in enumerate(self.counts):
            part = slice(at, at + count)
            of_row = (spans or {}).get(row, ())
            want, _ = attention(self.q[part], self.k[row], self.v[row], D ** -0.5, spans=of_row, **options)
            close(rows[part], want, f"sequence {row}")
            at += count
        case.assertTrue((rows[at:] == 7).all(), "rows of padding")


NHD, HND = (0, 2, 1, 3), (0, 1, 2, 3)  # how the pages lie


class Steps(unittest.TestCase):
    def test_prompts_drafts_and_decodes(self):
        Batch([40, 33, 5], [20, 1, 3], NHD).check(self)

    def test_decodes(self):
        Batch([40, 17], [1, 1], HND).check(self)

    def test_a_window_and_sinks(self):
        sinks = torch.randn(HKV * G).bfloat16()
        Batch([40, 17], [2, 1], NHD, sliding_window=9, sinks=sinks).check(self, window=9, sinks=sinks)

    def test_images(self):
        spans = {0: [(3, 9), (20, 31)], 2: [(1, 4)]}
        Batch([40, 33, 5], [40, 1, 5], NHD).check(self, spans)
        Batch([40, 33, 5], [15, 1, 3], HND, sliding_window=12).check(self, spans, window=12)
        Batch([40, 33], [1, 1], NHD).check(self, {0: [(3, 9)]})  # text behind an image
        Batch([40, 33], [5, 2], NHD).check(self, {0: [], 1: []})

    def test_refuses(self):
        with self.assertRaisesRegex(NotImplementedError, "attn_type=encoder"):
            Batch([4], [1], NHD, attn_type="encoder")


class Asked(Exception):
    """A spec line that the back end would have prepared."""


def lines_of(dim, dtype, kv_cache_dtype, page, sinks):
    """What decodes, drafts, prompts and the cache's write ask for, of tensors such as the engine has."""
    cache_dtype = torch.uint8 if kv_cache_dtype.startswith("fp8") else dtype
    cache = torch.zeros(2, HKV, page, 2 * dim, dtype=cache_dtype)
    impl = backend().get_impl_cls()(HKV * G, dim, 1.0, HKV, kv_cache_dtype=kv_cache_dtype,
                                    sinks=torch.zeros(HKV * G) if sinks else None)
    layer, lines = types.SimpleNamespace(_k_scale=ONE, _v_scale=ONE, _q_scale=ONE), []

    def ask(function, *arguments):
        try:
            function(*arguments)
        except Asked as line:
            lines.append(str(line))

    rows = torch.zeros(40, HKV, dim, dtype=dtype)
    ask(impl.do_kv_cache_update, layer, rows, rows, cache, torch.zeros(40, dtype=torch.long))
    for count in (1, 4, 40):
        starts, lens = torch.tensor([0, count], dtype=torch.int32), torch.tensor([count], dtype=torch.int32)
        facts = vllm_attention.KgenMetadata(count, count, starts, lens, torch.zeros(1, 4, dtype=torch.int32), None, True)
        ask(impl.forward, layer, torch.zeros(count, HKV * G, dim, dtype=dtype), None, None, cache, facts,
            torch.zeros(count, HKV * G * dim, dtype=dtype))
    return lines


class Combinations(unittest.TestCase):
    def test_what_is_said_and_what_is_asked(self):
        """supports_combination says None where each kernel that a step asks for can be had, else one of their refusals."""
        def asked(device, line):
            raise Asked(line)

        plain, refused = (attention_dropin.ready, cache_dropin.ready), 0
        attention_dropin.ready = cache_dropin.ready = asked
        try:
            for dim, dtype, kv, page, sinks in itertools.product(
                    (16, 32, 40, 64, 98, 112, 128, 256, 320, 512), (torch.float16, torch.bfloat16),
                    ("auto", "fp8", "fp8_e5m2"), (16, 24, 64, 544), (False, True)):
                lines = lines_of(dim, dtype, kv, page, sinks)
                self.assertEqual([line.split(",")[0] for line in lines],
                                 ["kv_write:x=" + lines[0].split("x=")[1].split(",")[0], "attn:phase=decode",
                                  "attn:phase=verify", "attn:phase=extend"])
                said = backend().supports_combination(dim, dtype, kv, page, False, sinks, False, False, None)
                found = [text for text in (kgen.refusal(line, os.environ["KGEN_DEVICE"]) for line in lines) if text]
                self.assertEqual(said is None, not found, f"{dim} {dtype} {kv} {page} {sinks}: {said} / {found}")
                refused += said is not None
        finally:
            attention_dropin.ready, cache_dropin.ready = plain
        self.assertTrue(0 < refused < 480, refused)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
