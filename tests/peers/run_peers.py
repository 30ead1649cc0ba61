#!/usr/bin/env python3
"""Other projects' published tests on kgen's drop-ins: their files as they are, their imports replaced.

usage: run_peers.py <project> <test file> [arguments of pytest]
       run_peers.py <project> --program <file> [its arguments]: each call of a function that @benchmark marks is a test

The file is given by its path and stays where it is. Functions of SUBSTITUTES are kgen's. A package that is not
installed is stood in for, and what it had raises when it is called. Without a GPU, "cuda" is the CPU and kgen's cpu
device computes (KGEN_DEVICE, else cpu:cdna4, whose fp8 is the one that most tests name). Passed: at least one launch of kgen's in the test, and its own assertions hold.
"""
import collections
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import random
import re
import runpy
import sys
import time
import types
import unittest

import pytest
import torch
from torch.overrides import TorchFunctionMode

import kgen
import kgen.contexts
from kgen.dropin import sglang

# project -> module -> its name -> whose function it is
SUBSTITUTES = {
    "aiter": {"aiter.ops.triton.gated_delta_net": {"fused_rearrange_sigmoid_gated_delta_rule": "kgen.dropin.aiter"},
              "aiter.ops.triton.attention.unified_attention": {"unified_attention": "kgen.dropin.aiter",
                                                               "is_2d_gluon_available": __name__},
              "aiter.ops.triton.attention.pa_decode": {"paged_attention_decode": "kgen.dropin.aiter"},
              "aiter.ops.triton.fusions.fused_kv_cache": {
                  "fused_qk_rope_cat_and_cache_mla": "kgen.dropin.aiter", "fused_qk_rope_cosine_cache_llama": "kgen.dropin.aiter",
                  "fused_qk_rope_reshape_and_cache": "kgen.dropin.aiter"},
              "aiter.ops.triton.kv_cache": {"cat_and_cache_mla": "kgen.dropin.aiter"},
              "aiter.ops.triton.attention.fp8_mqa_logits": {"fp8_mqa_logits": "kgen.dropin.aiter"},
              "aiter.ops.triton.utils.types": {"e4m3_dtype": __name__, "get_fp8_dtypes": __name__},
              "aiter.ops.triton.utils._triton.arch_info": {"get_arch": __name__},
              "aiter.ops.triton.causal_conv1d": {"PAD_SLOT_ID": __name__},
              "aiter.ops.triton.causal_conv1d_update_single_token": {
                  "causal_conv1d_update_single_token": "kgen.dropin.aiter",
                  "fused_reshape_causal_conv1d_update_single_token": "kgen.dropin.aiter"},
              "triton": {"next_power_of_2": __name__},
              "aiter": {"causal_conv1d_update": "kgen.dropin.aiter", "concat_and_cache_mla": "kgen.dropin.aiter",
                        "indexer_k_quant_and_cache": "kgen.dropin.aiter",
                        "cp_gather_indexer_k_quant_cache": "kgen.dropin.aiter",
                        "dtypes": __name__, "pertoken_quant": __name__, "logger": __name__},
              "torch.ops.aiter": {"paged_attention_v1": "kgen.dropin.aiter", "paged_attention_ragged": "kgen.dropin.aiter"},
              "aiter.test_common": {"benchmark": __name__, "checkAllclose": __name__, "perftest": __name__,
                                    "run_perftest": __name__}},
    "vllm": {"vllm.v1.attention.ops.triton_merge_attn_states": {"merge_attn_states": "kgen.dropin.vllm"},
             "vllm._custom_ops": {
                 "merge_attn_states": "kgen.dropin.vllm", "paged_attention_rocm": "kgen.dropin.vllm", "reshape_and_cache": "kgen.dropin.vllm",
                 "reshape_and_cache_flash": "kgen.dropin.vllm", "concat_and_cache_mla": "kgen.dropin.vllm",
                 "gather_and_maybe_dequant_cache": "kgen.dropin.vllm", "cp_gather_cache": "kgen.dropin.vllm",
                 "cp_gather_and_upconvert_fp8_kv_cache": "kgen.dropin.vllm", "swap_blocks": "kgen.dropin.vllm",
                 "convert_fp8": __name__, "scaled_fp8_quant": __name__},
             "vllm.v1.attention.ops.triton_reshape_and_cache_flash": {
                 "triton_reshape_and_cache_flash": "kgen.dropin.vllm",
                 "triton_reshape_and_cache_flash_per_token_head_quant": "kgen.dropin.vllm"},
             "vllm.v1.attention.ops.triton_unified_attention": {"unified_attention": "kgen.dropin.vllm"},
             "vllm.v1.attention.ops.triton_unified_attention_diffkv": {"unified_attention_diffkv": "kgen.dropin.vllm"},
             "vllm.v1.attention.ops.triton_decode_attention": {"decode_attention_fwd": "kgen.dropin.vllm"},
             "vllm.v1.sample.rejection_sampler": {"rejection_sample": "kgen.dropin.vllm",
                                                 "expand_batch_to_tokens": "kgen.dropin.vllm"},
             "vllm.v1.spec_decode.utils": {"eagle_step_update_slot_mapping_and_metadata": "kgen.dropin.vllm"},
             "vllm.third_party.flash_linear_attention.ops": {
                 "fused_recurrent_gated_delta_rule": "kgen.dropin.vllm",
                 "fused_recurrent_gated_delta_rule_packed_decode": "kgen.dropin.vllm",
                 "fused_sigmoid_gating_delta_rule_update": "kgen.dropin.vllm"},
             "vllm.model_executor.layers.mamba.ops.causal_conv1d": {"causal_conv1d_update": "kgen.dropin.vllm"},
             "aiter.ops.triton.unified_attention": {"unified_attention": "kgen.dropin.aiter"},
             "aiter": {"flash_attn_varlen_func": "kgen.dropin.aiter", "paged_attention_v1": "kgen.dropin.aiter"},
             "vllm._aiter_ops": {"is_aiter_found_and_supported": __name__},
             "vllm.v1.attention.backends.rocm_aiter_fa": {
                 "cp_mha_gather_cache": "kgen.dropin.vllm", "reshape_and_cache_shuffle_triton": "kgen.dropin.vllm"},
             "torch.ops.aiter": {"paged_attention_v1": "kgen.dropin.aiter"},
             "torch.ops._rocm_C": {"paged_attention": f"{__name__}:opcheck"},  # named to be registered, never called
             "torch.ops._C": {"top_k_per_row_decode": "kgen.dropin.vllm", "top_k_per_row_prefill": "kgen.dropin.vllm"},
             "tests.kernels.utils": {"opcheck": __name__}, "vllm.triton_utils.triton": {"next_power_of_2": __name__},
             "vllm.platforms": {"current_platform": __name__},
             "vllm.platforms.rocm": {"get_cdna_version": __name__, "on_mi3xx": __name__, "on_gfx950": __name__},
             "vllm.utils.mem_utils": {"get_max_shared_memory_bytes": __name__},
             "vllm.utils.torch_utils": {"set_random_seed": __name__}},
    "sglang": {"sgl_kernel": {"build_tree_kernel_efficient": "kgen.dropin.sglang",
                              "reconstruct_indices_from_tree_mask": "kgen.dropin.sglang",
                              "causal_conv1d_update": "kgen.dropin.sglang:causal_conv1d_update_in_place",
                              "verify_tree_greedy": "kgen.dropin.sglang", "merge_state": "kgen.dropin.sglang",
                              "merge_state_v2": "kgen.dropin.sglang",
                              "tree_speculative_sampling_target_only": "kgen.dropin.sglang"},
               "sglang.srt.layers.attention.utils": {"create_flashinfer_kv_indices_triton": "kgen.dropin.sglang"},
               "sglang.srt.speculative.spec_utils": {"assign_draft_cache_locs": "kgen.dropin.sglang"},
               "sglang.srt.speculative.eagle_utils": {
                   "organize_draft_results": __name__, "build_tree_kernel_efficient": __name__,
                   "build_tree_kernel_efficient_func": "kgen.dropin.sglang:build_tree_kernel_efficient"},
               "sglang.srt.layers.attention.triton_ops.decode_attention": {
                   "decode_attention_fwd": "kgen.dropin.sglang", "decode_attention_fwd_grouped": "kgen.dropin.sglang",
                   "decode_attention_fwd_normal": "kgen.dropin.sglang"},
               "sglang.srt.layers.attention.triton_ops.extend_attention": {
                   "build_unified_kv_indices": "kgen.dropin.sglang", "extend_attention_fwd": "kgen.dropin.sglang",
                   "extend_attention_fwd_unified": __name__},
               "sglang.srt.layers.attention.fla.fused_sigmoid_gating_recurrent": {
                   "fused_sigmoid_gating_delta_rule_update": "kgen.dropin.sglang"},
               "sglang.srt.layers.attention.mamba.causal_conv1d_triton": {
                   "causal_conv1d_update": "kgen.dropin.sglang", "PAD_SLOT_ID": __name__},
               "sglang.jit_kernel.kvcache": {"store_cache": "kgen.dropin.sglang"},
               "sglang.srt.utils": {"get_device": __name__, "next_power_of_2": __name__},
               "sglang.srt.layers.attention.mamba.ops.ssu_dispatch": {
                   "initialize_mamba_selective_state_update_backend": __name__},
               "sglang.srt.server_args": {"ServerArgs": __name__, "set_global_server_args_for_scheduler": __name__},
               "sglang.test.test_utils": {"CustomTestCase": __name__, "empty_gpu_cache": __name__, "is_in_amd_ci": __name__},
               "sglang.test.ci.ci_register": {"register_cuda_ci": __name__, "register_amd_ci": __name__}},
    "fla": {"fla.ops.gated_delta_rule.gate": {"naive_gdn_gate": __name__},
            "fla.ops.gated_delta_rule": {"fused_recurrent_gated_delta_rule": "kgen.dropin.fla"},
            "fla.ops.kda": {"fused_recurrent_kda": "kgen.dropin.fla"},
            "fla.ops.kda.gate": {"naive_kda_gate": __name__, "naive_kda_lowerbound_gate": __name__}, "triton": {"next_power_of_2": __name__},
            "fla.utils": {"device": __name__, "assert_close": __name__, "device_platform": __name__,
                          "IS_INTEL_ALCHEMIST": __name__, "IS_NPU": __name__}},
}
AWAY = ("tests.kernels.utils", "vllm.distributed.kv_transfer.kv_connector.utils", "vllm.v1.structured_output",
        "vllm.parser", "sglang.test.test_utils")  # they bring in servers and parsers
