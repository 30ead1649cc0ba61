"""flash_attn's inference functions, as its package and Hugging Face's hub kernels have them."""
from __future__ import annotations

from typing import Any

import torch

from .attention import attend, window_of
from .cache import page_of
from .common import counted, made_once, offered, prepared, word

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache"]


def lengths_of(ends: torch.Tensor) -> torch.Tensor:
    """Of prefix sums; costs a launch of torch's."""
    return (ends[1:] - ends[:-1]).to(torch.int32)


def rows_as_pages(ends: torch.Tensor, longest: int) -> torch.Tensor:
    """Keys [T][Hkv][D] of no cache are pages of one token; costs a launch of torch's."""
    return ends[:-1, None].to(torch.int32) + torch.arange(longest, dtype=torch.int32, device=ends.device)


def varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, k_ends: torch.Tensor | None,
           k_lengths: torch.Tensor | None, longest: int, longest_k: int, scale: float | None, causal: bool,
           window_size: Any, softcap: float, slopes: torch.Tensor | None, block_table: torch.Tensor | None,
           with_lse: bool, out: torch.Tensor | None, scales: tuple[Any, Any], sinks: torch.Tensor | None) -> Any:
    """What the forms of flash_attn_varlen_func have in common."""
    ends = lengths = None
    if block_table is None:
        if k_ends is None:
            raise ValueError("cu_seqlens_k, block_table: one of them is needed")
        k, v = k[:, None], v[:, None]
        if k_lengths is None:
            ends = k_ends.to(starts.dtype)
        else:  # some of the keys of a sequence
            block_table, lengths = rows_as_pages(k_ends, longest_k), k_lengths
    elif k_lengths is None and k_ends is None:
        raise ValueError("cu_seqlens_k, seqused_k: one of them is needed")
    else:
        lengths = k_lengths if k_lengths is not None else lengths_of(k_ends)
    out = q.new_empty((*q.shape[:2], v.shape[-1])) if out is None else out
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32) if with_lse else None
    attend(q, k, v, out, block_table, lengths, ends=ends, scale=q.shape[-1] ** -0.5 if scale is None else scale,
           k_scale=scales[0], v_scale=scales[1], q_scale=scales[2], starts=starts, longest=longest,
           causal=causal, window=window_of(window_size, causal), softcap=softcap, slopes=slopes, sinks=sinks, lse=lse)
    return (out, lse) if with_lse else out


def flash_attn_varlen_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
        causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
        alibi_slopes: torch.Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
        block_table: torch.Tensor | None = None, *, s_aux: torch.Tensor | None = None) -> Any:
    """With block_table, k and v are pages [NB][page][Hkv][D]. return_attn_probs of inference is the lse."""
    offered(dropout_p=dropout_p or None)
    return varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, None, max_seqlen_q, max_seqlen_k, softmax_scale, causal,
                  window_size, softcap, alibi_slopes, block_table, return_attn_probs, None, (None, None, None), s_aux)


# ---- flash_attn_with_kvcache ----

def lengths_tensor(cache_seqlens: Any, batch: int, device: torch.device) -> torch.Tensor:
    if cache_seqlens is None:
        raise NotImplementedError("cache_seqlens=None: seq_lens says how many keys a sequence has")
    if isinstance(cache_seqlens, int):
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)
    return cache_seqlens


def steps(device: torch.device, batch: int, each: int) -> torch.Tensor:
    """0, each, 2 each, ..."""
    return made_once((device, "steps", batch, each),
                     lambda: torch.arange(0, (batch + 1) * each, each, dtype=torch.int32, device=device))


def table_of(k_cache: torch.Tensor, block_table: torch.Tensor | None, rows: torch.Tensor | None,
             batch: int) -> torch.Tensor:
    """A cache [B][tokens][Hkv][D] is one page a row."""
    if block_table is not None:
        return block_table
    return counted(k_cache.device, batch)[:, None] if rows is None else rows[:, None]


