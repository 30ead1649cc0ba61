"""vLLM's functions, with its signatures: vllm.v1.attention.ops, vllm._custom_ops, vllm.vllm_flash_attn."""
from __future__ import annotations

from typing import Any

import torch

from . import flash
from .attention import VERIFY_TOKENS, attend, window_of
from .cache import (concat_and_cache_mla, copy_blocks, cp_gather_and_upconvert_fp8_kv_cache, cp_gather_cache,
                    cp_mha_gather_cache, gather_and_maybe_dequant_cache, reshape_and_cache, reshape_and_cache_flash,
                    reshape_and_cache_shuffle, reshape_and_cache_shuffle_triton, swap_blocks, triton_reshape_and_cache_flash,
                    triton_reshape_and_cache_flash_per_token_head_quant)
from .common import BY_TOKEN_AND_HEAD, cache_word, offered, packed_values
from .delta import (causal_conv1d_update, fused_recurrent_gated_delta_rule,
                    fused_recurrent_gated_delta_rule_packed_decode, fused_sigmoid_gating_delta_rule_update)
from .indexer import (cp_gather_indexer_k_quant_cache, fp8_mqa_logits, fp8_paged_mqa_logits, indexer_k_quant_and_cache,
                      top_k_per_row_decode, top_k_per_row_prefill)
from .merge import merge_attn_states
from .metadata import (_compute_slot_mapping_kernel, _copy_page_indices_kernel, compute_slot_mapping,
                       eagle_prepare_inputs_padded_kernel, eagle_prepare_next_token_padded_kernel,
                       eagle_step_slot_mapping_metadata_kernel, eagle_step_update_slot_mapping_and_metadata,
                       expand_batch_to_tokens, expand_kernel, gather_initial_states)
from .rejection import rejection_sample

__all__ = ["_compute_slot_mapping_kernel", "_copy_page_indices_kernel", "causal_conv1d_update", "compute_slot_mapping",
           "concat_and_cache_mla", "copy_blocks", "cp_gather_and_upconvert_fp8_kv_cache",
           "cp_gather_cache", "cp_gather_indexer_k_quant_cache", "cp_mha_gather_cache",
           "decode_attention_fwd", "eagle_prepare_inputs_padded_kernel", "eagle_prepare_next_token_padded_kernel",
           "eagle_step_slot_mapping_metadata_kernel", "eagle_step_update_slot_mapping_and_metadata", "expand_batch_to_tokens",
           "expand_kernel", "flash_attn_varlen_func",
           "fp8_mqa_logits", "fp8_paged_mqa_logits",
           "fused_recurrent_gated_delta_rule", "fused_recurrent_gated_delta_rule_packed_decode",
           "fused_sigmoid_gating_delta_rule_update", "gather_and_maybe_dequant_cache", "gather_initial_states", "indexer_k_quant_and_cache",
           "merge_attn_states", "paged_attention_rocm", "rejection_sample",
           "reshape_and_cache", "reshape_and_cache_flash", "reshape_and_cache_shuffle",
           "reshape_and_cache_shuffle_triton", "triton_reshape_and_cache_flash",
           "swap_blocks", "top_k_per_row_decode", "top_k_per_row_prefill",
           "triton_reshape_and_cache_flash_per_token_head_quant", "unified_attention", "unified_attention_diffkv"]


