#!/usr/bin/env python3
"""nano-vllm as published, its attention by kgen: three functions are replaced, nothing else.

usage: serve_nano_vllm.py <checkout of nano-vllm> [--device cpu:cdna3 | cuda] [--layers N] [--prompts N] ...

Random weights in the shape of Qwen3-0.6B. The same engine then runs once more with plain attention in 32
bits, and the greedy tokens of both are compared. Triton and flash-attn cannot be imported in either run.
On a GPU the engine captures its graphs; on the CPU, where it cannot run by itself, its calls of
torch.cuda do nothing and kgen's cpu device computes.
"""
import argparse
import gc
import json
import pathlib
import sys
import tempfile
import time
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import reference

GREEDY = 1e-9  # the engine's sampler wants a temperature; noise cannot outweigh this one


# ---- what the engine imports and must not have ----

def forbidden(name):
    def refuse(*arguments, **named):
        raise RuntimeError(f"{name} was called")
    return refuse


def forbid_other_kernels(attention):
    """triton, with names that only a launch would need; torch.compile, whose kernels are Triton's; flash_attn, which
    is what kgen offers."""
    import transformers
    _ = transformers.GenerationMixin, transformers.AutoTokenizer  # parts of torch that they load look for triton
    if torch.cuda.is_available():
        torch.cuda.init()  # so does this
    torch.compile = lambda function: function
    triton = types.ModuleType("triton")
    triton.jit = forbidden
    triton.language = types.ModuleType("triton.language")
    triton.language.constexpr = object
    flash = types.ModuleType("flash_attn")
    flash.flash_attn_varlen_func = attention.flash_attn_varlen_func
    flash.flash_attn_with_kvcache = attention.flash_attn_with_kvcache
    sys.modules |= {"triton": triton, "triton.language": triton.language, "flash_attn": flash}


# ---- the three functions, by kgen and in plain torch ----

def by_kgen():
    from kgen.dropin import cache, flash

    def store_kvcache(key, value, k_cache, v_cache, slot_mapping):
        cache.write(key, value, k_cache, v_cache, slot_mapping, "auto", None, None, "nhd")

    return types.SimpleNamespace(store_kvcache=store_kvcache, flash_attn_varlen_func=flash.flash_attn_varlen_func,
                                 flash_attn_with_kvcache=flash.flash_attn_with_kvcache)


def in_plain_torch():
    def store_kvcache(key, value, k_cache, v_cache, slot_mapping):
        kept = slot_mapping >= 0
        slots = slot_mapping[kept].long()
        k_cache.flatten(0, 1)[slots], v_cache.flatten(0, 1)[slots] = key[kept], value[kept]

    def varlen(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k, softmax_scale, causal, block_table):
        rows, keys, out = cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), torch.empty_like(q)
        for s in range(len(rows) - 1):
            if block_table is None:
                of = k[keys[s]:keys[s + 1]], v[keys[s]:keys[s + 1]]
            else:
                of = [reference.cached(x, block_table[s], keys[s + 1] - keys[s]) for x in (k, v)]
            out[rows[s]:rows[s + 1]] = reference.one_sequence(q[rows[s]:rows[s + 1]], *of, softmax_scale)
        return out

    def with_kvcache(q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, causal):
        out = torch.empty_like(q)
        for s, length in enumerate(cache_seqlens.tolist()):
            of = [reference.cached(x, block_table[s], length) for x in (k_cache, v_cache)]
            out[s] = reference.one_sequence(q[s], *of, softmax_scale)
        return out

    return types.SimpleNamespace(store_kvcache=store_kvcache, flash_attn_varlen_func=varlen,
                                 flash_attn_with_kvcache=with_kvcache)


# ---- the engine ----

