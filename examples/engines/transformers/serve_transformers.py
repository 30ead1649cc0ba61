#!/usr/bin/env python3
"""Hugging Face's continuous batching, its attention by kgen: prompts and decodes through its paged cache.

usage: serve_transformers.py [--device cpu:cdna3 | cuda] [--layers N] [--prompts N] ...

The attention implementation `kgen_flash_attention_2` is transformers' own flash attention over
flash_attn_varlen_func and flash_attn_with_kvcache of kgen. Random weights in the shape of Qwen3-0.6B;
the greedy tokens are compared with those of plain attention in 32 bits.
"""
import argparse
import functools
import pathlib
import sys
import time

import torch
import transformers
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_attention import flash_attention_forward

from kgen import contexts
from kgen.dropin import flash

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import reference

NAME = "kgen_flash_attention_2"  # the engine gives block tables to versions 2 and 3 alone
calls = {"flash_attn_varlen_func": 0, "flash_attn_with_kvcache": 0}


def counted(function):
    @functools.wraps(function)
    def call(*arguments, **named):
        calls[function.__name__] += 1
        return function(*arguments, **named)
    return call


def register():
    """transformers asks one function for those of a flash attention package."""
    original = flash_utils._lazy_imports

    def lazy_imports(implementation, *arguments, **named):
        if implementation != NAME:
            return original(implementation, *arguments, **named)
        return (None, counted(flash.flash_attn_varlen_func), counted(flash.flash_attn_with_kvcache),
                flash_utils._pad_input, flash_utils._unpad_input)

    flash_utils._lazy_imports = lazy_imports
    transformers.AttentionInterface.register(NAME, flash_attention_forward)
    masks = transformers.masking_utils
    transformers.AttentionMaskInterface.register(NAME, masks.ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])


def without_gpu():
    """On a machine without one the engine gives no block tables to any version."""
    from transformers.generation.continuous_batching import initialization
    initialization.ensure_decode_fast_path_is_available = lambda *arguments, **named: None


def plain_attention(module, query, key, value, attention_mask, scaling=None, **named):
    """Causal attention of one sequence in 32 bits: no mask is looked at."""
    group = query.shape[1] // key.shape[1]
    key, value = key.float().repeat_interleave(group, 1), value.float().repeat_interleave(group, 1)
    scores = query.float() @ key.transpose(2, 3) * scaling
    later = torch.ones(scores.shape[2:], dtype=torch.bool, device=query.device).triu(key.shape[2] - query.shape[2] + 1)
    out = scores.masked_fill(later, float("-inf")).softmax(3) @ value
    return out.transpose(1, 2).to(query.dtype), None


def model_of(options):
    config = transformers.Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        num_hidden_layers=options.layers, vocab_size=options.vocab, tie_word_embeddings=True)
    torch.manual_seed(options.seed)
    model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.05)
    return model.to("cuda" if options.device == "cuda" else "cpu").eval()


def expected(model, prompt, count):
    """Greedy tokens one by one, everything computed anew each time; and for each those that are as good."""
    model.set_attn_implementation("plain_attention")
    tokens, near = list(prompt), []
    for _ in range(count):
        ids = torch.tensor([tokens], device=model.device)
        with torch.no_grad():
            row = model(input_ids=ids, use_cache=False).logits[0, -1]
        near.append(reference.good_ones(row))
        tokens.append(row.argmax().item())
    return tokens[len(prompt):], near


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu:cdna3", help="cuda, or a cpu device (cpu:cdna3)")
    parser.add_argument("--layers", type=int, default=2, help="28 in the model")
    parser.add_argument("--vocab", type=int, default=2048, help="151936 in the model")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=6, help="to generate for each prompt")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    return parser.parse_args()


def main():
    options = arguments()
    if options.device != "cuda":
        contexts.configure(cpu=options.device)
        without_gpu()
    register()
    transformers.AttentionInterface.register("plain_attention", plain_attention)
    print(f"seed {options.seed}, {options.layers} layers, {options.prompts} prompts, {options.device}")
    model = model_of(options)
    prompts = [torch.randint(0, options.vocab, (5 + 12 * n,)).tolist() for n in range(options.prompts)]
    model.set_attn_implementation(NAME)
    config = transformers.GenerationConfig(max_new_tokens=options.tokens, do_sample=False, eos_token_id=-1,
                                           pad_token_id=0)
    batching = transformers.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=128, max_blocks_per_request=4)
    begin = time.perf_counter()
    answers = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False,
                                   continuous_batching_config=batching)
    seconds = time.perf_counter() - begin
    got = [list(answers[key].generated_tokens) for key in sorted(answers, key=lambda key: int(key.split("_")[-1]))]
    want = [expected(model, prompt, options.tokens) for prompt in prompts]
    rows = [reference.compared(a, *b) for a, b in zip(got, want)]
    same, count = (sum(column) for column in zip(*rows))
    print(f"calls of kgen: {calls}")
    print(f"kgen {sum(map(len, got)) / seconds:.1f} tokens/s; {same} of {count} greedy tokens agree")
    for n, (a, (b, _)) in enumerate(zip(got, want)):
        if a != b:
            print(f"prompt {n}: {a}\n  expected {b}{'' if rows[n][0] < rows[n][1] else ', after equals'}")
    return int(same < count or 2 * count < sum(map(len, got)) or not all(calls.values()))


if __name__ == "__main__":
    sys.exit(main())
