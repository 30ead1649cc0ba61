#!/usr/bin/env python3
"""Tokens/s of nano-vllm or mini-sglang, as published, with kgen's attention and beside it with others.

usage: engine_bench.py <nano-vllm | mini-sglang> <checkout> [--attention kgen,triton,torch,own] [--batches 1,8,64] ...

Random weights in the shape of Qwen3-0.6B. Each attention has a process of its own, and everything else of the engine
is the same: norms, rotations and activations are plain torch, decodes are captured graphs. kgen runs twice: a small
run fills its cache, the timed one is strict, with no compiler, and Triton cannot be imported. triton is vLLM's
unified attention out of .peers (docs/bench.md) and nano-vllm's own write; torch is scaled_dot_product_attention; own
is what the engine has by itself: nano-vllm's flash-attn, mini-sglang's FlashInfer back end and its own write.
"""
import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEGMENTS = 16  # parts of a sequence in the decodes of vLLM's back end


def example(engine):
    folder = ROOT / "examples/engines" / engine.replace("-", "_")
    sys.path[:0] = [str(folder), str(folder.parent)]
    return __import__(f"serve_{folder.name}")


# ---- attention by others ----

def unified_attention():
    """vLLM's, with parts where its back end takes them."""
    import attn_peers
    module = attn_peers.load(attn_peers.Vllm.path)
    buffers = {}

    def attend(q, k, v, out, starts, longest, lengths, table, scale):
        rows, heads, dim = q.shape
        few = {}
        if longest == 1 and rows * k.shape[2] <= 128:
            if rows not in buffers:
                parts = torch.empty(rows, heads, SEGMENTS, dim, device=q.device)
                sums = [torch.empty(rows, heads, SEGMENTS, device=q.device) for _ in range(2)]
                buffers[rows] = (parts, *sums)
            names = ("softmax_segm_output", "softmax_segm_max", "softmax_segm_expsum")
            few = dict(zip(names, buffers[rows]), seq_threshold_3D=1 << 30, num_par_softmax_segments=SEGMENTS)
        module.unified_attention(q, k, v, out, starts, longest, lengths, table.shape[1] * k.shape[1], scale, True,
                                 (-1, -1), table, 0, None, None, None, **few)
        return out

    return attend


def nano_by_triton():
    attend = unified_attention()

    def varlen(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k, softmax_scale, causal, block_table):
        if block_table is None:  # before there is a cache
            return dense(q, k, v, cu_seqlens_q, softmax_scale)
        return attend(q, k, v, torch.empty_like(q), cu_seqlens_q, max_seqlen_q,
                      (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).int(), block_table, softmax_scale)

    def with_kvcache(q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, causal):
        starts = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
        rows = q.view(q.shape[0], -1, q.shape[-1])
        return attend(rows, k_cache, v_cache, torch.empty_like(rows), starts, 1, cache_seqlens, block_table,
                      softmax_scale).view_as(q)

    return types.SimpleNamespace(flash_attn_varlen_func=varlen, flash_attn_with_kvcache=with_kvcache)


def dense(q, k, v, starts, scale):
    """Prompts, one after the other."""
    out, ends = torch.empty_like(q), starts.tolist()
    for first, last in zip(ends, ends[1:]):
        rows = [x[None, first:last].transpose(1, 2) for x in (q, k, v)]
        part = torch.nn.functional.scaled_dot_product_attention(*rows, is_causal=True, scale=scale, enable_gqa=True)
        out[first:last] = part[0].transpose(0, 1)
    return out