STAND_INS = ("aiter", "vllm", "sglang", "sgl_kernel", "flashinfer", "fla", "tests", "op_tests", "uvloop", "xgrammar")


# ---- what tests ask of the engine, in plain torch ----

PAD_SLOT_ID = -1
FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
e4m3_dtype = FP8
device, device_platform, IS_INTEL_ALCHEMIST, IS_NPU = "cuda", "cuda", False, False
logger = logging.getLogger("aiter")
dtypes = types.SimpleNamespace(fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32, fp8=FP8, i8=torch.int8,
                               i32=torch.int32, i64=torch.int64, u8=torch.uint8, u32=torch.uint32)  # AITER's


def get_fp8_dtypes():
    return torch.float8_e5m2, FP8


def get_cdna_version():
    return 3


def on_mi3xx():
    return True


def on_gfx950():
    return False


def is_aiter_found_and_supported():
    return True


class Platform:
    """A GPU of CUDA's kind, with KGEN_PEERS_PLATFORM=rocm one of ROCm's; any other question is answered no."""
    yes = ("is_rocm" if os.environ.get("KGEN_PEERS_PLATFORM") == "rocm" else "is_cuda", "is_cuda_alike", "supports_fp8")
    device_type, dispatch_key, device_name = "cpu", "CPU", "kgen's cpu device"
    fp8_dtype = staticmethod(lambda: FP8)

    def __getattr__(self, name):
        return lambda *arguments, **named: name in self.yes

    def has_device_capability(self, capability):
        return capability < 100

    def get_device_capability(self):
        return types.SimpleNamespace(major=9, minor=4, to_int=lambda: 94)

    def get_device_name(self):
        return self.device_name


