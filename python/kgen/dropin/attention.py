"""One launch of family attn out of what engines pass: which phase, which spec, which tensors.

decode has one query token a sequence; verify up to 16; extend any number. A window, a cap, slopes,
sinks and the page are numbers of the spec, so each of a model's kinds of layers has its own kernel.
"""
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .common import EIGHT_BITS, narrow, prepared, seen_as, word

VERIFY_TOKENS = 16


@dataclasses.dataclass(slots=True)
class Cache:
    """Keys and values in pages; kv: the spec word of their type, None: that of the tensors."""
    k: torch.Tensor
    v: torch.Tensor
    layout: str = "nhd"
    kv: str | None = None
    k_scale: Any = None
    v_scale: Any = None
    by_token: bool = False  # a scale for each cached token

    def shape(self) -> tuple[int, int, int]:
        """Heads, tokens of a page, head_dim of values."""
        k, v = self.k.shape, self.v.shape
        if self.layout == "nhd":
            return k[2], k[1], v[3]
        return k[1], k[3] if len(k) == 5 else k[2], v[3]


def window_of(window_size: Any) -> int:
    """Tokens that a query sees, its own included, of flash-attention's (left, right); 0: all."""
    if window_size is None:
        return 0
    left, right = (window_size, 0) if isinstance(window_size, int) else window_size
    if right > 0:
        raise NotImplementedError(f"window_size={tuple(window_size)}: keys after the query; window has none")
    return left + 1 if left >= 0 else 0


def phase_of(longest: int, ragged: bool) -> str:
    if not ragged:
        return "phase=decode"
    if longest <= VERIFY_TOKENS:
        return f"phase=verify,t={1 << max(longest - 1, 0).bit_length()}"
    return "phase=extend"


def line_of(q: torch.Tensor, cache: Cache, out: torch.Tensor, facts: tuple[Any, ...]) -> str:
    phase, window, capped, slopes, first, sinks, lse, table = facts
    heads, page, values = cache.shape()
    kv = cache.kv or word(cache.k.dtype)
    keys = [f"attn:{phase}", f"q={word(q.dtype)}", f"kv={kv}", f"o={word(out.dtype)}", f"d={q.shape[-1]}",
            f"dv={values}", f"g={q.shape[-2] // heads}", f"page={page}", f"layout={cache.layout}",
            f"table={word(table)}", f"window={window or 'off'}", f"softcap={int(capped)}", f"alibi={int(slopes)}",
            f"sinks={int(sinks)}", f"lse={int(lse)}"]
    if capped and slopes:
        keys.append(f"order={first}")
    if cache.by_token:
        keys.append("descale=token")
    return ",".join(keys)


def attend(q: torch.Tensor, cache: Cache, out: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor, *,
           scale: float, starts: torch.Tensor | None = None, longest: int = 1, window: int = 0, softcap: float = 0.0,
           slopes: torch.Tensor | None = None, first: str = "cap", sinks: torch.Tensor | None = None,
           lse: torch.Tensor | None = None, out_scale: torch.Tensor | None = None) -> None:
    """q, out [T][Hq][D]; starts: cu_seqlens_q, None: one token a sequence. first: cap or alibi."""
    phase = phase_of(longest, starts is not None)
    facts = (phase, window, bool(softcap), slopes is not None, first, sinks is not None, lse is not None,
             block_table.dtype)
    key = (q.dtype, out.dtype, cache.k.dtype, cache.kv, q.shape[1:], cache.k.shape[1:], cache.v.shape[1:],
           cache.layout, cache.by_token, facts, q.device)
    kernel = prepared(key, q.device, lambda: line_of(q, cache, out, facts))
    eight = cache.k.dtype in EIGHT_BITS
    kernel.launch(q=q, k=seen_as(cache.k, cache.layout, cache.kv), v=seen_as(cache.v, cache.layout, cache.kv),
                  out=out, block_table=block_table, seq_lens=narrow(lengths), cu_seqlens_q=starts,
                  k_descale=cache.k_scale if eight else None, v_descale=cache.v_scale if eight else None,
                  out_scale=out_scale, alibi_slopes=slopes, sinks=sinks, lse=lse, softmax_scale=scale,
                  softcap=softcap)