def append(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor,
           table: torch.Tensor, lengths: torch.Tensor, cos: torch.Tensor | None, sin: torch.Tensor | None,
           interleaved: bool) -> torch.Tensor:
    """Writes the new keys behind the cached ones, rotated where cos is given; the queries, rotated alike."""
    batch, new = k.shape[:2]
    page = page_of(k_cache, "nhd")
    positions = lengths[:, None].long() + torch.arange(new, device=q.device)
    columns = torch.div(positions, page, rounding_mode="floor")
    inside = (positions >= 0) & (columns < table.shape[1])  # a padded row has a length below 0
    pages = table.long().gather(1, columns.clamp(0, table.shape[1] - 1))
    slots = torch.where(inside & (pages >= 0), pages * page + positions % page, -1).reshape(-1)
    rope = "" if cos is None else (f",rope={'interleaved' if interleaved else 'neox'},rd={2 * cos.shape[1]},rq=1,"
                                   f"ct={word(cos.dtype)}")
    heads = k.shape[2]
    kernel = prepared(("append", k.dtype, k_cache.dtype, k.shape[3], v.shape[3], page, rope, q.device), q.device,
                      lambda: f"kv_write:x={word(k.dtype)},kv={word(k_cache.dtype)},d={k.shape[3]},dv={v.shape[3]},"
                              f"page={page},layout=nhd{rope}")
    rows_k, rows_v = k.flatten(0, 1), v.flatten(0, 1)
    if cos is None:
        kernel.launch(k=rows_k, v=rows_v, slots=slots, k_cache=(k_cache, "nhd"), v_cache=(v_cache, "nhd"))
        return q
    rotated = torch.empty_like(q.reshape(batch * new, *q.shape[2:]))
    kernel.launch(k=rows_k, v=rows_v, slots=slots, k_cache=(k_cache, "nhd"), v_cache=(v_cache, "nhd"),
                  positions=positions.reshape(-1), cos=cos, sin=sin, q=q.reshape(batch * new, *q.shape[2:]),
                  q_out=rotated)
    return rotated.view_as(q)


def flash_attn_with_kvcache(
        q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
        v: torch.Tensor | None = None, rotary_cos: torch.Tensor | None = None,
        rotary_sin: torch.Tensor | None = None, cache_seqlens: Any = None,
        cache_batch_idx: torch.Tensor | None = None, cache_leftpad: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
        window_size: Any = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
        alibi_slopes: torch.Tensor | None = None, num_splits: int = 0, return_softmax_lse: bool = False, *,
        page_table: torch.Tensor | None = None, s_aux: torch.Tensor | None = None) -> Any:
    """q [B][T][Hq][D]. Pages [NB][page][Hkv][D] with block_table or page_table, else a cache [B][tokens][Hkv][D].
    New k and v [B][T][Hkv][D] are written first. num_splits is the kernel's own choice."""
    offered(cache_leftpad=cache_leftpad)
    batch, tokens, heads, dim = q.shape
    if (k is None) != (v is None):
        raise ValueError("k, v: both or neither")
    if rotary_cos is not None and (k is None or k.shape[1] != tokens):
        raise NotImplementedError("rotary_cos: rope rotates the queries with as many new keys")
    if rotary_cos is not None and tokens > 1 and not causal and window_of(window_size, False) == (0, 0):
        raise NotImplementedError("rotary_cos, causal=False: the original rotates all queries as the first one")
    lengths = lengths_tensor(cache_seqlens, batch, q.device)
    table = table_of(k_cache, page_table if block_table is None else block_table, cache_batch_idx, batch)
    if k is not None:
        q = append(q, k, v, k_cache, v_cache, table, lengths, rotary_cos, rotary_sin, rotary_interleaved)
        lengths = lengths + k.shape[1]
    rows = q.reshape(batch * tokens, heads, dim)
    out = rows.new_empty((batch * tokens, heads, v_cache.shape[-1]))
    lse = rows.new_empty((heads, batch * tokens), dtype=torch.float32) if return_softmax_lse else None
    attend(rows, k_cache, v_cache, out, table, lengths, scale=dim ** -0.5 if softmax_scale is None else
           softmax_scale, starts=steps(q.device, batch, tokens) if tokens > 1 else None, longest=tokens,
           causal=causal, window=window_of(window_size, causal or tokens == 1), softcap=softcap, slopes=alibi_slopes, sinks=s_aux, lse=lse)
    result = out.view(batch, tokens, heads, out.shape[-1])
    return (result, lse.view(heads, batch, tokens).transpose(0, 1)) if return_softmax_lse else result
