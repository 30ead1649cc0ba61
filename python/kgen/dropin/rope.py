"""AITER's functions that rotate queries and keys and write the keys and values, out of launches of kv_write."""
from __future__ import annotations

from typing import Any

import torch

from . import cache
from .common import EIGHT_BITS, constant, offered, one, packed_values, word


def scaled(rows: torch.Tensor, pages: torch.Tensor, scale: torch.Tensor | None,
           apply_scale: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows, and the scale that kv_write divides them by. Caches of 16 bits have none there: torch divides, and rounds, first."""
    if pages.dtype == torch.uint8:
        raise NotImplementedError("a cache of torch.uint8: no key kv of 4-bit floats")
    if scale is None or not apply_scale:
        return rows, one(rows.device) if pages.dtype in EIGHT_BITS else None
    if scale.numel() != 1:
        raise ValueError(f"k_scale, v_scale: {scale.numel()} numbers, and one is read")
    scale = scale.reshape(1)
    return (rows, scale) if pages.dtype in EIGHT_BITS else ((rows / scale).to(rows.dtype), None)


class Rotation:
    """The rows of cos and sin of each token, and the keys of kv_write's spec that they are."""

    def __init__(self, dim: int, cos: torch.Tensor, sin: torch.Tensor, pos: torch.Tensor, offs: torch.Tensor | None,
                 is_neox: bool) -> None:
        wide = cos.shape[-1]
        if wide not in (dim // 2, dim):
            raise ValueError(f"cos, sin: {wide} columns, {dim // 2} or {dim} of {dim} dims that rotate")
        self.given = {"cos": cos.view(cos.shape[0], wide), "sin": sin.view(sin.shape[0], wide),
                      "positions": pos if offs is None else pos + offs}
        self.more = (f",rope={'neox' if is_neox else 'interleaved'},rq=1,ct={word(cos.dtype)},"
                     f"tw={'full' if wide == dim else 'half'},pos={word(self.given['positions'].dtype)}")

    def of(self, rows: torch.Tensor, out: torch.Tensor, name: str) -> dict[str, Any]:
        if out.dtype != rows.dtype:
            raise NotImplementedError(f"{name}: {out.dtype} of rows of {rows.dtype}; q_out has the type of q (x)")
        if out.shape != rows.shape:
            raise ValueError(f"{name}: {tuple(out.shape)}, {tuple(rows.shape)} are written")
        return {**self.given, "q": rows, "q_out": out}


def rotate_and_write(q: torch.Tensor, q_out: torch.Tensor, k: torch.Tensor, k_out: torch.Tensor | None, v: torch.Tensor,
                     keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, layout: str, rotation: Rotation,
                     scales: tuple[Any, Any], apply_scale: bool) -> None:
    """k_out takes a second launch of the same kernel: rows of no slot, whose queries are the keys."""
    first, k_scale = scaled(k, keys, scales[0], apply_scale)
    second, v_scale = scaled(v, values, scales[1], apply_scale)
    turn = rotation.of(q, q_out, "q_out")
    again = None if k_out is None else rotation.of(k, k_out, "k_out")
    to = (keys, values)
    cache.write(first, second, *to, slots, "auto", k_scale, v_scale, layout, turn=turn, more=rotation.more)
    if again is not None:
        nowhere = constant(k.device, slots.numel(), -1, slots.dtype)
        cache.write(first, second, *to, nowhere, "auto", k_scale, v_scale, layout, turn=again, more=rotation.more)


def check_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
    """Slots of more rows than there are would have AITER's kernels read past them."""
    for name, count in (("k", k.shape[0]), ("v", v.shape[0]), ("slot_mapping", slots.shape[0])):
        if count != q.shape[0]:
            raise ValueError(f"{name}: {count} rows, {q.shape[0]} of q")


def fused_qk_rope_reshape_and_cache(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        slot_mapping: torch.Tensor, pos: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, k_scale: torch.Tensor,
        v_scale: torch.Tensor, is_neox: bool, flash_layout: bool, apply_scale: bool = True,
        offs: torch.Tensor | None = None, q_out: torch.Tensor | None = None, k_out: torch.Tensor | None = None,
        output_zeros: bool = True, zeros_out: torch.Tensor | None = None, upcast_operand: bool = False) -> Any:
    """Pages [NB][page][Hkv][D], or without flash_layout [NB][Hkv][D/x][page][x] and [NB][Hkv][D][page] or
    [NB][Hkv][page/x][D][x]. Products are of 32 bits, with upcast_operand and without."""
    check_rows(q, k, v, slot_mapping)
    values, layout = (value_cache, "nhd") if flash_layout else packed_values(value_cache, value_cache.dim() == 5)
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if q_out is None else q_out
    k_out = torch.empty(k.shape, dtype=k.dtype, device=k.device) if k_out is None else k_out
    rotate_and_write(q, q_out, k, k_out, v, key_cache, values, slot_mapping, layout,
                     Rotation(q.shape[2], cos, sin, pos, offs, is_neox), (k_scale, v_scale), apply_scale)
    if zeros_out is not None:
        zeros_out.zero_()
    elif output_zeros:
        zeros_out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    return (q_out, k_out, key_cache, value_cache) + (() if zeros_out is None else (zeros_out,))


def fused_qk_rope_cosine_cache_llama(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        slot_mapping: torch.Tensor, pos: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, k_scale: torch.Tensor,
        v_scale: torch.Tensor, is_neox: bool, flash_layout: bool, apply_scale: bool = True,
        offs: torch.Tensor | None = None, q_out: torch.Tensor | None = None) -> Any:
    """Caches [T][tokens][Hkv][D] of a row a sequence, whose slots count within the row: pages of one token. Where they begin is
    told by launches of torch's."""
    check_rows(q, k, v, slot_mapping)
    if not flash_layout:
        raise NotImplementedError("flash_layout=False: rows of caches are no pages of kv_write's packed layouts")
    if key_cache.shape != value_cache.shape or key_cache.shape[0] < q.shape[0]:
        raise ValueError(f"key_cache, value_cache: {tuple(key_cache.shape)} and {tuple(value_cache.shape)}, of alike rows for "
                         f"{q.shape[0]} sequences")
    tokens = key_cache.shape[1]
    starts = torch.arange(0, q.shape[0] * tokens, tokens, dtype=slot_mapping.dtype, device=q.device)
    slots = torch.where((slot_mapping >= 0) & (slot_mapping < tokens), starts + slot_mapping, -1)
    rows = [pages.view(-1, 1, *pages.shape[2:]) for pages in (key_cache, value_cache)]
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if q_out is None else q_out
    rotate_and_write(q, q_out, k, None, v, *rows, slots, "nhd", Rotation(q.shape[2], cos, sin, pos, offs, is_neox),
                     (k_scale, v_scale), apply_scale)
    return q_out, key_cache, value_cache


# ---- latent attention ----

def latent_parts(rows: torch.Tensor, latent_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [tokens][Hkv][latent, rope] as pages of one token: of the rope part as keys, and of the latent as values."""
    return rows[:, None, :, latent_dim:], rows[:, None, :, :latent_dim]


def cat_and_cache_mla(k_nope: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor,
                      k_scale: torch.Tensor, apply_scale: bool = True, shuffled_kv_cache: bool = False) -> None:
    """Rows of a cache [tokens][Hkv][L + R]. shuffled_kv_cache has an order of AITER's own."""
    offered(shuffled_kv_cache=shuffled_kv_cache)
    first, scale = scaled(k_pe, kv_cache, k_scale, apply_scale)
    second, _ = scaled(k_nope, kv_cache, k_scale, apply_scale)
    cache.write(first, second, *latent_parts(kv_cache, k_nope.shape[2]), slot_mapping, "auto", scale, scale, "nhd")


def fused_qk_rope_cat_and_cache_mla(
        q_nope: torch.Tensor, q_pe: torch.Tensor, k_nope: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor, pos: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, k_scale: torch.Tensor,
        is_neox: bool, num_decode_toks_for_zeros: int = 0, apply_scale: bool = True, q_out: torch.Tensor | None = None,
        decode_q_pe_out: torch.Tensor | None = None, k_pe_out: torch.Tensor | None = None,
        q_out_dtype: torch.dtype | None = None, shuffled_kv_cache: bool = False, upcast_operand: bool = False) -> Any:
    """Rows of a cache [tokens][Hkv][L + R]; keys behind the last query are written as they are. What does not rotate is
    copied by torch."""
    offered(shuffled_kv_cache=shuffled_kv_cache)
    (tokens, heads, latent), turns, zeros = q_nope.shape, q_pe.shape[2], num_decode_toks_for_zeros
    if not tokens <= slot_mapping.shape[0] <= k_pe.shape[0] == k_nope.shape[0]:
        raise ValueError(f"slot_mapping: {slot_mapping.shape[0]} slots, of {tokens} queries and {k_pe.shape[0]} keys")
    if not 0 <= zeros <= tokens:
        raise ValueError(f"num_decode_toks_for_zeros: {zeros} of {tokens} queries")
    if q_out is None:
        q_out = torch.empty((tokens, heads, latent + turns), dtype=q_out_dtype or q_nope.dtype, device=q_nope.device)
    k_pe_out = torch.empty(k_pe.shape, dtype=k_pe.dtype, device=k_pe.device) if k_pe_out is None else k_pe_out
    rotate_and_write(q_pe, q_out[..., latent:], k_pe[:tokens], k_pe_out[:tokens], k_nope[:tokens],
                     *latent_parts(kv_cache, latent), slot_mapping[:tokens], "nhd",
                     Rotation(turns, cos, sin, pos[:tokens], None, is_neox), (k_scale, k_scale), apply_scale)
    if slot_mapping.shape[0] > tokens:
        cat_and_cache_mla(k_nope[tokens:], k_pe[tokens:], kv_cache, slot_mapping[tokens:], k_scale, apply_scale)
        k_pe_out[tokens:].copy_(k_pe[tokens:])
    q_out[..., :latent].copy_(q_nope)
    if decode_q_pe_out is None:
        decode_q_pe_out = torch.empty((zeros, heads, turns), dtype=q_nope.dtype, device=q_nope.device)
    decode_q_pe_out.copy_(q_out[:zeros, :, latent:])
    return q_out, decode_q_pe_out, k_pe_out, torch.zeros((zeros, heads, latent), dtype=q_nope.dtype, device=q_nope.device)