current_platform = Platform()


CustomTestCase = unittest.TestCase


def set_random_seed(seed):
    if seed is not None:
        torch.manual_seed(seed)


def get_device():
    return "cuda"


def register_cuda_ci(**named):
    """Of SGLang's own machines."""


register_amd_ci = register_cuda_ci


def opcheck(*arguments, **named):
    """Of how vLLM has registered its own operation."""


def organize_draft_results(scores, tokens, parents, count):
    """SGLang's: the best count - 1 drafts of all steps, in the order in which they were drawn."""
    chosen = torch.cat(scores, 1).flatten(1).topk(count - 1).indices.sort().values
    before = torch.cat(parents[:-1], 1) if len(parents) > 1 else parents[0].new_empty(parents[0].shape[0], 0)
    return before, chosen, torch.cat(tokens, 1).gather(1, chosen)


def build_tree_kernel_efficient(verified_id, parent_list, top_scores_index, draft_tokens, seq_lens, seq_lens_sum, topk,
                                spec_steps, num_verify_tokens):
    """SGLang's of its server, around the kernel of sgl_kernel's: tensors of the tree, and all tokens in one row."""
    rows, count, device = seq_lens.numel(), num_verify_tokens, seq_lens.device
    mask = torch.ones(count * (seq_lens_sum + rows * count), dtype=torch.bool, device=device)
    links = torch.full((3, rows, count), -1, dtype=torch.int64, device=device)
    positions = torch.empty(rows * count, dtype=torch.int64, device=device)
    Counted(sglang.build_tree_kernel_efficient)(parent_list, top_scores_index, seq_lens, mask, positions, *links, topk,
                                                spec_steps, count, sglang.FULL_MASK)
    return mask, positions, *links, torch.cat((verified_id[:, None], draft_tokens), 1).flatten()


