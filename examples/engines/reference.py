"""What the engines' examples are compared with: plain attention in 32 bits, and which greedy tokens count."""
import torch

QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
         "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": True, "attention_bias": False,
         "hidden_act": "silu", "dtype": "bfloat16", "torch_dtype": "bfloat16"}  # Qwen3-0.6B
NEAR = 1 / 64  # of the best logit: what roundings of 16 bits may turn round


class NoTokenizer:
    """Prompts are numbers, and so are answers."""
    eos_token_id = -1

    @classmethod
    def from_pretrained(cls, *arguments, **named):
        return cls()

    def decode(self, tokens):
        return ""


def one_sequence(q, k, v, scale):
    """Causal attention in 32 bits; the queries are the last tokens."""
    group = q.shape[1] // k.shape[1]
    k, v = k.float().repeat_interleave(group, 1), v.float().repeat_interleave(group, 1)
    scores = torch.einsum("thd,shd->hts", q.float(), k) * scale
    later = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(k.shape[0] - q.shape[0] + 1)
    return torch.einsum("hts,shd->thd", scores.masked_fill(later, float("-inf")).softmax(2), v).to(q.dtype)


def cached(pages, table, length):
    """The rows [length][H][D] of one sequence out of pages [NB][page][H][D]."""
    return pages[table[:-(-length // pages.shape[1])].long()].flatten(0, 1)[:length]


def prompts_of(options):
    """Two that begin alike, for the prefix cache, and others of any length."""
    torch.manual_seed(options.seed)
    first = torch.randint(0, options.vocab, (options.prompt_tokens,)).tolist()
    rest = [torch.randint(0, options.vocab, (5 + 11 * n,)).tolist() for n in range(options.prompts - 2)]
    return [first, first[:257] + rest[0][:4] if rest else first, *rest]


def good_ones(row):
    """The tokens whose logits are as good as the best."""
    best = row.max()
    return set((row >= best - best.abs() * NEAR).nonzero()[:, 0].tolist())


def compared(got, want, near):
    """(tokens that agree, tokens compared) of one prompt: what follows a choice among equals is not compared."""
    for n, (a, b) in enumerate(zip(got, want)):
        if a != b:
            return (n, n) if a in near[n] else (n, len(want))
    return len(want), len(want)


def judge(got, want, near, speed, plain):
    """Prints what agrees; the exit code."""
    rows = [compared(*row) for row in zip(got, want, near)]
    same, count = (sum(column) for column in zip(*rows))
    print(f"kgen {speed:.1f} tokens/s, plain attention {plain:.1f}; {same} of {count} greedy tokens agree")
    for n, (a, b) in enumerate(zip(got, want)):
        if a != b:
            print(f"prompt {n}: {a}\n  expected {b}{'' if rows[n][0] < rows[n][1] else ', after equals'}")
    return int(same < count or 2 * count < sum(map(len, want)))


def add_arguments(parser):
    """What the engines' examples have in common."""
    import time
    parser.add_argument("--device", default="cpu:cdna3", help="cuda, or a cpu device (cpu:cdna3)")
    parser.add_argument("--layers", type=int, default=2, help="28 in the model")
    parser.add_argument("--vocab", type=int, default=2048, help="151936 in the model")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=270)
    parser.add_argument("--tokens", type=int, default=8, help="to generate for each prompt")
    parser.add_argument("--seed", type=int, default=int(time.time()))
