"""SGLang's attention back end on kgen, of its interface of 0.5.23.

All metadata of a step is one launch, scatter:op=spec_prepare: lengths, offsets and page tables out of the engine's
request slots. It is made inside the graph, so a replay prepares itself and nothing is read on the host. Layers of a sliding
window may have a pool of their own. The mask of a tree becomes words by a launch before the graph.
"""
from __future__ import annotations

import dataclasses
from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend, SharedReadEnds
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from ..dropin import cache
from ..dropin.attention import attend
from ..dropin.common import EIGHT_BITS, offered
from ..dropin.sglang import scatter

MOST_NODES = 64


@dataclasses.dataclass
class Facts:
    """What attention is given. The tensors of a graph are those of its capture."""
    seq_lens: torch.Tensor
    starts: torch.Tensor | None  # None: one token a sequence
    table: torch.Tensor
    longest: int
    window_table: torch.Tensor | None = None  # of the layers of a window, where they have a pool of their own
    words: torch.Tensor | None = None  # of a tree: who sees whom


class KgenAttnBackend(AttentionBackend):
    needs_cpu_seq_lens = False

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.device = torch.device(runner.device)
        self.pool, self.page = runner.token_to_kv_pool, runner.page_size
        self.two_pools = isinstance(self.pool, SWAKVPool)
        ring = self.two_pools and (self.pool.swa_req_ring_size or self.pool.request_window)
        if runner.use_mla_backend or ring:
            raise NotImplementedError("latent attention, and windows as rings of a request: not in this back end")
        self.req_to_token = runner.req_to_token_pool.req_to_token
        self.one = torch.ones(1, device=self.device)
        self.forward_metadata: Facts | None = None
        self.graph_facts: Facts | None = None

    # ---- metadata ----

    def buffers(self, count: int, tokens: int) -> Facts:
        """Of so many sequences, whose longest has so many tokens."""
        ints, columns = {"dtype": torch.int32, "device": self.device}, -(-tokens // self.page)
        return Facts(torch.empty(count, **ints), torch.empty(count + 1, **ints), torch.zeros(count, columns, **ints), 1,
                     torch.zeros(count, columns, **ints) if self.two_pools else None)

    def kind(self, batch: Any) -> tuple[bool, int]:
        """Whether its sequences bring as many tokens as extend_seq_lens says, else the same number each."""
        mode, drafts = batch.forward_mode, batch.spec_info
        if mode.is_decode_or_idle() and drafts is None:
            return False, 1
        if mode.is_target_verify():
            return False, drafts.draft_token_num
        if mode.is_extend() and batch.extend_seq_lens is not None:
            return True, 0
        raise NotImplementedError(f"forward_mode={mode.name}, spec_info={type(drafts).__name__}: decodes, prompts and "
                                  "verified chains alone")

    def take(self, facts: Facts, batch: Any, in_capture: bool = False) -> None:
        """The first rows of these buffers are the batch's."""
        count = batch.batch_size
        ragged, tokens = self.kind(batch)
        longest = max(batch.extend_seq_lens_cpu) if ragged else tokens
        decode = not ragged and tokens == 1
        self.forward_metadata = Facts(facts.seq_lens[:count], None if decode else facts.starts[:count + 1],
                                      facts.table[:count], longest,
                                      facts.window_table[:count] if self.two_pools else None,
                                      self.words_of(facts, batch, in_capture))

    def words_of(self, facts: Facts, batch: Any, in_capture: bool) -> torch.Tensor | None:
        """Of a tree the words of its mask [D][length + D] a sequence; the buffer is one for every batch of a graph."""
        drafts = batch.spec_info
        if not batch.forward_mode.is_target_verify() or drafts.custom_mask is None or getattr(drafts, "topk", 0) == 1:
            return None  # a chain; drafts of n-grams are trees of no topk
        each = drafts.draft_token_num
        if each > MOST_NODES:
            raise NotImplementedError(f"speculative_num_draft_tokens={each}: phase=tree has at most {MOST_NODES} tokens")
        if facts.words is None:
            kind = torch.int32 if each <= 32 else torch.int64
            facts.words = torch.zeros(len(facts.seq_lens), each, dtype=kind, device=self.device)
        words = facts.words[:batch.batch_size]
        if not in_capture:  # whose mask says nothing yet
            scatter("tree_mask", ",mask=full", lens=batch.seq_lens[:batch.batch_size], words=words,
                    mask=drafts.custom_mask.view(torch.uint8), tokens=each)
        return words

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """One launch. Committed tokens and new ones: those of a decode are both in seq_lens."""
        facts, count = self.forward_metadata, forward_batch.batch_size
        ragged, tokens = self.kind(forward_batch)
        lens, more, given = forward_batch.seq_lens, ",qo=0", {"tokens": 0}
        if ragged:
            lens, more = forward_batch.extend_prefix_lens, ",ragged=1"
            given = {"q_lens": forward_batch.extend_seq_lens[:count], "qo_indptr": facts.starts}
        elif facts.starts is not None:
            more, given = "", {"tokens": tokens, "pad_len": tokens, "qo_indptr": facts.starts}
        if self.two_pools:
            more += ",swa=1"
            given |= {"swa_table": facts.window_table, "mapping": self.pool.full_to_swa_index_mapping}
        scatter("spec_prepare", f",page={self.page},pick=first,tail=keep,kv=0,locs=0,pos=0{more}", lens=lens[:count],
                requests=forward_batch.req_pool_indices[:count], req_to_token=self.req_to_token,
                seq_lens=facts.seq_lens, table=facts.table, **given)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Without a graph: a table as wide as this batch, where the host knows how wide that is."""
        known = forward_batch.seq_lens_cpu
        tokens = self.req_to_token.shape[1]
        if known is not None:
            tokens = int(known.max()) + self.kind(forward_batch)[1]
        self.take(self.buffers(forward_batch.batch_size, tokens), forward_batch)
        self.init_forward_metadata_in_graph(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        self.graph_facts = self.buffers(max_bs, self.req_to_token.shape[1])

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Nothing but the choice of buffers, and the words of a tree: what fills the others is in the graph."""
        self.take(self.graph_facts, forward_batch, in_capture)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def shared_read_ends(self, fm: Any) -> SharedReadEnds:
        """The request slots are read by the launch in the graph, the pool by attention."""
        return SharedReadEnds.IN_REPLAY if fm.is_decode() or fm.is_target_verify() else SharedReadEnds.UNKNOWN

    # ---- attention ----

    def pages_of(self, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The pool's [slots][H][D] as [B][page][H][D]."""
        k, v = self.pool.get_kv_buffer(layer.layer_id)
        return k.unflatten(0, (-1, self.page)), v.unflatten(0, (-1, self.page))

    def scales_of(self, layer: Any, pages: torch.Tensor) -> tuple[Any, Any]:
        """1 where a layer of an 8-bit cache has none."""
        if pages.dtype not in EIGHT_BITS:
            return None, None
        return tuple(self.one if scale is None else scale for scale in (layer.k_scale, layer.v_scale))

    def attention(self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, batch: Any,
                  save_kv_cache: bool = True, sinks: torch.Tensor | None = None, **newer: Any) -> torch.Tensor:
        offered(**newer, use_irope=layer.use_irope, is_cross_attention=layer.is_cross_attention,
                xai_temperature_len=layer.xai_temperature_len if layer.xai_temperature_len > 0 else None,
                encoder_lens=batch.encoder_lens)
        facts, (k_pages, v_pages) = self.forward_metadata, self.pages_of(layer)
        own = self.two_pools and self.pool.layers_mapping[layer.layer_id][1]
        k_scale, v_scale = self.scales_of(layer, k_pages)
        if save_kv_cache and k is not None:
            heads = layer.tp_k_head_num
            cache.write(k.view(-1, heads, layer.qk_head_dim), v.view(-1, heads, layer.v_head_dim), k_pages, v_pages,
                        batch.out_cache_loc, "auto", k_scale, v_scale, "nhd",
                        self.pool.full_to_swa_index_mapping if own else None)
        rows = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = q.new_empty(rows.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        attend(rows, k_pages, v_pages, out, facts.window_table if own else facts.table, facts.seq_lens,
               scale=layer.scaling, words=facts.words, k_scale=k_scale, v_scale=v_scale, starts=facts.starts, longest=facts.longest,
               causal=layer.attn_type != AttentionType.ENCODER_ONLY, window=(max(layer.sliding_window_size + 1, 0), 0),
               softcap=layer.logit_cap, sinks=None if sinks is None else sinks.float())
        return out.flatten(1)

    forward_decode = forward_extend = attention

    def support_triton(self) -> bool:
        return False
