"""kgen from Python: open a device, prepare kernels, launch them with the tensors that the caller has.

    ctx = kgen.open("cuda:0")
    kernel = ctx.prepare("attn:phase=decode,kv=fp8,d=128,g=8,page=16,layout=nhd", batch=64)
    kernel.launch(q=q, k=(k_cache, "nhd"), v=(v_cache, "nhd"), out=out, block_table=table,
                  seq_lens=lens, k_descale=scale, v_descale=scale, softmax_scale=128**-0.5)

Names of keys and arguments are those of the library (`kgen explain FAMILY`). A tensor is a torch
tensor, or what has __dlpack__, __cuda_array_interface__ or Python's buffer protocol.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _kgen
from ._kgen import Dispatcher, Kernel, KgenError, Tensor, arguments, families, operations, resolve
from .describe import view

__all__ = ["Context", "Dispatcher", "Kernel", "KgenError", "Tensor", "arguments", "families", "open", "operations",
           "refusal", "resolve", "spec", "view"]
__version__ = _kgen.version()

Request = str | Sequence[Any]  # a spec line, or (spec line, batch, context, heads)


class Context(_kgen.Context):
    """An open device. close() ends it; what is not closed stays open until the process ends."""

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self, line: str, batch: int = 0, context: int = 0, heads: int = 0, *,
                stream: int | None = None) -> Kernel:
        """One kernel, tuned for a problem of about that size. It may compile, unless the mode forbids."""
        result = self._prepare([(line, batch, context, heads)], stream)[0]
        if isinstance(result, KgenError):
            raise result
        return result

    def prepare_all(self, requests: Iterable[Request], *, stream: int | None = None, workers: int = 0,
                    progress: Callable[[str, int, int, int], None] | None = None) -> list[Kernel | KgenError]:
        """Many kernels, compiled in parallel; of each that failed its error. progress(line, done, total, compiled)."""
        rows = [(request,) if isinstance(request, str) else tuple(request) for request in requests]
        return self._prepare(rows, stream, workers, progress)


def open(device: str | None = None, *, mode: str = "auto", cache_dir: str | None = None,
         tuning: str | None = None, driver: str | None = None,
         log: Callable[[str, str], None] | None = None) -> Context:
    """Opens "hip:0", "cuda:0", "cpu:cdna3"; None: $KGEN_DEVICE, or the first GPU.

    mode: auto compiles what is missing, warn says so, strict refuses, offline does not even look for
    a compiler. log(level, line) gets each line of the library.
    """
    return Context(device, mode=mode, cache_dir=cache_dir, tuning=tuning, driver=driver, log=log)


def spec(family: str, **keys: object) -> str:
    """The spec line of these keys: spec("attn", phase="decode", d=128). True is 1, None is left out."""
    given = ((key, int(value) if isinstance(value, bool) else value) for key, value in keys.items())
    return f"{family}:" + ",".join(f"{key}={value}" for key, value in given if value is not None)


def refusal(line: str, arch: str | None = None) -> str | None:
    """Why no kernel of this spec can be had on that architecture, or None: one can."""
    try:
        resolve(line, arch)
    except KgenError as error:
        return str(error)
    return None
