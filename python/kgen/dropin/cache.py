"""One launch of kv_write or kv_gather out of what engines pass."""
from __future__ import annotations

from typing import Any

import torch

from .. import Dispatcher, Kernel, KgenError
from ..contexts import context_of
from .common import (BY_TOKEN_AND_HEAD, EIGHT_BITS, cache_word, constant, narrow, offered, packed_values, prepared, ready, seen_as,
                     shuffled, shuffled_scales, word)

EVERY_TOKEN = 2**31 - 1
DS_MLA = "fp8_ds_mla"
HEAD_DIMS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512)


def page_of(cache: torch.Tensor, layout: str) -> int:
    """Tokens of a page."""
    return cache.shape[{"nhd": 1, "hnd": 2}.get(layout, 3)]


def aligned(*tensors: torch.Tensor) -> int:
    """The key al: 16 bytes, or what all addresses and strides are multiples of."""
    bits = 0
    for x in tensors:
        bits |= x.data_ptr()
        for stride in x.stride()[:-1]:
            bits |= stride * x.element_size()
    return 16 if not bits % 16 else 4 if not bits % 4 else 2


def choose(key: tuple[str, str, int, str], given: dict[str, Any]) -> Kernel:
    layout, kv, al, more = key
    k, v, cache = given["k"], given["v"], given["k_cache"][0]
    by_token = ",scale=token" if isinstance(given["k_scale"], tuple) else ""
    if given.get("remap") is not None:
        more += f",remap={word(given['remap'].dtype)}"
    return ready(k.device, f"kv_write:x={word(k.dtype)},kv={kv},d={k.shape[2]},dv={v.shape[2]},al={al},"
                           f"page={page_of(cache, layout)},layout={layout},slots={word(given['slots'].dtype)}{by_token}{more}")


WRITES = Dispatcher("kv_write", ("k", "v", "k_cache", "v_cache"), choose)


def write(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
          slots: torch.Tensor, kv_cache_dtype: str, k_scale: Any, v_scale: Any, layout: str,
          remap: torch.Tensor | None = None, turn: dict[str, Any] | None = None, more: str = "") -> None:
    """Rows of key and value to their slots, or those that remap has for them; those below 0 are skipped. 8-bit caches: divided by one scale, one a head, or
    those of each token, which are written. turn: what rope's arguments are, and more its keys."""
    kv = cache_word(key_cache, kv_cache_dtype)
    if key_cache.dtype not in EIGHT_BITS:
        k_scale = v_scale = None
    elif k_scale is None or v_scale is None:
        raise ValueError(f"kv_cache_dtype={kv_cache_dtype}: k_scale and v_scale are needed")
    given = {"k": key, "v": value, "slots": slots, "k_cache": seen_as(key_cache, layout, kv),
             "v_cache": seen_as(value_cache, layout, kv), "k_scale": k_scale, "v_scale": v_scale,
             "remap": remap, **(turn or {})}
    try:
        WRITES.launch((layout, kv, 16, more), **given)
    except KgenError:
        al = aligned(key, value, key_cache, value_cache, *(turn[name] for name in ("q", "q_out") if turn))
        if al == 16:
            raise
        WRITES.launch((layout, kv, al, more), **given)


def reshape_and_cache_flash(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor,
                            value_cache: torch.Tensor, slot_mapping: torch.Tensor, kv_cache_dtype: str,
                            k_scale: torch.Tensor, v_scale: torch.Tensor) -> None:
    """vLLM's: pages [NB][page][Hkv][D]."""
    write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale, "nhd")


def triton_reshape_and_cache_flash(
        key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor, v_scale: torch.Tensor,
        interleaved_v_pack_factor: int = 0) -> None:
    """vLLM's: pages [NB][page][Hkv][D], or by heads [NB][Hkv][D/x][page][x] and [NB][Hkv][D][page]."""
    if interleaved_v_pack_factor not in (0, 16 // value_cache.element_size()):
        raise NotImplementedError(f"interleaved_v_pack_factor={interleaved_v_pack_factor}: 16 bytes of tokens")
    if key_cache.dim() == 4:
        write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale, "nhd")
    else:
        reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale,
                          interleaved_v_pack_factor > 0)


def reshape_and_cache(key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
                      slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor, v_scale: torch.Tensor,
                      interleaved_v: bool = False) -> None:
    """vLLM's: pages [NB][Hkv][D/x][page][x] and [NB][Hkv][D][page], which interleaved_v makes [NB][Hkv][page/x][D][x]."""
    values, layout = packed_values(value_cache, interleaved_v)
    write(key, value, key_cache, values, slot_mapping, kv_cache_dtype, k_scale, v_scale, layout)