def unified_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, cu_seqlens_q: torch.Tensor,
        max_seqlen_q: int, seqused_k: torch.Tensor, max_seqlen_k: int, softmax_scale: float, causal: Any,
        window_size: Any, block_table: torch.Tensor, softcap: float, q_descale: torch.Tensor | None,
        k_descale: torch.Tensor | None, v_descale: torch.Tensor | None, seq_threshold_3D: int | None = None,
        num_par_softmax_segments: int | None = None, softmax_segm_output: torch.Tensor | None = None,
        softmax_segm_max: torch.Tensor | None = None, softmax_segm_expsum: torch.Tensor | None = None,
        alibi_slopes: torch.Tensor | None = None, output_scale: torch.Tensor | None = None,
        qq_bias: torch.Tensor | None = None, sinks: torch.Tensor | None = None,
        mm_prefix_range: torch.Tensor | None = None, rswa_prefix_lens: torch.Tensor | None = None,
        rswa_window: int | None = None, use_alibi_sqrt: bool = False, kv_quant_mode: int = 0,
        k_scale_cache: torch.Tensor | None = None, v_scale_cache: torch.Tensor | None = None,
        chunk_lookback: int = -1, use_td: bool = False, mm_prefix_clamp_sliding_window: bool = False,
        **newer: Any) -> None:
    """Pages [NB][page][Hkv][D]. The buffers of partial results are not used: the workspace is the stream's; use_td is
    a way of Triton's to load. causal: a bool, or one for each sequence. Rows of out behind the last sequence become
    zeros."""
    offered(qq_bias=qq_bias, rswa_prefix_lens=rswa_prefix_lens, rswa_window=rswa_window,
            **{name: value or None for name, value in newer.items()})
    if kv_quant_mode in BY_TOKEN_AND_HEAD:
        k_descale, v_descale = (k_scale_cache, "nhd"), (v_scale_cache, "nhd")
    elif kv_quant_mode not in (0, 1):
        raise NotImplementedError(f"kv_quant_mode={kv_quant_mode}: caches of 8 bits, with a scale for all or one a "
                                  "token and head")
    window, chunks = window_of(window_size, causal), (0, 0)
    if window[0] and chunk_lookback > -1:
        window, chunks = (0, window[1]), (window[0] // (chunk_lookback + 1), chunk_lookback)
    ends = None
    if mm_prefix_range is not None:
        if causal is not True or chunks[0] or window[0] and not mm_prefix_clamp_sliding_window:
            raise NotImplementedError("mm_prefix_range: spans=1 has causal queries, and the window bounds a span too "
                                      "(mm_prefix_clamp_sliding_window)")
        ends = span_ends(mm_prefix_range, cu_seqlens_q, seqused_k, q.shape[0])
    attend(q, k, v, out, block_table, seqused_k, scale=softmax_scale, q_scale=q_descale, k_scale=k_descale,
           v_scale=v_descale, starts=cu_seqlens_q, longest=max_seqlen_q, causal=causal, window=window, chunks=chunks,
           softcap=softcap or 0.0, slopes=alibi_slopes, root=use_alibi_sqrt, sinks=sinks, out_scale=output_scale,
           span_ends=ends)


def unified_attention_diffkv(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, cu_seqlens_q: torch.Tensor,
        seqused_k: torch.Tensor, softmax_scale: float, causal: bool, window_size: Any, block_table: torch.Tensor,
        softcap: float, max_seqlen_q: int = 1, alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None, use_alibi_sqrt: bool = False, seq_threshold_3D: int | None = None,
        num_par_softmax_segments: int | None = None, softmax_segm_output: torch.Tensor | None = None,
        softmax_segm_max: torch.Tensor | None = None, softmax_segm_expsum: torch.Tensor | None = None,
        k_descale: torch.Tensor | None = None, v_descale: torch.Tensor | None = None,
        q_descale: torch.Tensor | None = None) -> None:
    """Keys and values of two widths, views of one row. max_seqlen_q bounds nothing where it is left out: with more rows
    than sequences any number of tokens is taken."""
    longest = max_seqlen_q if max_seqlen_q > 1 or q.shape[0] == seqused_k.shape[0] else q.shape[0] + VERIFY_TOKENS
    unified_attention(q, k, v, out, cu_seqlens_q, longest, seqused_k, 0, softmax_scale, causal, window_size, block_table,
                      softcap, q_descale, k_descale, v_descale, alibi_slopes=alibi_slopes, sinks=sinks,
                      use_alibi_sqrt=use_alibi_sqrt)


def span_ends(ranges: torch.Tensor, starts: torch.Tensor, lengths: torch.Tensor, rows: int) -> torch.Tensor:
    """Of ranges [S][R][2] of positions, first and last: the last position that each row sees; -1 outside. Costs
    launches of torch's."""
    row = torch.arange(rows, dtype=starts.dtype, device=starts.device)
    sequence = (torch.searchsorted(starts, row, right=True) - 1).clamp(0, lengths.shape[0] - 1)
    at = (lengths[sequence] - starts[sequence + 1] + row)[:, None]
    first, last = ranges[sequence].unbind(-1)
    inside = (first < last) & (first <= at) & (at <= last)
    return torch.where(inside, last, -1).amax(1).to(torch.int32)


def decode_attention_fwd(
        q: torch.Tensor, k_buffer: torch.Tensor, v_buffer: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
        req_to_token: torch.Tensor, b_seq_len: torch.Tensor, attn_logits: torch.Tensor, num_kv_splits: int,
        sm_scale: float, page_size: int = 1, logit_cap: float = 0.0, k_scale: torch.Tensor | None = None,
        v_scale: torch.Tensor | None = None, is_mla: bool = False) -> None:
    """Slots [N][Hkv][D], or pages of page_size. The splits are the kernel's own; lse [S][Hq] is of the caller's type."""
    if k_buffer.dim() == 3:
        k_buffer, v_buffer = (x.view(-1, page_size, *x.shape[1:]) for x in (k_buffer, v_buffer))
    sums = lse if lse.dtype == torch.float32 else torch.empty_like(lse, dtype=torch.float32)
    attend(q, k_buffer, v_buffer, o, req_to_token.flatten(1), b_seq_len, scale=sm_scale,
           k_scale=k_scale, v_scale=v_scale, softcap=logit_cap, lse=sums, lse_by_token=True)
    if sums is not lse:
        lse.copy_(sums)


def paged_attention_rocm(
        out: torch.Tensor, exp_sum: torch.Tensor, max_logits: torch.Tensor, tmp_out: torch.Tensor,
        query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, num_kv_heads: int, scale: float,
        block_tables: torch.Tensor, seq_lens: torch.Tensor, query_start_loc: torch.Tensor | None, block_size: int,
        max_seq_len: int, alibi_slopes: torch.Tensor | None, kv_cache_dtype: str, k_scale: torch.Tensor,
        v_scale: torch.Tensor, fp8_out_scale: torch.Tensor | None = None, mfma_type: str = "f16",
        use_interleaved_v_cache: bool = False) -> None:
    """Pages as reshape_and_cache writes them, one query token a sequence. The buffers of partial results are not used;
    mfma_type is how the original multiplies. The original skips sequences of several tokens, so query_start_loc is
    taken where there are none."""
    if query_start_loc is not None and query.shape[0] != seq_lens.shape[0]:
        raise NotImplementedError(f"query_start_loc: {query.shape[0]} tokens of {seq_lens.shape[0]} sequences; "
                                  "unified_attention takes sequences of several")
    values, layout = packed_values(value_cache, use_interleaved_v_cache)
    attend(query, key_cache, values, out, block_tables, seq_lens, scale=scale, layout=layout,
           kv=None if kv_cache_dtype == "auto" else cache_word(key_cache, kv_cache_dtype), k_scale=k_scale,
           v_scale=v_scale, slopes=alibi_slopes, out_scale=fp8_out_scale)


def flash_attn_varlen_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, max_seqlen_q: int, cu_seqlens_q: torch.Tensor,
        max_seqlen_k: int, cu_seqlens_k: torch.Tensor | None = None, seqused_k: torch.Tensor | None = None,
        q_v: torch.Tensor | None = None, dropout_p: float = 0.0, softmax_scale: float | None = None,
        causal: bool = False, window_size: Any = None, softcap: float = 0.0,
        alibi_slopes: torch.Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
        block_table: torch.Tensor | None = None, return_softmax_lse: bool = False, out: torch.Tensor | None = None,
        scheduler_metadata: torch.Tensor | None = None, q_descale: torch.Tensor | None = None,
        k_descale: torch.Tensor | None = None, v_descale: torch.Tensor | None = None, num_splits: int = 0,
        fa_version: int = 2, s_aux: torch.Tensor | None = None, **newer: Any) -> Any:
    """vllm.vllm_flash_attn's: paged with seqused_k, else ragged with cu_seqlens_k."""
    offered(q_v=q_v, return_attn_probs=return_attn_probs, dropout_p=dropout_p or None,
            **{name: value or None for name, value in newer.items()})
    return flash.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, softmax_scale,
                        causal, window_size, softcap, alibi_slopes, block_table, return_softmax_lse, out,
                        (k_descale, v_descale, q_descale), s_aux)
