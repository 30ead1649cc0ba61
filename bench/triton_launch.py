"""Launches a peer's compiled Triton kernels through HIP, once, and checks what they wrote.

Takes a file that triton_compile.py wrote beside the code objects. Needs numpy and libamdhip64;
no torch and no triton, so that it runs wherever a HIP program does, emulated devices included.
The reference is numpy in double precision, from the definition; outputs are poisoned first.

  python3 bench/triton_launch.py out/peer/launch.json [--seed N]
"""
import argparse
import ctypes
import json
import math
import pathlib
import secrets
import struct

import numpy as np

FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}
LAUNCH_BUFFER, LAUNCH_SIZE, LAUNCH_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*


# ---- HIP ---------------------------------------------------------------------------------------

class Hip:
    def __init__(self):
        self.library = ctypes.CDLL("libamdhip64.so.7")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name}: error {status}")

    def upload(self, array):
        pointer = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes))
        self.call("hipMemcpy", pointer, array.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_size_t(array.nbytes), 1)
        return pointer.value

    def download(self, pointer, like):
        array = np.empty_like(like)
        self.call("hipMemcpy", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p(pointer),
                  ctypes.c_size_t(array.nbytes), 2)
        return array

    def launch(self, kernel, folder, values):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        code = (folder / kernel["file"]).read_bytes()
        self.call("hipModuleLoadData", ctypes.byref(module), code)
        self.call("hipModuleGetFunction", ctypes.byref(function), module, kernel["name"].encode())
        packed = pack(kernel, values)
        buffer = ctypes.create_string_buffer(packed, len(packed))
        size = ctypes.c_size_t(len(packed))
        extra = (ctypes.c_void_p * 5)(LAUNCH_BUFFER, ctypes.addressof(buffer), LAUNCH_SIZE,
                                      ctypes.addressof(size), LAUNCH_END)
        self.call("hipModuleLaunchKernel", function, *kernel["grid"], kernel["threads"], 1, 1,
                  kernel["lds_bytes"], None, None, extra)
        self.call("hipDeviceSynchronize")


def pack(kernel, values):
    """The argument buffer; offsets are those of the code object's notes. What follows the named
    arguments are scratch pointers, which these kernels do not use."""
    packed = bytearray(kernel["argument_bytes"])
    for (name, kind), offset in zip(kernel["arguments"], kernel["offsets"]):
        form = "<Q" if kind.startswith("*") else FORMATS[kind]
        struct.pack_into(form, packed, offset, values[name])
    return bytes(packed)


# ---- numbers -----------------------------------------------------------------------------------

