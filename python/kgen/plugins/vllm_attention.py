"""vLLM's attention back end on kgen, of its interface of 0.33: caches [B][H][N][2 D], written apart from forward.

Which kernels there are is asked of the library (kgen.refusal), so what vLLM reads as the reason is kgen's own
sentence. No launch reads a length on the host: one captured graph serves prompts, drafts and decodes.
"""
from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar

import torch
from vllm.model_executor.layers.quantization.utils.quant_utils import QuantKey, kFp8StaticTensorSym
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder,
                                       AttentionType, CommonAttentionMetadata, MultipleOf)

from .. import refusal, spec
from ..dropin import cache
from ..dropin.attention import attend
from ..dropin.common import CACHE_WORDS, EIGHT_BITS, cache_word, word
from ..dropin.vllm import span_ends

SAME_WORDS = {"float16": "fp16", "bfloat16": "bf16"}
PAGE = 16  # of a question before vLLM has settled one


def arch_of(capability: Any) -> str | None:
    """What kgen calls the device that vLLM asks about."""
    if current_platform.is_rocm():
        return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    if capability is not None and current_platform.is_cuda():
        return f"sm_{capability.major}{capability.minor}"
    return os.environ.get("KGEN_DEVICE") or None


def kv_word(dtype: torch.dtype, kv_cache_dtype: str | None) -> str:
    return (CACHE_WORDS | SAME_WORDS).get(kv_cache_dtype or "auto", word(dtype))


class KgenBackend(AttentionBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "KGEN"

    @staticmethod
    def get_impl_cls() -> type[KgenImpl]:
        return KgenImpl

    @staticmethod
    def get_builder_cls() -> type[KgenMetadataBuilder]:
        return KgenMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: str | None,
                             block_size: int | None, use_mla: bool, has_sink: bool, use_sparse: bool,
                             use_mm_prefix: bool, device_capability: Any) -> str | None:
        """Of the kernels that a model of these needs the first refusal, in kgen's words."""
        arch, kv = arch_of(device_capability), kv_word(dtype, kv_cache_dtype)
        page = block_size or PAGE
        shape = {"kv": kv, "d": head_size, "page": page, "layout": "nhd"}
        lines = [spec("attn", phase=phase, q=word(dtype), sinks=has_sink, **shape) for phase in ("decode", "extend")]
        if use_mm_prefix:
            lines.append(spec("attn", phase="extend", q=word(dtype), sinks=has_sink, spans=1, **shape))
        refusals = (refusal(line, arch) for line in [*lines, spec("kv_write", x=word(dtype), **shape)])
        return next(filter(None, refusals), None)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_alibi_sqrt(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return True

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        return True


@dataclasses.dataclass
class KgenMetadata:
    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor
    span_ends: torch.Tensor | None = None  # of images, whose tokens see each other


class KgenMetadataBuilder(AttentionMetadataBuilder[KgenMetadata]):
    """The tensors of the batch as they are: nothing is planned, copied or read on the host."""
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS
    supports_update_block_table = True
    supports_draft_decode_metadata_update = True

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> KgenMetadata:
        batch = common_attn_metadata
        if batch.rswa_prefix_lens is not None:
            raise NotImplementedError("rswa_prefix_lens: no key of kgen's does this")
        return KgenMetadata(batch.num_actual_tokens, batch.max_query_len, batch.query_start_loc, batch.seq_lens,
                            batch.block_table_tensor, batch.slot_mapping, batch.causal, self.span_ends_of(batch))

    @classmethod
    def get_cudagraph_support(cls, vllm_config: Any, kv_cache_spec: Any) -> AttentionCGSupport:
        """Where images see themselves, steps of several tokens differ by their images and are not captured."""
        images = vllm_config is not None and vllm_config.model_config.is_mm_prefix_lm
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE if images else cls._cudagraph_support

    @staticmethod
    def span_ends_of(batch: CommonAttentionMetadata) -> torch.Tensor | None:
        """vLLM drops spans longer than a window that does not bound them, and here windows bound spans: it is the same.
        One token a sequence is the last of its keys, so its span ends with it."""
        if batch.mm_req_doc_ranges is None or batch.max_query_len == 1:
            return None
        ranges = [batch.mm_req_doc_ranges.get(row, []) for row in range(batch.num_reqs)]
        most = max(map(len, ranges))
        if most == 0:
            return None
        filled = torch.tensor([[*mine, *[(0, 0)] * (most - len(mine))] for mine in ranges], dtype=torch.int32)
        return span_ends(filled.to(batch.seq_lens.device, non_blocking=True), batch.query_start_loc, batch.seq_lens,
                         batch.num_actual_tokens)

    def update_block_table(self, metadata: KgenMetadata, blk_table: torch.Tensor,
                           slot_mapping: torch.Tensor) -> KgenMetadata:
        return dataclasses.replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)

    def update_draft_decode_metadata(self, metadata: KgenMetadata) -> None:
        """The tensors are the runner's own, which it fills."""


class KgenImpl(AttentionImpl[KgenMetadata]):
    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
                 alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None,
                 sinks: torch.Tensor | None = None, use_alibi_sqrt: bool = False, chunk_lookback: int = -1) -> None:
        if attn_type != AttentionType.DECODER or chunk_lookback != -1:
            raise NotImplementedError(f"attn_type={attn_type}, chunk_lookback={chunk_lookback}: decoders alone")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.window = (sliding_window or 0, 0)
        self.kv_cache_dtype, self.softcap = kv_cache_dtype, logits_soft_cap or 0.0
        self.kv_sharing_target_layer_name, self.use_alibi_sqrt = kv_sharing_target_layer_name, use_alibi_sqrt
        self.sinks = sinks

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is not None:
            self.sinks = self.sinks.float()

    def fused_output_quant_supported(self, quant_key: QuantKey) -> bool:
        return quant_key == kFp8StaticTensorSym

    def pages_of(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B][H][N][2 D], in whatever order it lies, as K and V [B][N][H][D]."""
        return kv_cache.transpose(1, 2).split(self.head_size, dim=-1)

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor) -> None:
        cache.write(key, value, *self.pages_of(kv_cache), slot_mapping, self.kv_cache_dtype, layer._k_scale,
                    layer._v_scale, "nhd")

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                kv_cache: torch.Tensor, attn_metadata: KgenMetadata, output: torch.Tensor,
                output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        if output_block_scale is not None:
            raise NotImplementedError("output_block_scale: no key of kgen's does this")
        if attn_metadata is None:  # vLLM measures its memory
            return output.zero_()
        facts, rows = attn_metadata, slice(attn_metadata.num_actual_tokens)
        k, v = self.pages_of(kv_cache)
        one_each = facts.max_query_len == 1 and facts.seq_lens.shape[0] == facts.num_actual_tokens
        kv = cache_word(kv_cache, self.kv_cache_dtype) if kv_cache.dtype in EIGHT_BITS else None
        attend(query[rows], k, v, output.view(-1, self.num_heads, self.head_size)[rows], facts.block_table,
               facts.seq_lens, scale=self.scale, kv=kv, k_scale=layer._k_scale, v_scale=layer._v_scale,
               starts=None if one_each else facts.query_start_loc, longest=facts.max_query_len, causal=facts.causal,
               window=self.window, softcap=self.softcap, slopes=self.alibi_slopes, root=self.use_alibi_sqrt,
               sinks=self.sinks, out_scale=output_scale, span_ends=facts.span_ends)
        return output
