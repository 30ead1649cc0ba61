"""What the drop-ins share: spec words of tensors, kernels by key, refusals.

A drop-in has its original's signature. It raises NotImplementedError, naming the key, for what kgen
does not offer, ValueError for arguments that contradict each other, and KgenError with the library's
text for tensors that a kernel refuses. It never passes over an argument that changes the result.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch

from .. import Kernel, KgenError, arguments, describe
from ..contexts import context_of, kernel_of

WORDS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "f32", torch.float8_e4m3fn: "e4m3fn",
         torch.float8_e4m3fnuz: "e4m3fnuz", torch.float8_e5m2: "e5m2", torch.int8: "i8", torch.uint8: "u8",
         torch.int32: "i32", torch.int64: "i64"}
BITS = {torch.uint8: "u8", torch.int16: "u16", torch.int32: "u32", torch.int64: "u64"}  # of masks
CACHE_WORDS = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "e5m2", "int8": "i8"}  # of engines' kv_cache_dtype
BY_TOKEN_AND_HEAD = (2, 3)  # of vLLM's KVQuantMode: int8 and fp8 with a scale a token and head
EIGHT_BITS = {torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.int8, torch.uint8}
kernels: dict[Hashable, Kernel] = {}
constants: dict[Hashable, torch.Tensor] = {}


def word(dtype: torch.dtype) -> str:
    if dtype not in WORDS:
        raise NotImplementedError(f"tensors of {dtype}: one of {', '.join(map(str, WORDS))}")
    return WORDS[dtype]


def offered(**refused: Any) -> None:
    """Raises for the first argument that is set and has no key of kgen's."""
    for name, value in refused.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name}={value if not isinstance(value, torch.Tensor) else '<tensor>'}: "
                                      "no key of kgen's does this")


def prepared(key: Hashable, device: torch.device, line: Callable[[], str]) -> Kernel:
    """The kernel of that key; its spec line is written and prepared once."""
    found = kernels.get(key)
    if found is None:
        found = kernels[key] = ready(device, line())
    return found


def ready(device: torch.device, line: str, batch: int = 0, heads: int = 0) -> Kernel:
    try:
        return kernel_of(device, line, batch, heads)
    except KgenError as error:
        if error.status in ("KGEN_E_SPEC", "KGEN_E_UNSUPPORTED"):
            raise NotImplementedError(f"{line}: {error}") from error
        raise


def made_once(key: Hashable, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """A tensor of constants. What is made while a stream captures is the graph's own, and filled by its replays."""
    found = constants.get(key)
    if found is None:
        found = make()
        if not describe.is_capturing():
            if found.is_cuda:  # launches on other streams do not wait for the one that fills it
                torch.cuda.current_stream(found.device).synchronize()
            constants[key] = found
    return found


def size_class(count: int) -> int:
    """Views of one constant serve all counts up to a power of two."""
    return max(64, 1 << (count - 1).bit_length())


def constant(device: torch.device, count: int, value: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """A tensor of one value."""
    size = size_class(count)
    return made_once((device, value, size, dtype),
                     lambda: torch.full((size,), value, dtype=dtype, device=device))[:count]


def one(device: torch.device) -> torch.Tensor:
    """The scale of what has none."""
    return made_once((device, "one"), lambda: torch.ones(1, dtype=torch.float32, device=device))


def counted(device: torch.device, count: int) -> torch.Tensor:
    """0, 1, 2, ... as i32."""
    size = size_class(count)
    return made_once((device, "counted", size), lambda: torch.arange(size, dtype=torch.int32, device=device))[:count]


def narrow(lengths: torch.Tensor) -> torch.Tensor:
    """Lengths as i32, which attention reads; i64 ones cost a launch."""
    return lengths if lengths.dtype == torch.int32 else lengths.to(torch.int32)


def cache_word(cache: torch.Tensor, kv_cache_dtype: str) -> str:
    """The spec word of a cache that an engine describes by a string and keeps as bytes."""
    if kv_cache_dtype in ("auto", "bfloat16", "float16", "half"):
        return word(cache.dtype)
    if kv_cache_dtype not in CACHE_WORDS:
        raise NotImplementedError(f"kv_cache_dtype={kv_cache_dtype}: one of auto, {', '.join(CACHE_WORDS)}")
    said = CACHE_WORDS[kv_cache_dtype]
    if cache.dtype == torch.uint8:
        return context_of(cache.device).fp8 if said == "fp8" else said
    if cache.dtype not in EIGHT_BITS:
        raise ValueError(f"kv_cache_dtype={kv_cache_dtype}, and the cache is {cache.dtype}")
    return word(cache.dtype)


def seen_as(cache: torch.Tensor, layout: str, kv: str) -> Any:
    """A cache with its layout, and bytes with the type that they stand for."""
    return (cache, layout, kv) if cache.dtype == torch.uint8 else (cache, layout)


def packed_values(cache: torch.Tensor, interleaved: bool) -> tuple[torch.Tensor, str]:
    """Values of pages by heads [NB][Hkv][D][page], and the layout of keys and values: interleaved ones are shuffled pages' in
    memory of that shape."""
    if not interleaved or cache.dim() == 5:
        return cache, "shuffle" if interleaved else "xpacked"
    pages, heads, dim, page = cache.shape
    x = 16 // cache.element_size()
    return cache.view(pages, heads, page // x, dim, x), "shuffle"


def shuffled(cache: torch.Tensor, heads: int, values: bool) -> torch.Tensor:
    """[NB][page][H][D] memory, as vLLM allocates it, in the shape that its shuffled contents have."""
    if cache.dim() == 5:
        return cache
    pages, page, _, dim = cache.shape
    x = 16 // cache.element_size()
    if values:
        return cache.view(pages, heads, page // x, dim, x)
    return cache.view(pages, heads, dim // x, page, x)


def shuffled_scales(scales: torch.Tensor) -> Any:
    """One scale, or [NB][H][page]."""
    return scales if scales.numel() == 1 else (scales, "hnd")


# ---- index work ----

@functools.cache
def keys_of(op: str, more: str) -> tuple[dict[str, str], dict[str, str]]:
    """Argument -> the key that says its type: of those that are written, and of those that are read alone."""
    rows = [row for row in arguments(f"scatter:op={op}{more}") if row["type"].startswith("key ")]
    written, read = ({row["name"]: row["type"][4:] for row in rows if (row["use"] != "in") == wanted} for wanted in (True, False))
    return written, read


def scatter(op: str, more: str = "", **given: Any) -> None:
    """One launch of scatter; the types in its spec are those of the tensors, and of one key all alike."""
    types: dict[str, torch.dtype] = {}
    written, read = keys_of(op, more)
    for name, key in written.items():
        if name in given and types.setdefault(key, given[name].dtype) != given[name].dtype:
            raise NotImplementedError(f"{name}: {given[name].dtype}, and another tensor that {op} writes is {types[key]}; "
                                      f"{key} is one type")
    for name, key in read.items():
        if name in given and types.setdefault(key, given[name].dtype) != given[name].dtype:
            given[name] = given[name].to(types[key])  # of another width than what is written beside it: costs a launch
    device = next(value.device for value in given.values() if isinstance(value, torch.Tensor))
    kernel = prepared((op, more, *types.items(), device), device, lambda: ",".join(
        [f"scatter:op={op}{more}", *(f"{key}={BITS[dtype] if key == 'word' else word(dtype)}"
                                     for key, dtype in types.items())]))
    kernel.launch(**given)


class Launcher:
    """function[grid](...), as Triton's kernels are called; the grid is the kernel's own."""

    def __init__(self, function: Callable[..., None]):
        self.function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.function