def extend_attention_fwd_unified(q, o, k_buffer, v_buffer, *more, **named):
    """SGLang's before it had scales of 8-bit caches."""
    Counted(sglang.extend_attention_fwd_unified)(q, o, k_buffer, v_buffer, 1.0, 1.0, *more, **named)


def is_in_amd_ci():
    return False


class ServerArgs(types.SimpleNamespace):
    """SGLang's: what its server was started with."""


def set_global_server_args_for_scheduler(given):
    """There is no scheduler."""


initialize_mamba_selective_state_update_backend = set_global_server_args_for_scheduler


def empty_gpu_cache():
    """There is no GPU."""


def convert_fp8(output, given, scale=1.0, kv_dtype="fp8"):
    """vLLM's between types of a cache: bytes are fp8."""
    if output.dtype == torch.uint8:
        output.copy_((given.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8).view(torch.uint8))
    else:
        output.copy_((given.view(FP8).float() * scale).to(output.dtype).view(output.shape))  # flat, as vLLM's


def scaled_fp8_quant(given, scale=None, **more):
    scale = given.abs().max().float() / FP8_MAX if scale is None else scale
    return (given.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8), scale


def next_power_of_2(count):
    return 1 << (count - 1).bit_length()


def get_max_shared_memory_bytes():
    return GPU.shared_memory_per_block


def get_arch():
    return GPU.gcnArchName


def perftest(*arguments, **named):
    """AITER's decorator: what the function returns, and microseconds."""
    return lambda function: lambda *given, **more: (function(*given, **more), 0.0)


def run_perftest(function, *given, **more):
    """AITER's: what the function returns, and microseconds. Its own arguments are not the function's."""
    for name in ("num_iters", "num_warmup", "testGraph", "num_rotate_args", "needTrace"):
        more.pop(name, None)
    return function(*given, **more), 0.0


def benchmark(*arguments, **named):
    """AITER's decorator of a program's tests, which return what they found: all_close, or all_close_of what."""
    def decorate(function):
        def run(*given, **more):
            before, error, found = Counted.calls, None, inspect.signature(function).bind(*given, **more).arguments
            try:
                result = function(*given, **more) or {}
                found |= result
                assert all(same for name, same in result.items() if name.startswith("all_close")), found
            except Exception as raised:
                error = raised
            if PROGRAM.note(error, before) == "differs":
                PROGRAM.reasons[f"differs: {error}".splitlines()[0][:150]] += 1
            return found
        return run
    return decorate


def pertoken_quant(x, scale=None, quant_dtype=torch.int8, scale_dtype=torch.float32, **more):
    """AITER's: a scale for each row, or those that are given."""
    most = torch.finfo(quant_dtype).max if quant_dtype.is_floating_point else torch.iinfo(quant_dtype).max
    scale = x.float().abs().amax(-1, keepdim=True) / most if scale is None else scale
    scale[scale == 0] = 1
    return (x.float() / scale).to(quant_dtype), scale.to(scale_dtype)


def is_2d_gluon_available(*arguments, **named):
    return False


def checkAllclose(wanted, found, rtol=1e-2, atol=1e-2, tol_err_ratio=0.05, **more):
    """AITER's: a share of elements may differ."""
    apart = 1 - torch.isclose(wanted.float(), found.float(), rtol=rtol, atol=atol).float().mean().item()
    assert apart <= tol_err_ratio, f"{apart:.2%} of the elements differ"
    return apart


def assert_close(prefix, reference, found, ratio, warning=False, err_atol=1e-6):
    """flash-linear-attention's: of the root of the mean square."""
    if (reference - found).abs().max().item() > err_atol:
        apart = ((reference - found).float().square().mean() / reference.float().square().mean()).sqrt().item()
        assert apart < ratio, f"{prefix}: {apart} apart"


