"""Loads other projects' kernels from .peers/ (see docs/bench.md) without installing their packages."""
import os
import sys
import types

import torch
import triton
import triton.language as tl

from places import ROOT

PEERS = ROOT / ".peers"


class Missing(RuntimeError):
    """What a peer needs is not there: it is left out, with this reason."""


# ---- stand-ins for what the peers' files import ------------------------------


class Platform:
    """An NVIDIA GPU; any other question is answered no."""
    device_name = device_type = "cuda"

    def __getattr__(self, name):
        return lambda *args, **named: False

    def is_cuda(self):
        return True

    is_cuda_alike = is_cuda

    def is_arch_support_pdl(self):
        return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9


class JitKernel:
    """Base class of kernels that warm themselves up; only their launch is used here."""

    def __class_getitem__(cls, item):
        return cls


def compute_units(index=None):
    return torch.cuda.get_device_properties(index or 0).multi_processor_count if torch.cuda.is_available() else 132


def stand_ins():
    from triton.language.extra import libdevice
    jit = "vllm.model_executor.warmup.jit_warmup"
    return {
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.triton_utils": {"tl": tl, "triton": triton, "tldevice": libdevice},
        "vllm.utils.math_utils": {"cdiv": triton.cdiv, "next_power_of_2": triton.next_power_of_2},
        "vllm.utils.platform_utils": {"num_compute_units": compute_units},
        "vllm.v1.attention.backends.utils": {"NULL_BLOCK_ID": 0, "PAD_SLOT_ID": -1},
        jit: {"VllmJitKernel": JitKernel},
        jit + "_triton_helper": dict.fromkeys(("TritonPointerInputVariant", "TritonWarmupTensor",
                                               "triton_scalar_specialization_rep"), object),
        "einops": {"rearrange": None},
    }


def install(stand_ins):
    """module name -> its members. A module that is there stays."""
    if str(PEERS) not in sys.path:
        sys.path.insert(0, str(PEERS))
    for name, members in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules.setdefault(name, module)


@triton.jit
def exponential(x):
    return tl.exp(x)


def load(module, name):
    """A name of a peer's module. What a family's peers need besides they install before."""
    install(stand_ins())
    try:
        loaded = __import__(module, fromlist=[name])
        if os.environ.get("TRITON_INTERPRET") == "1" and hasattr(loaded, "exp"):
            loaded.exp = exponential  # the interpreter does not see other names of tl.exp
        return getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        raise Missing(f"{module}.{name}: {error}") from None


def available(kinds, names=()):
    """kinds: name -> what makes a peer. Returns (peers that can be loaded, reasons for the others); `names` are the only
    ones wanted, if any."""
    found, reasons = [], []
    for name, make in kinds.items():
        if names and name not in names:
            continue
        try:
            found.append(make())
        except Missing as reason:
            reasons.append(f"{name}: {reason}")
    return found, reasons
