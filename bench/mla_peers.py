"""The peers of mla_bench.py (see docs/bench.md): vLLM's Triton MLA decode, loaded from .peers/ without installing its
package, and FlashInfer, where its package is installed."""
import torch
import torch.nn.functional as F
import triton

import peers
from attn_peers import Peer
from peers import Missing

LEAST_KEYS = 512  # of a part, as vLLM's backend splits
PROGRAMS = 2      # that it wants a compute unit to have at most


class Vllm(Peer):
    """Two launches: parts of the keys, and their merge. `own` are as many parts as its backend takes; others are
    tried besides."""
    family = "vllm"

    def __init__(self, parts):
        self.name, self.parts = f"vllm-{parts or 'own'}", parts
        self.decode = peers.load("vllm.v1.attention.ops.triton_decode_attention", "decode_attention_fwd")

    def takes(self, row):
        return not row.is_ragged

    def is_own_choice(self, row):
        return not self.parts

    def segments(self, row):
        ideal = triton.next_power_of_2(max(1, max(row.seq_lens) // LEAST_KEYS))
        return self.parts or min(ideal, PROGRAMS * peers.compute_units())

    def bind(self, case):
        shape = (*case.q.shape[:2], self.segments(case.row), case.v.shape[-1] + 1)
        self.logits = torch.empty(shape, dtype=torch.float32, device=case.q.device)
        self.lse = torch.empty(shape[:2], dtype=case.q.dtype, device=case.q.device)
        self.one = torch.ones(1, device=case.q.device) if case.k_descale is None else case.k_descale

    def run(self, case, index):
        self.decode(case.q, case.k, case.v, case.out, self.lse, case.table[index], case.lens, self.logits,
                    self.logits.shape[2], case.scale, case.row.page, k_scale=self.one, v_scale=self.one, is_mla=True)
        return case.out


class FlashInfer(Peer):
    """Planned once: all sets have the same lengths. Their pages are put in its place before a launch."""
    INDICES = "_kv_indices_buf"
    broken = set()

    def __init__(self, backend):
        try:
            from flashinfer.mla import BatchMLAPagedAttentionWrapper as wrapper
        except Exception as error:  # its package asks for much at import
            raise Missing(f"flashinfer: {type(error).__name__}: {str(error)[:120]}") from None
        self.name, self.backend, self.make = f"flashinfer-{backend}", backend, wrapper

    def takes(self, row):
        return row.kv != "fp8" and self.name not in self.broken

    def bind(self, case):
        try:
            self.plan(case)
            self.run(case, 0)
        except Exception:
            self.broken.add(self.name)  # it compiles here: what fails once fails for every row
            raise

    def plan(self, case):
        row, device, latent = case.row, case.q.device, case.v.shape[-1]
        pages = torch.tensor([-(-n // row.page) for n in row.seq_lens])
        used = (torch.arange(case.table.shape[2])[None, :] < pages[:, None]).to(case.table.device)
        self.indices = [table[used] for table in case.table]
        ends = F.pad(pages.cumsum(0), (1, 0)).to(torch.int32)
        self.wrapper = self.make(torch.zeros(256 << 20, dtype=torch.uint8, device=device), backend=self.backend)
        self.wrapper.plan(case.cu, ends.to(device), self.indices[0], case.lens, row.q_heads, latent,
                          row.dim - latent, row.page, row.is_ragged, case.scale, case.q.dtype, case.k.dtype)
        if not hasattr(self.wrapper, self.INDICES):
            raise Missing(f"flashinfer: this version keeps no {self.INDICES}")

    def run(self, case, index):
        setattr(self.wrapper, self.INDICES, self.indices[index])
        latent = case.v.shape[-1]
        self.wrapper.run(case.q[..., :latent], case.q[..., latent:], case.v[:, :, 0], case.k[:, :, 0, latent:],
                         out=case.out)
        return case.out


def kinds(with_torch):
    """name -> what makes the peer; torch has none"""
    made = {f"vllm-{parts or 'own'}": (lambda parts=parts: Vllm(parts)) for parts in (0, 4, 16, 64)}
    return made | {f"flashinfer-{backend}": (lambda backend=backend: FlashInfer(backend)) for backend in ("fa2", "fa3")}
