"""Batches of nobody: an engine's idle rank makes the same calls, of no tokens and no sequences, and nothing happens. Run by
with_torch.sh."""
import sys
import unittest

import torch
from references import attention  # noqa: F401  seeds torch, and prints the seed

from kgen.dropin import aiter, flash, fla, sglang, vllm

BF16 = {"dtype": torch.bfloat16}
HQ, HKV, D, PAGE = 4, 2, 64, 16
NO_ENDS, NONE = torch.zeros(1, dtype=torch.int32), torch.empty(0, dtype=torch.int32)
NO_TABLE = torch.empty(0, 3, dtype=torch.int32)


def rows(*shape):
    return torch.empty(0, *shape, **BF16)


class Nobody(unittest.TestCase):
    def setUp(self):
        self.pages = torch.randn(2, 3, PAGE, HKV, D).bfloat16()
        self.before = self.pages.clone()

    def tearDown(self):
        self.assertTrue(torch.equal(self.pages, self.before))

    def test_attention(self):
        q, new = rows(HQ, D), rows(HKV, D)
        vllm.unified_attention(q, *self.pages, q.clone(), NO_ENDS, 1, NONE, 1, 0.125, True, (-1, -1), NO_TABLE, 0.0, None, None, None)
        out, lse = vllm.flash_attn_varlen_func(q, *self.pages, 1, NO_ENDS, 1, seqused_k=NONE, causal=True, block_table=NO_TABLE,
                                               return_softmax_lse=True)
        self.assertEqual((out.shape, lse.shape), ((0, HQ, D), (HQ, 0)))
        self.assertEqual(flash.flash_attn_varlen_func(q, new, new, NO_ENDS, NO_ENDS, 0, 0, causal=True).shape, (0, HQ, D))
        for tokens in (1, 2):
            more = torch.empty(0, tokens, HKV, D, **BF16)
            for given in ({}, {"k": more, "v": more}):
                out, lse = flash.flash_attn_with_kvcache(torch.empty(0, tokens, HQ, D, **BF16), *self.pages, **given, cache_seqlens=NONE,
                                                         block_table=NO_TABLE, causal=True, return_softmax_lse=True)
                self.assertEqual((out.shape, lse.shape), ((0, tokens, HQ, D), (0, HQ, tokens)))
        vllm.decode_attention_fwd(q, *self.pages, q.clone(), torch.empty(0, HQ), NO_TABLE, NONE, None, 1, 0.125, PAGE)
        sglang.decode_attention_fwd(q, *self.pages[:, 0], q.clone(), NO_ENDS, NONE, None, None, None, 8, 0.125)
        sglang.extend_attention_fwd(q, new, new, q.clone(), *self.pages[:, 0], NO_ENDS, NO_ENDS, NONE, None, True, None, 0)
        aiter.paged_attention_v1(q.clone(), None, q, *self.pages, 0.125, NO_TABLE, None, NONE, 1, None, "auto", "NHD", 0.0, None, None)
        vllm.merge_attn_states(q.clone(), q, torch.empty(HQ, 0), q, torch.empty(HQ, 0))
        self.assertEqual(sglang.merge_state(q, torch.empty(0, HQ), q, torch.empty(0, HQ))[0].shape, (0, HQ, D))

    def test_caches(self):
        new, one = rows(HKV, D), torch.ones(1)
        vllm.reshape_and_cache_flash(new, new, *self.pages, NONE.long(), "auto", one, one)
        sglang.store_cache(rows(HKV * D), rows(HKV * D), *self.pages.view(2, 3 * PAGE, HKV * D), NONE.long())
        latent = torch.zeros(3, PAGE, 576, **BF16)
        for rope in (rows(64), rows(1, 64)):
            vllm.concat_and_cache_mla(rows(512), rope, latent, NONE.long(), "auto", one)
        vllm.concat_and_cache_mla(rows(512), rows(64), torch.zeros(3, PAGE, 656, dtype=torch.uint8), NONE.long(), "fp8_ds_mla", one)
        vllm.gather_and_maybe_dequant_cache(latent, rows(576), NO_TABLE, NO_ENDS, NONE, 0, "auto", one)
        vllm.cp_gather_cache(latent, rows(576), NO_TABLE, NO_ENDS, 0)
        table = torch.zeros(8, D // 2)
        q = rows(HQ, D)
        out = aiter.fused_qk_rope_reshape_and_cache(q, new, new, *self.pages, NONE.long(), NONE.long(), table, table, one, one, True, True)
        self.assertEqual(out[0].shape, (0, HQ, D))
        aiter.cat_and_cache_mla(rows(1, 512), rows(1, 64), latent.view(-1, 1, 576), NONE.long(), one)
        vllm.swap_blocks(self.pages[0], self.pages[1], self.pages[0, 0].numel() * 2, torch.empty(0, 2, dtype=torch.int64))

    def test_gated_delta_net(self):
        keys, heads = 1, 2
        state, gates = torch.randn(3, heads, D, D), (torch.rand(heads), torch.randn(heads).bfloat16())
        before, row = state.clone(), 2 * keys * D + heads * D
        q, v, a = torch.empty(1, 0, keys, D, **BF16), torch.empty(1, 0, heads, D, **BF16), torch.empty(1, 0, heads, **BF16)
        for ends, slots in ((NO_ENDS, NONE), (torch.zeros(3, dtype=torch.int32), NONE.new_tensor([1, 2]))):
            for out, _ in (vllm.fused_sigmoid_gating_delta_rule_update(gates[0], a, a, gates[1], q, q, v, initial_state=state,
                                                                       cu_seqlens=ends, ssm_state_indices=slots),
                           vllm.fused_recurrent_gated_delta_rule(q, q, v, a.float(), a.float(), initial_state=state, cu_seqlens=ends,
                                                                 ssm_state_indices=slots)):
                self.assertEqual(out.shape, v.shape)
        out, last = fla.fused_recurrent_gated_delta_rule(q, q, v, a.float(), beta=a.float(), initial_state=state[:2].mT,
                                                         output_final_state=True, cu_seqlens=torch.zeros(3, dtype=torch.int32))
        self.assertTrue(out.shape == v.shape and torch.equal(last, state[:2].mT))
        vllm.fused_recurrent_gated_delta_rule_packed_decode(rows(row), rows(heads), rows(heads), *gates, 0.125, state,
                                                            rows(1, heads, D), NONE)
        self.assertTrue(torch.equal(state, before))

    def test_convolutions(self):
        weight, pool = torch.randn(70, 4).bfloat16(), torch.randn(3, 70, 3).bfloat16()
        before = pool.clone()
        self.assertEqual(vllm.causal_conv1d_update(rows(70), pool, weight, None, "silu", NONE).shape, (0, 70))
        self.assertEqual(sglang.causal_conv1d_update(rows(70, 3), pool, weight, None, "silu", conv_state_indices=NONE).shape, (0, 70, 3))
        for ends, slots in ((NO_ENDS, NONE), (torch.zeros(3, dtype=torch.int32), NONE.new_tensor([1, 2]))):
            vllm.causal_conv1d_update(rows(70), pool, weight, None, "silu", slots, query_start_loc=ends, max_query_len=2)
        self.assertTrue(torch.equal(pool, before))
        flat = (1, 2, D, D)
        x, core = rows(2 * D + 2 * 2 * D), rows(2, D)
        out, _, _ = aiter.fused_reshape_causal_conv1d_update_single_token(
            x, 0, *flat, rows(4), core, core.clone(), torch.zeros(3, 4 * D, 3, **BF16), torch.randn(4 * D, 4).bfloat16(), None, "silu", NONE)
        self.assertEqual(out.shape, (0, 4 * D))

    def test_tables_and_drafts(self):
        table, requests = torch.zeros(2, 8, dtype=torch.int32), NONE.long()
        sglang.create_flashinfer_kv_indices_triton[(0,)](table, requests, NONE, NO_ENDS, None, NONE.clone(), 8)
        sglang.assign_req_to_token_pool_func(requests, table, NONE, NONE, requests, 0)
        self.assertEqual(sglang.assign_extend_cache_locs_func(requests, table, NONE, NONE, 0, 4, "cpu").shape, (0,))
        links = torch.empty(0, 4, dtype=torch.int64)
        sglang.build_tree_kernel_efficient(links[:, :2], links[:, :3], requests, torch.empty(0, dtype=torch.uint8), requests, links,
                                           links.clone(), links.clone(), 2, 2, 4, 1)
        sglang.verify_tree_greedy(NONE.view(0, 4), NONE.view(0, 3), NONE.clone(), links, links, links, links, links)
        vllm.compute_slot_mapping(0, 0, 4, NO_ENDS, requests, table, 8, torch.zeros(4, dtype=torch.int64), PAGE)
        vllm.eagle_step_update_slot_mapping_and_metadata(requests, table[:0], NONE, PAGE, 100, requests.clone(), requests.clone())
        self.assertEqual(vllm.expand_batch_to_tokens(torch.empty(0), NONE, 0).shape, (0,))


if __name__ == "__main__":
    sys.exit(unittest.main())
