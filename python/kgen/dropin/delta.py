"""Gated DeltaNet: the recurrence, and the convolution before it, out of what engines pass."""
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .. import Dispatcher, Kernel
from .common import counted, offered, prepared, ready, word

MOST_TOKENS = 16


# ---- rows ----

@dataclasses.dataclass(slots=True)
class Rows:
    """What the recurrence reads, by argument: x, or q, k and v."""
    k_heads: int
    given: dict[str, torch.Tensor]
    like: torch.Tensor  # one of them: type, device, count

    def part(self, rows: slice) -> Rows:
        return Rows(self.k_heads, {name: x[rows] for name, x in self.given.items()}, self.like[rows])


def one_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
    """q, k [T][Hk][K], v [T][Hv][V] as the rows [q|k|v] that they are views of; None: they are not."""
    keys, values, size = q.shape[1] * q.shape[2], v.shape[1] * v.shape[2], q.element_size()
    inner = all(x.stride(2) == 1 and x.stride(1) == x.shape[2] for x in (q, k, v))
    beside = (k.data_ptr() - q.data_ptr() == keys * size and v.data_ptr() - k.data_ptr() == keys * size
              and q.stride(0) == k.stride(0) == v.stride(0) and q.dtype == k.dtype == v.dtype)
    if inner and beside and q.shape[0] and q.untyped_storage().data_ptr() == v.untyped_storage().data_ptr():
        return q.as_strided((q.shape[0], 2 * keys + values), (q.stride(0), 1))
    return None


def rows_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Rows:
    """Of q, k, v [B][T][H][D]: one row where they are views of one, else three tensors."""
    q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    row = one_row(q, k, v)
    return Rows(q.shape[1], {"q": q, "k": k, "v": v}, v) if row is None else Rows(q.shape[1], {"x": row}, row)


def most_tokens(rows: int, starts: torch.Tensor, slots: torch.Tensor) -> int:
    """The key t of cu_seqlens. Only the device knows lengths: as many rows as sequences are one token each, few rows
    bound themselves, and slots of each token say how many there may be."""
    count = slots.shape[1] if slots.dim() == 2 else 1 if rows == starts.numel() - 1 else rows
    if count > MOST_TOKENS:
        raise NotImplementedError(f"t={count}: with cu_seqlens a recurrence of at most {MOST_TOKENS} tokens a sequence; "
                                  "a prompt needs the chunked form, which is not offered")
    return max(count, 1)


# ---- the recurrence ----

def choose_step(key: tuple[int, int, bool, bool, str, str], given: dict[str, Any]) -> Kernel:
    k_heads, tokens, l2, kda, layout, pad = key
    x, a, out, state, slots = given.get("x", given.get("v")), given["a"], given["out"], given["state"][0], given["slots"]
    a_log, starts, accepted = given["a_log"], given["cu_seqlens"], given["accepted"]
    heads, values = out.shape[1:]
    keys = state.shape[3] if layout == "vk" else state.shape[2]
    words = [f"gdn:fuse=a,layout=presplit,x={word(x.dtype)},hk={k_heads},hv={heads},dk={keys},dv={values}",
             f"state={word(state.dtype)},sl={layout},ab={word(a.dtype)},o={word(out.dtype)},l2={int(l2)}",
             f"t={tokens},varlen={int(starts is not None)},idx={word(slots.dtype)},pad={pad}",
             "raw=1" if a_log is None else f"alog={word(a_log.dtype)},dt={word(given['dt_bias'].dtype)}"]
    words += ["gate=kda"] * kda + ["qkv=split"] * ("x" not in given)
    if starts is not None:
        words.append(f"cu={word(starts.dtype)}")
    if accepted is not None:
        words.append(f"index=spec,save=slots,accept=1,acc={word(accepted.dtype)}")
    elif given["buffer"] is not None:
        words.append("save=buffer")
    return ready(x.device, ",".join(words))


STEPS = Dispatcher("gdn:layout=presplit", ("x", "q", "k", "v", "out", "state"), choose_step)


