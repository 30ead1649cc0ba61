"""flash-linear-attention's recurrent form, with its signature."""
from __future__ import annotations

import torch
from torch.nn import functional

from .common import counted, offered
from .delta import How, flat, recur, rows_of

__all__ = ["fused_recurrent_gated_delta_rule"]


def gates(g: torch.Tensor, beta: torch.Tensor, a_log: torch.Tensor | None, dt_bias: torch.Tensor | None,
          sigmoid: bool, twice: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The decay's log and beta, of inputs that the caller has not made into them: by launches of torch's."""
    if a_log is not None:
        raw = g.float() if dt_bias is None else g.float() + dt_bias.float()
        g = -a_log.float().exp() * functional.softplus(raw)
    if sigmoid:
        beta = beta.float().sigmoid() * (2 if twice else 1)
    return g, beta


def fused_recurrent_gated_delta_rule(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None = None,
        gk: torch.Tensor | None = None, gv: torch.Tensor | None = None, beta: torch.Tensor | None = None,
        scale: float | None = None, initial_state: torch.Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False, A_log: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None, use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        state_v_first: bool = False,
        cu_seqlens: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """States [N][Hv][K][V], with state_v_first [N][Hv][V][K], are f32 and come back in a tensor of their own. q and k
    wider than v are rounded to its type, in which the kernel reads all three."""
    offered(gk=gk, gv=gv)
    q, k = (x.to(v.dtype) for x in (q, k))
    if g is None:
        raise NotImplementedError("g=None: gate=gdn has a decay a head")
    if use_gate_in_kernel and A_log is None:
        raise ValueError("A_log=None: use_gate_in_kernel needs it")
    rows = q.shape[0] * q.shape[1]
    count = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    sides = (v.shape[3], q.shape[3]) if state_v_first else (q.shape[3], v.shape[3])
    state = (torch.zeros((count, v.shape[2], *sides), dtype=torch.float32, device=q.device) if initial_state is None
             else initial_state.to(torch.float32, copy=True))
    out = v.new_empty((rows, *v.shape[2:]))
    g, beta = gates(g, torch.ones_like(g) if beta is None else beta, A_log if use_gate_in_kernel else None, dt_bias,
                    use_beta_sigmoid_in_kernel and beta is not None, allow_neg_eigval)
    how = How(q.shape[3] ** -0.5 if scale is None else scale, None, None, use_qk_l2norm_in_kernel, False,
              "vk" if state_v_first else "kv", "neg")
    recur(rows_of(q, k, v), out, flat(g, rows), flat(beta, rows), state, counted(q.device, count), how, starts=cu_seqlens)
    return out.view(v.shape), state if output_final_state else None