def without_gpu(bytes_of_cache):
    """The engine's calls of torch.cuda, on a machine that has none."""
    tensor, default = torch.tensor, torch.set_default_device
    torch.Tensor.cuda = lambda self, *arguments, **named: self
    torch.tensor = lambda *arguments, pin_memory=False, **named: tensor(*arguments, **named)
    torch.set_default_device = lambda device: default("cpu" if device == "cuda" else device)
    for name in ("set_device", "empty_cache", "reset_peak_memory_stats", "synchronize"):
        setattr(torch.cuda, name, lambda *arguments: None)
    torch.cuda.mem_get_info = lambda: (bytes_of_cache, bytes_of_cache)
    torch.cuda.memory_stats = lambda: {"allocated_bytes.all.peak": 0, "allocated_bytes.all.current": 0}
    group = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda name, *arguments, **named: group("gloo", *arguments, **named)


def random_weights(seed):
    def load_model(model, path):
        torch.manual_seed(seed)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(0, 0.05)
    return load_model


def watched(model_runner, near):
    """For each sequence, by its number, and each of its tokens those whose logits are as good as the best."""
    plain_model, plain_run = model_runner.ModelRunner.run_model, model_runner.ModelRunner.run

    def run_model(self, *arguments):
        self.last_logits = plain_model(self, *arguments)
        return self.last_logits

    def run(self, seqs, is_prefill):
        tokens = plain_run(self, seqs, is_prefill)
        for seq, row in zip(seqs, getattr(self, "last_logits")):
            near.setdefault(seq.seq_id, []).append(reference.good_ones(row))
        return tokens

    model_runner.ModelRunner.run_model, model_runner.ModelRunner.run = run_model, run
    return plain_model, plain_run


def engine_of(folder, options, attention, eager):
    import nanovllm.engine.llm_engine as llm_engine
    import nanovllm.engine.model_runner as model_runner
    import nanovllm.layers.attention as layer
    llm_engine.AutoTokenizer = reference.NoTokenizer
    model_runner.load_model = random_weights(options.seed)
    for name, function in vars(attention).items():
        setattr(layer, name, function)
    longest = options.prompt_tokens + options.tokens
    return llm_engine.LLMEngine(folder, enforce_eager=eager or options.device != "cuda", max_model_len=longest,
                                max_num_batched_tokens=longest, max_num_seqs=options.prompts)


def write_config(folder, options):
    config = reference.QWEN3 | {"num_hidden_layers": options.layers, "vocab_size": options.vocab}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def run(options, attention, near, eager=False):
    import nanovllm.engine.model_runner as model_runner
    from nanovllm.sampling_params import SamplingParams
    plain = watched(model_runner, near)
    with tempfile.TemporaryDirectory() as folder:
        write_config(folder, options)
        engine = engine_of(folder, options, attention, eager)
        near.clear()  # of the engine's own warm-up
        prompts, tokens, begin = reference.prompts_of(options), [], time.perf_counter()
        for prompt in prompts[:1], prompts[1:]:  # the second finds the first's pages
            parameters = SamplingParams(temperature=GREEDY, max_tokens=options.tokens, ignore_eos=True)
            tokens += [answer["token_ids"] for answer in engine.generate(prompt, parameters, use_tqdm=False)]
        seconds = time.perf_counter() - begin
        engine.exit()
        import atexit
        atexit.unregister(engine.exit)
        del engine
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the next engine takes what is free
    model_runner.ModelRunner.run_model, model_runner.ModelRunner.run = plain
    return tokens, sum(map(len, tokens)) / seconds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", help="a checkout of nano-vllm")
    reference.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    sys.path.insert(0, options.source)
    print(f"seed {options.seed}, {options.layers} layers, {options.prompts} prompts, {options.device}")
    if options.device != "cuda":
        from kgen import contexts
        contexts.configure(cpu=options.device)
        without_gpu(64 << 20)
    kgen = by_kgen()
    forbid_other_kernels(kgen)
    near = {}
    got, speed = run(options, kgen, {})
    want, plain = run(options, in_plain_torch(), near, eager=True)  # it reads lengths: no graph
    return reference.judge(got, want, [near[number] for number in sorted(near)], speed, plain)


if __name__ == "__main__":
    sys.exit(main())