@dataclasses.dataclass(slots=True)
class How:
    """What is the same for all launches of a call."""
    scale: float
    a_log: torch.Tensor | None  # None: a is the log of the decay, b is beta
    dt_bias: torch.Tensor | None
    l2: bool
    kda: bool
    layout: str  # of the state: vk is [Hv][V][K], kv [Hv][K][V]
    pad: str


def step(tokens: int, rows: Rows, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, state: torch.Tensor,
         slots: torch.Tensor, how: How, starts: torch.Tensor | None, accepted: torch.Tensor | None,
         kept: torch.Tensor | None) -> None:
    STEPS.launch((rows.k_heads, tokens, how.l2, how.kda, how.layout, how.pad), **rows.given, a=a,
                 b=b if b.dtype == a.dtype else b.to(a.dtype), a_log=how.a_log, dt_bias=how.dt_bias,
                 state=(state, how.layout), slots=slots, accepted=accepted, cu_seqlens=starts, out=out,
                 buffer=None if kept is None else (kept, how.layout), q_scale=how.scale,
                 l2_eps=1e-6 if how.l2 else None)


def recur(rows: Rows, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, state: torch.Tensor,
          slots: torch.Tensor, how: How, *, starts: torch.Tensor | None = None, accepted: torch.Tensor | None = None,
          kept: torch.Tensor | None = None) -> None:
    """out [T][Hv][V]; state: a pool of slots, which is written; kept [T][Hv].. : the state after each token, and the pool
    stays as it is. Without starts every sequence has as many tokens; long ones are launches of 16."""
    if slots.dim() == 1:
        accepted = None
    elif accepted is None:
        raise ValueError("slots of each token need num_accepted_tokens")
    count, sequences = rows.like.shape[0], slots.shape[0]
    if not count:
        return
    each = count // max(sequences, 1) if starts is None else most_tokens(count, starts, slots)
    if each <= MOST_TOKENS:
        kept = None if kept is None else kept.view(sequences, each, *kept.shape[1:])
        step(max(each, 1), rows, out, a, b, state, slots, how, starts, accepted, kept)
        return
    if accepted is not None:
        raise NotImplementedError(f"t={each}: slots of each token are of at most {MOST_TOKENS}")
    for first in range(0, count, each):
        pool, slot = state, slots[first // each:][:1]
        for begin in range(first, first + each, MOST_TOKENS):
            part = slice(begin, min(begin + MOST_TOKENS, first + each))
            lines = None if kept is None else kept[part][None]
            step(part.stop - begin, rows.part(part), out[part], a[part], b[part], pool, slot, how, None, None, lines)
            if lines is not None:
                live = (slot > 0 if how.pad == "nonpos" else slot >= 0) & (slot < pool.shape[0])
                pool, slot = lines[0, -2:].clone(), live.to(slot.dtype) * 2 - 1  # 1: not 0, which may stand for no sequence


def flat(x: torch.Tensor, rows: int) -> torch.Tensor:
    """[1][T][H], [B][T][H] and [T][H] as rows; KDA's gates [..][H][K] as [T][H K]."""
    return x.reshape(rows, -1) if rows else x


def in_place(read: Rows, shape: tuple[int, ...], out: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor,
             a_log: torch.Tensor | None, dt_bias: torch.Tensor | None, scale: float | None,
             state: torch.Tensor | None, final_in_place: bool, cu_seqlens: torch.Tensor | None,
             slots: torch.Tensor | None, accepted: torch.Tensor | None, l2: bool, kda: bool,
             pad: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The forms whose states are slots of a pool [slots][Hv][V][K]. It is written, or else the state after each token
    comes back, [T][Hv][V][K]. shape: of v, [B][T][Hv][V]; without cu_seqlens B sequences of T tokens."""
    x, heads, values = read.like, shape[-2], shape[-1]
    rows = x.shape[0]
    sequences = shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    if state is None:
        raise NotImplementedError("initial_state=None: a pool of states is read")
    if slots is None:  # counted from 0, which is the first sequence's then
        slots, pad = counted(x.device, sequences), "neg"
    if slots.shape[0] < sequences:
        raise ValueError(f"ssm_state_indices: {slots.shape[0]} slots of {sequences} sequences")
    slots, kept = slots[:sequences], None
    if not final_in_place:
        if cu_seqlens is not None and rows != sequences:
            raise NotImplementedError("inplace_final_state=False with cu_seqlens: save=buffer has as many tokens of each "
                                      "sequence")
        if accepted is not None and slots.dim() == 2:
            raise NotImplementedError("inplace_final_state=False with num_accepted_tokens: save=slots writes the pool")
        kept = state.new_empty((rows, *state.shape[1:]))
    result = x.new_empty((rows, heads, values)) if out is None else out.view(-1, heads, values)[:rows]
    if dt_bias is not None and kda:
        dt_bias, a_log = dt_bias.reshape(-1), a_log.reshape(-1)
    how = How(state.shape[3] ** -0.5 if scale is None else scale, a_log, dt_bias, l2, kda, "vk", pad)
    recur(read, result, flat(a, rows), flat(b, rows), state, slots, how, starts=cu_seqlens, accepted=accepted, kept=kept)
    return result.view(shape), state if kept is None else kept


def check_softplus(beta: float, threshold: float) -> None:
    if beta != 1.0 or threshold != 20.0:
        raise NotImplementedError(f"beta={beta}, threshold={threshold}: the softplus has neither")


def fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, A_log: torch.Tensor, dt_bias: torch.Tensor,
        scale: float, initial_state: torch.Tensor, out: torch.Tensor, ssm_state_indices: torch.Tensor,
        use_qk_l2norm_in_kernel: bool = False, pad: str = "nonpos") -> tuple[torch.Tensor, torch.Tensor]:
    """vLLM's: slots of 0 and below stand for no sequence, whose outputs are zeros; of SGLang's pad is "neg"."""
    heads, values, keys = initial_state.shape[1:]
    count, slots = mixed_qkv.shape[0], ssm_state_indices[:mixed_qkv.shape[0]]  # a token a sequence, whatever else is there
    if slots.shape[0] < count:
        raise ValueError(f"ssm_state_indices: {slots.shape[0]} slots of {count} rows")
    rows = Rows((mixed_qkv.shape[1] - heads * values) // (2 * keys), {"x": mixed_qkv}, mixed_qkv)
    recur(rows, out.view(-1, heads, values), a, b, initial_state, slots,
          How(scale, A_log, dt_bias, use_qk_l2norm_in_kernel, False, "vk", pad))
    return out, initial_state


def fused_sigmoid_gating_delta_rule_update(
        A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor, q: torch.Tensor,
        k: torch.Tensor, v: torch.Tensor, beta: float = 1.0, threshold: float = 20.0, scale: float | None = None,
        initial_state: torch.Tensor | None = None, inplace_final_state: bool = True,
        cu_seqlens: torch.Tensor | None = None, ssm_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None, use_qk_l2norm_in_kernel: bool = False,
        is_kda: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """vLLM's. q, k, v [1][T][H][D]: views of one row, or tensors of their own."""
    check_softplus(beta, threshold)
    return in_place(rows_of(q, k, v), v.shape, None, a, b, A_log, dt_bias, scale, initial_state, inplace_final_state, cu_seqlens,
                    ssm_state_indices, num_accepted_tokens, use_qk_l2norm_in_kernel, is_kda, "nonpos")


def fused_recurrent_gated_delta_rule(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor | None = None,
        scale: float | None = None, initial_state: torch.Tensor | None = None, inplace_final_state: bool = True,
        cu_seqlens: torch.Tensor | None = None, ssm_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None,
        use_qk_l2norm_in_kernel: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """vLLM's: g is the log of the decay, beta as it is."""
    beta = torch.ones_like(g) if beta is None else beta
    return in_place(rows_of(q, k, v), v.shape, None, g, beta, None, None, scale, initial_state, inplace_final_state, cu_seqlens,
                    ssm_state_indices, num_accepted_tokens, use_qk_l2norm_in_kernel, False, "nonpos")


# ---- the convolution ----

def choose_convolution(key: tuple[int, bool], given: dict[str, Any]) -> Kernel:
    (tokens, silu), (x, _), (state, order) = key, given["x"], given["conv_state"]
    weight, starts, accepted = given["conv_weight"], given["cu_seqlens"], given["accepted"]
    words = [f"gdn:fuse=c,layout=presplit,x={word(x.dtype)},ch={x.shape[1]},w={weight.shape[-1]},cl={order}",
             f"cs={word(state.dtype)},cw={word(weight.dtype)},bias={int(given['conv_bias'] is not None)}",
             f"act={'silu' if silu else 'none'},t={tokens},varlen={int(starts is not None)}",
             f"idx={word(given['slots'].dtype)},pad=value,accept={int(accepted is not None)}"]
    words += [] if given["cache_seqlens"] is None else ["circular=1"]
    words += [] if accepted is None else [f"acc={word(accepted.dtype)}"]
    words += [] if starts is None else [f"cu={word(starts.dtype)}"]
    return ready(x.device, ",".join(words))


CONVOLUTIONS = Dispatcher("gdn:layout=presplit", ("x", "conv_weight"), choose_convolution)


def convolve(rows: torch.Tensor, out: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor,
             bias: torch.Tensor | None, activation: Any, slots: torch.Tensor, accepted: torch.Tensor | None,
             starts: torch.Tensor | None, tokens: int, pad_slot: int, before: torch.Tensor | None) -> None:
    """rows, out [T][C]; conv_state [slots][C][L], whichever of its dimensions is dense; before: of a circular
    one, how many tokens each sequence has had."""
    if activation not in (None, True, False, "silu", "swish"):
        raise NotImplementedError(f"activation={activation}: act=silu or none")
    state = (conv_state.transpose(1, 2), "sd") if conv_state.stride(1) == 1 else (conv_state, "ds")
    CONVOLUTIONS.launch((tokens, activation in (True, "silu", "swish")), x=(rows, "presplit"), conv_weight=weight,
                        conv_bias=bias, conv_state=state, slots=slots, accepted=accepted, cu_seqlens=starts, out=out,
                        pad_slot=pad_slot, cache_seqlens=before)


def causal_conv1d_update(
        x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
        activation: Any = None, conv_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None, query_start_loc: torch.Tensor | None = None,
        max_query_len: int = -1, null_block_id: int = 0, validate_data: bool = False,
        out: torch.Tensor | None = None, *, pad_slot_id: int | None = None, **older: Any) -> torch.Tensor:
    """vLLM's: x [B][C], [B][C][T], or with query_start_loc [T][C]. Without out x is overwritten; the result is
    returned. pad_slot_id is the null block of older versions."""
    offered(**older)
    null = null_block_id if pad_slot_id is None else pad_slot_id
    result = convolved(x, conv_state, weight, bias, activation, conv_state_indices, num_accepted_tokens,
                       query_start_loc, max_query_len, null)
    return (x if out is None else out).copy_(result)


def convolved(x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
              activation: Any, slots: torch.Tensor | None, accepted: torch.Tensor | None,
              starts: torch.Tensor | None, longest: int, pad_slot: int,
              before: torch.Tensor | None = None) -> torch.Tensor:
    """The convolution of x, in a tensor of its own and of the same shape."""
    rows = x.transpose(1, 2).reshape(-1, x.shape[1]).contiguous() if x.dim() == 3 else x  # a batch of one is reshaped as a view
    sequences = x.shape[0] if starts is None else starts.numel() - 1
    if slots is None:  # counted from 0: none of them is padding
        slots, pad_slot = counted(x.device, sequences), -1
    if slots.dim() == 2:
        slots = slots[:, 0]
    tokens = longest if starts is not None else rows.shape[0] // max(sequences, 1)
    if not rows.shape[0]:
        return torch.empty_like(x)
    if not 1 <= tokens <= MOST_TOKENS:
        raise NotImplementedError(f"t={tokens}: 1 to {MOST_TOKENS} tokens a sequence (max_query_len says how many)")
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    convolve(rows, out, conv_state, weight, bias, activation, slots, accepted, starts, tokens, pad_slot, before)
    return out if x.dim() == 2 else out.view(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)


def check_window(conv_state: torch.Tensor, weight: torch.Tensor, before: torch.Tensor | None) -> None:
    """Forms after Dao's causal_conv1d have the window in the last columns, of which all are shifted."""
    columns, window = conv_state.shape[-1], weight.shape[-1] - 1
    if before is None and columns != window:
        raise NotImplementedError(f"conv_state: {columns} columns without cache_seqlens; the {window} of a window are shifted")


# ---- the convolution out of an in-projection ----

def projected_line(x: torch.Tensor, heads: tuple[int, int, int, int], layout: str, state: torch.Tensor, order: str,
                   weight: torch.Tensor, bias: torch.Tensor | None, silu: bool, slots: torch.Tensor) -> str:
    named = ",".join(f"{name}={count}" for name, count in zip(("hk", "hv", "dk", "dv"), heads))
    return ",".join((f"gdn:fuse=c,layout={layout},x={word(x.dtype)},{named},w={weight.shape[-1]},cl={order}",
                     f"cs={word(state.dtype)},cw={word(weight.dtype)},bias={int(bias is not None)}",
                     f"act={'silu' if silu else 'none'},t=1,idx={word(slots.dtype)},pad=value"))


def fused_reshape_causal_conv1d_update_single_token(
        x: torch.Tensor, num_actual_tokens: int, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int,
        ba: torch.Tensor, z_out: torch.Tensor, core_attn_out: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor,
        bias: torch.Tensor | None = None, activation: Any = None, conv_state_indices: torch.Tensor | None = None,
        num_accepted_tokens: torch.Tensor | None = None, query_start_loc: torch.Tensor | None = None, max_query_len: int = -1,
        pad_slot_id: int = -1, block_idx_last_scheduled_token: torch.Tensor | None = None,
        initial_state_idx: torch.Tensor | None = None, validate_data: bool = False,
        qkvz_layout: str = "interleaved") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aiter.ops.triton's: a token a sequence of rows qkvz, z to z_out; -> the convolved q, k, v, then b and a. Rows of z_out and
    core_attn_out behind the last token become zeros."""
    offered(num_accepted_tokens=num_accepted_tokens, query_start_loc=query_start_loc,
            block_idx_last_scheduled_token=block_idx_last_scheduled_token, initial_state_idx=initial_state_idx)
    count, heads = num_actual_tokens, (num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    rows, parts, z = x.flatten(1), ba.flatten(1), z_out.view(-1, num_v_heads * head_v_dim)
    slots = counted(x.device, count) if conv_state_indices is None else conv_state_indices
    state, order = (conv_state.transpose(1, 2), "sd") if conv_state.stride(1) == 1 else (conv_state, "ds")
    silu = activation in (True, "silu", "swish")
    key = ("projected", x.device, x.dtype, heads, qkvz_layout, conv_state.dtype, order, weight.dtype, weight.shape[-1],
           bias is None, silu, slots.dtype)
    kernel = prepared(key, x.device, lambda: projected_line(x, heads, qkvz_layout, state, order, weight, bias, silu, slots))
    out = torch.empty(count, weight.shape[0], dtype=x.dtype, device=x.device)
    b_out, a_out = torch.empty(2, count, num_v_heads, dtype=ba.dtype, device=ba.device)
    kernel.launch(qkvz=(rows[:count], qkvz_layout), ba=(parts[:count], qkvz_layout), conv_weight=weight, conv_bias=bias,
                  conv_state=(state, order), slots=slots, out=out, z_out=z[:count], b_out=b_out, a_out=a_out,
                  pad_slot=-1 if conv_state_indices is None else pad_slot_id)
    z_out[count:].zero_()
    core_attn_out[count:].zero_()
    return out, b_out, a_out
