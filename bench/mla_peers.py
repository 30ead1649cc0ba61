"""The peers of mla_bench.py (see docs/bench.md): vLLM's Triton MLA decode, loaded from .peers/ without installing its
package, and FlashInfer and FlashMLA, where their packages are installed or in .peers/."""
import itertools

import torch
import torch.nn.functional as F
import triton

import harness
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
        return not row.is_ragged and not row.is_listed

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
    """Planned once: all sets have the same lengths. Their pages are put in its place before a launch. `page`: 1 where
    the pool is given as pages of one token, 0 where as it is."""
    INDICES = "_kv_indices_buf"
    ROOM = 256 << 20
    broken = set()

    def __init__(self, backend, page):
        peers.install({})
        try:
            from flashinfer.mla import BatchMLAPagedAttentionWrapper as wrapper
        except Exception as error:  # its package asks for much at import
            raise Missing(f"flashinfer: {type(error).__name__}: {str(error)[:120]}") from None
        self.name, self.backend, self.page, self.make = f"flashinfer-{backend}" + "-p1" * page, backend, page, wrapper

    def takes(self, row):
        return not row.is_listed and (self.name, row.spec) not in self.broken

    def is_own_choice(self, row):
        return self.backend == "fa3" and not self.page

    def bind(self, case):
        try:
            self.plan(case)
            self.run(case, 0)
        except Exception:
            self.broken.add((self.name, case.row.spec))  # it compiles here: what fails once fails for every such row
            raise

    def plan(self, case):
        row, device, latent = case.row, case.q.device, case.v.shape[-1]
        page = self.page or row.page
        pages = torch.tensor([-(-n // page) for n in row.seq_lens])
        used = (torch.arange(case.table.shape[2] * (row.page // page))[None, :] < pages[:, None]).to(device)
        inside = torch.arange(row.page // page, dtype=torch.int32, device=device)
        self.indices = [(table[:, :, None] * len(inside) + inside).flatten(1)[used] for table in case.table]
        self.cache = case.k[:, :, 0].reshape(-1, page, row.dim)
        ends = F.pad(pages.cumsum(0), (1, 0)).to(torch.int32)
        room = harness.Pools.take("flashinfer", (self.ROOM,), torch.uint8, device, lambda n, dtype, device: torch.zeros(
            n, dtype=dtype, device=device))
        self.wrapper = self.make(room, backend=self.backend)
        self.wrapper.plan(qo_indptr=case.cu, kv_indptr=ends.to(device), kv_indices=self.indices[0], kv_len_arr=case.lens,
                          num_heads=row.q_heads, head_dim_ckv=latent, head_dim_kpe=row.dim - latent, page_size=page,
                          causal=row.is_ragged, sm_scale=case.scale, q_data_type=case.q.dtype, kv_data_type=case.k.dtype)
        self.planned = getattr(self.wrapper, "_planned_backend", self.wrapper)
        if not hasattr(self.planned, self.INDICES):
            raise Missing(f"flashinfer: this version keeps no {self.INDICES}")
        self.scales = {} if case.k_descale is None else dict.fromkeys(("ckv_scale", "kpe_scale"), float(case.k_descale))

    def run(self, case, index):
        setattr(self.planned, self.INDICES, self.indices[index])
        latent = case.v.shape[-1]
        self.wrapper.run(q_nope=case.q[..., :latent], q_pe=case.q[..., latent:], ckv_cache=self.cache[..., :latent],
                         kpe_cache=self.cache[..., latent:], out=case.out, **self.scales)
        return case.out


class FlashMla(Peer):
    """Plans in its first launch, and keeps the plan."""
    name, compiles = "flashmla", False
    PAGE, HEADS = 64, 64

    def __init__(self):
        peers.install({})
        try:
            import flash_mla
        except Exception as error:
            raise Missing(f"flash_mla: {type(error).__name__}: {str(error)[:120]}") from None
        self.package = flash_mla

    def takes(self, row):
        """Of lists whole blocks, of whole tiles of heads."""
        if row.is_listed:
            return row.x == "bf16" and row.q_heads % self.HEADS == 0 and all(n % self.PAGE == 0 for n in row.seq_lens)
        return row.kv != "fp8" and row.page == self.PAGE and len(set(row.q_lens)) == 1

    def bind(self, case):
        self.plan, _ = self.package.get_mla_metadata()
        self.q = case.q.view(len(case.row.seq_lens), -1, *case.q.shape[1:])
        self.cache = case.k
        if case.row.is_listed:
            self.cache = case.k.view(torch.float8_e4m3fn).view(-1, self.PAGE, 1, case.k.shape[-1])

    def run(self, case, index):
        table, latent = case.table[index], case.v.shape[-1]
        seen = dict(block_table=None, cache_seqlens=None, is_fp8_kvcache=True, indices=table[:, None]) \
            if case.row.is_listed else dict(block_table=table, cache_seqlens=case.lens, causal=case.row.is_ragged)
        out, _ = self.package.flash_mla_with_kvcache(
            self.q, self.cache, head_dim_v=latent, tile_scheduler_metadata=self.plan, softmax_scale=case.scale, **seen)
        return out.flatten(0, 1)


def kinds(with_torch):
    """name -> what makes the peer; torch has none"""
    made = {f"vllm-{parts or 'own'}": (lambda parts=parts: Vllm(parts)) for parts in (0, 4, 16, 64)}
    for backend, page in itertools.product(("fa2", "fa3"), (0, 1)):
        made[f"flashinfer-{backend}" + "-p1" * page] = lambda backend=backend, page=page: FlashInfer(backend, page)
    return made | {"flashmla": FlashMla}
