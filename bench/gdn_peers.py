"""The peers of gdn_bench.py, loaded from .peers/ (see docs/bench.md) without installing their packages.

AITER   Triton: unpack + convolution in one kernel, gates + recurrence in one; its engine norms in a third
vLLM    Triton: convolution, gates + recurrence, gated norm; several tokens also by its CUDA kernel,
        which does what follows the convolution at once and is compiled here with nvcc
FlashInfer, where its package is installed: gates + recurrence
"""
import ctypes as c
import hashlib
import os
import pathlib
import subprocess
import tempfile

import torch

from peers import PEERS, Missing, load

AITER = "aiter.ops.triton."
VLLM = "vllm.third_party.flash_linear_attention.ops."


# ---- vLLM's CUDA kernel --------------------------------------------------------

LAUNCHER = """
struct Launch {
    const void *mixed, *a, *b, *a_log, *dt_bias, *slots, *cu, *accepted;
    void *state;
    const void *gate, *weight;
    void *out;
    int requests, h, hv, width;
    float scale, eps;
    GdnDecodeStrides strides;
};

template <typename S, int G> static void start(const Launch &l, cudaStream_t stream) {
    using half_t = __nv_bfloat16;
    gdn_decode_post_conv_mtp_kernel<S, G, false><<<dim3(l.requests, l.hv), kThreads, 0, stream>>>(
        (const half_t *)l.mixed, (const half_t *)l.a, (const half_t *)l.b, (const float *)l.a_log,
        l.dt_bias, (const int *)l.slots, (const int *)l.cu, (const int *)l.accepted, (S *)l.state,
        (const half_t *)l.gate, l.weight, (half_t *)l.out, l.h, l.hv, l.width, kDtBiasBFloat16,
        true, l.scale, l.eps, l.strides);
}

template <typename S> static void choose(const Launch &l, cudaStream_t stream) {
    switch (l.hv / l.h) {
    case 1: return start<S, 1>(l, stream);
    case 2: return start<S, 2>(l, stream);
    case 3: return start<S, 3>(l, stream);
    case 4: return start<S, 4>(l, stream);
    }
}
}  // namespace

extern "C" int launch(const void *args, int f32, cudaStream_t stream) {
    const Launch &l = *(const Launch *)args;
    f32 ? choose<float>(l, stream) : choose<__nv_bfloat16>(l, stream);
    return (int)cudaGetLastError();
}
"""


class CudaLaunch(c.Structure):
    _fields_ = ([(n, c.c_void_p) for n in ("mixed", "a", "b", "a_log", "dt_bias", "slots", "cu", "accepted",
                                           "state", "gate", "weight", "out")]
                + [(n, c.c_int) for n in ("requests", "h", "hv", "width")]
                + [("scale", c.c_float), ("eps", c.c_float)]
                + [(n, c.c_int64) for n in ("mixed_row", "a_row", "b_row", "gate_row", "state_slot")])


def cuda_source():
    path = PEERS / "vllm/csrc/fused_gdn_decode_kernel.cu"
    if not path.exists():
        raise Missing(f"{path.name}: not in .peers/vllm/csrc")
    text = path.read_text()
    body = text[text.index("namespace {"):text.index("void launch_gdn_decode_post_conv_mtp")]
    includes = "#include <cstdint>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_runtime.h>\n"
    return includes + body[:body.rindex("template <")] + LAUNCHER


