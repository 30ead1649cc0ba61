"""SGLang's functions, with its signatures: index work of its attention and its drafts, and Gated DeltaNet."""
from __future__ import annotations

from typing import Any

import torch

from . import cache, delta
from .common import Launcher, scatter
from .listed import (build_unified_kv_indices, decode_attention_fwd, decode_attention_fwd_grouped, decode_attention_fwd_normal,
                     extend_attention_fwd, extend_attention_fwd_unified)
from .merge import merge_state, merge_state_v2

__all__ = ["assign_draft_cache_locs", "assign_extend_cache_locs_func", "assign_req_to_token_pool_func", "build_tree_kernel_efficient",
           "build_unified_kv_indices", "causal_conv1d_update", "causal_conv1d_update_in_place", "create_flashinfer_kv_indices_triton", "decode_attention_fwd",
           "decode_attention_fwd_grouped", "decode_attention_fwd_normal", "extend_attention_fwd", "extend_attention_fwd_unified",
           "fused_recurrent_gated_delta_rule_packed_decode", "fused_sigmoid_gating_delta_rule_update",
           "merge_state", "merge_state_v2", "reconstruct_indices_from_tree_mask", "scatter_ragged_to_page_table_kernel", "scatter_req_to_token_to_page_table_kernel",
           "store_cache", "tree_speculative_sampling_target_only", "verify_tree_greedy"]

FULL_MASK, QLEN_ONLY = 0, 1  # tree_mask_mode


# ---- tables ----

@Launcher
def create_flashinfer_kv_indices_triton(
        req_to_token_ptr: torch.Tensor, req_pool_indices_ptr: torch.Tensor, page_kernel_lens_ptr: torch.Tensor,
        kv_indptr: torch.Tensor, kv_start_idx: torch.Tensor | None, kv_indices_ptr: torch.Tensor,
        req_to_token_ptr_stride: int) -> None:
    """The slots of the requests' tokens, packed. The stride is the tensor's own."""
    count = req_pool_indices_ptr.shape[0]
    starts = {} if kv_start_idx is None else {"starts": kv_start_idx}
    scatter("kv_indices", ",starts=1" if starts else "", indptr=kv_indptr[:count + 1], lens=page_kernel_lens_ptr,
            requests=req_pool_indices_ptr, req_to_token=req_to_token_ptr, indices=kv_indices_ptr, **starts)


def assign_req_to_token_pool_func(req_pool_indices: torch.Tensor, req_to_token: torch.Tensor,
                                  start_offset: torch.Tensor, end_offset: torch.Tensor, out_cache_loc: torch.Tensor,
                                  batch_size: int) -> None:
    """Writes the slots of new tokens, packed in out_cache_loc, into their requests' rows."""
    scatter("assign_locs", ",form=ragged", lens=end_offset[:batch_size], starts=start_offset[:batch_size],
            requests=req_pool_indices[:batch_size], req_to_token=req_to_token, locs=out_cache_loc)


def assign_extend_cache_locs_func(req_pool_indices: torch.Tensor, req_to_token: torch.Tensor,
                                  start_offset: torch.Tensor, end_offset: torch.Tensor, batch_size: int,
                                  draft_token_num: int, device: Any) -> torch.Tensor:
    """The slots of columns start_offset .. end_offset of each request, packed; those behind the last are 0."""
    locs = torch.empty(batch_size * draft_token_num, dtype=torch.int64, device=device)
    scatter("cache_locs", ",form=ragged", lens=end_offset[:batch_size], starts=start_offset[:batch_size],
            requests=req_pool_indices[:batch_size], req_to_token=req_to_token, locs=locs)
    return locs


