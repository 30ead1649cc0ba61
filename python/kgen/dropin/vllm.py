"""vLLM's functions, with its signatures: vllm.v1.attention.ops, vllm._custom_ops, vllm.vllm_flash_attn."""
from __future__ import annotations

from typing import Any

import torch

from . import flash
from .attention import attend, window_of
from .cache import (cp_mha_gather_cache, reshape_and_cache_flash, reshape_and_cache_shuffle,
                    reshape_and_cache_shuffle_triton)
from .common import offered
from .delta import (causal_conv1d_update, fused_recurrent_gated_delta_rule,
                    fused_recurrent_gated_delta_rule_packed_decode, fused_sigmoid_gating_delta_rule_update)
from .merge import merge_attn_states

__all__ = ["causal_conv1d_update", "cp_mha_gather_cache", "flash_attn_varlen_func",
           "fused_recurrent_gated_delta_rule", "fused_recurrent_gated_delta_rule_packed_decode",
           "fused_sigmoid_gating_delta_rule_update", "merge_attn_states", "reshape_and_cache_flash",
           "reshape_and_cache_shuffle", "reshape_and_cache_shuffle_triton", "unified_attention"]


def unified_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, cu_seqlens_q: torch.Tensor,
        max_seqlen_q: int, seqused_k: torch.Tensor, max_seqlen_k: int, softmax_scale: float, causal: Any,
        window_size: Any, block_table: torch.Tensor, softcap: float, q_descale: torch.Tensor | None,
        k_descale: torch.Tensor | None, v_descale: torch.Tensor | None, seq_threshold_3D: int | None = None,
        num_par_softmax_segments: int | None = None, softmax_segm_output: torch.Tensor | None = None,
        softmax_segm_max: torch.Tensor | None = None, softmax_segm_expsum: torch.Tensor | None = None,
        alibi_slopes: torch.Tensor | None = None, output_scale: torch.Tensor | None = None,
        qq_bias: torch.Tensor | None = None, sinks: torch.Tensor | None = None,
        mm_prefix_range: torch.Tensor | None = None, use_alibi_sqrt: bool = False, **newer: Any) -> None:
    """Pages [NB][page][Hkv][D]. The buffers of partial results are not used: the workspace is the stream's.
    causal: a bool, or one for each sequence. Rows of out behind the last sequence become zeros."""
    offered(qq_bias=qq_bias, mm_prefix_range=mm_prefix_range, **{name: value or None for name, value in newer.items()})
    if sinks is not None and sinks.dtype != torch.float32:
        sinks = sinks.float()
    attend(q, k, v, out, block_table, seqused_k, scale=softmax_scale, q_scale=q_descale, k_scale=k_descale,
           v_scale=v_descale, starts=cu_seqlens_q, longest=max_seqlen_q, causal=causal,
           window=window_of(window_size, causal), softcap=softcap or 0.0,
           slopes=alibi_slopes, root=use_alibi_sqrt, sinks=sinks, out_scale=output_scale)


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
