#!/usr/bin/env python3
"""Other projects' published tests on kgen's drop-ins: their files as they are, their imports replaced.

usage: run_peers.py <project> <test file> [arguments of pytest]

The file is given by its path and stays where it is. Functions of SUBSTITUTES are kgen's. A package that is not
installed is stood in for, and what it had raises when it is called. Without a GPU, "cuda" is the CPU and kgen's cpu
device computes (KGEN_DEVICE). Passed: at least one launch of kgen's in the test, and its own assertions hold.
"""
import collections
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
import unittest

import pytest
import torch
from torch.overrides import TorchFunctionMode

import kgen
import kgen.contexts

# project -> module -> its name -> whose function it is
SUBSTITUTES = {
    "aiter": {"aiter.ops.triton.gated_delta_net": {"fused_rearrange_sigmoid_gated_delta_rule": "kgen.dropin.aiter"},
              "aiter.ops.triton.attention.unified_attention": {"unified_attention": "kgen.dropin.aiter"}},
    "vllm": {"vllm.v1.attention.ops.triton_merge_attn_states": {"merge_attn_states": "kgen.dropin.vllm"},
             "vllm._custom_ops": {"merge_attn_states": __name__},
             "vllm.platforms": {"current_platform": __name__},
             "vllm.v1.attention.ops.triton_unified_attention": {"unified_attention": "kgen.dropin.vllm"},
             "vllm.utils.torch_utils": {"set_random_seed": __name__}},
    "sglang": {"sglang.srt.layers.attention.utils": {"create_flashinfer_kv_indices_triton": "kgen.dropin.sglang"},
               "sglang.srt.utils": {"get_device": __name__},
               "sglang.test.test_utils": {"CustomTestCase": __name__},
               "sglang.test.ci.ci_register": {"register_cuda_ci": __name__}},
}
STAND_INS = ("aiter", "vllm", "sglang", "sgl_kernel", "flashinfer")


# ---- what tests ask of the engine, in plain torch ----

current_platform = types.SimpleNamespace(
    device_type="cpu", is_cuda=lambda: True, is_rocm=lambda: False, is_xpu=lambda: False, is_cuda_alike=lambda: True,
    fp8_dtype=lambda: torch.float8_e4m3fn, get_device_name=lambda: "kgen's cpu device")


CustomTestCase = unittest.TestCase


def set_random_seed(seed):
    torch.manual_seed(seed)


def get_device():
    return "cuda"


def register_cuda_ci(**named):
    """Of SGLang's own machines."""


def merge_attn_states(output, prefix, prefix_lse, suffix, suffix_lse, output_lse=None, with_context=None, scale=None):
    """The other side of vLLM's comparison of two kernels."""
    sums = [torch.where(lse == torch.inf, -torch.inf, lse.double()) for lse in (prefix_lse, suffix_lse)]
    whole = torch.logaddexp(*sums)
    parts = [torch.exp(lse - whole).nan_to_num(0).T[..., None] for lse in sums]
    merged = parts[0] * prefix.double() + parts[1] * suffix.double()
    if with_context is not None:
        merged[with_context:], whole[:, with_context:] = suffix[with_context:].double(), sums[1][:, with_context:]
    output.copy_(merged if scale is None else (merged / scale.double()).clamp(-448, 448).float())
    if output_lse is not None:
        output_lse.copy_(whole)


# ---- packages that are not there ----

class Absent:
    """A name of a package that is not there: may be imported, compared and called to no avail."""

    def __init__(self, name, *more):  # more: what a class of such a base has
        self.name = name

    def __call__(self, *arguments, **named):
        raise NotImplementedError(f"{self.name}: no function of kgen's")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")


class Inert(Absent):
    """Of Triton: decorators and configurations do nothing, and a kernel that is launched raises."""

    def __call__(self, *arguments, **named):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return "hip" if name == "backend" else Inert(f"{self.name}.{name}")

    def __getitem__(self, grid):
        raise NotImplementedError(f"{self.name}: a kernel of Triton's, no function of kgen's")


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages, kind):
        self.packages, self.kind = packages, kind

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = self.kind(spec.name).__getattr__
        module.__version__ = "3.6.0"
        return module

    def exec_module(self, module):
        """Nothing is in it."""


