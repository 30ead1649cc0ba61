"""Two partial results of attention as one."""
from __future__ import annotations

import torch

from .common import offered


def merge_attn_states(output: torch.Tensor, prefix_output: torch.Tensor, prefix_lse: torch.Tensor,
                      suffix_output: torch.Tensor, suffix_lse: torch.Tensor, output_lse: torch.Tensor | None = None,
                      prefill_tokens_with_context: int | None = None,
                      output_scale: torch.Tensor | None = None) -> None:
    """vLLM's: outputs [T][Hq][D], sums [Hq][T]."""
    offered(merge_attn_states="family attn_merge")
