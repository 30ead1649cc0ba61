"""vLLM's plugin: pip installs it as an entry point of vllm.general_plugins, vLLM calls register() in every process.

    vllm serve MODEL --attention-backend KGEN
    KGEN_VLLM_INSTEAD=ROCM_AITER_FA,TRITON_ATTN vllm serve MODEL    # where vLLM would choose these

KGEN_VLLM_GDN=1 also replaces the functions of the Gated DeltaNet layers' decode by name.
"""
from __future__ import annotations

import importlib
import os

NAME = "KGEN"
BACKEND = "kgen.plugins.vllm_attention.KgenBackend"
GDN_LAYERS = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
GDN_FUNCTIONS = ("causal_conv1d_update", "fused_recurrent_gated_delta_rule_packed_decode",
                 "fused_sigmoid_gating_delta_rule_update")


def register() -> None:
    """May be called again."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    if NAME not in AttentionBackendEnum.__members__:
        register_backend(NAME, BACKEND)
    for name in filter(None, os.environ.get("KGEN_VLLM_INSTEAD", "").split(",")):
        register_backend(AttentionBackendEnum[name.strip()], BACKEND)
    if os.environ.get("KGEN_VLLM_GDN") == "1":
        replace_delta_functions()


def replace_delta_functions() -> None:
    """A decode of a prompt's length is refused, so these stand where vLLM calls them with decodes and drafts."""
    from kgen.dropin import vllm as dropin
    layers = importlib.import_module(GDN_LAYERS)
    for name in GDN_FUNCTIONS:
        if not hasattr(layers, name):
            raise NotImplementedError(f"{GDN_LAYERS}: no function {name}; this vLLM is another one than the plugin's")
        setattr(layers, name, getattr(dropin, name))