@Launcher
def assign_draft_cache_locs(
        req_pool_indices: torch.Tensor, req_to_token: torch.Tensor, seq_lens: torch.Tensor, extend_lens: torch.Tensor,
        num_new_pages_per_topk: torch.Tensor, out_cache_loc: torch.Tensor, source_cache_loc: torch.Tensor | None,
        target_cache_loc: torch.Tensor | None, last_page_lens_cumsum: torch.Tensor | None, duplicate_cache_len: int,
        pool_len: int, topk: int, speculative_num_steps: int, page_size: int, bs_upper: int, iter_upper: int) -> None:
    """Slots of the drafts into their requests' rows; with pages and several branches also which slots of a last page each
    branch copies from and to, and the drafts' own slots to the front of out_cache_loc (the original leaves them where no
    page is shared). Up to four launches, and a few of torch's for their rows."""
    count = seq_lens.shape[0]
    lens = seq_lens.to(torch.int32)
    paged = page_size > 1 and topk > 1
    ends = lens + (extend_lens.to(torch.int32) if paged else topk * speculative_num_steps)
    assign_req_to_token_pool_func(req_pool_indices, req_to_token, lens, ends, out_cache_loc, count)
    if not paged:
        return
    if duplicate_cache_len > 0:
        last = lens % page_size
        step = num_new_pages_per_topk.to(torch.int32) * page_size
        branch = torch.arange(1, topk, dtype=torch.int32, device=lens.device)
        sources = (lens - last).repeat_interleave(topk - 1)
        targets = ((lens - last)[:, None] + branch * step[:, None]).view(-1)
        for starts, locs in ((sources, source_cache_loc), (targets, target_cache_loc)):
            scatter("cache_locs", ",form=ragged", lens=starts + last.repeat_interleave(topk - 1), starts=starts,
                    requests=req_pool_indices.repeat_interleave(topk - 1), req_to_token=req_to_token, locs=locs)
    scatter("cache_locs", f",form=draft,page={page_size}", lens=lens, requests=req_pool_indices,
            req_to_token=req_to_token, locs=out_cache_loc[:count * topk * speculative_num_steps], topk=topk,
            steps=speculative_num_steps)