def nano_by_torch():
    def varlen(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k, softmax_scale, causal, block_table):
        return dense(q, k, v, cu_seqlens_q, softmax_scale)

    def with_kvcache(q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, causal):
        """Copies the cache of each sequence to its table's width, as a graph must."""
        rows, table = q.view(q.shape[0], -1, 1, q.shape[-1]), block_table.clamp(min=0).long()
        k, v = (cache[table].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
        seen = torch.arange(k.shape[2], device=q.device)[None, None, None] < cache_seqlens[:, None, None, None]
        return torch.nn.functional.scaled_dot_product_attention(
            rows, k, v, attn_mask=seen, scale=softmax_scale, enable_gqa=True).view_as(q)

    return types.SimpleNamespace(flash_attn_varlen_func=varlen, flash_attn_with_kvcache=with_kvcache)


# ---- nano-vllm ----

def prompts_of(options, batch, length):
    return torch.randint(0, options.vocab, (batch, length)).tolist()


def nano(options):
    """-> cell(batch, length, tokens): seconds of the prompts, seconds of the decodes."""
    serve = example(options.engine)
    if options.attention == "kgen":
        attention = serve.by_kgen()
        serve.forbid_other_kernels(attention)
    elif options.attention == "own":
        torch.compile = lambda function: function
        attention = types.SimpleNamespace()  # the engine imports flash_attn itself
    else:
        torch.compile = lambda function: function
        attention = nano_by_triton() if options.attention == "triton" else nano_by_torch()
        sys.modules["flash_attn"] = types.ModuleType("flash_attn")
        vars(sys.modules["flash_attn"]).update(vars(attention))
        if not torch.cuda.is_available():
            attention.store_kvcache = serve.in_plain_torch().store_kvcache
    import nanovllm.engine.model_runner as model_runner
    from nanovllm.sampling_params import SamplingParams
    if options.attention == "triton":
        prepare = model_runner.ModelRunner.prepare_prefill

        def with_tables(self, seqs):
            result = prepare(self, seqs)
            if seqs[0].block_table:
                model_runner.get_context().block_tables = self.prepare_block_tables(seqs)
            return result

        model_runner.ModelRunner.prepare_prefill = with_tables
    folder = tempfile.mkdtemp()
    serve.write_config(folder, options)
    engine = serve.engine_of(folder, options, attention, False)

    def cell(batch, length, tokens):
        for prompt in prompts_of(options, batch, length):
            engine.add_request(prompt, SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True))
        seconds = [0.0, 0.0]
        while not engine.is_finished():
            begin = time.perf_counter()
            _, count = engine.step()
            seconds[count < 0] += time.perf_counter() - begin
        return seconds

    return cell


# ---- mini-sglang ----

