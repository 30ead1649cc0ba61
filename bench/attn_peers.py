"""The peers of attn_bench.py, loaded from .peers/ (see docs/bench.md) without installing their packages.

AITER   Triton unified attention: a 2D kernel, or a 3D kernel that splits the keys and a reduction
vLLM    Triton unified attention: the same two forms, of one kernel
FlashInfer, where its package is installed: BatchDecodeWithPagedKVCacheWrapper, planned before
torch   scaled_dot_product_attention over keys and values gathered before, or in the launch; for whole
        prompts its FlashAttention-2 and cuDNN
"""
import importlib
import sys
import types

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
import triton

import peers
from peers import Missing

FP8 = torch.float8_e4m3fn
AITER = "aiter.ops.triton."


# ---- stand-ins for what the peers' files import ------------------------------


class Platform(peers.Platform):
    def fp8_dtype(self):
        return FP8


def stand_ins():
    modes = types.SimpleNamespace(NONE=0, FP8_PER_TENSOR=1, INT8_PER_TOKEN_HEAD=2, FP8_PER_TOKEN_HEAD=3,
                                  INT4_PER_TOKEN_HEAD=4)
    logger = types.SimpleNamespace(debug_once=lambda *text: None)
    arch = types.SimpleNamespace(name="sm_90", is_rdna=False)
    return {
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.logger": {"init_logger": lambda name: logger},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": modes},
        AITER + "utils.device_info": {"get_num_sms": peers.compute_units},
        AITER + "utils.types": {"e4m3_dtype": FP8},
        AITER + "utils._triton.arch_info": {"get_arch": lambda: "sm_90"},
        AITER + "_triton_kernels.flash_attn_triton_amd.utils": {"get_arch": lambda: arch},
    }


def load(module):
    peers.install(stand_ins())
    peers.load(module, "unified_attention")
    return sys.modules[module]


# ---- what each peer launches ---------------------------------------------------
#
# A peer takes a case (see attn_bench.Case) and the number of a set, launches on torch's current
# stream, and returns its output [T][Hq][D]. Peers are copied before they are bound to a case.


class Peer:
    compiles = True  # something, at its first launch

    def takes(self, row):
        return True

    def segments(self, row):
        """Parts of a sequence, where a kernel is compiled for their number."""
        return 0

    def bind(self, case):
        pass

    def finish(self):
        pass

    def is_own_choice(self, row):
        """Whether the peer would have taken this configuration by itself."""
        return False


class Options:
    """A Triton kernel with other launch options, and without those of other vendors."""

    def __init__(self, kernel, **more):
        self.kernel, self.more = kernel, more

    def __getitem__(self, grid_size):
        launch, names = self.kernel[grid_size], self.kernel.arg_names

        def run(**options):
            if "waves_per_eu" not in names:
                options.pop("waves_per_eu", None)
            return launch(**{**options, **self.more})
        return run


# The form of the kernel and what replaces the peer's own choice. The peers were tuned for other
# devices: the `64` rows give them the tiles, warps and stages that suit this one.
CONFIGS = {
    "2d": (True, {}),
    "3d": (False, {}),
    "2d-64": (True, {"TILE_SIZE": 64, "num_warps": 4, "num_stages": 3}),
    "3d-64": (False, {"TILE_SIZE": 64, "num_warps": 4, "num_stages": 3}),
}


class Unified(Peer):
    """One of the CONFIGS of a unified_attention."""
    family = path = None

    def __init__(self, config):
        self.name, (self.two, self.override) = f"{self.family}-{config}", CONFIGS[config]
        self.module = load(self.path)

    def override_for(self, dim):
        return {**self.override, **({"num_stages": 2} if self.override and dim > 128 else {})}

    def is_own_choice(self, row):
        return not self.override and self.own_path_is_2d(row) == self.two

    def arguments(self, case, index):
        row = case.row
        return dict(
            q=case.q, k=case.k, v=case.v, out=case.out, cu_seqlens_q=case.cu, max_seqlen_q=max(row.q_lens),
            seqused_k=case.lens, max_seqlen_k=max(row.seq_lens), softmax_scale=case.scale, causal=True,
            window_size=(row.window - 1, 0) if row.window else (-1, -1), block_table=case.table[index],
            softcap=0, q_descale=None, k_descale=case.k_descale, v_descale=case.v_descale)