def naive_gdn_gate(g, A_log, dt_bias=None, output_dtype=torch.float32):
    """flash-linear-attention's, of the log of the decay."""
    raw = g.float() if dt_bias is None else g.float() + dt_bias.float()
    return (-A_log.float().exp() * torch.nn.functional.softplus(raw)).to(output_dtype)


def naive_kda_gate(g, A_log, dt_bias=None, output_dtype=torch.float32):
    """The same of each channel."""
    return naive_gdn_gate(g, A_log.view(-1, 1), None if dt_bias is None else dt_bias.view(g.shape[-2:]), output_dtype)


def naive_kda_lowerbound_gate(g, A_log=None, dt_bias=None, lower_bound=-5.0, output_dtype=torch.float32):
    """The same between a bound and 0."""
    raw = g.float() if dt_bias is None else g.float() + dt_bias.view(g.shape[-2:]).float()
    return (lower_bound * (raw if A_log is None else A_log.view(-1, 1).float().exp() * raw).sigmoid()).to(output_dtype)


# ---- packages that are not there ----

class Absent:
    """A name of a package that is not there: may be imported, compared and called to no avail."""

    def __init__(self, name, *more):  # more: what a class of such a base has
        self.name = name

    def __call__(self, *arguments, **named):
        raise NotImplementedError(f"{self.name}: no function of kgen's")

    def __getattr__(self, name):
        if name.startswith(("__", "pytest_")):  # pytest_: what pytest asks of every package
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")

    def __getitem__(self, grid):
        raise NotImplementedError(f"{self.name}: a kernel of Triton's, no function of kgen's")


