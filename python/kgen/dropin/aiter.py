"""AITER's functions, with its signatures."""
from __future__ import annotations

from typing import Any

import torch

from . import cache, delta, flash, indexer, vllm
from .attention import attend
from .cache import concat_and_cache_mla
from .common import EIGHT_BITS, cache_word, offered, one
from .delta import fused_reshape_causal_conv1d_update_single_token
from .rope import (cat_and_cache_mla, fused_qk_rope_cat_and_cache_mla, fused_qk_rope_cosine_cache_llama,
                   fused_qk_rope_reshape_and_cache)

LAYOUTS = {"NHD": "nhd", "HND": "hnd"}
__all__ = ["cat_and_cache_mla", "causal_conv1d_update", "causal_conv1d_update_single_token", "concat_and_cache_mla",
           "cp_gather_indexer_k_quant_cache", "flash_attn_varlen_func", "fp8_mqa_logits", "fused_qk_rope_cat_and_cache_mla",
           "fused_qk_rope_cosine_cache_llama", "fused_qk_rope_reshape_and_cache", "fused_rearrange_sigmoid_gated_delta_rule",
           "fused_reshape_causal_conv1d_update_single_token", "indexer_k_quant_and_cache", "paged_attention_decode",
           "paged_attention_ragged", "paged_attention_v1", "reshape_and_cache_flash", "top_k_per_row_decode",
           "top_k_per_row_prefill", "unified_attention"]


def unified_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, cu_seqlens_q: torch.Tensor,
        max_seqlen_q: int, seqused_k: torch.Tensor, max_seqlen_k: int, softmax_scale: float, causal: Any,
        window_size: Any, block_table: torch.Tensor, softcap: float, q_descale: torch.Tensor | None,
        k_descale: torch.Tensor | None, v_descale: torch.Tensor | None, alibi_slopes: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None, qq_bias: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None, *, q_scales: torch.Tensor | None = None, shuffled_kv_cache: bool = False,
        skip_reduce: bool = False) -> None:
    """aiter.ops.triton.unified_attention's: vLLM's without the buffers of partial results. q_scales are of 4-bit queries;
    shuffled_kv_cache has an order of AITER's own."""
    offered(q_scales=q_scales, shuffled_kv_cache=shuffled_kv_cache, skip_reduce=skip_reduce)
    vllm.unified_attention(q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal,
                           window_size, block_table, softcap, q_descale, k_descale, v_descale,
                           alibi_slopes=alibi_slopes, output_scale=output_scale, qq_bias=qq_bias, sinks=sinks)


def paged_attention_v1(
        out: torch.Tensor, workspace_buffer: torch.Tensor | None, query: torch.Tensor, key_cache: torch.Tensor,
        value_cache: torch.Tensor, scale: float, block_tables: torch.Tensor, cu_query_lens: torch.Tensor | None,
        context_lens: torch.Tensor, max_context_len: int, alibi_slopes: torch.Tensor | None, kv_cache_dtype: str,
        kv_cache_layout: str, logits_soft_cap: float, k_scale: torch.Tensor, v_scale: torch.Tensor,
        fp8_out_scale: torch.Tensor | None = None, partition_size: int = 256, mtp: int = 1,
        sliding_window: int = 0) -> torch.Tensor:
    """Slopes come before the cap here, as in AITER's kernel. Its workspace is not used: it is the stream's. cu_query_lens
    without the last end is that of one token a sequence, as vLLM passes it."""
    if kv_cache_layout not in LAYOUTS:
        raise NotImplementedError(f"kv_cache_layout={kv_cache_layout}: NHD or HND")
    if cu_query_lens is not None and cu_query_lens.shape[0] == context_lens.shape[0] == query.shape[0]:
        cu_query_lens = None
    kv = None if kv_cache_dtype == "auto" else cache_word(key_cache, kv_cache_dtype)
    attend(query, key_cache, value_cache, out, block_tables, context_lens, scale=scale,
           layout=LAYOUTS[kv_cache_layout], kv=kv, k_scale=k_scale, v_scale=v_scale, starts=cu_query_lens, longest=mtp, window=(sliding_window, 0),
           softcap=logits_soft_cap, slopes=alibi_slopes, first="alibi", out_scale=fp8_out_scale)
    return out