def store_cache(k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor,
                *, row_bytes: int = 0, num_split: int = 0) -> None:
    """Rows [T][H D] to slots of caches [slots][H D]. num_split is the original's own."""
    def pages(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 1, x.shape[1] // dim, dim)

    dim = next((dim for dim in reversed(cache.HEAD_DIMS) if k.shape[1] % dim == 0), 0)
    if not dim or row_bytes not in (0, k.shape[1] * k.element_size()):
        raise NotImplementedError(f"rows of {k.shape[1]}: a row is heads of a head_dim of kv_write's")
    cache.write(pages(k)[:, 0], pages(v)[:, 0], pages(k_cache), pages(v_cache), indices, "auto", None, None, "nhd")


def window_tables(count: int, sw_page_table: torch.Tensor | None, swa_slot_mapping: torch.Tensor | None,
                  has_swa: bool) -> dict[str, torch.Tensor]:
    return {"swa_table": sw_page_table[:count], "mapping": swa_slot_mapping} if has_swa else {}


@Launcher
def scatter_ragged_to_page_table_kernel(
        kv_flat_ptr: torch.Tensor, kv_indptr_ptr: torch.Tensor, dest_ptr: torch.Tensor, dest_stride: int,
        sw_page_table_ptr: torch.Tensor | None, swa_slot_mapping_ptr: torch.Tensor | None, PAGE_SIZE: int,
        BLOCK_SIZE: int, HAS_SWA: bool) -> None:
    """Pages of ragged slots; what stands behind a row's last block stays."""
    count = kv_indptr_ptr.shape[0] - 1
    scatter("page_table_ragged", f",page={PAGE_SIZE},pick=first,tail=keep,swa={int(HAS_SWA)}", slots=kv_flat_ptr,
            indptr=kv_indptr_ptr, table=dest_ptr[:count],
            **window_tables(count, sw_page_table_ptr, swa_slot_mapping_ptr, HAS_SWA))


@Launcher
def scatter_req_to_token_to_page_table_kernel(
        req_to_token_ptr: torch.Tensor, req_pool_indices_ptr: torch.Tensor, seq_lens_ptr: torch.Tensor,
        page_table_ptr: torch.Tensor, req_to_token_stride: int, page_table_stride: int,
        sw_page_table_ptr: torch.Tensor | None, swa_slot_mapping_ptr: torch.Tensor | None, DRAFT_NUM: int,
        PAGE_SIZE: int, BLOCK_SIZE: int, HAS_SWA: bool) -> None:
    """Pages of requests with DRAFT_NUM new tokens each; what stands behind a row's last block stays."""
    count = req_pool_indices_ptr.shape[0]
    scatter("page_table_requests", f",page={PAGE_SIZE},pick=first,tail=keep,swa={int(HAS_SWA)}",
            lens=seq_lens_ptr[:count], requests=req_pool_indices_ptr, req_to_token=req_to_token_ptr,
            table=page_table_ptr[:count], tokens=DRAFT_NUM,
            **window_tables(count, sw_page_table_ptr, swa_slot_mapping_ptr, HAS_SWA))


# ---- trees ----

def build_tree_kernel_efficient(
        parent_list: torch.Tensor, selected_index: torch.Tensor, verified_seq_len: torch.Tensor,
        tree_mask: torch.Tensor, positions: torch.Tensor, retrive_index: torch.Tensor,
        retrive_next_token: torch.Tensor, retrive_next_sibling: torch.Tensor, topk: int, depth: int,
        draft_token_num: int, tree_mask_mode: int) -> None:
    """sgl_kernel's. The mask is full or of the new tokens alone; words of bits are scatter's mask=words."""
    if tree_mask_mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError(f"tree_mask_mode={tree_mask_mode}: torch.ops.kgen.scatter_tree_build has mask=words")
    count = verified_seq_len.shape[0]
    mask = tree_mask.view(-1) if tree_mask_mode == FULL_MASK else tree_mask.view(count, draft_token_num, draft_token_num)
    scatter("tree_build", ",mask=full" if tree_mask_mode == FULL_MASK else ",mask=qlen", lens=verified_seq_len,
            selected=selected_index, parents=parent_list, positions_out=positions.view(-1), tree_index=retrive_index,
            next_token=retrive_next_token, next_sibling=retrive_next_sibling, mask_out=mask, tokens=draft_token_num,
            topk=topk)


def reconstruct_indices_from_tree_mask(
        tree_mask: torch.Tensor, verified_seq_len: torch.Tensor, positions: torch.Tensor, retrive_index: torch.Tensor,
        retrive_next_token: torch.Tensor, retrive_next_sibling: torch.Tensor, batch_size: int,
        draft_token_num: int) -> None:
    """sgl_kernel's: positions and links out of a mask [batch][nodes][nodes]."""
    scatter("tree_from_mask", ",mask=qlen", lens=verified_seq_len[:batch_size], positions_out=positions.view(-1),
            tree_index=retrive_index, next_token=retrive_next_token, next_sibling=retrive_next_sibling,
            mask=tree_mask.view(batch_size, draft_token_num, draft_token_num), tokens=draft_token_num)


def verify_tree_greedy(predicts: torch.Tensor, accept_index: torch.Tensor, accept_token_num: torch.Tensor,
                       candidates: torch.Tensor, retrive_index: torch.Tensor, retrive_next_token: torch.Tensor,
                       retrive_next_sibling: torch.Tensor, target_predict: torch.Tensor) -> None:
    """sgl_kernel's. What no accepted node fills is -1; the original leaves it."""
    scatter("tree_verify", accept_index=accept_index, accept_count=accept_token_num,
            predicts=predicts.view(candidates.shape), tokens_in=candidates,
            targets_in=target_predict.view(candidates.shape), next_token=retrive_next_token,
            next_sibling=retrive_next_sibling, tokens=candidates.shape[1])


def tree_speculative_sampling_target_only(
        predicts: torch.Tensor, accept_index: torch.Tensor, accept_token_num: torch.Tensor, candidates: torch.Tensor,
        retrive_index: torch.Tensor, retrive_next_token: torch.Tensor, retrive_next_sibling: torch.Tensor,
        uniform_samples: torch.Tensor, uniform_samples_for_final_sampling: torch.Tensor, target_probs: torch.Tensor,
        draft_probs: torch.Tensor, threshold_single: float = 1.0, threshold_acc: float = 1.0,
        deterministic: bool = True) -> None:
    """sgl_kernel's. draft_probs, which the original uses as scratch, stays as it is; always deterministic."""
    scatter("tree_verify", ",sampling=1", accept_index=accept_index, accept_count=accept_token_num,
            predicts=predicts.view(candidates.shape), tokens_in=candidates, next_token=retrive_next_token,
            next_sibling=retrive_next_sibling, probs=target_probs, coins=uniform_samples,
            final_coins=uniform_samples_for_final_sampling.view(-1), tokens=candidates.shape[1],
            threshold_single=threshold_single, threshold_acc=threshold_acc)


# ---- Gated DeltaNet ----

def fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, A_log: torch.Tensor, dt_bias: torch.Tensor,
        scale: float, initial_state: torch.Tensor, out: torch.Tensor, ssm_state_indices: torch.Tensor,
        use_qk_l2norm_in_kernel: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots below 0 stand for no sequence."""
    return delta.fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv, a, b, A_log, dt_bias, scale, initial_state, out, ssm_state_indices, use_qk_l2norm_in_kernel, "neg")


def fused_sigmoid_gating_delta_rule_update(
        A_log: torch.Tensor, a: torch.Tensor, dt_bias: torch.Tensor, softplus_beta: float, softplus_threshold: float,
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, b: torch.Tensor, initial_state_source: torch.Tensor,
        initial_state_indices: torch.Tensor, scale: float | None = None, use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: torch.Tensor | None = None, is_kda: bool = False, **newer: Any) -> torch.Tensor:
    """States [slots][Hv][V][K]. Of a padded row (a slot below 0) the output is zeros; the original's is that of an
    empty state."""
    delta.offered(**{name: value or None for name, value in newer.items() if not isinstance(value, torch.Tensor)},
                  **{name: value for name, value in newer.items() if isinstance(value, torch.Tensor)})
    delta.check_softplus(softplus_beta, softplus_threshold)
    return delta.in_place(delta.rows_of(q, k, v), v.shape, None, a, b, A_log, dt_bias, scale, initial_state_source,
                          True, cu_seqlens, initial_state_indices, None, use_qk_l2norm_in_kernel, is_kda, "neg")[0]


def causal_conv1d_update(
        x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
        activation: Any = None, cache_seqlens: torch.Tensor | None = None,
        conv_state_indices: torch.Tensor | None = None, num_accept_tokens: torch.Tensor | None = None,
        intermediate_conv_window: torch.Tensor | None = None, intermediate_state_indices: torch.Tensor | None = None,
        retrieve_next_token: torch.Tensor | None = None, retrieve_next_sibling: torch.Tensor | None = None,
        retrieve_parent_token: torch.Tensor | None = None, pad_slot_id: int = -1, metadata: Any = None,
        validate_data: bool = False) -> torch.Tensor:
    """x stays as it is; the result is a new tensor."""
    delta.offered(intermediate_conv_window=intermediate_conv_window,
                  intermediate_state_indices=intermediate_state_indices, retrieve_next_token=retrieve_next_token,
                  retrieve_next_sibling=retrieve_next_sibling, retrieve_parent_token=retrieve_parent_token)
    return delta.convolved(x, conv_state, weight, bias, activation, conv_state_indices, num_accept_tokens, None, -1,
                           pad_slot_id, cache_seqlens)


def causal_conv1d_update_in_place(
        x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias_: torch.Tensor | None,
        silu_activation: bool, cache_seqlens: torch.Tensor | None, conv_state_indices: torch.Tensor | None,
        pad_slot_id: int) -> None:
    """sgl_kernel's causal_conv1d_update: x is overwritten."""
    delta.check_window(conv_state, weight, cache_seqlens)
    x.copy_(delta.convolved(x, conv_state, weight, bias_, silu_activation, conv_state_indices, None, None, -1,
                            pad_slot_id, cache_seqlens))
