"""flash-linear-attention's recurrent form, with its signature."""
from __future__ import annotations

import torch

from .common import counted, offered
from .delta import How, flat, recur, rows_of

__all__ = ["fused_recurrent_gated_delta_rule"]


def fused_recurrent_gated_delta_rule(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None = None,
        gk: torch.Tensor | None = None, gv: torch.Tensor | None = None, beta: torch.Tensor | None = None,
        scale: float | None = None, initial_state: torch.Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """States [N][Hv][K][V] are f32 and come back in a tensor of their own."""
    offered(gk=gk, gv=gv)
    if g is None:
        raise NotImplementedError("g=None: gate=gdn has a decay a head")
    rows = q.shape[0] * q.shape[1]
    count = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    shape = (count, v.shape[2], q.shape[3], v.shape[3])
    state = (torch.zeros(shape, dtype=torch.float32, device=q.device) if initial_state is None
             else initial_state.to(torch.float32, copy=True))
    out = v.new_empty((rows, *v.shape[2:]))
    beta = torch.ones_like(g) if beta is None else beta
    how = How(q.shape[3] ** -0.5 if scale is None else scale, None, None, use_qk_l2norm_in_kernel, False, "kv", "neg")
    recur(rows_of(q, k, v), out, flat(g, rows), flat(beta, rows), state, counted(q.device, count), how, starts=cu_seqlens)
    return out.view(v.shape), state if output_final_state else None