def paged_attention_decode(
        output: torch.Tensor, query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        seq_lens: torch.Tensor, block_tables: torch.Tensor, attn_scale: float, max_seq_len: int, compute_type: Any,
        k_scale: torch.Tensor, v_scale: torch.Tensor, num_seq_partitions: int = 0,
        alibi_slopes: torch.Tensor | None = None) -> None:
    """aiter.ops.triton's, of pages [NB][Hkv][page][D]; scales are one for all, or [NB][Hkv][page], also with a last 1. Queries of 8
    bits have none; int8 ones become bf16, which holds them, by a launch of torch's. compute_type is how the original multiplies."""
    query = query.bfloat16() if query.dtype == torch.int8 else query
    k_each, v_each = ((scale.view(scale.shape[:3]), "hnd") if scale.numel() > 1 else scale for scale in (k_scale, v_scale))
    attend(query, key_cache, value_cache, output, block_tables, seq_lens, scale=attn_scale, layout="hnd", k_scale=k_each,
           v_scale=v_each, q_scale=one(query.device) if query.dtype in EIGHT_BITS else None, slopes=alibi_slopes)


def paged_attention_ragged(
        out: torch.Tensor, workspace_buffer: torch.Tensor | None, query: torch.Tensor, key_cache: torch.Tensor,
        value_cache: torch.Tensor, scale: float, kv_indptr: torch.Tensor, kv_page_indices: torch.Tensor,
        kv_last_page_lens: torch.Tensor, block_size: int, max_num_partitions: int,
        alibi_slopes: torch.Tensor | None, kv_cache_dtype: str, kv_cache_layout: str, logits_soft_cap: float,
        k_scale: torch.Tensor, v_scale: torch.Tensor, fp8_out_scale: torch.Tensor | None = None,
        partition_size: int = 256, mtp: int = 1) -> torch.Tensor:
    """Pages in one list. Lengths out of kv_last_page_lens cost launches of torch's."""
    if kv_cache_layout not in LAYOUTS:
        raise NotImplementedError(f"kv_cache_layout={kv_cache_layout}: NHD or HND")
    offered(mtp=mtp if mtp > 1 else None)
    kv = None if kv_cache_dtype == "auto" else cache_word(key_cache, kv_cache_dtype)
    pages = kv_indptr[1:] - kv_indptr[:-1]
    lengths = torch.where(pages > 0, (pages - 1) * block_size + kv_last_page_lens, 0).to(torch.int32)
    attend(query, key_cache, value_cache, out, None, lengths, scale=scale, layout=LAYOUTS[kv_cache_layout], kv=kv,
           k_scale=k_scale, v_scale=v_scale, softcap=logits_soft_cap, slopes=alibi_slopes, first="alibi",
           out_scale=fp8_out_scale, lists=(kv_indptr, kv_page_indices))
    return out


def flash_attn_varlen_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int, max_seqlen_k: int, min_seqlen_q: int = 0, dropout_p: float = 0.0,
        softmax_scale: float | None = None, logits_soft_cap: float = 0.0, causal: bool = False,
        window_size: Any = (-1, -1), bias: torch.Tensor | None = None, alibi_slopes: torch.Tensor | None = None,
        deterministic: bool = False, return_lse: bool = False, return_attn_probs: bool = False,
        how_v3_bf16_cvt: int = 1, block_table: torch.Tensor | None = None, out: torch.Tensor | None = None) -> Any:
    offered(dropout_p=dropout_p or None, bias=bias, return_attn_probs=return_attn_probs)
    return flash.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, None, max_seqlen_q, max_seqlen_k, softmax_scale, causal,
                        window_size, logits_soft_cap, alibi_slopes, block_table, return_lse, out, (None, None, None), None)


def reshape_and_cache_flash(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor,
                            value_cache: torch.Tensor, slot_mapping: torch.Tensor, kv_cache_dtype: str,
                            k_scale: torch.Tensor, v_scale: torch.Tensor, kv_layout: int = -1) -> None:
    """kv_layout: -1 alone, pages [NB][page][Hkv][D]."""
    offered(kv_layout=None if kv_layout == -1 else kv_layout)
    cache.reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale)


