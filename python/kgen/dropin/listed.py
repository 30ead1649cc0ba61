"""SGLang's Triton attention: slots [N][Hkv][D], of which kv_indptr and kv_indices list those of each sequence."""
from __future__ import annotations

from typing import Any

import torch

from .attention import attend, window_of
from .common import EIGHT_BITS, constant, counted, offered, one, scatter
from .flash import lengths_of
from .merge import merge_state_v2

TREE_TOKENS = 64  # that a word of phase=tree has bits for


def decode_attention_fwd(
        q: torch.Tensor, k_buffer: torch.Tensor, v_buffer: torch.Tensor, o: torch.Tensor, kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor, attn_logits: torch.Tensor, attn_lse: torch.Tensor, num_kv_splits: torch.Tensor, max_kv_splits: int,
        sm_scale: float, k_scale: float = 1.0, v_scale: float = 1.0, logit_cap: float = 0.0, sinks: torch.Tensor | None = None,
        xai_temperature_len: int = -1, has_mla: bool = False, use_pdl: bool = False, page_size: int = 1, score_mod: Any = None,
        aux_tensors: Any = None, enable_lean: Any = None, lean_Mp: Any = None, lean_Lp: Any = None, lean_Op: Any = None,
        lean_locks: Any = None, uneven_batch: Any = None) -> None:
    """Splits and their buffers are the original's own, and so is the way that lean_* are for. Lengths out of kv_indptr are
    a launch of torch's, and ends of another width than kv_indices."""
    check(score_mod, aux_tensors, xai_temperature_len)
    over_slots(q, k_buffer, v_buffer, o, kv_indptr[:q.shape[0] + 1], kv_indices, k_scale, v_scale, scale=sm_scale,
               softcap=logit_cap, sinks=sinks)


def decode_attention_fwd_normal(
        q: torch.Tensor, k_buffer: torch.Tensor, v_buffer: torch.Tensor, o: torch.Tensor, kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor, attn_logits: torch.Tensor, attn_lse: torch.Tensor, num_kv_splits: torch.Tensor, max_kv_splits: int,
        sm_scale_withk: float, v_scale: float = 1.0, logit_cap: float = 0.0, sinks: torch.Tensor | None = None,
        xai_temperature_len: int = -1, has_mla: bool = False, use_pdl: bool = False, page_size: int = 1, score_mod: Any = None,
        aux_tensors: Any = None, uneven_batch: Any = None) -> None:
    """The same; the scale has that of the keys in it."""
    decode_attention_fwd(q, k_buffer, v_buffer, o, kv_indptr, kv_indices, attn_logits, attn_lse, num_kv_splits, max_kv_splits,
                         sm_scale_withk, 1.0, v_scale, logit_cap, sinks, xai_temperature_len, score_mod=score_mod,
                         aux_tensors=aux_tensors)


decode_attention_fwd_grouped = decode_attention_fwd_normal  # one kernel for all groups