def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def fp8_values(bias):
    """Of all 256 codes of an e4m3 type; the last exponent's NaN codes are never drawn."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent > 0, (1 + mantissa / 8) * 2.0 ** (exponent - bias),
                    mantissa / 8 * 2.0 ** (1 - bias))
    return np.where(code & 128, -size, size)


def draw_cache(rng, shape, kv):
    """(what is stored, its values)"""
    if kv == "bf16":
        stored = to_bf16(rng.standard_normal(shape))
        return stored, from_bf16(stored)
    codes = rng.integers(1, 0x40, shape, np.uint8) | rng.integers(0, 2, shape, np.uint8) << 7
    return codes, fp8_values(8 if kv == "e4m3fnuz" else 7)[codes]


# ---- attention ---------------------------------------------------------------------------------

def arrange(cache, layout, is_key):
    """[NB][page][Hkv][D] as the kernel wants it; shuffled: pieces of 16 bytes of D or tokens."""
    if layout == "nhd":
        return np.ascontiguousarray(cache)
    pages, page, heads, d = cache.shape
    piece = 16 // cache.itemsize
    if is_key:
        split = cache.reshape(pages, page, heads, d // piece, piece).transpose(0, 2, 3, 1, 4)
    else:
        split = cache.reshape(pages, page // piece, piece, heads, d).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(split)


def attention_reference(query, keys, values, scale):
    """query [T][Hkv][G][D], keys and values [L][Hkv][D], causal at the end"""
    tokens, length = len(query), len(keys)
    scores = np.einsum("thgd,lhd->thgl", query, keys, optimize=True) * scale
    seen = np.arange(length)[None] <= length - tokens + np.arange(tokens)[:, None]
    scores = np.where(seen[:, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("thgl,lhd->thgd", weights, values, optimize=True)


def strides(shape, names):
    """{name: elements} of a dense tensor"""
    return {name: math.prod(shape[i + 1:]) for i, name in enumerate(names)}


def attention(hip, case, rng):
    """(values of the arguments, output as float64 by a call, reference)"""
    n, length, tokens = case["seqs"], case["context"], case["tokens"]
    hkv, g, d, page = case["hkv"], case["g"], case["d"], case["page"]
    pages = n * length // page
    table = rng.permutation(pages).astype(np.int32).reshape(n, -1)
    stored, exact = zip(*(draw_cache(rng, (pages, page, hkv, d), case["kv"]) for _ in "kv"))
    query = to_bf16(rng.standard_normal((n * tokens, hkv * g, d)))
    output = np.full_like(query, 0x7fc0)  # NaN
    k, v = (arrange(cache, case["layout"], i == 0) for i, cache in enumerate(stored))
    parts = n * tokens * hkv * g * case["segments"]
    scales = rng.uniform(0.5, 1, 2).astype(np.float32)
    tensors = dict(output_ptr=output, query_ptr=query, key_cache_ptr=k, value_cache_ptr=v,
                   block_tables_ptr=table, seq_lens_ptr=np.full(n, length, np.int32),
                   query_start_len_ptr=np.arange(n + 1, dtype=np.int32) * tokens,
                   segm_output_ptr=np.full(parts * d, np.nan, np.float32),
                   segm_max_ptr=np.full(parts, np.nan, np.float32),
                   segm_expsum_ptr=np.full(parts, np.nan, np.float32),
                   k_descale_ptr=scales[:1], v_descale_ptr=scales[1:])
    values = {name: hip.upload(array) for name, array in tensors.items()}
    values.update(scale=d ** -0.5, num_seqs=n, block_table_stride=table.shape[1], softcap=0.0,
                  **strides(query.shape, ("query_stride_0", "query_stride_1")),
                  **strides(query.shape, ("output_stride_0", "output_stride_1")))
    for name, cache in (("k", k), ("v", v)):
        values.update(strides(cache.shape, [f"stride_{name}_cache_{i}" for i in range(3)]))
    ks, vs = scales.astype(np.float64) if case["kv"] != "bf16" else (1.0, 1.0)
    rows = from_bf16(query).reshape(n, tokens, hkv, g, d)
    expected = [attention_reference(rows[i], exact[0][table[i]].reshape(length, hkv, d) * ks,
                                    exact[1][table[i]].reshape(length, hkv, d) * vs, d ** -0.5)
                for i in range(n)]
    return (values, lambda: from_bf16(hip.download(values["output_ptr"], output)),
            np.stack(expected).reshape(output.shape))


# ---- Gated DeltaNet ----------------------------------------------------------------------------

def recurrence_reference(qkv, state, decay, beta, hk):
    """One token a sequence: qkv [N][2 Hk K + Hv V], state [N][Hv][V][K]. Output, new state."""
    n, hv, v, k = state.shape
    q, key = (qkv[:, i * hk * k:(i + 1) * hk * k].reshape(n, hk, k) for i in range(2))
    value = qkv[:, 2 * hk * k:].reshape(n, hv, v)
    q, key = (np.repeat(x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), hv // hk, 1)
              for x in (q, key))
    state = state * decay[..., None, None]
    update = beta[..., None] * (value - np.einsum("nhvk,nhk->nhv", state, key))
    state = state + update[..., None] * key[:, :, None]
    return np.einsum("nhvk,nhk->nhv", state, q * k ** -0.5), state


def recurrence(hip, case, rng):
    n, hk, hv, d = case["seqs"], case["hk"], case["hv"], case["d"]
    qkv = to_bf16(rng.standard_normal((n, (2 * hk + hv) * d)))
    gates = {name: to_bf16(rng.standard_normal(shape))
             for name, shape in (("a", (n, hv)), ("b", (n, hv)), ("dt_bias", (hv,)))}
    a_log = rng.uniform(-1, 1, hv).astype(np.float32)
    state = rng.standard_normal((n, hv, d, d)).astype(np.float32)
    if case["state"] == "bf16":
        state = to_bf16(state)
    slots = rng.permutation(n).astype(np.int32)
    output = np.full((n, hv, d), 0x7fc0, np.uint16)
    tensors = dict(A_log=a_log, **gates, qkv=qkv, o=output, h0=state, ssm_state_indices=slots,
                   cu_seqlens=np.arange(n + 1, dtype=np.int32))
    values = {name: hip.upload(array) for name, array in tensors.items()}
    values.update(ht=values["h0"], beta=1.0, threshold=20.0, scale=d ** -0.5, N=n, T=n)
    before = from_bf16(state) if case["state"] == "bf16" else state.astype(np.float64)
    a, b, dt = (from_bf16(gates[name]) for name in ("a", "b", "dt_bias"))
    decay = np.exp(-np.exp(a_log.astype(np.float64)) * np.log1p(np.exp(a + dt)))
    expected, after = recurrence_reference(from_bf16(qkv), before[slots], decay,
                                           1 / (1 + np.exp(-b)), hk)

    def results():
        written = hip.download(values["h0"], state)[slots]
        written = from_bf16(written) if case["state"] == "bf16" else written.astype(np.float64)
        return np.concatenate([from_bf16(hip.download(values["o"], output)).ravel(),
                               written.ravel()])
    return values, results, np.concatenate([expected.ravel(), after.ravel()])


FAMILIES = {"attn": attention, "gdn": recurrence}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("launch", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    case = json.loads(options.launch.read_text(encoding="utf-8"))
    hip, rng = Hip(), np.random.default_rng(options.seed)
    values, results, expected = FAMILIES[case["family"]](hip, case, rng)
    for kernel in case["kernels"]:
        hip.launch(kernel, options.launch.parent, values)
    off = np.abs(results() - expected).max() / np.abs(expected).max()
    print(f"error {off:.2g} of the largest value, seed {options.seed}")
    if not off <= 1 / 64:
        raise SystemExit(f"{options.launch}: off by {off:.2g} of the largest value, bound 1/64")


if __name__ == "__main__":
    main()