class Aiter(Unified):
    family, path = "aiter", AITER + "attention.unified_attention"
    KERNELS = ("kernel_unified_attention_2d", "kernel_unified_attention_3d", "reduce_segments")
    own = {}

    def __init__(self, config):
        super().__init__(config)
        if not self.own:
            self.own.update({n: getattr(self.module, n)
                             for n in ("use_2d_kernel", "select_2d_config", "select_3d_config")})
            for name in self.KERNELS:
                setattr(self.module, name, Options(getattr(self.module, name)))

    def takes(self, row):
        """With a window the 3D kernel reads every key."""
        return self.two or not row.window

    def programs(self, row):
        """(those that fill the device, those of the 2D kernel), as the peer counts them"""
        per_block = max(16, triton.next_power_of_2(row.group)) // row.group
        count = len(row.seq_lens)
        blocks = sum(row.q_lens) // per_block + count if row.is_ragged else count
        return 4 * peers.compute_units(), blocks * row.kv_heads

    def own_path_is_2d(self, row):
        return self.own["use_2d_kernel"](row.dim, row.window, not row.is_ragged, max(row.q_lens), max(row.seq_lens),
                                         *self.programs(row))

    def segments(self, row):
        if self.two:
            return 0
        attention, _ = self.select_3d(row.dim, row.page, max(row.seq_lens), *self.programs(row), torch.bfloat16,
                                      torch.bfloat16)
        return attention["NUM_SEGMENTS_PER_SEQ"]

    def select_2d(self, *args, **named):
        return {**self.own["select_2d_config"](*args, **named), **self.override_for(args[1])}

    def select_3d(self, dim, page, longest, *rest):
        attention, reduction = self.own["select_3d_config"](dim, page, longest, *rest)
        attention = {**attention, **self.override_for(dim)}
        most = triton.next_power_of_2(-(-longest // attention["TILE_SIZE"]))
        attention["NUM_SEGMENTS_PER_SEQ"] = min(most, attention["NUM_SEGMENTS_PER_SEQ"])
        same = {n: attention[n] for n in ("TILE_SIZE", "NUM_SEGMENTS_PER_SEQ")}
        return attention, {**reduction, **same}

    def run(self, case, index):
        module = self.module
        module.use_2d_kernel = lambda *args: self.two
        module.select_2d_config, module.select_3d_config = self.select_2d, self.select_3d
        module.unified_attention(**self.arguments(case, index))
        return case.out


SEGMENTS, GRID_2D = 16, 128  # of its backend: parts of a sequence; programs from which it takes 2D


class Vllm(Unified):
    family, path = "vllm", "vllm.v1.attention.ops.triton_unified_attention"
    own = {}

    def __init__(self, config):
        super().__init__(config)
        if not self.own:
            self.own.update({n: getattr(self.module, n) for n in ("kernel_unified_attention", "_get_tile_size")})

    def own_path_is_2d(self, row):
        """A block of queries holds 16 rows; the backend compares their number with GRID_2D."""
        per_block = max(16, triton.next_power_of_2(row.group)) // row.group
        return sum(-(-t // per_block) for t in row.q_lens) > GRID_2D // row.kv_heads

    def segments(self, row):
        """The `64` rows take 64 parts where 16 do not fill the device, as its backend does on sm_120."""
        if self.two:
            return 0
        few = len(row.seq_lens) * SEGMENTS * row.kv_heads < peers.compute_units()
        return 64 if self.override and few else SEGMENTS

    def bind(self, case):
        if self.two:
            self.split = {}
            return
        row, count = case.row, self.segments(case.row)
        shape = (case.q.shape[0], row.q_heads, count)
        self.split = {"seq_threshold_3D": 1 << 30, "num_par_softmax_segments": count,
                      "softmax_segm_output": case.q.new_empty((*shape, triton.next_power_of_2(row.dim)),
                                                              dtype=torch.float32)}
        self.split |= {n: case.q.new_empty(shape, dtype=torch.float32)
                       for n in ("softmax_segm_max", "softmax_segm_expsum")}

    def run(self, case, index):
        module, options = self.module, self.override_for(case.row.dim)
        tile = options.pop("TILE_SIZE", 0)
        module._get_tile_size = (lambda *args, **named: tile) if tile else self.own["_get_tile_size"]
        kernel = self.own["kernel_unified_attention"]
        module.kernel_unified_attention = Options(kernel, **options) if options else kernel
        module.unified_attention(**self.arguments(case, index), **self.split,
                                 kv_quant_mode=1 if case.row.kv == "fp8" else 0)
        return case.out


class FlashInfer(Peer):
    """Planned once: all sets have the same lengths. Their pages are put in its place before a launch."""
    name, broken = "flashinfer", False
    INDICES = "_paged_kv_indices_buf"
    WRAPPER = "BatchDecodeWithPagedKVCacheWrapper"

    def __init__(self):
        try:
            self.make = getattr(importlib.import_module("flashinfer"), self.WRAPPER)
        except Exception as error:  # its package asks for much at import
            raise Missing(f"flashinfer: {type(error).__name__}: {str(error)[:120]}") from None

    def takes(self, row):
        return not row.is_ragged and not self.broken

    def bind(self, case):
        try:
            self.plan(case)
            self.run(case, 0)
        except Exception:
            type(self).broken = True  # it compiles here: what fails once fails for every row
            raise

    def plan(self, case):
        row = case.row
        pages = torch.tensor([-(-n // row.page) for n in row.seq_lens])
        used = (torch.arange(case.table.shape[2])[None, :] < pages[:, None]).to(case.table.device)
        self.indices = [table[used] for table in case.table]
        ends = F.pad(pages.cumsum(0), (1, 0)).to(torch.int32)
        last = torch.tensor([(n - 1) % row.page + 1 for n in row.seq_lens], dtype=torch.int32)
        room = torch.zeros(256 << 20, dtype=torch.uint8, device=case.q.device)
        self.plan_wrapper(room, case, (ends, self.indices[0], last, row.q_heads, row.kv_heads, row.dim, row.page),
                          dict(window_left=row.window - 1 if row.window else -1, q_data_type=case.q.dtype,
                               kv_data_type=case.k.dtype, sm_scale=case.scale))
        if not hasattr(self.wrapper, self.INDICES):
            raise Missing(f"flashinfer: this version keeps no {self.INDICES}")
        self.scales = {} if case.k_descale is None else {
            "k_scale": float(case.k_descale), "v_scale": float(case.v_descale)}

    def plan_wrapper(self, room, case, sizes, options):
        self.wrapper = self.make(room, "NHD", use_tensor_cores=case.row.group > 1)
        self.wrapper.plan(*sizes, **options)

    def run(self, case, index):
        setattr(self.wrapper, self.INDICES, self.indices[index])
        return self.wrapper.run(case.q, (case.k, case.v), out=case.out, **self.scales)


class FlashInferExtend(FlashInfer):
    """Queries of any lengths, by the kernels of its FlashAttention-2 back end."""
    name, broken = "flashinfer-fa2", False
    WRAPPER = "BatchPrefillWithPagedKVCacheWrapper"

    def takes(self, row):
        return row.is_ragged and not self.broken

    def plan_wrapper(self, room, case, sizes, options):
        self.wrapper = self.make(room, "NHD", backend="fa2")
        self.wrapper.plan(case.cu.cpu(), *sizes, causal=True, **options)


class Torch(Peer):
    """The heads of a group are its queries: keys and values are read once, and nothing is masked."""
    compiles = False

    def __init__(self, how):
        self.name, self.gathers = f"torch-{how}", how == "gather"

    def takes(self, row):
        """It has no form for 8-bit caches, and for others but one length it would need a mask."""
        return not row.is_ragged and row.kv != "fp8" and not row.window and len(row.lens) == 1

    def bind(self, case):
        self.dense = [] if self.gathers else [self.gather(case, index) for index in range(case.sets)]

    @staticmethod
    def gather(case, index):
        """K and V of a set, [S][Hkv][keys][D]"""
        row, pages = case.row, case.table[index].flatten()
        shape = (len(row.seq_lens), -1, row.kv_heads, row.dim)
        return [pool.flatten(1).index_select(0, pages).view(shape)[:, :row.lens[0][1]].transpose(1, 2)
                for pool in (case.k, case.v)]

    def run(self, case, index):
        row = case.row
        k, v = self.gather(case, index) if self.gathers else self.dense[index]
        q = case.q.view(len(row.seq_lens), row.kv_heads, row.group, row.dim)
        return F.scaled_dot_product_attention(q, k, v, scale=case.scale).reshape(case.q.shape)


class TorchPrefill(Torch):
    """The whole of sequences of one length, keys and values dense: torch's FlashAttention-2, or cuDNN."""

    def __init__(self, how):
        self.name, self.gathers = f"torch-{how}", False
        self.backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[how]

    def takes(self, row):
        return row.is_ragged and row.kv != "fp8" and not row.window and len(row.lens) == 1 and row.q_lens == row.seq_lens

    def run(self, case, index):
        row = case.row
        k, v = self.dense[index]
        q = case.q.view(len(row.seq_lens), -1, row.q_heads, row.dim).transpose(1, 2)
        with sdpa_kernel(self.backend):
            out = F.scaled_dot_product_attention(q, k, v, scale=case.scale, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).reshape(case.q.shape)


def kinds(with_torch):
    """name -> what makes the peer"""
    made = {f"{kind.family}-{config}": (lambda kind=kind, config=config: kind(config))
            for kind in (Aiter, Vllm) for config in CONFIGS}
    made |= {kind.name: kind for kind in (FlashInfer, FlashInferExtend)}
    of_torch = [(Torch, "dense"), (Torch, "gather"), (TorchPrefill, "flash"), (TorchPrefill, "cudnn")]
    return {**made, **{f"torch-{how}": (lambda kind=kind, how=how: kind(how)) for kind, how in of_torch if with_torch}}
