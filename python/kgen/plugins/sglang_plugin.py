"""SGLang's plugin: pip installs it as an entry point of sglang.srt.plugins, SGLang calls register() in every process.

    python -m sglang.launch_server --model-path MODEL --attention-backend kgen
"""
from __future__ import annotations

NAME = "kgen"


def create(runner):
    """What SGLang calls for --attention-backend kgen."""
    from .sglang_attention import KgenAttnBackend
    return KgenAttnBackend(runner)


def register() -> None:
    """May be called again."""
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    register_attention_backend(NAME)(create)
    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])
