"""One open context a device, and every kernel that was asked for by its spec line.

What stands on the tensors of a program (torch.ops.kgen, kgen.dropin) finds its device here.
"""
from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import Context, Kernel, KgenError, describe
from . import open as open_device

if TYPE_CHECKING:
    import torch

OWN = ("cpu", "classes")  # settings that are not options of kgen.open
settings: dict[str, Any] = {"mode": os.environ.get("KGEN_MODE", "auto")}
contexts: dict[str, Context] = {}
kernels: dict[tuple[str, str, int, int], Kernel] = {}  # by device, spec line, KV heads, class of batches
BATCHES = (0, *(1 << n for n in range(8)))  # of attention each class of batches may have a kernel of its own
lock = threading.Lock()


def configure(**options: Any) -> None:
    """What contexts are opened with: mode, cache_dir, tuning, driver, log (kgen.open), and cpu, the device
    of tensors on the CPU ("cpu:cdna3"). classes: attention's drop-ins have one kernel for all windows and for all pages of
    a multiple of 16 tokens. Before the first use of a device."""
    known = {"mode", "cache_dir", "tuning", "driver", "log", *OWN}
    if not known >= options.keys():
        raise TypeError(f"{', '.join(options.keys() - known)}: one of {', '.join(sorted(known))} expected")
    if contexts:
        raise RuntimeError(f"{', '.join(contexts)}: open already; configure before the first launch")
    settings.update(options)


def cpu_name() -> str:
    """The cpu device emulates a GPU, so nobody gets it unasked."""
    name = settings.get("cpu") or os.environ.get("KGEN_DEVICE", "")
    if not name.startswith("cpu:"):
        raise KgenError("tensors on the CPU: name the GPU that the cpu device stands for, "
                        "kgen.contexts.configure(cpu=\"cpu:cdna3\") or KGEN_DEVICE=cpu:cdna3")
    return name


def name_of(device: Any) -> str:
    """"hip:0" of a torch.device."""
    if device.type == "cpu":
        return cpu_name()
    if device.type != "cuda":
        raise KgenError(f"tensors on {device}: a GPU of AMD or NVIDIA, or the CPU")
    torch = sys.modules["torch"]
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"{'hip' if torch.version.hip else 'cuda'}:{index}"


def context_of(device: Any) -> Context:
    """The context of a torch.device; opened by its first use."""
    name = name_of(device)
    found = contexts.get(name)
    if found is None:
        with lock:
            if name not in contexts:
                contexts[name] = open_device(name, **{key: value for key, value in settings.items() if key not in OWN})
            found = contexts[name]
    return found


def current_stream(ctx: Context, device: Any) -> int | None:
    return None if device.type == "cpu" else describe.current_stream(int(ctx.device.split(":")[1].split()[0]))


def batch_class(batch: int) -> int:
    """Batches up to a power of two have one kernel; 0: larger ones."""
    return 1 << (batch - 1).bit_length() if 0 < batch <= BATCHES[-1] else 0


def kv_heads(k: torch.Tensor, layout: str) -> int:
    return k.shape[2 if layout == "nhd" else 1]


def kernel_of(device: Any, line: str, batch: int = 0, heads: int = 0) -> Kernel:
    """The kernel of that spec line; prepared by its first use, which may compile. While torch's stream captures a
    kernel that is new is refused, and the capture stays valid. Of attention with so many KV heads, those for all
    classes of batches are prepared then: no batch compiles later."""
    name = str(device)
    found = kernels.get((name, line, heads, batch_class(batch))) or kernels.get((name, line, 0, 0))
    if found is None:
        prepare(device, [line], heads, stream=current_stream(context_of(device), device))
        found = kernels[name, line, heads, batch_class(batch)]
    return found


def prepare(device: Any, lines: list[str], heads: int = 0, *, stream: int | None = None) -> None:
    """Prepares many kernels at once, before the first request; with the KV heads of a rank, attention's for all classes
    of batches. A class whose own kernel cannot be had takes that of all."""
    torch = sys.modules["torch"]
    device = torch.device(device)
    classes = BATCHES if heads else BATCHES[:1]
    requests = [(line, batch, 0, heads) for line in lines for batch in classes]
    results = dict(zip(requests, context_of(device).prepare_all(requests, stream=stream)))
    for line in lines:
        common = results[line, 0, 0, heads]
        if isinstance(common, KgenError):
            raise common
        for batch in classes:
            own = results[line, batch, 0, heads]
            kernels[str(device), line, heads, batch] = common if isinstance(own, KgenError) else own
