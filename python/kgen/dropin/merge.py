"""Two partial results of attention as one."""
from __future__ import annotations

import math
from typing import Any

import torch

from .. import Dispatcher, Kernel
from .common import ready, word

LN_2 = math.log(2)


def choose(by_token: bool, given: dict[str, Any]) -> Kernel:
    part, out = given["prefix"], given["out"]
    return ready(part.device, f"attn_merge:x={word(part.dtype)},o={word(out.dtype)},d={part.shape[2]},"
                              f"lse={'th' if by_token else 1}")


LAUNCHES = Dispatcher("attn_merge", ("prefix", "suffix", "out"), choose)


def merge_attn_states(output: torch.Tensor, prefix_output: torch.Tensor, prefix_lse: torch.Tensor,
                      suffix_output: torch.Tensor, suffix_lse: torch.Tensor, output_lse: torch.Tensor | None = None,
                      prefill_tokens_with_context: int | None = None,
                      output_scale: torch.Tensor | None = None) -> None:
    """vLLM's: outputs [T][Hq][D], sums [Hq][T], or views of [T][Hq]. Tokens from prefill_tokens_with_context on are
    the suffix's. Where both parts are empty the output is 0 and its sum -inf."""
    tokens = output.shape[0]
    by_token = prefix_lse.stride(1) != 1 and prefix_lse.stride(0) == 1
    if by_token:
        prefix_lse, suffix_lse = prefix_lse.t(), suffix_lse.t()
        output_lse = None if output_lse is None else output_lse.t()
    merged = tokens if prefill_tokens_with_context is None else prefill_tokens_with_context
    LAUNCHES.launch(by_token, prefix=prefix_output, prefix_lse=prefix_lse, suffix=suffix_output, suffix_lse=suffix_lse,
                    out=output, lse=output_lse, out_scale=output_scale, tail=max(tokens - merged, 0))


def merge_state_v2(prefix_output: torch.Tensor, prefix_lse: torch.Tensor, suffix_output: torch.Tensor,
                   suffix_lse: torch.Tensor, output: torch.Tensor | None = None,
                   output_lse: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """sgl_kernel's: outputs [T][Hq][D], sums [T][Hq]."""
    output = torch.empty_like(prefix_output) if output is None else output
    output_lse = torch.empty_like(prefix_lse) if output_lse is None else output_lse
    LAUNCHES.launch(True, prefix=prefix_output, prefix_lse=prefix_lse, suffix=suffix_output, suffix_lse=suffix_lse,
                    out=output, lse=output_lse)
    return output, output_lse


def merge_state(v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor,
                v_merged: torch.Tensor | None = None,
                s_merged: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """sgl_kernel's and FlashInfer's: sums are logarithms to base 2, whose conversion costs launches of torch's."""
    merged, sums = merge_state_v2(v_a, s_a * LN_2, v_b, s_b * LN_2, v_merged)
    return merged, torch.div(sums, LN_2, out=s_merged)