class Inert(Absent):
    """Of Triton: decorators and configurations do nothing, and a kernel that is launched raises."""

    def __call__(self, *arguments, **named):
        return self

    def __getattr__(self, name):
        if name == "__version__":
            return "3.6.0"
        if name.startswith(("__", "pytest_")):
            raise AttributeError(name)
        if name in ("JITFunction", "Autotuner"):  # torch asks whether functions are of these classes
            return type(name, (), {})
        return "hip" if name == "backend" else Inert(f"{self.name}.{name}")

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __eq__(self, other):  # types of Triton's are keys of tests' tables
        return isinstance(other, Inert) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages, kind):
        self.packages, self.kind = packages, kind

    def find_spec(self, name, path=None, target=None):
        if any(name == package or name.startswith(f"{package}.") for package in self.packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = self.kind(spec.name).__getattr__
        module.__version__ = "3.6.0"
        return module

    def exec_module(self, module):
        """Nothing is in it."""


NO_FUNCTION = re.compile("'function' object is not subscriptable|module 'triton' has no attribute"  # of vLLM's stand-in
                         "|'_OpNamespace' '_C' object has no attribute")


class References(importlib.abc.MetaPathFinder):
    """A peer's own references in plain torch, out of the checkout, whose package is stood in for: modules of that name, and
    what AITER's tests have of each other."""

    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "op_tests":
            return importlib.machinery.PathFinder.find_spec(name, path or [self.root])
        place = os.path.join(self.root, *name.split(".")) + ".py"
        if name.endswith(".naive") and os.path.isfile(place):
            return importlib.util.spec_from_file_location(name, place)
        return None


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


def place_of(module):
    """A module, or what a module has by that name."""
    inside, _, name = module.rpartition(".")
    found = vars(importlib.import_module(inside)).get(name) if inside else None
    return importlib.import_module(module) if found is None else found


def substitute(project):
    for library in ("_C_cache_ops", "aiter"):
        setattr(torch.ops, library, Absent(f"torch.ops.{library}"))
    for library in ("_C", "_rocm_C"):  # a namespace is made when it is asked for
        getattr(torch.ops, library)
    for module, names in SUBSTITUTES[project].items():
        try:
            target = place_of(module)
        except ImportError:  # another version has it elsewhere
            continue
        for name, whose in names.items():
            whose, _, other = whose.partition(":")
            function = getattr(importlib.import_module(whose), other or name)
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


GPU = types.SimpleNamespace(name="cpu device", gcnArchName="gfx950", major=9, minor=4, multi_processor_count=304,
                            warp_size=64, shared_memory_per_block=1 << 16, shared_memory_per_block_optin=1 << 16,
                            total_memory=1 << 34)


def emulate():
    for name in ("synchronize", "empty_cache", "set_device", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *arguments, **named: None)
    for name in ("synchronize", "set_device_index", "empty_cache"):
        setattr(torch.accelerator, name, lambda *arguments, **named: None)
    torch.accelerator.device_count = lambda: 1
    torch.cuda.is_available, torch.cuda.is_current_stream_capturing = lambda: True, lambda: False
    torch.cuda.get_device_capability = lambda *arguments: (9, 4)
    torch.cuda.get_device_name = lambda *arguments: "cpu device"
    torch.cuda.get_device_properties = lambda *arguments: GPU
    torch.set_default_device = lambda device: None
    torch.Event = torch.cuda.Event = NoEvent
    OnTheCpu().__enter__()
    kgen.contexts.configure(cpu=os.environ.get("KGEN_DEVICE", "cpu:cdna4"))


# ---- what came of each test ----

class Report:
    """Counts outcomes. --share N: of each test function at most N of its cases, drawn by KGEN_SEED."""

    def __init__(self):
        self.outcomes, self.reasons, self.before = collections.Counter(), collections.Counter(), 0

    def pytest_addoption(self, parser):
        parser.addoption("--share", type=int, default=0)

    @pytest.hookimpl(trylast=True)  # of what -k leaves
    def pytest_collection_modifyitems(self, config, items):
        share, functions = config.getoption("--share"), collections.defaultdict(list)
        if not share:
            return
        seed = int(os.environ.get("KGEN_SEED", time.time_ns() % 10**9))
        print(f"--share {share}: KGEN_SEED={seed}")
        draw = random.Random(seed)
        for item in items:
            functions[item.nodeid.split("[")[0]].append(item)
        items[:] = [item for cases in functions.values() for item in draw.sample(cases, min(share, len(cases)))]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        result = yield
        if call.when != "call":
            self.before = Counted.calls
            return
        error = call.excinfo.value if call.excinfo else None
        if self.note(error, self.before) == "not offered":
            report = result.get_result()
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, str(error)[:200])

    def note(self, error, before):
        """What came of a test that began after so many calls."""
        if error is None:
            kind = "passed" if Counted.calls > before else "without kgen"
        elif isinstance(error, (pytest.skip.Exception,)):
            kind = "skipped by the test"
        elif isinstance(error, NotImplementedError) or NO_FUNCTION.search(str(error)):
            kind = "not offered"
            self.reasons[str(error).splitlines()[0][:150]] += 1
        elif isinstance(error, AssertionError):
            kind = "differs"
        else:
            kind = "could not run"
            self.reasons[f"{type(error).__name__}: {error}".splitlines()[0][:150]] += 1
        self.outcomes[kind] += 1
        return kind

    def lines(self):
        yield "kgen: " + ", ".join(f"{count} {kind}" for kind, count in self.outcomes.items())
        for reason, count in self.reasons.most_common(12):
            yield f"{count:6d} {reason}"

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.lines():
            terminalreporter.write_line(line)


PROGRAM = Report()


def run_program(path, arguments):
    """The exit code: 1 where anything differs or could not run."""
    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        print("\n".join(PROGRAM.lines()))
    return int(bool({"differs", "could not run"} & PROGRAM.outcomes.keys()) or not PROGRAM.outcomes)


def main():
    if len(sys.argv) < 3 + (sys.argv[2:3] == ["--program"]) or sys.argv[1] not in SUBSTITUTES:
        sys.exit(f"usage: run_peers.py <{' | '.join(SUBSTITUTES)}> [--program] <test file> [arguments]")
    importlib.import_module("torch._inductor.lowering")  # looks for Triton, and would find what stands for it
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        del sys.modules[name]
    sys.meta_path.append(StandIn(STAND_INS, Absent))
    sys.meta_path.insert(0, StandIn(("triton",), Inert))
    sys.meta_path.insert(0, StandIn(AWAY, Absent))
    if not torch.cuda.is_available():
        emulate()
    program = sys.argv[2] == "--program"
    folder = os.path.dirname(os.path.abspath(sys.argv[2 + program]))
    checkout = re.sub("(.*)/(?:op_)?tests(/.*)?$", r"\1", folder)
    if sys.argv[1] == "vllm" and checkout != folder:  # its tests import each other
        sys.path.append(checkout)
    sys.meta_path.insert(0, References(checkout))
    substitute(sys.argv[1])
    if program:
        sys.exit(run_program(sys.argv[3], sys.argv[4:]))
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder, "--confcutdir", folder,
                          *sys.argv[2:]], plugins=[Report()]))


if __name__ == "__main__":
    main()
