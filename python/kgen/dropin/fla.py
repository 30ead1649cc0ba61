"""flash-linear-attention's recurrent forms, with their signatures."""
from __future__ import annotations

import torch
from torch.nn import functional

from .common import counted, offered
from .delta import How, flat, recur, rows_of

__all__ = ["fused_recurrent_gated_delta_rule", "fused_recurrent_kda"]


def decay_of(g: torch.Tensor, a_log: torch.Tensor | None, dt_bias: torch.Tensor | None, bound: float | None = None) -> torch.Tensor:
    """The decay's log, of inputs that the caller has not made into it: by launches of torch's. With a bound between that and 0."""
    raw = g.float() if dt_bias is None else g.float() + dt_bias.float()
    if bound is not None:
        return bound * (raw if a_log is None else a_log.float().exp() * raw).sigmoid()
    if a_log is None:
        raise ValueError("A_log=None: use_gate_in_kernel needs it")
    return -a_log.float().exp() * functional.softplus(raw)


def recurred(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, scale: float | None,
             initial_state: torch.Tensor | None, output_final_state: bool, l2: bool, kda: bool, state_v_first: bool,
             cu_seqlens: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """States [N][Hv][K][V], with state_v_first [N][Hv][V][K], are f32 and come back in a tensor of their own. q and k
    wider than v are rounded to its type, in which the kernel reads all three."""
    q, k = (x.to(v.dtype) for x in (q, k))
    rows = q.shape[0] * q.shape[1]
    count = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    sides = (v.shape[3], q.shape[3]) if state_v_first else (q.shape[3], v.shape[3])
    state = (torch.zeros((count, v.shape[2], *sides), dtype=torch.float32, device=q.device) if initial_state is None
             else initial_state.to(torch.float32, copy=True, memory_format=torch.contiguous_format))
    out = v.new_empty((rows, *v.shape[2:]))
    how = How(q.shape[3] ** -0.5 if scale is None else scale, None, None, l2, kda, "vk" if state_v_first else "kv", "neg")
    recur(rows_of(q, k, v), out, flat(g, rows), flat(beta, rows), state, counted(q.device, count), how, starts=cu_seqlens)
    return out.view(v.shape), state if output_final_state else None


def fused_recurrent_gated_delta_rule(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None = None,
        gk: torch.Tensor | None = None, gv: torch.Tensor | None = None, beta: torch.Tensor | None = None,
        scale: float | None = None, initial_state: torch.Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False, A_log: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None, use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        state_v_first: bool = False,
        cu_seqlens: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A decay a head."""
    offered(gk=gk, gv=gv)
    if g is None:
        raise NotImplementedError("g=None: gate=gdn has a decay a head")
    if beta is None:
        beta = torch.ones_like(g)
    elif use_beta_sigmoid_in_kernel:
        beta = beta.float().sigmoid() * (2 if allow_neg_eigval else 1)
    if use_gate_in_kernel:
        g = decay_of(g, A_log, dt_bias)
    return recurred(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, False, state_v_first,
                    cu_seqlens)


def fused_recurrent_kda(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor,
        A_log: torch.Tensor | None = None, dt_bias: torch.Tensor | None = None, scale: float | None = None,
        initial_state: torch.Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
        use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        lower_bound: float | None = None, state_v_first: bool = False,
        cu_seqlens: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A decay a channel: g [B][T][Hv][K]; A_log of Hv, dt_bias of Hv K elements."""
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval=True: of use_beta_sigmoid_in_kernel")
    if use_beta_sigmoid_in_kernel:
        beta = beta.float().sigmoid() * (2 if allow_neg_eigval else 1)
    if use_gate_in_kernel:
        g = decay_of(g, None if A_log is None else A_log.reshape(-1, 1), None if dt_bias is None else dt_bias.view(g.shape[2:]),
                     lower_bound)
    return recurred(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, True, state_v_first,
                    cu_seqlens)
