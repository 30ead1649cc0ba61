"""One launch of kv_write or kv_gather out of what engines pass."""
from __future__ import annotations

from typing import Any

import torch

from .. import Dispatcher, Kernel
from .common import (EIGHT_BITS, cache_word, constant, narrow, prepared, ready, seen_as, shuffled, shuffled_scales,
                     word)

EVERY_TOKEN = 2**31 - 1


def page_of(cache: torch.Tensor, layout: str) -> int:
    return cache.shape[{"nhd": 1, "hnd": 2}.get(layout, 3)]


def choose(key: tuple[str, str], given: dict[str, Any]) -> Kernel:
    layout, kv = key
    k, v, cache = given["k"], given["v"], given["k_cache"][0]
    return ready(k.device, f"kv_write:x={word(k.dtype)},kv={kv},d={k.shape[2]},dv={v.shape[2]},"
                           f"page={page_of(cache, layout)},layout={layout},slots={word(given['slots'].dtype)}")


WRITES = Dispatcher("kv_write", ("k", "v", "k_cache", "v_cache"), choose)


def write(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
          slots: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor | None, v_scale: torch.Tensor | None,
          layout: str) -> None:
    """Rows of key and value to their slots; those below 0 are skipped. 8-bit caches: divided by one scale."""
    kv = cache_word(key_cache, kv_cache_dtype)
    if key_cache.dtype not in EIGHT_BITS:
        k_scale = v_scale = None
    elif k_scale is None or v_scale is None:
        raise ValueError(f"kv_cache_dtype={kv_cache_dtype}: k_scale and v_scale are needed")
    WRITES.launch((layout, kv), k=key, v=value, slots=slots, k_cache=seen_as(key_cache, layout, kv),
                  v_cache=seen_as(value_cache, layout, kv), k_scale=k_scale, v_scale=v_scale)


def reshape_and_cache_flash(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor,
                            value_cache: torch.Tensor, slot_mapping: torch.Tensor, kv_cache_dtype: str,
                            k_scale: torch.Tensor, v_scale: torch.Tensor) -> None:
    """vLLM's: pages [NB][page][Hkv][D]."""
    write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale, "nhd")


def reshape_and_cache_shuffle_triton(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor,
                                     value_cache: torch.Tensor, slot_mapping: torch.Tensor, kv_cache_dtype: str,
                                     k_scales: torch.Tensor | None, v_scales: torch.Tensor | None) -> None:
    """vLLM's: shuffled pages in memory of the shape [NB][page][Hkv][D]. Its kernel divides by the first scale."""
    heads = key.shape[1]
    write(key, value, shuffled(key_cache, heads, False), shuffled(value_cache, heads, True), slot_mapping,
          kv_cache_dtype, None if k_scales is None else k_scales.view(-1)[:1],
          None if v_scales is None else v_scales.view(-1)[:1], "shuffle")


reshape_and_cache_shuffle = reshape_and_cache_shuffle_triton


def cp_mha_gather_cache(key_cache: torch.Tensor, value_cache: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                        block_tables: torch.Tensor, k_scales: torch.Tensor | None, v_scales: torch.Tensor | None,
                        cu_seqlens_kv: torch.Tensor, token_to_batch: torch.Tensor, seq_starts: torch.Tensor,
                        dequant: bool, kv_cache_layout: str, total_tokens: int, per_token_quant: bool = True) -> None:
    """vLLM's: the cached tokens of a chunk, a row each. token_to_batch is not needed; the sequences are taken to
    have the tokens that are asked for, as the original takes them."""
    if kv_cache_layout not in ("NHD", "SHUFFLE"):
        raise NotImplementedError(f"kv_cache_layout={kv_cache_layout}: NHD or SHUFFLE")
    if not total_tokens:
        return
    eight, heads, layout = key_cache.dtype in EIGHT_BITS, key.shape[1], kv_cache_layout.lower()
    if eight and not dequant:
        raise NotImplementedError("dequant=False of an 8-bit cache: kv_gather has 16-bit rows (o=bf16, o=fp16)")
    if dequant and (k_scales is None or v_scales is None):
        raise ValueError("dequant=True: k_scales and v_scales are needed")
    if layout == "shuffle":
        key_cache, value_cache = shuffled(key_cache, heads, False), shuffled(value_cache, heads, True)
    by_token = eight and k_scales.numel() > 1
    kv = cache_word(key_cache, "fp8" if eight else "auto")
    facts = (key.dtype, kv, key.shape[2], value.shape[2], page_of(key_cache, layout), layout, by_token,
             block_tables.dtype, key.device)
    kernel = prepared(("gather", *facts), key.device, lambda: (
        f"kv_gather:kv={kv},o={word(key.dtype)},d={key.shape[2]},dv={value.shape[2]},page={facts[4]},"
        f"layout={layout},table={word(block_tables.dtype)}" + (",descale=token" if by_token else "")))
    kernel.launch(k_cache=seen_as(key_cache, layout, kv), v_cache=seen_as(value_cache, layout, kv),
                  block_table=block_tables, cu_seqlens=narrow(cu_seqlens_kv), starts=narrow(seq_starts),
                  seq_lens=constant(key.device, cu_seqlens_kv.numel() - 1, EVERY_TOKEN),
                  k_descale=shuffled_scales(k_scales) if eight else None,
                  v_descale=shuffled_scales(v_scales) if eight else None,
                  k=key[:total_tokens], v=value[:total_tokens])
