"""One launch of family attn out of what engines pass: which phase, which spec, which tensors.

decode has one query token a sequence; verify up to 16; extend any number; prefill as well, of keys without pages. The window and the page
are numbers of the spec, so each of a model's kinds of layers has its own kernel; with contexts.configure(classes=True) they are given at launch.
"""
from __future__ import annotations

from typing import Any

import torch

from .. import Dispatcher, Kernel
from ..contexts import batch_class, kv_heads, settings
from .cache import page_of
from .common import EIGHT_BITS, ready, word

BYTES = torch.uint8
VERIFY_TOKENS = 16
PHASES = ["", "verify,t=1", "verify,t=2", *["verify,t=4"] * 2, *["verify,t=8"] * 4, *["verify,t=16"] * 8]


def window_of(window_size: Any, causal: Any = True) -> tuple[int, int]:
    """The keys window and right of flash-attention's (left, right); 0: all. A causal query sees no key behind it whatever right
    says: transformers passes both sides alike."""
    if window_size is None:
        return 0, 0
    left, right = (window_size, -1) if isinstance(window_size, int) else window_size
    behind = isinstance(causal, torch.Tensor) or not causal
    return left + 1 if left >= 0 else 0, right + 1 if right >= 0 and behind else 0


def phase_of(longest: int, ragged: bool) -> str:
    if not ragged:
        return "decode"
    return PHASES[max(longest, 1)] if longest <= VERIFY_TOKENS else "extend"


Chosen = tuple[str, int, tuple[int, int], tuple[int, int], str, bool, str, str, str | None, bool, bool]


def choose(key: Chosen, given: dict[str, Any]) -> Kernel:
    """The kernel of tensors that were not seen before."""
    phase, batch, (window, right), (chunk, lookback), causal, capped, first, layout, kv, root, lse_by_token = key
    q, k, v, slopes = given["q"], given["k"][0], given["v"][0], given["alibi_slopes"]
    heads, page = kv_heads(k, layout), page_of(k, layout)
    classes = settings.get("classes", False)
    if q.dtype not in EIGHT_BITS and given["q_descale"] is not None:
        raise NotImplementedError(f"q_descale: queries of {word(q.dtype)} have none; q=fp8 has")
    keys = [f"attn:phase={phase}", f"q={word(q.dtype)}", f"kv={kv or word(k.dtype)}", f"o={word(given['out'].dtype)}",
            f"d={q.shape[-1]}", f"dv={v.shape[2 if layout == 'xpacked' else 3]}", f"g={q.shape[-2] // heads}", f"page={'x16' if classes and page % 16 == 0 else page}", f"layout={layout}",
            f"causal={causal}",
            f"window={('rt' if classes else window) if window else 'off'}", f"right={right or 'off'}", f"softcap={int(capped)}",
            f"alibi={'sqrt' if slopes is not None and root else int(slopes is not None)}",
            f"sinks={int(given['sinks'] is not None)}", f"spans={int(given['span_ends'] is not None)}",
            "lse=0" if given["lse"] is None else "lse=th" if lse_by_token else "lse=1"]
    if chunk:
        keys += [f"chunk={chunk}", f"lookback={lookback}"]
    if capped and slopes is not None:
        keys.append(f"order={first}")
    if phase != "prefill":
        flat = given["kv_indptr"]
        keys += [f"table={word((given['block_table'] if flat is None else flat).dtype)}",
                 f"len={word(given['seq_lens'].dtype)}", f"flat={int(flat is not None)}"]
    if given["words"] is not None and given["words"].element_size() == 8:
        keys.append("word=u64")
    if phase != "decode":
        keys.append(f"cu={word(given['cu_seqlens_q'].dtype)}")
    if isinstance(given["k_descale"], tuple):  # tagged with a layout: one for each cached token
        keys.append("descale=token")
    return ready(q.device, ",".join(keys), batch, heads)


LAUNCHES = Dispatcher("attn", ("q", "k", "v", "out"), choose)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, block_table: torch.Tensor | None,
           lengths: torch.Tensor | None, *, ends: torch.Tensor | None = None, scale: float, layout: str = "nhd", kv: str | None = None, k_scale: Any = None,
           v_scale: Any = None, q_scale: torch.Tensor | None = None, starts: torch.Tensor | None = None, longest: int = 1, window: tuple[int, int] = (0, 0), causal: Any = True,
           softcap: float = 0.0, slopes: torch.Tensor | None = None, root: bool = False, first: str = "cap",
           sinks: torch.Tensor | None = None, lse: torch.Tensor | None = None, lse_by_token: bool = False,
           out_scale: torch.Tensor | None = None, chunks: tuple[int, int] = (0, 0),
           span_ends: torch.Tensor | None = None, lists: tuple[Any, Any] = (None, None),
           words: torch.Tensor | None = None) -> None:
    """q, out [T][Hq][D]; k, v pages. kv: the spec word of what they hold, None: that of their type; scales of 16-bit
    caches are passed over, as engines' kernels do. starts: cu_seqlens_q, None: one token a sequence, which is its
    last. ends: cu_seqlens_k of keys [Tk][1][Hkv][D], which have no block_table and no lengths. causal: a bool, or one for each sequence. first: cap or alibi.
    root: slopes are of the square root of the distance. q_scale: of queries of 8 bits. chunks: how long they are, and how
    many before a query's own it sees; span_ends: the last position that each token sees. lists: kv_indptr and kv_indices in place of
    block_table. words: of a tree, [S][t], which of its tokens each one sees. lse [H][T], or [T][H]."""
    holds = k.dtype
    if holds not in EIGHT_BITS:
        k_scale = v_scale = None
    if sinks is not None and sinks.dtype != torch.float32:
        sinks = sinks.float()  # of the model's type: costs a launch
    pages, values = ((k, layout, kv), (v, layout, kv)) if holds is BYTES else ((k, layout), (v, layout))
    each, mode = None, "1"
    if starts is not None and causal is not True:
        each, mode = (causal, "seq") if isinstance(causal, torch.Tensor) else (None, str(int(causal)))
    phase = phase_of(longest, starts is not None) if ends is None else "prefill"
    if words is not None:
        phase = f"tree,t={words.shape[1]}"
    batch = 0 if lengths is None else batch_class(lengths.shape[0])
    LAUNCHES.launch((phase, batch, window, chunks, mode, softcap != 0.0, first, layout, kv, root, lse_by_token), q=q,
                    k=pages, v=values, out=out, block_table=block_table, seq_lens=lengths, cu_seqlens_k=ends, cu_seqlens_q=starts,
                    causal=each, q_descale=q_scale, k_descale=k_scale, v_descale=v_scale, out_scale=out_scale, alibi_slopes=slopes,
                    sinks=sinks, lse=lse, span_ends=span_ends, kv_indptr=lists[0], kv_indices=lists[1], words=words, softmax_scale=scale, softcap=softcap,
                    window=window[0] if settings.get("classes") else 0)