def extend_attention_fwd(
        q_extend: torch.Tensor, k_extend: torch.Tensor, v_extend: torch.Tensor, o_extend: torch.Tensor,
        k_buffer: torch.Tensor, v_buffer: torch.Tensor, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor, custom_mask: torch.Tensor | None, is_causal: bool, mask_indptr: torch.Tensor | None,
        max_len_extend: int, k_scale: float = 1.0, v_scale: float = 1.0, sm_scale: float | None = None,
        logit_cap: float = 0.0, skip_prefix_custom_mask: bool = True, sliding_window_size: int = -1,
        sinks: torch.Tensor | None = None, window_kv_offsets: torch.Tensor | None = None, xai_temperature_len: int = -1,
        lse_extend: torch.Tensor | None = None, skip_prefix: bool = False, skip_extend: bool = False, page_size: int = 1,
        score_mod: Any = None, aux_tensors: Any = None, extend_seq_lens_cpu: Any = None,
        identity_kv_indices: bool = False) -> None:
    """New tokens [T][H][D] behind the listed slots of their sequences. A launch for each of the two and one that merges them; one
    in all where one of them is not there. With a window listed rows and new ones are put side by side by torch's copies,
    for one launch. custom_mask is a tree's: every token sees all that is listed."""
    check(score_mod, aux_tensors, xai_temperature_len)
    ends, window = kv_indptr[:qo_indptr.shape[0]], reach(sliding_window_size, is_causal)
    given: dict[str, Any] = {"scale": sm_scale or q_extend.shape[-1] ** -0.5, "softcap": logit_cap, "starts": qo_indptr,
                             "longest": max_len_extend, "lse_by_token": True}
    new: dict[str, Any] = {"causal": is_causal, "window": window, **given}
    words = None
    if custom_mask is not None:
        bounds_of_mask(skip_prefix_custom_mask, window, max_len_extend)
        words = words_of(custom_mask, mask_indptr, lengths_of(qo_indptr), ends, max_len_extend)
    listed = not skip_prefix and kv_indices.shape[0] > 0
    if window[0] and (listed or skip_extend):
        offered(skip_extend=skip_extend)
        pool_ends, indices, pool = side_by_side((k_extend, v_extend), (k_buffer, v_buffer), (k_scale, v_scale), qo_indptr, ends,
                                                kv_indices)
        over_slots(q_extend, *pool, o_extend, pool_ends, indices, sinks=sinks, lse=lse_extend, **new)
    elif skip_extend:
        over_slots(q_extend, k_buffer, v_buffer, o_extend, ends, kv_indices, k_scale, v_scale, sinks=sinks, lse=lse_extend,
                   causal=False, **given)
    elif not listed:
        over_new(q_extend, k_extend, v_extend, o_extend, words, sinks=sinks, lse=lse_extend, **new)
    else:  # the parts are of 32 bits, so that the output is rounded once; the sinks are in one of them
        parts = o_extend.new_empty((2, *o_extend.shape), dtype=torch.float32)
        sums = parts.new_empty(parts.shape[:3])
        over_slots(q_extend, k_buffer, v_buffer, parts[0], ends, kv_indices, k_scale, v_scale, lse=sums[0], causal=False, **given)
        over_new(q_extend, k_extend, v_extend, parts[1], words, sinks=sinks, lse=sums[1], **new)
        merge_state_v2(parts[0], sums[0], parts[1], sums[1], o_extend, lse_extend)


def extend_attention_fwd_unified(
        q: torch.Tensor, o: torch.Tensor, k_buffer: torch.Tensor, v_buffer: torch.Tensor, k_scale: float, v_scale: float,
        qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor, prefix_lens: torch.Tensor,
        max_len_extend: int, custom_mask: torch.Tensor | None = None, mask_indptr: torch.Tensor | None = None,
        sm_scale: float | None = None, logit_cap: float = 0.0, is_causal: bool = True, sliding_window_size: int = -1,
        sinks: torch.Tensor | None = None, window_start_pos: torch.Tensor | None = None, xai_temperature_len: int = -1,
        page_size: int = 1, score_mod: Any = None, aux_tensors: Any = None) -> None:
    """New tokens whose slots are listed too, behind the others: one launch. prefix_lens is what the two kinds of ends say, and
    where a window starts changes no distance."""
    check(score_mod, aux_tensors, xai_temperature_len)
    offered(custom_mask=custom_mask)
    over_slots(q, k_buffer, v_buffer, o, kv_indptr[:qo_indptr.shape[0]], kv_indices, k_scale, v_scale,
               scale=sm_scale or q.shape[-1] ** -0.5, softcap=logit_cap, sinks=sinks, starts=qo_indptr, longest=max_len_extend,
               causal=is_causal, window=reach(sliding_window_size, is_causal))