def triton_backend(serve, attend):
    base = serve.kgen_backend()

    class TritonBackend(base):
        def __init__(self, config):
            from minisgl.core import get_global_ctx
            context = get_global_ctx()
            self.cache, self.page, self.requests = context.kv_cache, context.page_size, context.page_table
            self.heads, self.dim, self.scale = config.num_kv_heads, config.head_dim, config.head_dim ** -0.5
            self.tables = types.SimpleNamespace(launch=self.fill)

        def fill(self, lens, requests, req_to_token, table):
            table.copy_(req_to_token[requests.long(), :table.shape[1] * self.page:self.page] // self.page)

        def forward(self, q, k, v, layer_id, batch):
            facts, pages = batch.attn_metadata, [cache(layer_id) for cache in (self.cache.k_cache, self.cache.v_cache)]
            for pool, rows in zip(pages, (k, v)):
                pool.view(-1, self.heads, self.dim).index_copy_(0, batch.out_loc.long(), rows.view(-1, self.heads, self.dim))
            rows = q.view(q.shape[0], -1, self.dim)
            longest = max(req.extend_len for req in batch.padded_reqs) if batch.is_prefill else 1
            return attend(rows, *pages, torch.empty_like(rows), facts.starts, longest, facts.lens, facts.table,
                          self.scale).view_as(q)

    return TritonBackend


def keep_own_kernels(serve):
    """The engine's attention and write are its own; the four functions of FlashInfer are plain torch, as beside the others."""
    own = {name: importlib.import_module(name) for name in ("triton", "tvm_ffi", "flashinfer")}
    serve.replace_other_kernels()
    for name in vars(sys.modules["flashinfer"]).keys() & vars(own["flashinfer"]).keys():
        if not name.startswith("__"):
            setattr(own["flashinfer"], name, getattr(serve, name))
    sys.modules |= own
    kernel = importlib.import_module("minisgl.kernel")
    kernel.store_cache = importlib.import_module("minisgl.kernel.store").store_cache


def mini(options):
    """The same; prompts are timed by answers of one token."""
    serve = example(options.engine)
    sys.path.insert(0, str(pathlib.Path(options.source, "python")))
    if options.attention == "kgen":
        serve.replace_other_kernels()
    elif options.attention == "own":
        keep_own_kernels(serve)
        options.attention, options.page = "fi", 1  # that back end has pages of one token
    else:
        import triton
        attend = unified_attention()
        serve.replace_other_kernels()
        sys.modules["triton"] = triton  # which the example hides
        backend = triton_backend(serve, attend)
        serve.kgen_backend = lambda: backend
        options.attention = "kgen"  # its name among the engine's back ends, and its graphs
    folder = tempfile.mkdtemp()
    config = serve.reference.QWEN3 | {"num_hidden_layers": options.layers, "vocab_size": options.vocab}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    engine = serve.engine_of(folder, options)
    from minisgl.core import SamplingParams

    def timed(batch, length, tokens):
        prompts, begin = prompts_of(options, batch, length), time.perf_counter()
        engine.generate(prompts, SamplingParams(max_tokens=tokens, ignore_eos=True))
        return time.perf_counter() - begin

    def cell(batch, length, tokens):
        first = timed(batch, length, 1)
        return first, timed(batch, length, tokens) - first

    return cell


# ---- processes ----

def rate(tokens, seconds):
    """None: a difference of two runs that says nothing."""
    return round(tokens / seconds, 1) if seconds > 0 else None


def measure(options):
    """In a process of its own: a row a cell, as JSON."""
    sys.path[:0] = [str(ROOT / "bench"), options.source]
    if options.attention == "kgen":
        from kgen import contexts
        contexts.configure(mode=options.mode, **({} if options.device == "cuda" else {"cpu": options.device}))
    if options.device != "cuda":
        example(options.engine)
        if options.engine == "nano-vllm":
            example(options.engine).without_gpu(1 << 28)
    name, cells = options.attention, [(batch, length) for length in options.lengths for batch in options.batches]
    cell = {"nano-vllm": nano, "mini-sglang": mini}[options.engine](options)
    for batch, length in cells:
        cell(batch, length, min(3, options.tokens))  # what a first call of torch or Triton costs
    for batch, length in cells:
        torch.manual_seed(options.seed + batch + length)
        prompts, decodes = cell(batch, length, options.tokens)
        print(json.dumps({"engine": options.engine, "attention": name, "batch": batch, "prompt": length,
                          "prompt_tokens_s": rate(batch * length, prompts),
                          "decode_tokens_s": rate(batch * (options.tokens - 1), decodes),
                          "tokens_s": rate(batch * options.tokens, prompts + decodes)}), flush=True)


def say(row):
    said = [f"{name} {row[key] or '-':>10} tokens/s" for name, key in
            (("prompts", "prompt_tokens_s"), ("decode", "decode_tokens_s"), ("all", "tokens_s"))]
    print(f"{row['engine']:12s} {row['attention']:7s} batch {row['batch']:3d} prompt {row['prompt']:5d} ", ", ".join(said),
          flush=True)


def run(attention, *more, quiet=False, **variables):
    """A row is printed when it is there: who is stopped has said what he measured. -> the exit code"""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--attention", attention, "--one", *more]
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            for line in process.stdout:
                if line.startswith('{"engine"') and not quiet:
                    say(json.loads(line))
        if process.returncode:
            errors.seek(0)
            print(f"{attention}: {errors.read().strip()[-9000:]}", flush=True)
    return process.returncode


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engine", choices=("nano-vllm", "mini-sglang"))
    parser.add_argument("source", help="a checkout of it")
    parser.add_argument("--attention", default="kgen,triton,torch")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--lengths", default="512,8192", help="of the prompts")
    parser.add_argument("--tokens", type=int, default=64, help="to generate for each prompt")
    parser.add_argument("--page", type=int, default=16, help="of mini-sglang")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="strict", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batches, options.lengths = ([int(x) for x in text.split(",")] for text in (options.batches, options.lengths))
    options.prompts, options.prompt_tokens = max(options.batches), max(options.lengths)
    return options


def main():
    options, failed = arguments(), 0
    if options.one:
        return measure(options)
    print(f"seed {options.seed}", flush=True)
    sys.argv += ["--seed", str(options.seed)]
    for attention in options.attention.split(","):
        variables = {}
        if attention == "kgen":
            small = ("--mode", "auto", "--layers", "1", "--vocab", "1024", "--tokens", "2", "--batches", "1,2")
            begin = time.perf_counter()
            failed |= run(attention, *small, quiet=True)
            print(f"kgen: prepared in {time.perf_counter() - begin:.0f} s", flush=True)
            variables = dict.fromkeys(("KGEN_CC", "KGEN_NVRTC_PATH", "KGEN_CLANG"), "/nonexistent")
        failed |= run(attention, **variables)
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