def triton_reshape_and_cache_flash_per_token_head_quant(
        key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        k_scale_cache: torch.Tensor, v_scale_cache: torch.Tensor, slot_mapping: torch.Tensor,
        kv_quant_mode: int) -> None:
    """vLLM's: int8 and fp8 pages [NB][page][Hkv][D], and the scales [NB][page][Hkv] that are written."""
    if kv_quant_mode not in BY_TOKEN_AND_HEAD:
        raise NotImplementedError(f"kv_quant_mode={kv_quant_mode}: int8 and fp8 with a scale a token and head")
    write(key, value, key_cache, value_cache, slot_mapping, "auto", (k_scale_cache, "nhd"), (v_scale_cache, "nhd"), "nhd")


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


# ---- latent attention ----

def latent(cache: torch.Tensor, latent_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [NB][page][latent, rope] as the rope part and the latent: pages of one head of keys and of values."""
    return cache[:, :, None, latent_dim:], cache[:, :, None, :latent_dim]


def concat_and_cache_mla(kv_c: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor,
                         kv_cache_dtype: str, scale: torch.Tensor, skip_scale: bool = False) -> None:
    """vLLM's: rows [kv_c, k_pe] of pages [NB][page][L + R], or with fp8_ds_mla of 656 bytes."""
    offered(skip_scale=skip_scale)
    if kv_cache_dtype == DS_MLA:
        write_ds_mla(kv_c, k_pe, kv_cache, slot_mapping)
        return
    if kv_cache.shape[-1] != kv_c.shape[-1] + k_pe.shape[-1]:
        raise NotImplementedError(f"kv_cache_dtype={kv_cache_dtype}: rows of {kv_cache.shape[-1]}, and {kv_c.shape[-1]}"
                                  f" + {k_pe.shape[-1]} are written")
    rope, rest = latent(kv_cache, kv_c.shape[-1])
    write(k_pe.view(-1, 1, k_pe.shape[-1]), kv_c[:, None], rope, rest, slot_mapping, kv_cache_dtype, scale, scale, "nhd")


def ds_mla_parts(cache: torch.Tensor, latent_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Rows [NB][page][codes, a scale a block of 128 codes, rope part] of bytes as pages of one head of each."""
    rows = cache.view(torch.uint8)[:, :, None]
    behind = latent_dim + latent_dim // 32
    return rows[..., :latent_dim], rows[..., latent_dim:behind].view(torch.float32), rows[..., behind:].view(dtype)


def write_ds_mla(kv_c: torch.Tensor, k_pe: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Without a rope part (no columns) its place is filled with zeros. Scales are powers of two, as vLLM writes them."""
    kv = context_of(cache.device).fp8
    if cache.shape[-1] != kv_c.shape[1] + kv_c.shape[1] // 32 + 128:
        raise NotImplementedError(f"kv_cache_dtype={DS_MLA}: rows of {cache.shape[-1]}; 656 have 512 codes, 4 scales and "
                                  "64 dims of 16 bits")
    codes, scales, rope = ds_mla_parts(cache, kv_c.shape[1], kv_c.dtype)
    if not k_pe.shape[1]:
        k_pe = k_pe.new_zeros(k_pe.shape[0], rope.shape[-1])
    WRITES.launch(("nhd", kv, 16, ",scale=block,pow2=1"), k=k_pe.view(-1, 1, k_pe.shape[-1]), v=kv_c[:, None], slots=slots,
                  k_cache=(rope, "nhd"), v_cache=(codes, "nhd", kv), k_scale=None, v_scale=scales)


def cp_gather_and_upconvert_fp8_kv_cache(
        src_cache: torch.Tensor, dst: torch.Tensor, block_table: torch.Tensor, workspace_starts: torch.Tensor,
        batch_size: int, seq_starts: torch.Tensor | None = None, host_cache: torch.Tensor | None = None,
        host_row_ids: torch.Tensor | None = None, device_row_ids: torch.Tensor | None = None) -> None:
    """vLLM's: rows of 656 bytes as 576 columns of 16 bits. Where the last sequence ends costs a launch of torch's."""
    offered(host_cache=host_cache, host_row_ids=host_row_ids, device_row_ids=device_row_ids)
    codes, scales, rope = ds_mla_parts(src_cache, dst.shape[1] - 64, dst.dtype)
    starts, kv = workspace_starts[:batch_size], context_of(dst.device).fp8
    ends = torch.nn.functional.pad(narrow(starts), (0, 1), value=dst.shape[0])
    facts = (dst.dtype, codes.shape[1:], rope.shape[3], block_table.dtype, dst.device)
    kernel = prepared(("ds_mla", *facts), dst.device, lambda: (
        f"kv_gather:kv={kv},o={word(dst.dtype)},d={rope.shape[3]},dv={codes.shape[3]},page={codes.shape[1]},layout=nhd,"
        f"descale=block,table={word(block_table.dtype)}"))
    kernel.launch(k_cache=(rope, "nhd"), v_cache=(codes, "nhd", kv), block_table=block_table, cu_seqlens=ends,
                  starts=None if seq_starts is None else narrow(seq_starts),
                  seq_lens=constant(dst.device, starts.numel(), EVERY_TOKEN), v_descale=scales,
                  k=dst[:, None, codes.shape[3]:], v=dst[:, None, :codes.shape[3]])


def gather_rows(cache: torch.Tensor, rows: torch.Tensor, table: torch.Tensor, ends: torch.Tensor,
                starts: torch.Tensor | None, kv_cache_dtype: str, scale: torch.Tensor | None) -> None:
    """Cached rows [NB][page][width] of sequences, packed; the sequences have the tokens that are asked for. A row is a
    value and, behind it, a key."""
    width = cache.shape[-1]
    head = next((head for head in HEAD_DIMS if width - head in HEAD_DIMS), None)
    if head is None:
        raise NotImplementedError(f"rows of {width}: two parts are read, each as wide as a head_dim")
    first, rest = rows[:, None, width - head:], rows[:, None, :width - head]
    keys, values = latent(cache, width - head)
    eight, kv = cache.dtype in EIGHT_BITS, cache_word(cache, kv_cache_dtype)
    al = aligned(keys, values, first, rest)
    facts = (rows.dtype, kv, width, cache.shape[1], al, table.dtype, cache.device)
    kernel = prepared(("rows", *facts), cache.device, lambda: (
        f"kv_gather:kv={kv},o={word(rows.dtype)},d={head},dv={width - head},page={cache.shape[1]},layout=nhd,al={al},"
        f"table={word(table.dtype)}"))
    kernel.launch(k_cache=seen_as(keys, "nhd", kv), v_cache=seen_as(values, "nhd", kv), block_table=table,
                  cu_seqlens=narrow(ends), starts=None if starts is None else narrow(starts),
                  seq_lens=constant(cache.device, ends.numel() - 1, EVERY_TOKEN), k_descale=scale if eight else None,
                  v_descale=scale if eight else None, k=first, v=rest)


def gather_and_maybe_dequant_cache(
        src_cache: torch.Tensor, dst: torch.Tensor, block_table: torch.Tensor, cu_seq_lens: torch.Tensor,
        token_to_seq: torch.Tensor, num_tokens: int, kv_cache_dtype: str, scale: torch.Tensor,
        seq_starts: torch.Tensor | None = None) -> None:
    """vLLM's: rows of latent attention; which sequence a token has need not be told."""
    gather_rows(src_cache, dst[:num_tokens], block_table, cu_seq_lens, seq_starts, kv_cache_dtype, scale)


def cp_gather_cache(src_cache: torch.Tensor, dst: torch.Tensor, block_table: torch.Tensor, cu_seq_lens: torch.Tensor,
                    batch_size: int, seq_starts: torch.Tensor | None = None) -> None:
    """vLLM's: rows as they are; two of 8 bits count as one of 16, which a copy does not look at."""
    if src_cache.element_size() == 1:
        if any(x.data_ptr() % 2 or any(stride % 2 for stride in x.stride()[:-1]) for x in (src_cache, dst)):
            raise NotImplementedError("rows of bytes at odd addresses: kv_gather copies words of 16 bits (al=2)")
        src_cache, dst = src_cache.view(torch.bfloat16), dst.view(torch.bfloat16)
    gather_rows(src_cache, dst, block_table, cu_seq_lens[:batch_size + 1], seq_starts, "auto", None)


# ---- whole pages ----

def swap_blocks(src: torch.Tensor, dst: torch.Tensor, block_size_in_bytes: int, block_mapping: torch.Tensor) -> None:
    """vLLM's: pages of src to pages of dst, which lie one after another. Memory of the host is taken where the device
    reads it (pinned)."""
    device = src.device if src.device.type != "cpu" else dst.device
    pages = [x.view(-1).view(torch.uint8).view(-1, block_size_in_bytes) for x in (src, dst)]
    kernel = prepared(("swap", device), device, lambda: "scatter:op=copy_pages,loc=i64")
    kernel.launch(pairs=block_mapping.to(device, torch.int64), rows_in=pages[0], rows_out=pages[1])


def copy_blocks(key_caches: list[torch.Tensor], value_caches: list[torch.Tensor], block_mapping: torch.Tensor) -> None:
    """vLLM's of older versions: pages within each cache [NB][...]; a launch a cache."""
    for cache in [*key_caches, *value_caches]:
        swap_blocks(cache, cache, cache.stride(0) * cache.element_size(), block_mapping)