def build_unified_kv_indices(
        prefix_kv_indptr: torch.Tensor, prefix_kv_indices: torch.Tensor, extend_start_loc: torch.Tensor,
        extend_seq_lens: torch.Tensor, extend_kv_indices: torch.Tensor, bs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ends, slots and lengths of prefixes: of each sequence the listed slots, then its new ones. Both lists are a row of one
    table, of which a launch copies pieces; which ones is for torch to say."""
    device, rows = prefix_kv_indptr.device, prefix_kv_indices.shape[0]
    lengths = prefix_kv_indptr[1:bs + 1] - prefix_kv_indptr[:bs]
    starts = torch.stack((prefix_kv_indptr[:bs], extend_start_loc[:bs] + rows), 1).flatten()
    counts = torch.stack((lengths, extend_seq_lens[:bs]), 1)
    ends = torch.cat((torch.zeros(1, dtype=torch.int32, device=device), counts.sum(1).cumsum(0)))
    table = torch.cat((prefix_kv_indices, extend_kv_indices))
    indices = torch.empty_like(table, dtype=torch.int64)
    scatter("cache_locs", ",form=ragged", lens=starts + counts.flatten().to(starts.dtype), starts=starts,
            requests=torch.zeros_like(starts), req_to_token=table[None], locs=indices)
    return ends, indices, lengths


# ---- what they have in common ----

def check(score_mod: Any, aux_tensors: Any, xai_temperature_len: int) -> None:
    offered(score_mod=score_mod, aux_tensors=aux_tensors, xai_temperature_len=xai_temperature_len if xai_temperature_len > 0 else None)


def reach(sliding_window_size: int, causal: bool) -> tuple[int, int]:
    """So many keys before the query's own, without a causal mask as many behind it."""
    size = sliding_window_size if sliding_window_size > 0 else -1
    return window_of((size, -1 if causal else size), causal)


def unit(x: torch.Tensor) -> torch.Tensor | None:
    """The scale of 8 bits that count as they are."""
    return one(x.device) if x.dtype in EIGHT_BITS else None


def wide(sinks: torch.Tensor | None) -> torch.Tensor | None:
    return sinks if sinks is None else sinks.float()


def over_slots(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, ends: torch.Tensor, indices: torch.Tensor,
               k_scale: float = 1.0, v_scale: float = 1.0, *, scale: float, sinks: torch.Tensor | None = None,
               **more: Any) -> None:
    if k.dtype in EIGHT_BITS:
        scales = [constant(q.device, 1, value, torch.float32) for value in (k_scale, v_scale)]
    elif v_scale != 1.0:
        raise NotImplementedError(f"v_scale={v_scale}: descale=head is of values of 8 bits")
    else:
        scales, scale = [None, None], scale * k_scale
    attend(q, k[:, None], v[:, None], out, None, lengths_of(ends), scale=scale, k_scale=scales[0], v_scale=scales[1],
           q_scale=unit(q), sinks=wide(sinks), lists=(ends.to(indices.dtype), indices), **more)


def over_new(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, words: torch.Tensor | None, *,
             starts: torch.Tensor, sinks: torch.Tensor | None, **more: Any) -> None:
    """Rows of no cache; with words the tokens of a tree, listed as slots of themselves."""
    more |= {"q_scale": unit(q), "k_scale": unit(k), "v_scale": unit(v), "sinks": wide(sinks), "starts": starts}
    if words is None:
        attend(q, k[:, None], v[:, None], out, None, None, ends=starts, **more)
    else:
        attend(q, k[:, None], v[:, None], out, None, lengths_of(starts), words=words,
               lists=(starts, counted(q.device, q.shape[0]).to(starts.dtype)), **{**more, "causal": True})


def bounds_of_mask(skip_prefix_custom_mask: bool, window: tuple[int, int], tokens: int) -> None:
    offered(skip_prefix_custom_mask=None if skip_prefix_custom_mask else "False",
            sliding_window_size=f"{window[0] - 1} with custom_mask" if window[0] else None)
    if tokens > TREE_TOKENS:
        raise NotImplementedError(f"custom_mask: of {tokens} new tokens; phase=tree has t up to {TREE_TOKENS}")


def words_of(mask: torch.Tensor, rows_at: torch.Tensor, lengths: torch.Tensor, ends: torch.Tensor, tokens: int) -> torch.Tensor:
    """Of flat masks [new][listed + new] of each sequence: a word a new token, of the new ones that it sees. Costs launches of
    torch's."""
    place, count = torch.arange(tokens, device=mask.device), lengths[:, None, None]
    before = lengths_of(ends)[:, None, None]
    inside = (place[:, None] < count) & (place < count)
    at = rows_at[:lengths.shape[0], None, None] + place[:, None] * (before + count) + before + place
    words = (((mask[at.where(inside, 0)] != 0) & inside).long() << place).sum(-1)
    return words if tokens > 32 else words.to(torch.int32)


def side_by_side(new: tuple[torch.Tensor, torch.Tensor], buffers: tuple[torch.Tensor, torch.Tensor], scales: tuple[float, float],
                 starts: torch.Tensor, ends: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """A pool of the listed rows and of new ones, and which rows of it are whose. A list may be longer than its last end, by
    slots of nobody."""
    rows, count = indices.shape[0], starts.shape[0] - 1
    within = indices.clamp(0, buffers[0].shape[0] - 1)

    def pool(fresh: torch.Tensor, buffer: torch.Tensor, scale: float) -> torch.Tensor:
        taken = buffer[within]
        if taken.dtype != fresh.dtype or scale != 1.0:
            taken = (taken.float() * scale).to(fresh.dtype)
        return torch.cat((taken, fresh))

    every = counted(starts.device, rows + new[0].shape[0])
    pool_ends, order, _ = build_unified_kv_indices(ends, every[:rows], starts[:-1], lengths_of(starts), every[rows:], count)
    return pool_ends, order, [pool(*parts) for parts in zip(new, buffers, scales)]
