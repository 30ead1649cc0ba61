"""What the extension asks Python: objects without DLPack's exchange table, and torch's state.

Each function here is off the path of tensors whose type has that table.
"""
from __future__ import annotations

import sys
from typing import Any

from ._kgen import Tensor

CPU, CUDA = 1, 2
TYPE_STRINGS = {"f4": "f32", "f2": "fp16", "i4": "i32", "i8": "i64", "u1": "u8", "i1": "i8", "u2": "u16",
                "b1": "u8", "u4": "i32", "u8": "i64"}
TORCH_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz",
               "float8_e5m2": "e5m2", "float32": "f32", "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "u8",
               "int8": "i8", "uint16": "u16"}
BUFFER_TYPES = {"f": "f32", "e": "fp16", "i": "i32", "l": "i64", "q": "i64", "B": "u8", "b": "i8", "H": "u16",
                "?": "u8", "I": "i32", "L": "i64", "Q": "i64"}


def known(table: dict[str, str], name: str) -> str:
    if name not in table:
        raise TypeError(f"a tensor of type {name}; known are {', '.join(table)}")
    return table[name]


def elements(strides: Any, size: int) -> list[int]:
    """Strides in elements, of strides in bytes."""
    if any(stride % size for stride in strides):
        raise TypeError(f"strides {tuple(strides)} in bytes are no multiples of {size}")
    return [stride // size for stride in strides]


def from_torch(x: Any) -> Tensor:
    """Of a torch without the exchange table."""
    index = x.get_device()
    return Tensor(x.data_ptr(), known(TORCH_TYPES, str(x.dtype).split(".")[1]), x.shape, x.stride(),
                  place=(CUDA, index) if index >= 0 else (CPU, 0), owner=x)


def from_interface(x: Any, said: dict[str, Any], place: tuple[int, int]) -> Tensor:
    """Of __cuda_array_interface__ or __array_interface__."""
    kind = said["typestr"]
    if kind[0] == ">":
        raise TypeError("a tensor of big-endian numbers")
    strides = said.get("strides")
    return Tensor(said["data"][0], known(TYPE_STRINGS, kind[1:]), said["shape"],
                  elements(strides, int(kind[2:])) if strides else None, place=place, owner=x, readonly=bool(said["data"][1]))


def from_buffer(x: Any) -> Tensor:
    """Of array.array, bytearray, memoryview: memory that Python owns and that may be written."""
    import ctypes
    view = memoryview(x)
    if view.readonly:
        raise TypeError("a buffer that may not be written")
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
    return Tensor(address, known(BUFFER_TYPES, view.format), view.shape, elements(view.strides, view.itemsize),
                  owner=view)


def cuda_index(x: Any) -> int:
    """The device of an object with __cuda_array_interface__, which does not say it."""
    device = getattr(x, "device", 0)
    return int(getattr(device, "id", getattr(device, "index", device)) or 0)


def describe(x: Any) -> Tensor:
    """Any object with memory, as a kgen.Tensor."""
    if hasattr(x, "data_ptr") and hasattr(x, "stride"):
        return from_torch(x)
    if hasattr(x, "__cuda_array_interface__"):
        return from_interface(x, x.__cuda_array_interface__, (CUDA, cuda_index(x)))
    if hasattr(x, "__array_interface__"):
        return from_interface(x, x.__array_interface__, (CPU, 0))
    try:
        return from_buffer(x)
    except TypeError as error:
        raise TypeError(f"{type(x).__name__} is no tensor: {error}") from None


def current_stream(index: int) -> int:
    """The stream that torch works in on a GPU; 0, the default one, without torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(index).cuda_stream if torch and torch.cuda.is_available() else 0


def is_capturing() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


SIZES = {"bf16": 2, "fp16": 2, "f32": 4, "i32": 4, "i64": 8, "u16": 2}  # others: 1


def view(data: Any, dtype: str, shape: tuple[int, ...], layout: str | None = None) -> Tensor:
    """Memory of any type as dense rows of that one: bf16 in numpy's uint16, or bytes."""
    whole = describe(data)
    count = SIZES.get(dtype, 1)
    for size in shape:
        count *= size
    if not whole.dense:
        raise ValueError(f"{type(data).__name__}: its elements do not lie in order without gaps, as {dtype}{list(shape)} would")
    if count > whole.nbytes:
        raise ValueError(f"{dtype}{list(shape)} takes {count} bytes, {type(data).__name__} has {whole.nbytes}")
    return Tensor(whole.address, dtype, shape, None, layout, whole.place, whole, whole.readonly)
