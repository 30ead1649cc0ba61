"""SGLang's back end beside plain torch, on the cpu device, under SGLang's own classes. KGEN_SGLANG names a folder with
its package. The pools are its own, too; of the model runner a back end sees four attributes."""
import os
import sys
import types
import unittest

import torch
from references import attention, close

sys.path.insert(0, os.environ["KGEN_SGLANG"])

from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

from kgen.plugins import sglang_plugin as plugin

D, HKV, G, SLOTS, CONTEXT, REQUESTS = 64, 2, 2, 128, 64, 4
SCALE = D ** -0.5


def make_runner(page, **options):
    pool = MHATokenToKVPool(SLOTS, page, torch.bfloat16, HKV, D, 1, "cpu", False, enable_alt_stream=False)
    return types.SimpleNamespace(**{
        "device": "cpu", "page_size": page, "use_mla_backend": False, "token_to_kv_pool": pool,
        "req_to_token_pool": ReqToTokenPool(REQUESTS, CONTEXT, "cpu", False), **options})


class Batch:
    """Sequences of a step in pages of `page`, in requests' rows that lie the other way round."""

    def __init__(self, lengths, counts, page, runner=None, **options):
        plugin.register()
        self.lengths, self.counts = lengths, counts
        self.runner = runner or make_runner(page)
        self.backend = ATTENTION_BACKENDS[plugin.NAME](self.runner)
        self.layer = RadixAttention(HKV * G, D, SCALE, HKV, 0, **options)
        self.requests = torch.arange(REQUESTS, REQUESTS - len(lengths), -1)
        two = isinstance(self.runner.token_to_kv_pool, SWAKVPool)
        own = torch.randperm(SLOTS // page - 1) + 1
        if two:  # slots of the window's pool, page by page
            whole = torch.cat((torch.zeros(1, dtype=own.dtype), own))[:, None] * page + torch.arange(page)
            self.runner.token_to_kv_pool.register_mapping(torch.cat((whole.flatten(), torch.tensor([-1]))))
        pages = torch.randperm(SLOTS // page - 1) + 1  # page 0 is the engine's padding
        self.keys = [torch.randn(2, length, HKV, D).bfloat16() for length in lengths]
        self.q = torch.randn(sum(counts), HKV * G * D).bfloat16()
        k_pool, v_pool = self.runner.token_to_kv_pool.get_kv_buffer(0)
        for row, length in enumerate(lengths):
            place = torch.arange(length)
            slots = pages[row * -(-max(lengths) // page) + place // page] * page + place % page
            self.runner.req_to_token_pool.req_to_token[self.requests[row], :length] = slots.int()
            old = slots[:length - counts[row]]
            if two:
                old = self.runner.token_to_kv_pool.translate_loc_from_full_to_swa(old)
            k_pool[old], v_pool[old] = self.keys[row][:, :len(old)]

    def forward_batch(self, mode, **more):
        lengths, counts = torch.tensor(self.lengths), torch.tensor(self.counts)
        rows = self.runner.req_to_token_pool.req_to_token
        new = [rows[request, length - count:length] for request, length, count in
               zip(self.requests, self.lengths, self.counts)]
        if mode == ForwardMode.EXTEND:
            more |= {"extend_seq_lens": counts.int(), "extend_prefix_lens": (lengths - counts).int(),
                     "extend_seq_lens_cpu": self.counts}
        seen = lengths - counts if mode == ForwardMode.TARGET_VERIFY else lengths
        return ForwardBatch(forward_mode=mode, batch_size=len(self.lengths), input_ids=torch.zeros(sum(self.counts)),
                            req_pool_indices=self.requests, seq_lens=seen, out_cache_loc=torch.cat(new).long(),
                            seq_lens_sum=int(seen.sum()), seq_lens_cpu=seen, **more)

    def forward(self, batch):
        parts = [keys[:, length - count:] for keys, length, count in zip(self.keys, self.lengths, self.counts)]
        k, v = torch.cat(parts, dim=1).flatten(2)
        return self.backend.forward(self.q, k, v, self.layer, batch) if batch.forward_mode.is_decode() else (
            self.backend.forward_extend(self.q, k.view(-1, HKV, D), v.view(-1, HKV, D), self.layer, batch))

    def check(self, got, **options):
        at, q = 0, self.q.view(-1, HKV * G, D)
        for (k, v), count in zip(self.keys, self.counts):
            want, _ = attention(q[at:at + count], k, v, SCALE, **options)
            close(got.view(-1, HKV * G, D)[at:at + count], want, f"{count} tokens of {len(k)}")
            at += count


def drafts(count, topk=1, mask=None):
    return types.SimpleNamespace(topk=topk, draft_token_num=count, custom_mask=mask)


class Steps(unittest.TestCase):
    def test_prompts_with_prefixes(self):
        batch = Batch([40, 17, 3], [24, 17, 1], page=1)
        step = batch.forward_batch(ForwardMode.EXTEND)
        batch.backend.init_forward_metadata(step)
        batch.check(batch.forward(step))

    def test_decodes_in_pages_with_a_window(self):
        batch = Batch([40, 17], [1, 1], page=16, sliding_window_size=8)
        step = batch.forward_batch(ForwardMode.DECODE)
        batch.backend.init_forward_metadata(step)
        batch.check(batch.forward(step), window=9)

    def test_a_graph_prepares_itself(self):
        """What a replay runs is what the capture ran: the buffers are the capture's, filled by the launch in the graph."""
        batch = Batch([24, 9], [4, 4], page=16)
        backend, captured = batch.backend, batch.forward_batch(ForwardMode.TARGET_VERIFY, spec_info=drafts(4))
        backend.init_cuda_graph_state(REQUESTS, REQUESTS * 4)
        real = captured.seq_lens.clone()
        captured.seq_lens.fill_(1)  # as the engine captures
        backend.init_forward_metadata_out_graph(captured, in_capture=True)
        facts = backend.forward_metadata
        captured.seq_lens.copy_(real)
        backend.init_forward_metadata_out_graph(captured)
        backend.init_forward_metadata_in_graph(captured)
        for name in ("seq_lens", "starts", "table"):
            self.assertEqual(getattr(facts, name).data_ptr(), getattr(backend.forward_metadata, name).data_ptr())
        self.assertEqual(facts.seq_lens.tolist(), batch.lengths)
        batch.check(batch.forward(captured))

    def test_layers_with_a_pool_of_their_own(self):
        """Layer 0 has a window, its slots are the mapped ones; what it writes is in no other pool."""
        for page, mode, counts in ((16, ForwardMode.DECODE, [1, 1]), (1, ForwardMode.EXTEND, [9, 17])):
            pool = SWAKVPool(SLOTS, SLOTS, page, torch.bfloat16, HKV, D, [0], [1], "cpu", enable_alt_stream=False)
            batch = Batch([40, 17], counts, page, make_runner(page, token_to_kv_pool=pool), sliding_window_size=8)
            before = pool.get_kv_buffer(1)[0].clone()
            step = batch.forward_batch(mode)
            batch.backend.init_forward_metadata(step)
            batch.check(batch.forward(step), window=9)
            self.assertTrue(torch.equal(pool.get_kv_buffer(1)[0], before))
            full = Batch([40, 17], counts, page, make_runner(page, token_to_kv_pool=pool))
            full.layer = RadixAttention(HKV * G, D, SCALE, HKV, 1)
            k_pool, v_pool = pool.get_kv_buffer(1)
            for row, (length, count) in enumerate(zip(full.lengths, counts)):
                slots = full.runner.req_to_token_pool.req_to_token[full.requests[row], :length - count].long()
                k_pool[slots], v_pool[slots] = full.keys[row][:, :length - count]
            step = full.forward_batch(mode)
            full.backend.init_forward_metadata(step)
            full.check(full.forward(step))

    def test_trees(self):
        """The root, two children of it, and a child of each; masks of whole rows, as the engine builds them."""
        seen = torch.eye(5, dtype=torch.bool)
        for node, parent in ((1, 0), (2, 0), (3, 1), (4, 2)):
            seen[node] |= seen[parent]
        batch = Batch([21, 12], [5, 5], page=16)
        mask = torch.cat([torch.cat((torch.ones(5, length - 5, dtype=torch.bool), seen), 1).flatten()
                          for length in batch.lengths])
        step = batch.forward_batch(ForwardMode.TARGET_VERIFY, spec_info=drafts(5, 2, mask))
        for graph in (False, True):
            if graph:
                batch.backend.init_cuda_graph_state(REQUESTS, REQUESTS * 5)
                batch.backend.init_forward_metadata_out_graph(step, in_capture=True)
                captured = batch.backend.forward_metadata.words
                batch.backend.init_forward_metadata_out_graph(step)
                batch.backend.init_forward_metadata_in_graph(step)
                self.assertEqual(captured.data_ptr(), batch.backend.forward_metadata.words.data_ptr())
            else:
                batch.backend.init_forward_metadata(step)
            got, q = batch.forward(step).view(2, 5, HKV * G, D), batch.q.view(2, 5, HKV * G, D)
            for row, (k, v) in enumerate(batch.keys):
                for node in range(5):
                    rows = torch.cat((torch.ones(len(k) - 5, dtype=torch.bool), seen[node]))
                    want, _ = attention(q[row, node:node + 1], k[rows], v[rows], SCALE)
                    close(got[row, node:node + 1], want, f"node {node} of {len(k)}")

    def test_refuses(self):
        with self.assertRaisesRegex(NotImplementedError, "latent attention"):
            Batch([4], [1], 1, make_runner(1, use_mla_backend=True))
        batch = Batch([8], [4], 1)
        with self.assertRaisesRegex(NotImplementedError, "speculative_num_draft_tokens=65"):
            batch.backend.init_forward_metadata(batch.forward_batch(ForwardMode.TARGET_VERIFY, spec_info=drafts(65, 2, torch.ones(1))))
        with self.assertRaisesRegex(NotImplementedError, "DRAFT_EXTEND_V2"):
            batch.backend.init_forward_metadata(batch.forward_batch(ForwardMode.DRAFT_EXTEND_V2, spec_info=drafts(4)))

    def test_selection(self):
        from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
        plugin.register()
        plugin.register()
        self.assertEqual(ATTENTION_BACKEND_CHOICES.count(plugin.NAME), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