def cuda_library():
    """Compiled once; the folder is found again by the source's hash."""
    source = cuda_source()
    folder = pathlib.Path(tempfile.gettempdir()) / f"gdn-peer-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    binary = folder / "peer.so"
    if not binary.exists():
        folder.mkdir(exist_ok=True)
        (folder / "peer.cu").write_text(source)
        made = folder / f"peer-{os.getpid()}.so"
        command = ["nvcc", "-O3", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC", "-o", made, folder / "peer.cu"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise Missing("nvcc: not found") from None
        if done.returncode:
            raise Missing(f"nvcc: {done.stderr.strip()[:300]}")
        os.replace(made, binary)
    return binary


# ---- what each peer launches ---------------------------------------------------
#
# A peer takes a case (see gdn_bench.Case) and the number of a set, launches on torch's current
# stream, and returns its output [T][Hv][V]. `level` a: from the convolution's output to the
# recurrence's. `level` e: from the in-projection to the gated norm.


class Peer:
    tokens = (1, 4)
    layouts = ("flat", "interleaved")

    def takes(self, row):
        return row.tokens in self.tokens and row.layout in self.layouts

    def bind(self, case):
        pass


class AiterStep(Peer):
    name, level = "aiter", "a"

    def __init__(self):
        self.step = load(AITER + "gated_delta_net.fused_rearrange_sigmoid_gdr",
                         "fused_rearrange_sigmoid_gated_delta_rule")

    def run(self, case, index):
        return self.recur(case, index, case.x, case.a, case.b)

    def recur(self, case, index, x, a, b):
        row = case.row
        out, _ = self.step(A_log=case.a_log, a=a, b=b, dt_bias=case.dt_bias, qkv=x, key_dim=row.hk * row.k,
                           value_dim=row.hv * row.v, head_k_dim=row.k, head_v_dim=row.v,
                           initial_state=case.state, inplace_final_state=True, cu_seqlens=case.cu,
                           ssm_state_indices=case.slots[index], use_qk_l2norm_in_kernel=True,
                           num_accepted_tokens=case.accepted, core_attn_out=case.core)
        return out.view(case.core.shape)


class AiterSum(AiterStep):
    """As its engine calls them: unpack and convolution, step, and the engine's norm."""
    level, tokens = "e", (1,)

    def __init__(self):
        super().__init__()
        self.conv = load(AITER + "conv.causal_conv1d_update_single_token",
                         "fused_reshape_causal_conv1d_update_single_token")
        self.norm = load(VLLM + "layernorm_guard", "_layer_norm_fn_impl")

    def run(self, case, index):
        row = case.row
        x, b, a = self.conv(case.qkvz, row.batch, row.hk, row.hv, row.k, row.v, case.ba, case.z_out, case.core,
                            case.conv_view, case.conv_weight, None, "silu",
                            conv_state_indices=case.conv_slots[index], qkvz_layout=row.layout)
        out = self.recur(case, index, x, a, b)
        return self.norm(out, case.norm_weight, None, z=case.z_out, eps=case.norm_eps, is_rms_norm=True,
                         norm_before_gate=True)


class VllmStep(Peer):
    """One token: its packed decode. Several: its fused gating, which takes q, k and v apart."""
    name, level = "vllm", "a"

    def __init__(self):
        self.packed = load(VLLM + "fused_recurrent", "fused_recurrent_gated_delta_rule_packed_decode")
        self.gating = load(VLLM + "fused_sigmoid_gating", "fused_sigmoid_gating_delta_rule_update")

    def run(self, case, index):
        return self.recur(case, index, case.x, case.a, case.b)

    def recur(self, case, index, x, a, b):
        row = case.row
        if row.tokens == 1:
            self.packed(x, a, b, case.a_log, case.dt_bias, row.k ** -0.5, case.state, case.core.unsqueeze(1),
                        case.slots[index], use_qk_l2norm_in_kernel=True)
            return case.core
        q, k, v = (part.reshape(1, x.shape[0], -1, row.k) for part in x.split(
            [row.hk * row.k, row.hk * row.k, row.hv * row.v], dim=-1))
        out, _ = self.gating(case.a_log, a, b, case.dt_bias, q, k, v, initial_state=case.state,
                             inplace_final_state=True, cu_seqlens=case.cu, ssm_state_indices=case.slots[index],
                             num_accepted_tokens=case.accepted, use_qk_l2norm_in_kernel=True)
        return out.view(case.core.shape)


class VllmSum(VllmStep):
    level, layouts = "e", ("flat",)  # interleaved rows are split by a compiled graph of its own

    def __init__(self):
        super().__init__()
        self.conv = load("vllm.model_executor.layers.mamba.ops.causal_conv1d", "causal_conv1d_update")
        self.norm = load(VLLM + "layernorm_guard", "_layer_norm_fn_impl")

    def convolve(self, case, index):
        x, z, b, a = case.split()
        several = {} if case.row.tokens == 1 else {
            "num_accepted_tokens": case.accepted, "query_start_loc": case.cu, "max_query_len": case.row.tokens}
        x = self.conv(x, case.conv_view, case.conv_weight, None, "silu",
                      conv_state_indices=case.conv_slots[index], out=case.x_out, **several)
        return x, z, b, a

    def run(self, case, index):
        x, z, b, a = self.convolve(case, index)
        return self.norm(self.recur(case, index, x, a, b), case.norm_weight, None, z=z, eps=case.norm_eps,
                         is_rms_norm=True, norm_before_gate=True)


class VllmCuda(VllmSum):
    """What vLLM takes for drafts on this vendor: convolution, then one CUDA kernel."""
    name, tokens = "vllm-cuda", (4,)

    def __init__(self):
        super().__init__()
        self.library = c.CDLL(str(cuda_library()))
        self.library.launch.argtypes = [c.POINTER(CudaLaunch), c.c_int, c.c_void_p]

    def run(self, case, index):
        x, z, b, a = self.convolve(case, index)
        row = case.row
        launch = CudaLaunch(
            x.data_ptr(), a.data_ptr(), b.data_ptr(), case.a_log.data_ptr(), case.dt_bias.data_ptr(),
            case.slots[index].data_ptr(), case.cu.data_ptr(), case.accepted.data_ptr(), case.state.data_ptr(),
            z.data_ptr(), case.norm_weight.data_ptr(), case.core.data_ptr(), row.batch, row.hk, row.hv,
            row.tokens, row.k ** -0.5, case.norm_eps, x.stride(0), a.stride(0), b.stride(0), z.stride(0),
            case.state.stride(0))
        code = self.library.launch(c.byref(launch), row.state == "f32", torch.cuda.current_stream().cuda_stream)
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return case.core


class FlashInfer(Peer):
    name, level, tokens = "flashinfer", "a", (1,)

    def __init__(self):
        try:
            from flashinfer.gdn_decode import gated_delta_rule_decode_pretranspose as step
        except Exception as error:  # its package asks for much at import
            raise Missing(f"flashinfer: {type(error).__name__}: {str(error)[:120]}") from None
        self.step = step

    def bind(self, case):
        n, row = case.row.batch, case.row
        kd = row.hk * row.k
        self.q, self.key, self.value = (
            part.reshape(n, 1, -1, row.k) for part in (case.x[:, :kd], case.x[:, kd:2 * kd], case.x[:, 2 * kd:]))

    def run(self, case, index):
        n = case.row.batch
        out, _ = self.step(self.q, self.key, self.value, None, case.a_log, case.a.view(n, 1, -1), case.dt_bias,
                           case.b.view(n, 1, -1), scale=case.row.k ** -0.5, output=case.core.unsqueeze(1),
                           initial_state=case.state, initial_state_indices=case.slots[index])
        return out.view(case.core.shape)


KINDS = (AiterStep, AiterSum, VllmStep, VllmSum, VllmCuda, FlashInfer)


def available():
    """(peers that can be loaded, reasons for the others)"""
    found, reasons = [], []
    for kind in KINDS:
        try:
            found.append(kind())
        except Missing as reason:
            reasons.append(f"{kind.name} ({kind.level}): {reason}")
    return found, reasons