def fused_rearrange_sigmoid_gated_delta_rule(
        A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor, qkv: torch.Tensor, key_dim: int,
        value_dim: int, head_k_dim: int, head_v_dim: int, beta: float = 1.0, threshold: float = 20.0,
        scale: float | None = None, initial_state: torch.Tensor | None = None, inplace_final_state: bool = True,
        cu_seqlens: torch.Tensor | None = None, ssm_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None, use_qk_l2norm_in_kernel: bool = False,
        is_kda: bool = False, core_attn_out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [q|k|v] of the convolution. Outputs of no sequence are zeros, where the original leaves them."""
    delta.check_softplus(beta, threshold)
    if qkv.shape[1] != 2 * key_dim + value_dim:
        raise ValueError(f"qkv: {qkv.shape[1]} columns, {2 * key_dim + value_dim} of key_dim and value_dim")
    shape = (1, qkv.shape[0], value_dim // head_v_dim, head_v_dim)
    rows = delta.Rows(key_dim // head_k_dim, {"x": qkv}, qkv)
    return delta.in_place(rows, shape, core_attn_out, a, b, A_log, dt_bias, scale, initial_state, inplace_final_state,
                          cu_seqlens, ssm_state_indices, num_accepted_tokens, use_qk_l2norm_in_kernel, is_kda, "neg")


def causal_conv1d_update(x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor,
                         out: torch.Tensor, use_silu: bool, cache_seqlens: torch.Tensor,
                         conv_state_indices: torch.Tensor, pad_slot_id: int) -> None:
    """x, out [B][C][T]. Empty tensors stand for none."""
    given = [tensor if tensor.numel() else None for tensor in (bias, cache_seqlens, conv_state_indices)]
    delta.check_window(conv_state, weight, given[1])
    out.copy_(delta.convolved(x, conv_state, weight, given[0], use_silu, given[2], None, None, -1, pad_slot_id, given[1]))


def causal_conv1d_update_single_token(
        x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
        activation: Any = None, conv_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None, query_start_loc: torch.Tensor | None = None,
        max_query_len: int = -1, pad_slot_id: int = -1, block_idx_last_scheduled_token: torch.Tensor | None = None,
        initial_state_idx: torch.Tensor | None = None, validate_data: bool = False) -> torch.Tensor:
    """aiter.ops.triton's: a token a sequence; x is overwritten."""
    offered(num_accepted_tokens=num_accepted_tokens, query_start_loc=query_start_loc,
            block_idx_last_scheduled_token=block_idx_last_scheduled_token, initial_state_idx=initial_state_idx)
    return x.copy_(delta.convolved(x, conv_state, weight, bias, activation, conv_state_indices, None, None, -1,
                                   pad_slot_id))


# ---- the indexer ----

def indexer_k_quant_and_cache(k: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor, quant_block_size: int,
                              scale_fmt: str | None, preshuffle: bool = False) -> None:
    """preshuffle is the order of AITER's own matrix instructions."""
    offered(preshuffle=preshuffle)
    indexer.indexer_k_quant_and_cache(k, kv_cache, slot_mapping, quant_block_size, scale_fmt)


def cp_gather_indexer_k_quant_cache(kv_cache: torch.Tensor, dst_k: torch.Tensor, dst_scale: torch.Tensor, block_table: torch.Tensor,
                                    cu_seq_lens: torch.Tensor, preshuffle: bool = False) -> None:
    offered(preshuffle=preshuffle)
    indexer.cp_gather_indexer_k_quant_cache(kv_cache, dst_k, dst_scale, block_table, cu_seq_lens)


def fp8_mqa_logits(Q: torch.Tensor, KV: torch.Tensor, kv_scales: torch.Tensor, weights: torch.Tensor, cu_starts: torch.Tensor,
                   cu_ends: torch.Tensor, clean_logits: bool = True) -> torch.Tensor:
    """aiter.ops.triton's."""
    return indexer.fp8_mqa_logits(Q, (KV, kv_scales), weights, cu_starts, cu_ends, clean_logits)


def top_k_per_row_decode(logits: torch.Tensor, next_n: int, seqLens: torch.Tensor, indices: torch.Tensor, numRows: int,
                         stride0: int, stride1: int, k: int = 2048, stable: bool = False) -> None:
    """Always stable: columns rise, and of equal logits the lower ones are taken."""
    indexer.top_k_per_row_decode(logits, next_n, seqLens, indices, numRows, stride0, stride1, k)


def top_k_per_row_prefill(logits: torch.Tensor, rowStarts: torch.Tensor, rowEnds: torch.Tensor, indices: torch.Tensor,
                          values: torch.Tensor | None, numRows: int, stride0: int, stride1: int, k: int = 2048,
                          stable: bool = False) -> None:
    offered(values=values)
    indexer.top_k_per_row_prefill(logits, rowStarts, rowEnds, indices, numRows, stride0, stride1, k)
