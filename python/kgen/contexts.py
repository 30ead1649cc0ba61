"""One open context a device, and every kernel that was asked for by its spec line.

What stands on the tensors of a program (torch.ops.kgen, kgen.dropin) finds its device here.
"""
from __future__ import annotations

import os
import sys
import threading
from typing import Any

from . import Context, Kernel, KgenError, describe
from . import open as open_device

OWN = ("cpu", "classes")  # settings that are not options of kgen.open
settings: dict[str, Any] = {"mode": os.environ.get("KGEN_MODE", "auto")}
contexts: dict[str, Context] = {}
kernels: dict[tuple[str, str], Kernel] = {}
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


def kernel_of(device: Any, line: str) -> Kernel:
    """The kernel of that spec line; prepared by its first use, which may compile. While torch's stream captures a
    kernel that is new is refused, and the capture stays valid."""
    key = (str(device), line)
    found = kernels.get(key)
    if found is None:
        stream = current_stream(context_of(device), device)
        found = kernels[key] = context_of(device).prepare(line, stream=stream)
    return found


def prepare(device: Any, lines: list[str]) -> None:
    """Prepares many kernels at once, before the first request."""
    torch = sys.modules["torch"]
    device = torch.device(device)
    for line, result in zip(lines, context_of(device).prepare_all(lines)):
        if isinstance(result, KgenError):
            raise result
        kernels[str(device), line] = result
