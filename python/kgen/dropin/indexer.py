"""The indexer of sparse latent attention: its key cache, its logits, and the columns of the largest."""
from __future__ import annotations

import torch

from ..contexts import context_of
from .common import offered, prepared, word

FLOATS = {"e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz}


def codes_of(x: torch.Tensor) -> torch.Tensor:
    """Bytes as the device's own e4m3."""
    return x.view(FLOATS[context_of(x.device).fp8]) if x.dtype == torch.uint8 else x


def pool_of(kv_cache: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A pool [NB][page][dim + 4] of bytes, also with a head between: all codes of a page, then all its scales."""
    pages, page, step, first = kv_cache.shape[0], kv_cache.shape[1], kv_cache.stride(0), kv_cache.storage_offset()
    if kv_cache.element_size() != 1 or kv_cache.shape[-1] != dim + 4:
        raise NotImplementedError(f"kv_cache: rows of {kv_cache.shape[-1]} elements of {kv_cache.dtype}; {dim} codes "
                                  "and 4 bytes of a scale are known")
    if page > 1 and kv_cache.stride(1) != dim + 4 or kv_cache.stride(-1) != 1:
        raise NotImplementedError(f"kv_cache: strides {kv_cache.stride()}; a page is dense, its codes before its scales")
    bytes_of = kv_cache.view(torch.uint8)
    codes = bytes_of.as_strided((pages, page, dim), (step, dim, 1), first)
    scales = bytes_of.as_strided((pages, 4 * page), (step, 1), first + page * dim).view(torch.float32)
    return codes_of(codes), scales


def line_of(op: str, *keys: str) -> str:
    return ",".join([f"indexer:op={op}", *filter(None, keys)])


def indexer_k_quant_and_cache(k: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor,
                              quant_block_size: int, scale_fmt: str | None) -> None:
    """Rows of k to their slots, as e4m3 with a scale a row; those without a slot are skipped."""
    dim = k.shape[-1]
    if quant_block_size != dim:
        raise NotImplementedError(f"quant_block_size={quant_block_size}: one scale for the {dim} dims of a key")
    cache, scales = pool_of(kv_cache, dim)
    power = "pow2=1" if scale_fmt == "ue8m0" else ""
    key = ("index_write", k.device, k.dtype, dim, cache.dtype, cache.shape[1], power, slot_mapping.dtype)
    kernel = prepared(key, k.device, lambda: line_of(
        "write", f"x={word(k.dtype)}", f"kv={word(cache.dtype)}", f"d={dim}", f"page={cache.shape[1]}",
        f"slots={word(slot_mapping.dtype)}", power))
    kernel.launch(k=k, slots=slot_mapping, cache=cache, scales=scales)


def cp_gather_indexer_k_quant_cache(kv_cache: torch.Tensor, dst_k: torch.Tensor, dst_scale: torch.Tensor,
                                    block_table: torch.Tensor, cu_seq_lens: torch.Tensor) -> None:
    """Codes and scales of whole sequences, as they are cached. Rows of no sequence become zeros."""
    dim = dst_k.shape[-1]
    cache, scales = pool_of(kv_cache, dim)
    key = ("index_gather", dst_k.device, dim, cache.dtype, cache.shape[1], block_table.dtype, cu_seq_lens.dtype)
    kernel = prepared(key, dst_k.device, lambda: line_of(
        "gather", f"kv={word(cache.dtype)}", f"d={dim}", f"page={cache.shape[1]}",
        f"table={word(block_table.dtype)}", f"cu={word(cu_seq_lens.dtype)}"))
    kernel.launch(cache=cache, scales=scales, block_table=block_table, cu_seqlens=cu_seq_lens,
                  keys=codes_of(dst_k), key_scales=dst_scale.view(torch.float32).view(-1))


def fp8_paged_mqa_logits(q: torch.Tensor, kv_cache: torch.Tensor, weights: torch.Tensor, context_lens: torch.Tensor,
                         block_tables: torch.Tensor, schedule_metadata: torch.Tensor | None, max_model_len: int,
                         clean_logits: bool = True) -> torch.Tensor:
    """DeepGEMM's: queries [S][t][H][D], of which a sequence's are its last tokens; logits [S t][max_model_len]."""
    seqs, tokens, heads, dim = q.shape
    if context_lens.dim() == 2:  # a length a token, each of which is then a sequence
        if tokens > 1:
            block_tables = block_tables.repeat_interleave(tokens, 0)
        seqs, tokens, context_lens = seqs * tokens, 1, context_lens.reshape(-1)
    cache, scales = pool_of(kv_cache, dim)
    q = codes_of(q).reshape(seqs * tokens, heads, dim)
    logits = torch.empty(seqs * tokens, max_model_len, dtype=torch.float32, device=q.device)
    key = ("index_decode", q.device, heads, dim, tokens, cache.dtype, cache.shape[1], block_tables.dtype,
           context_lens.dtype, clean_logits)
    kernel = prepared(key, q.device, lambda: line_of(
        "decode", f"kv={word(cache.dtype)}", f"h={heads}", f"d={dim}", f"t={tokens}", f"page={cache.shape[1]}",
        f"table={word(block_tables.dtype)}", f"len={word(context_lens.dtype)}", f"clean={int(clean_logits)}"))
    kernel.launch(q=q, weights=weights, cache=cache, scales=scales, block_table=block_tables, seq_lens=context_lens,
                  logits=logits)
    return logits


def fp8_mqa_logits(q: torch.Tensor, kv: tuple[torch.Tensor, torch.Tensor], weights: torch.Tensor,
                   cu_seqlen_ks: torch.Tensor, cu_seqlen_ke: torch.Tensor, clean_logits: bool = True) -> torch.Tensor:
    """DeepGEMM's: queries [T][H][D] and gathered keys [R][D] with their scales; logits [T][R]."""
    keys, key_scales = kv
    q, keys = codes_of(q), codes_of(keys)
    _, heads, dim = q.shape
    logits = torch.empty(q.shape[0], keys.shape[0], dtype=torch.float32, device=q.device)
    key = ("index_prefill", q.device, heads, dim, keys.dtype, cu_seqlen_ks.dtype, clean_logits)
    kernel = prepared(key, q.device, lambda: line_of(
        "prefill", f"kv={word(keys.dtype)}", f"h={heads}", f"d={dim}", f"len={word(cu_seqlen_ks.dtype)}",
        f"clean={int(clean_logits)}"))
    kernel.launch(q=q, weights=weights, keys=keys, key_scales=key_scales.view(torch.float32).view(-1),
                  starts=cu_seqlen_ks, ends=cu_seqlen_ke, logits=logits)
    return logits


def top_k_per_row_decode(logits: torch.Tensor, next_n: int, seq_lens: torch.Tensor, indices: torch.Tensor,
                         num_rows: int, stride0: int, stride1: int, topk: int) -> None:
    """The columns of the topk largest logits of each row in rising order, then -1. Row r is token r % next_n of
    sequence r / next_n."""
    offered(stride1=None if stride1 == 1 else stride1)
    if seq_lens.dim() == 2:
        next_n, seq_lens = 1, seq_lens.reshape(-1)
    key = ("index_topk", logits.device, next_n, seq_lens.dtype)
    kernel = prepared(key, logits.device, lambda: line_of("topk", f"t={next_n}", f"len={word(seq_lens.dtype)}"))
    kernel.launch(logits=logits[:num_rows], seq_lens=seq_lens, indices=indices[:num_rows, :topk])


def top_k_per_row_prefill(logits: torch.Tensor, row_starts: torch.Tensor, row_ends: torch.Tensor,
                          indices: torch.Tensor, num_rows: int, stride0: int, stride1: int, topk: int) -> None:
    """The same of columns row_starts .. row_ends - 1, counted from the row's start."""
    offered(stride1=None if stride1 == 1 else stride1)
    key = ("index_topk_ranges", logits.device, row_starts.dtype)
    kernel = prepared(key, logits.device, lambda: line_of("topk", "ranges=1", f"len={word(row_starts.dtype)}"))
    kernel.launch(logits=logits[:num_rows], starts=row_starts[:num_rows], ends=row_ends[:num_rows],
                  indices=indices[:num_rows, :topk])
