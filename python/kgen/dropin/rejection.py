"""Rejection sampling of drafts, out of what vLLM passes."""
from __future__ import annotations

from typing import Any

import torch

from .common import offered, scatter

GREEDY_TEMPERATURE = 0
BELOW_ONE = 1 - 2**-24


def uniforms(counts: list[int], generators: dict[int, torch.Generator], device: torch.device) -> torch.Tensor:
    """A coin a draft, drawn as vLLM draws them: requests with a generator have their own."""
    coins, at = torch.rand(sum(counts), dtype=torch.float64, device=device), 0
    for row, count in enumerate(counts):
        if count and row in generators:
            coins[at:at + count].uniform_(generator=generators[row])
        at += count
    return coins.to(torch.float32).clamp(max=BELOW_ONE)


def exponentials(counts: list[int], generators: dict[int, torch.Generator], vocabulary: int,
                 device: torch.device) -> torch.Tensor:
    noise = torch.empty(len(counts), vocabulary, device=device).exponential_()
    for row, generator in generators.items():
        if counts[row]:
            noise[row].exponential_(generator=generator)
    return noise


def rejection_sample(
        draft_token_ids: torch.Tensor, num_draft_tokens: list[int], max_spec_len: int, cu_num_draft_tokens: torch.Tensor,
        draft_probs: torch.Tensor | None, target_logits: torch.Tensor, bonus_token_ids: torch.Tensor,
        sampling_metadata: Any, synthetic_mode: bool = False,
        synthetic_conditional_rates: torch.Tensor | None = None, use_fp64_gumbel: bool = False,
        fly_window_size: int | None = None, fly_entropy_threshold: float | None = None,
        fly_entropy_top_k: int = 3) -> torch.Tensor:
    """vLLM's, of a batch's drafts: tokens [N][max_spec_len + 1], -1 behind the last. Probabilities, coins and noise are
    torch's, as in the original; accepting, recovering and packing are one launch. Coins are rounded to 32 bits."""
    offered(synthetic_mode=synthetic_mode, use_fp64_gumbel=use_fp64_gumbel, fly_window_size=fly_window_size)
    how, device, count = sampling_metadata, target_logits.device, len(num_draft_tokens)
    out = torch.empty(count, max_spec_len + 1, dtype=torch.int32, device=device)
    given = {"draft_ends": cu_num_draft_tokens, "drafts": draft_token_ids, "bonus": bonus_token_ids.view(-1),
             "accept_count": torch.empty(count, dtype=torch.int32, device=device), "predicts": out}
    if not how.all_random:
        given["targets_in"] = target_logits.argmax(dim=-1)
    if how.all_greedy:
        scatter("reject", **given)
        return out
    if not how.all_random:
        given["greedy"] = (how.temperature == GREEDY_TEMPERATURE).view(torch.uint8)
    if draft_probs is not None:
        given["draft_probs"] = draft_probs
    scatter("reject", ",sampling=1,race=1", **given, probs=target_logits.softmax(dim=-1, dtype=torch.float32),
            coins=uniforms(num_draft_tokens, how.generators, device),
            noise=exponentials(num_draft_tokens, how.generators, target_logits.shape[-1], device))
    return out
