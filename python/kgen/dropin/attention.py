"""One launch of family attn out of what engines pass: which phase, which spec, which tensors.

decode has one query token a sequence; verify up to 16; extend any number. A window, a cap, slopes,
sinks and the page are numbers of the spec, so each of a model's kinds of layers has its own kernel.
"""
from __future__ import annotations

from typing import Any

import torch

from .. import Dispatcher, Kernel
from .common import EIGHT_BITS, narrow, ready, seen_as, word

VERIFY_TOKENS = 16
PHASES = ["", "verify,t=1", "verify,t=2", *["verify,t=4"] * 2, *["verify,t=8"] * 4, *["verify,t=16"] * 8]


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
        return "decode"
    return PHASES[max(longest, 1)] if longest <= VERIFY_TOKENS else "extend"


def sizes_of(k: torch.Tensor, layout: str) -> tuple[int, int]:
    """Heads, and tokens of a page."""
    if layout == "nhd":
        return k.shape[2], k.shape[1]
    return k.shape[1], k.shape[3] if k.dim() == 5 else k.shape[2]


def choose(key: tuple[str, int, bool, str, str, str | None], given: dict[str, Any]) -> Kernel:
    """The kernel of tensors that were not seen before."""
    phase, window, capped, first, layout, kv = key
    q, k, v, slopes = given["q"], given["k"][0], given["v"][0], given["alibi_slopes"]
    heads, page = sizes_of(k, layout)
    keys = [f"attn:phase={phase}", f"q={word(q.dtype)}", f"kv={kv or word(k.dtype)}", f"o={word(given['out'].dtype)}",
            f"d={q.shape[-1]}", f"dv={v.shape[3]}", f"g={q.shape[-2] // heads}", f"page={page}", f"layout={layout}",
            f"table={word(given['block_table'].dtype)}", f"window={window or 'off'}", f"softcap={int(capped)}",
            f"alibi={int(slopes is not None)}", f"sinks={int(given['sinks'] is not None)}",
            f"lse={int(given['lse'] is not None)}"]
    if capped and slopes is not None:
        keys.append(f"order={first}")
    if isinstance(given["k_descale"], tuple):  # tagged with a layout: one for each cached token
        keys.append("descale=token")
    return ready(q.device, ",".join(keys))


LAUNCHES = Dispatcher("attn", ("q", "k", "v", "out"), choose)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, block_table: torch.Tensor,
           lengths: torch.Tensor, *, scale: float, layout: str = "nhd", kv: str | None = None, k_scale: Any = None,
           v_scale: Any = None, starts: torch.Tensor | None = None, longest: int = 1, window: int = 0,
           softcap: float = 0.0, slopes: torch.Tensor | None = None, first: str = "cap",
           sinks: torch.Tensor | None = None, lse: torch.Tensor | None = None,
           out_scale: torch.Tensor | None = None) -> None:
    """q, out [T][Hq][D]; k, v pages. kv: the spec word of what they hold, None: that of their type; scales of 16-bit
    caches are passed over, as engines' kernels do. starts: cu_seqlens_q, None: one token a sequence. first: cap or
    alibi."""
    if k.dtype not in EIGHT_BITS:
        k_scale = v_scale = None
    LAUNCHES.launch((phase_of(longest, starts is not None), window, softcap != 0.0, first, layout, kv), q=q,
                    k=seen_as(k, layout, kv), v=seen_as(v, layout, kv), out=out, block_table=block_table,
                    seq_lens=narrow(lengths), cu_seqlens_q=starts, k_descale=k_scale, v_descale=v_scale,
                    out_scale=out_scale, alibi_slopes=slopes, sinks=sinks, lse=lse, softmax_scale=scale,
                    softcap=softcap)