class Counted:
    """A function of kgen's, and how often one has returned."""
    calls = 0

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments, **named):
        result = self.function(*arguments, **named)
        Counted.calls += 1
        return result

    def __getitem__(self, grid):
        return Counted(self.function[grid])


def substitute(project):
    for module, names in SUBSTITUTES[project].items():
        try:
            target = importlib.import_module(module)
        except ImportError:  # another version has it elsewhere
            continue
        for name, whose in names.items():
            function = getattr(importlib.import_module(whose), name)
            setattr(target, name, Counted(function) if whose.startswith("kgen") else function)


# ---- "cuda" is the CPU ----

class OnTheCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, arguments=(), named=None):
        def here(value):
            return "cpu" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value
        named = {name: here(value) for name, value in (named or {}).items()}
        if function is torch.Tensor.cuda:
            return arguments[0]
        return function(*map(here, arguments), **named)


class NoEvent:
    """Of timing, which the emulation has no use for."""

    def __init__(self, *arguments, **named):
        pass

    def record(self, *arguments):
        pass

    def elapsed_time(self, other):
        return 1.0


GPU = types.SimpleNamespace(name="cpu device", gcnArchName="gfx942", major=9, minor=4, multi_processor_count=304,
                            warp_size=64, shared_memory_per_block=1 << 16, total_memory=1 << 34)


def emulate():
    for name in ("synchronize", "empty_cache", "set_device", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *arguments, **named: None)
    torch.accelerator.synchronize = lambda *arguments, **named: None
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *arguments: (9, 4)
    torch.cuda.get_device_name = lambda *arguments: "cpu device"
    torch.cuda.get_device_properties = lambda *arguments: GPU
    torch.set_default_device = lambda device: None
    torch.Event = torch.cuda.Event = NoEvent
    OnTheCpu().__enter__()
    kgen.contexts.configure(cpu=os.environ.get("KGEN_DEVICE", "cpu:cdna3"))


# ---- what came of each test ----

class Report:
    def __init__(self):
        self.outcomes, self.reasons, self.before = collections.Counter(), collections.Counter(), 0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        result = yield
        if call.when != "call":
            self.before = Counted.calls
            return
        error = call.excinfo.value if call.excinfo else None
        if error is None:
            kind = "passed" if Counted.calls > self.before else "without kgen"
        elif isinstance(error, (pytest.skip.Exception,)):
            kind = "skipped by the test"
        elif isinstance(error, NotImplementedError):
            kind = "not offered"
            self.reasons[str(error).splitlines()[0][:150]] += 1
        elif isinstance(error, AssertionError):
            kind = "differs"
        else:
            kind = "could not run"
            self.reasons[f"{type(error).__name__}: {error}".splitlines()[0][:150]] += 1
        self.outcomes[kind] += 1
        if kind == "not offered":
            report = result.get_result()
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, str(error)[:200])

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line("kgen: " + ", ".join(f"{count} {kind}" for kind, count in self.outcomes.items()))
        for reason, count in self.reasons.most_common(12):
            terminalreporter.write_line(f"{count:6d} {reason}")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SUBSTITUTES:
        sys.exit(f"usage: run_peers.py <{' | '.join(SUBSTITUTES)}> <test file> [arguments of pytest]")
    importlib.import_module("torch._inductor.config")  # looks for Triton, and would find what stands for it
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        del sys.modules[name]
    sys.meta_path.append(StandIn(STAND_INS, Absent))
    sys.meta_path.insert(0, StandIn(("triton",), Inert))
    if not torch.cuda.is_available():
        emulate()
    substitute(sys.argv[1])
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", os.path.dirname(os.path.abspath(sys.argv[2])),
                          *sys.argv[2:]], plugins=[Report()]))


if __name__ == "__main__":
    main()
