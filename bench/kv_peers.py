"""The peers of kv_bench.py, loaded from .peers/ (see docs/bench.md) without installing their packages.

vLLM    Triton: writes to NHD and shuffled caches, static scales or one per token and head; gathers
AITER   Triton: rotates queries and keys and writes the cache in one launch
"""
import functools
import hashlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import textwrap
import types

import torch
import triton.language as tl

import peers
from peers import PEERS, Missing

UTILS = "aiter.ops.triton.utils."
FP8 = torch.float8_e4m3fn


# ---- stand-ins for what the peers' files import ------------------------------


class Platform(peers.Platform):
    def has_device_capability(self, least):
        return True

    def fp8_dtype(self):
        return FP8


def is_quantized(name):
    return name != "auto"


def stand_ins():
    modes = types.SimpleNamespace(INT4_PER_TOKEN_HEAD=4)
    logger = types.SimpleNamespace(info=lambda text: None)
    return {
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.model_executor.layers.quantization.utils.quant_utils": {
            "FP8_DTYPE": FP8, "get_fp8_min_max": lambda: (-448.0, 448.0)},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": modes, "is_quantized_kv_cache": is_quantized},
        "aiter.jit.utils.torch_guard": {"torch_compile_guard": lambda **named: lambda function: function},
        UTILS + "_triton": {"arch_info": types.SimpleNamespace(get_arch=lambda: "sm_90")},
        UTILS + "logger": {"AiterTritonLogger": lambda: logger},
        UTILS + "types": {"e4m3_dtype": FP8},
    }


@functools.cache
def install_stand_ins():
    peers.install(stand_ins())
    if os.environ.get("TRITON_INTERPRET") == "1":
        mend_interpreter()


def mend_interpreter():
    """Its fp8 numbers lose the carry of rounding into the exponent; asked for a GPU, torch raises."""
    from triton.runtime import interpreter
    theirs = interpreter._convert_float

    def convert(values, source, target, rounding):
        if (source, target) != (tl.float32, tl.float8e4nv):
            return theirs(values, source, target, rounding)
        numbers = torch.from_numpy(values.view("float32").copy())
        return numbers.clamp(-448, 448).to(FP8).view(torch.uint8).numpy()

    interpreter._convert_float = convert
    torch.cuda.get_device_capability = lambda device=None: (9, 0)


def load(module, name):
    install_stand_ins()
    return peers.load(module, name)


# ---- vLLM's kernels for AMD ------------------------------------------------------

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\ndef is_quantized_kv_cache(name):\n" \
         "    return name != \"auto\"\n\n\n"


def rocm_source():
    """The kernels of a backend whose file defines them for one vendor and imports half the engine."""
    path = PEERS / "vllm/v1/attention/backends/rocm_aiter_fa.py"
    if not path.exists():
        raise Missing(f"{path.name}: not in .peers/vllm/v1/attention/backends")
    text = path.read_text()
    first = text.index("    @triton.jit\n    def cp_mha_gather_cache_kernel(")
    return HEADER + textwrap.dedent(text[first:text.index("\nlogger = init_logger")])


def rocm_module():
    """Written to a file, where Triton looks for the text of a kernel."""
    source = rocm_source()
    name = f"kv_peer_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        path = pathlib.Path(tempfile.mkdtemp(prefix="kv-peer-")) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


# ---- what each peer launches ---------------------------------------------------
#
# A peer takes a case (see kv_bench.Case) and the number of a set, and launches on torch's current
# stream.


class Peer:
    exact = False

    def bind(self, case):
        pass

    def finish(self, case):
        pass


class VllmFlash(Peer):
    """Writes of NHD caches, and of packed ones through its head-major form with interleaved V."""
    name = "vllm"

    def __init__(self):
        self.write = load("vllm.v1.attention.ops.triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash")

    def takes(self, row):
        return row.op == "write" and row.scale != "token"

    def run(self, case, index):
        row = case.row
        x = case.k_cache.shape[-1] if row.layout == "shuffle" else 0
        self.write(case.k[index], case.v[index], case.k_cache, case.v_cache, case.slots[index],
                   "fp8" if row.kv == "fp8" else "auto", case.k_scale, case.v_scale, x)


class VllmToken(Peer):
    name = "vllm"

    def __init__(self):
        self.write = load("vllm.v1.attention.ops.triton_reshape_and_cache_flash",
                          "triton_reshape_and_cache_flash_per_token_head_quant")

    def takes(self, row):
        return row.op == "write" and row.scale == "token" and row.layout == "nhd"

    def run(self, case, index):
        self.write(case.k[index], case.v[index], case.k_cache, case.v_cache, case.k_scale, case.v_scale,
                   case.slots[index], "per_token_head")


class VllmShuffle(Peer):
    """What its backend for AMD launches; a page is seen as [page][Hkv][D], whatever its order."""
    name = "vllm rocm"

    def __init__(self):
        self.write = rocm_module().reshape_and_cache_shuffle_triton

    def takes(self, row):
        return row.op == "write" and row.layout == "shuffle" and row.scale != "token"

    def run(self, case, index):
        k_cache, v_cache = case.pages_view()
        self.write(case.k[index], case.v[index], k_cache, v_cache, case.slots[index],
                   "fp8" if case.row.kv == "fp8" else "auto", case.k_scale, case.v_scale)


class VllmGather(Peer):
    name = "vllm rocm"

    def __init__(self):
        self.gather = rocm_module().cp_mha_gather_cache

    def takes(self, row):
        return row.op == "gather"

    def run(self, case, index):
        row = case.row
        k_cache, v_cache = case.pages_view()
        self.gather(k_cache, v_cache, case.k[index], case.v[index], case.table[index], case.k_scale, case.v_scale,
                    case.ends, case.sequence_of, case.starts, row.kv == "fp8", row.cache_format, row.tokens)


class AiterRope(Peer):
    """It also stores the rotated keys; one buffer, which stays in the cache, takes those of all sets."""
    name = "aiter"

    def __init__(self):
        self.write = load("aiter.ops.triton.fusions.fused_kv_cache", "fused_qk_rope_reshape_and_cache")

    def takes(self, row):
        return row.op == "rope" and (row.x == "bf16" or row.kv == "fp8")  # it refuses caches of fp16

    def bind(self, case):
        self.k_out = torch.empty_like(case.k[0])

    def run(self, case, index):
        self.write(case.q[index], case.k[index], case.v[index], case.k_cache, case.v_cache, case.slots[index],
                   case.positions[index], case.cos, case.sin, case.k_scale, case.v_scale, True,
                   case.row.layout == "nhd", q_out=case.q_out[index], k_out=self.k_out, output_zeros=False)


KINDS = (VllmFlash, VllmToken, VllmShuffle, VllmGather, AiterRope)


def available():
    """(peers that can be loaded, reasons for the others)"""
    found, reasons = [], []
    for kind in KINDS:
        try:
            found.append(kind())
        except Missing as reason:
            reasons.append(f"{kind.name} ({kind.__name__}): {reason}")
    return found, reasons
