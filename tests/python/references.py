"""What the drop-ins compute, in plain torch of 32 bits, written from their documents. No kgen here."""
import os
import random

import torch

SEED = int(os.environ.get("KGEN_TEST_SEED") or random.randrange(1 << 31))
torch.manual_seed(SEED)
random.seed(SEED)
print(f"seed {SEED}")


def attention(q, k, v, scale, causal=True, window=0, right=0, softcap=0.0, slopes=None, cap_last=False,
              sinks=None, root=False, spans=()):
    """One sequence: q [T][Hq][D], k and v [S][Hkv][D]; its queries are the last T positions. (out, lse [Hq][T])
    spans: first and last position of tokens that see each other, whatever the mask says."""
    q, k, v = q.float(), k.float(), v.float()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("thd,shd->hts", q, k) * scale
    query = torch.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
    key = torch.arange(k.shape[0])[None]
    distance = -(query - key).clamp(min=0).sqrt() if root else key - query
    bias = 0 if slopes is None else slopes.float()[:, None, None] * distance
    if cap_last:
        scores = scores + bias
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if not cap_last:
        scores = scores + bias
    seen = torch.ones_like(key - query, dtype=torch.bool)
    if causal:
        seen &= key <= query
    if window:
        seen &= query - key < window
    if right:
        seen &= key - query < right
    for first, last in spans:
        seen |= (first <= query) & (query <= last) & (first <= key) & (key <= last)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.float()[:, None, None].expand(-1, q.shape[0], 1)), 2)
    lse = torch.logsumexp(scores, 2)
    weights = torch.softmax(scores, 2)[..., :k.shape[0]]
    return torch.einsum("hts,shd->thd", weights, v), lse


class Pages:
    """A cache [NB][page][Hkv][D] of sequences whose pages lie anywhere; pages of nobody are NaN."""

    def __init__(self, lengths, heads, dim, page=16, dtype=torch.bfloat16):
        self.page, self.lengths = page, torch.tensor(lengths, dtype=torch.int32)
        columns = max(1, max((length + page - 1) // page for length in lengths))
        count = sum((length + page - 1) // page for length in lengths) + 2
        order = random.sample(range(count), count)
        self.table = torch.full((len(lengths), columns), order[-1], dtype=torch.int32)
        self.k = torch.full((count, page, heads, dim), float("nan"), dtype=torch.float32)
        self.v = self.k.clone()
        for row, length in enumerate(lengths):
            for column in range((length + page - 1) // page):
                number = order.pop(0)
                self.table[row, column] = number
                self.k[number], self.v[number] = torch.randn(2, page, heads, dim)
        self.k, self.v = self.k.to(dtype), self.v.to(dtype)

    def of(self, cache, row, scale=1.0):
        """The cached tokens of a sequence."""
        pages = cache[self.table[row].long()].float() * scale
        return pages.flatten(0, 1)[:self.lengths[row]]


def close(got, want, what, tolerance=2e-2):
    """Of sums about values of order 1, in 16 bits or more. The rounding to the type of `got`, which grows with the value, is
    allowed beside the tolerance."""
    assert got.shape == want.shape, f"{what}: {got.shape}, {want.shape} expected"
    rounding, got, want = torch.finfo(got.dtype).eps / 2, got.float(), want.float()
    worst = ((got - want).abs() - rounding * want.abs()).max().item() if want.numel() else 0.0
    assert worst <= tolerance, f"{what}: {worst} off, {tolerance} allowed"


def delta_rule(q, k, v, decay, beta, state, scale, l2=True):
    """One sequence: q, k [T][Hk][K], v [T][Hv][V], decay, beta [T][Hv], state [Hv][V][K], which it changes."""
    group = v.shape[1] // q.shape[1]
    q, k, v, out = q.float(), k.float(), v.float(), []
    if l2:
        q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-6)
        k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    q, k = q.repeat_interleave(group, 1) * scale, k.repeat_interleave(group, 1)
    for t in range(q.shape[0]):
        state *= decay[t][:, None, None] if decay.dim() == 2 else decay[t][:, None, :]
        update = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", state, k[t]))
        state += update[:, :, None] * k[t][:, None, :]
        out.append(torch.einsum("hvk,hk->hv", state, q[t]))
    return torch.stack(out)


def gates(a, b, a_log, dt_bias):
    """decay and beta of Gated DeltaNet."""
    return (torch.exp(-torch.exp(a_log.float()) * torch.nn.functional.softplus(a.float() + dt_bias.float())),
            torch.sigmoid(b.float()))
