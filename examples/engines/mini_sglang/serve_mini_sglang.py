#!/usr/bin/env python3
"""mini-sglang as published, its attention by kgen: a registered attention back end and store_cache.

usage: serve_mini_sglang.py <checkout of mini-sglang> [--device cpu:cdna3 | cuda] [--page N] [--layers N] ...

Random weights in the shape of Qwen3-0.6B. The engine runs in two processes, with kgen's back end and with plain
attention in 32 bits, and the greedy tokens of both are compared. Triton, flashinfer, sgl_kernel and tvm_ffi cannot
be imported in either; what else the engine takes of them is plain torch. On a GPU the engine captures its graphs;
on the CPU, where it cannot run by itself, its calls of torch.cuda do nothing and kgen's cpu device computes.
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import reference


# ---- the back end by kgen ----

def kgen_backend():
    from kgen import contexts
    from minisgl.attention import BaseAttnBackend, BaseAttnMetadata
    from minisgl.core import get_global_ctx

    @dataclasses.dataclass
    class Metadata(BaseAttnMetadata):
        lens: torch.Tensor
        starts: torch.Tensor  # cu_seqlens_q
        table: torch.Tensor

        def get_last_indices(self, bs):
            return self.starts[1:1 + bs] - 1

    class KgenBackend(BaseAttnBackend):
        """All kernels are prepared before the first request. No launch reads a length on the host, so one captured
        graph serves all lengths."""

        def __init__(self, config):
            context = get_global_ctx()
            self.cache, self.page, self.requests = context.kv_cache, context.page_size, context.page_table
            self.heads, self.dim, self.scale = config.num_kv_heads, config.head_dim, config.head_dim ** -0.5
            shape = f"d={config.head_dim},g={config.num_qo_heads // self.heads},page={self.page},layout=nhd"
            lines = [f"attn:phase=decode,{shape}", f"attn:phase=extend,{shape}",
                     f"kv_write:d={config.head_dim},page={self.page},layout=nhd,slots=i32",
                     f"scatter:op=page_table_requests,page={self.page},req=i32,pick=first,tail=keep"]
            self.decode, *others = lines
            contexts.prepare(self.cache.device, [self.decode], self.heads)  # for all sizes of batches
            contexts.prepare(self.cache.device, others)
            self.extend, self.write, self.tables = (contexts.kernel_of(self.cache.device, line) for line in others)

        def forward(self, q, k, v, layer_id, batch):
            facts, out = batch.attn_metadata, torch.empty(q.shape, dtype=q.dtype, device=q.device)
            pages = [(cache(layer_id), "nhd") for cache in (self.cache.k_cache, self.cache.v_cache)]
            rows = [x.view(-1, self.heads, self.dim) for x in (k, v)]
            self.write.launch(k=rows[0], v=rows[1], k_cache=pages[0], v_cache=pages[1], slots=batch.out_loc)
            step = {"cu_seqlens_q": facts.starts} if batch.is_prefill else {}
            kernel = self.extend if batch.is_prefill else contexts.kernel_of(
                self.cache.device, self.decode, len(facts.lens), self.heads)
            kernel.launch(q=q, k=pages[0], v=pages[1], out=out, block_table=facts.table, seq_lens=facts.lens,
                          softmax_scale=self.scale, **step)
            return out

        def prepare_metadata(self, batch):
            """One copy to the device, and one launch for the block table out of the engine's table of tokens."""
            reqs, count = batch.padded_reqs, len(batch.padded_reqs)
            host = torch.zeros(3, count + 1, dtype=torch.int32, pin_memory=self.cache.device.type == "cuda")
            host[0, :count] = torch.tensor([req.device_len for req in reqs])
            host[1, :count] = torch.tensor([req.table_idx for req in reqs])
            host[2, 1:] = torch.tensor([req.extend_len for req in reqs]).cumsum(0)
            lens, rows, starts = host.to(self.cache.device, non_blocking=True)
            longest = max(req.device_len for req in reqs)
            table = torch.zeros(count, -(-longest // self.page), dtype=torch.int32, device=self.cache.device)
            self.tables.launch(lens=lens[:count], requests=rows[:count], req_to_token=self.requests, table=table)
            batch.attn_metadata = Metadata(lens[:count], starts, table)

        def init_capture_graph(self, max_seq_len, bs_list):
            zeros = {"dtype": torch.int32, "device": self.cache.device}
            self.captured = Metadata(torch.ones(max(bs_list), **zeros), torch.arange(max(bs_list) + 1, **zeros),
                                     torch.zeros(max(bs_list), -(-max_seq_len // self.page), **zeros))

        def prepare_for_capture(self, batch):
            bs = batch.size
            batch.attn_metadata = Metadata(self.captured.lens[:bs], self.captured.starts[:bs + 1],
                                           self.captured.table[:bs])

        def prepare_for_replay(self, batch):
            """Entries behind a row's pages are stale, and are not read."""
            facts, bs = batch.attn_metadata, batch.padded_size
            self.captured.lens[:bs].copy_(facts.lens)
            self.captured.table[:bs, :facts.table.shape[1]].copy_(facts.table)

    return KgenBackend


def kgen_store_cache(k_cache, v_cache, indices, k, v):
    """The engine's store_cache, for whoever calls store_kv: [tokens][H][D] are pages of one token."""
    from kgen.dropin import cache
    rows = [x.view(-1, *k_cache.shape[1:]) for x in (k, v)]
    cache.write(*rows, k_cache.unsqueeze(1), v_cache.unsqueeze(1), indices, "auto", None, None, "nhd")


# ---- the same in plain torch ----

def plain_backend():
    from minisgl.attention import BaseAttnBackend, BaseAttnMetadata
    from minisgl.core import get_global_ctx

    @dataclasses.dataclass
    class Metadata(BaseAttnMetadata):
        last: torch.Tensor

        def get_last_indices(self, bs):
            return self.last[:bs]

    class PlainBackend(BaseAttnBackend):
        def __init__(self, config):
            self.context, self.scale = get_global_ctx(), config.head_dim ** -0.5

        def forward(self, q, k, v, layer_id, batch):
            pools = [cache(layer_id).flatten(0, 1) for cache in (self.context.kv_cache.k_cache,
                                                                  self.context.kv_cache.v_cache)]
            for pool, rows in zip(pools, (k, v)):
                pool[batch.out_loc.long()] = rows.view(-1, *pool.shape[1:])
            out, first = torch.empty(q.shape, dtype=q.dtype, device=q.device), 0
            for req in batch.padded_reqs:
                slots = self.context.page_table[req.table_idx, :req.device_len].long()
                rows = slice(first, first + req.extend_len)
                out[rows] = reference.one_sequence(q[rows], pools[0][slots], pools[1][slots], self.scale)
                first += req.extend_len
            return out

        def prepare_metadata(self, batch):
            counts = torch.tensor([req.extend_len for req in batch.padded_reqs], device=self.context.page_table.device)
            batch.attn_metadata = Metadata(counts.cumsum(0) - 1)

        def init_capture_graph(self, max_seq_len, bs_list):
            raise RuntimeError("plain attention reads lengths on the host: no graph")

        prepare_for_capture = prepare_for_replay = init_capture_graph

    return PlainBackend


# ---- what else the engine takes of other kernels ----

def rmsnorm(x, weight, eps, out=None):
    wide = x.float()
    result = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    return result if out is None else out.copy_(result)


def fused_add_rmsnorm(x, residual, weight, eps):
    residual.add_(x)
    rmsnorm(residual, weight, eps, out=x)


def silu_and_mul(x, out=None):
    gate, up = x.chunk(2, -1)
    result = torch.nn.functional.silu(gate) * up
    return result if out is None else out.copy_(result)


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache):
    cos, sin = cos_sin_cache[positions.long()].float().chunk(2, -1)
    for rows in query, key:
        heads = rows.view(rows.shape[0], -1, head_size)
        first, second = heads.float().chunk(2, -1)
        heads.copy_(torch.cat((first * cos[:, None] - second * sin[:, None],
                               second * cos[:, None] + first * sin[:, None]), -1))


def indexing(weights, indices, *, output=None, vocab_range=None):
    return torch.nn.functional.embedding(indices.long(), weights)


def fast_compare_key(x, y):
    count = min(len(x), len(y))
    other = (x[:count] != y[:count]).nonzero()
    return int(other[0]) if len(other) else count


def replace_other_kernels():
    """flashinfer with the four functions above; of what is not importable here empty modules, which offline serving
    does not call."""
    import transformers
    _ = transformers.AutoConfig, transformers.AutoTokenizer  # parts of torch that they load look for triton
    flashinfer = types.ModuleType("flashinfer")
    for function in (rmsnorm, fused_add_rmsnorm, silu_and_mul, apply_rope_with_cos_sin_cache_inplace):
        setattr(flashinfer, function.__name__, function)
    sys.modules |= {"flashinfer": flashinfer, "triton": None, "sgl_kernel": None, "tvm_ffi": None}
    for name, parts in {"zmq": ("asyncio",), "msgpack": ()}.items():
        try:
            __import__(name)
        except ImportError:
            for full in (name, *(f"{name}.{part}" for part in parts)):
                sys.modules[full] = types.ModuleType(full)
            for part in parts:
                setattr(sys.modules[name], part, sys.modules[f"{name}.{part}"])
    import minisgl.kernel as kernel
    kernel.indexing, kernel.fast_compare_key, kernel.store_cache = indexing, fast_compare_key, kgen_store_cache


# ---- the engine ----

class NoStream:
    """A stream, an event, and the range of a profiler on a machine that has none."""

    def __init__(self, *arguments, **named):
        pass

    def nothing(self, *arguments, **named):
        pass

    wait_stream = record = synchronize = nothing


def without_gpu():
    """The engine's calls of torch.cuda, on a machine that has none. Only the engine's modules see this torch."""
    only, plain = NoStream(), contextlib.nullcontext
    nothing = only.nothing
    cpu = types.ModuleType("torch")
    cpu.__getattr__ = lambda name: getattr(torch, name)
    cpu.device = lambda kind, *index: torch.device("meta" if str(kind) == "meta" else "cpu")
    for name in ("tensor", "empty"):
        make = getattr(torch, name)
        setattr(cpu, name, lambda *values, make=make, pin_memory=False, **named: make(*values, **named))
    cpu.cuda = types.SimpleNamespace(
        is_initialized=lambda: False, Stream=lambda *a, **n: only, Event=NoStream, current_stream=lambda *a: only,
        set_stream=nothing, set_device=nothing, synchronize=nothing, empty_cache=nothing, stream=lambda s: plain(),
        reset_peak_memory_stats=nothing, mem_get_info=lambda device: (1 << 30, 1 << 30),
        nvtx=types.SimpleNamespace(range=lambda *a: plain()))
    torch.Tensor.pin_memory = lambda self, *arguments: self
    torch.cuda.nvtx.range = lambda *arguments: plain()
    for name, module in list(sys.modules.items()):
        if name.startswith("minisgl") and getattr(module, "torch", None) is torch:
            module.torch = cpu


def random_weights(options):
    def load(self, config):
        torch.manual_seed(options.seed)
        return {name: torch.empty(x.shape, dtype=x.dtype, device=self.device).normal_(0, 0.05) if x.dim() > 1
                else torch.ones(x.shape, dtype=x.dtype, device=self.device)
                for name, x in self.model.state_dict().items()}
    return load


def watched(engine, near):
    """The good tokens of each request at each length."""
    sample, forward = engine.sampler.sample, engine.forward_batch

    def remember(logits, *arguments):
        remember.logits = logits
        return sample(logits, *arguments)

    def forward_batch(batch, arguments):
        places = [(req.uid, req.device_len) for req in batch.reqs]
        result = forward(batch, arguments)
        near.update({f"{uid} {length}": sorted(reference.good_ones(row))
                     for (uid, length), row in zip(places, remember.logits)})
        return result

    engine.sampler.sample, engine.forward_batch = remember, forward_batch


def engine_of(folder, options):
    import minisgl.engine.engine
    import minisgl.kvcache.mha_pool
    import minisgl.kvcache.radix_cache
    import minisgl.models.qwen3
    import minisgl.scheduler.scheduler as scheduler
    from minisgl.attention import SUPPORTED_ATTENTION_BACKENDS
    from minisgl.llm import LLM
    for name, make in (("kgen", kgen_backend), ("plain", plain_backend)):
        SUPPORTED_ATTENTION_BACKENDS.register(name)(make())
    scheduler.load_tokenizer = reference.NoTokenizer.from_pretrained
    minisgl.engine.engine.Engine._load_weight_state_dict = random_weights(options)
    if options.device != "cuda":
        without_gpu()
    graphs = options.device == "cuda" and options.attention != "plain"
    longest = options.prompt_tokens + options.tokens
    return LLM(folder, page_size=options.page, attention_backend=options.attention, max_seq_len_override=longest + 1,
               cuda_graph_bs=[1 << n for n in range(options.prompts.bit_length() + 1)] if graphs else [],
               num_page_override=-(-(options.prompts + 1) * (longest + options.page) // options.page),
               max_running_req=options.prompts)


def answer(options):
    """One process: the tokens with one attention, what would have been as good, and tokens/s."""
    sys.path.insert(0, str(pathlib.Path(options.source, "python")))
    if options.attention == "kgen" and options.device != "cuda":
        from kgen import contexts
        contexts.configure(cpu=options.device)
    replace_other_kernels()
    near, tokens, good, seconds = {}, [], [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        config = reference.QWEN3 | {"num_hidden_layers": options.layers, "vocab_size": options.vocab}
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        engine = engine_of(folder, options)
        if options.attention == "plain":
            watched(engine.engine, near)
        from minisgl.core import SamplingParams
        prompts = reference.prompts_of(options)
        for some in prompts[:1], prompts[1:]:  # the second finds the first's pages
            near.clear()
            begin = time.perf_counter()
            found = engine.generate(some, SamplingParams(max_tokens=options.tokens, ignore_eos=True))
            seconds += time.perf_counter() - begin
            tokens += [one["token_ids"] for one in found]
            good += [[near.get(f"{uid} {len(prompt) + n}") for n in range(options.tokens)]
                     for uid, prompt in enumerate(some)]
    report = {"tokens": tokens, "near": good, "speed": sum(map(len, tokens)) / seconds}
    pathlib.Path(options.answer).write_text(json.dumps(report))
    return 0


def asked(attention, folder):
    """What the engine answers in a process of its own: it keeps one engine a process."""
    path = pathlib.Path(folder, attention)
    subprocess.run([sys.executable, "-W", "ignore", *sys.argv, "--attention", attention, "--answer", str(path)], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", help="a checkout of mini-sglang")
    parser.add_argument("--page", type=int, default=16)
    reference.add_arguments(parser)
    parser.add_argument("--attention", choices=("kgen", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.answer:
        return answer(options)
    if "--seed" not in sys.argv:
        sys.argv += ["--seed", str(options.seed)]
    print(f"seed {options.seed}, {options.layers} layers, {options.prompts} prompts, {options.device}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        got, want = asked("kgen", folder), asked("plain", folder)
    return reference.judge(got["tokens"], want["tokens"], want["near"], got["speed"], want["speed"])


if __name__ == "__main__":
    sys.exit(main())
