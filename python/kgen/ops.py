"""torch.ops.kgen: a custom op for each family, and for each op of scatter. `import kgen.ops` defines them.

    torch.ops.kgen.attn("attn:phase=decode,d=128,g=8", "k=nhd,v=nhd", q=q, k=k, v=v, out=out, ...)

Arguments are those of a launch, after the spec line and the layouts of tensors that have one. What a
launch writes is passed in, and the schema says that it is written: torch.compile keeps the order and
breaks no graph. The workspace is the stream's (kgen.Context.reserve).
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from . import arguments, families, operations
from .contexts import kernel_of, kv_heads

LIBRARY = torch.library.Library("kgen", "DEF")
NEEDS = {"gdn": "gdn:layout=flat", "scatter_tree_mask": "scatter:op=tree_mask,mask=qlen"}  # what has no default


def launches() -> dict[str, str]:
    """Name of the op -> a spec line whose launch has its arguments."""
    plain = {family: family for family in families() if family != "scatter"}
    return plain | {f"scatter_{op}": f"scatter:op={op}" for op in operations()} | NEEDS


def schema(name: str, line: str) -> str:
    """attn(str spec, str layouts="", *, Tensor? q=None, Tensor(a3!)? out=None, float softmax_scale=0.) -> ()
    A tensor that some specs write and others read (scales of a cache) is written: the op is one for all of them."""
    parts, rows = ["str spec", 'str layouts=""', "*"], arguments(line)
    outputs = {row["name"] for row in rows if row["use"] != "in"}
    for index, row in enumerate(rows):
        if row["form"]:
            continue
        if row["number"]:
            parts.append(f"float {row['name']}=0." if row["number"] == "float" else f"int {row['name']}=0")
        else:
            written = f"(a{index}!)" if row["name"] in outputs else ""
            parts.append(f"Tensor{written}? {row['name']}=None")
    return f"{name}({', '.join(parts)}) -> ()"


@functools.cache
def tags_of(layouts: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in layouts.split(",") if part)


def size_of(spec: str, given: dict[str, Any]) -> tuple[int, int]:
    """Sequences and KV heads of attention, which has kernels for classes of batches; of others 0."""
    family, lengths, k = spec.partition(":")[0], given.get("seq_lens"), given.get("k")
    if family == "mla" and lengths is not None:
        return lengths.shape[0], 1
    if family == "attn" and lengths is not None and isinstance(k, tuple) and k[0].dim() > 3:
        return lengths.shape[0], kv_heads(*k[:2])
    return 0, 0


def launch(spec: str, layouts: str = "", **given: Any) -> None:
    given = {name: value for name, value in given.items() if value is not None}
    device = next((value.device for value in given.values() if isinstance(value, torch.Tensor)), None)
    if device is None:
        raise TypeError(f"{spec}: no tensor is given")
    for name, layout in tags_of(layouts).items():
        if name in given:
            given[name] = (given[name], layout)
    kernel_of(device, spec, *size_of(spec, given)).launch(**given)


def fake(*args: Any, **kwargs: Any) -> None:
    """Nothing comes back, so nothing has a shape."""


def define() -> None:
    for name, line in launches().items():
        LIBRARY.define(schema(name, line))
        LIBRARY.impl(name, launch, "CompositeExplicitAutograd")
        torch.library.register_fake(f"kgen::{name}", fake, lib=LIBRARY)


define()
