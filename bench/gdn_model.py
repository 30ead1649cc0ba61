"""Decodes small random Qwen3-Next and Qwen3.5 models with kgen's attention and Gated DeltaNet in
place of the reference's, and compares the greedy tokens with those of transformers.

The reference prefills; its caches are converted into pools of pages and slots. Then every step
runs twice from the same tokens: in the reference, one sequence at a time, and with the kernels,
all sequences in one batch. A token may differ only where the reference's two best logits are
closer than twice the largest difference of that step. A third run, the reference in float32, says
how large rounding may make a difference: kgen must be as near to it as the 16-bit reference is.

  --device cpu:sm90   the same without a GPU
"""
import argparse
import copy
import sys
import time

import harness
import kgen_ctypes as kg
import torch

PAGE = 16
HIDDEN, LAYERS, VOCAB = 512, 4, 256
HEADS, KV_HEADS, HEAD_DIM = 8, 2, 256
K_HEADS, V_HEADS, DIM, WIDTH = 4, 12, 128, 4
AS_NEAR = 2.0  # kgen's distance from float32, at most, in those of the 16-bit reference


# ---- the reference -----------------------------------------------------------


def build_model(kind, device):
    common = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, intermediate_size=1024,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
                  linear_num_key_heads=K_HEADS, linear_num_value_heads=V_HEADS, linear_key_head_dim=DIM,
                  linear_value_head_dim=DIM, linear_conv_kernel_dim=WIDTH, initializer_range=0.05)
    if kind == "next":
        from transformers import Qwen3NextConfig as Config, Qwen3NextForCausalLM as Model
        common |= dict(num_experts=4, num_experts_per_tok=2, mlp_only_layers=list(range(LAYERS)))
    else:
        from transformers import Qwen3_5TextConfig as Config, Qwen3_5ForCausalLM as Model
    model = Model(Config(**common)).eval()
    for name, weight in model.named_parameters():  # the initial ones and zeros would hide mistakes
        if name.endswith(("dt_bias", "norm.weight", "layernorm.weight", "q_norm.weight", "k_norm.weight")):
            weight.data += 0.2 * torch.randn_like(weight)
        if name.endswith("conv1d.weight"):
            weight.data = 0.5 * torch.randn_like(weight)
    return model.to(device, torch.bfloat16)


# ---- kgen --------------------------------------------------------------------


class Kernel:
    """One kernel of kgen with its workspace."""

    def __init__(self, context, line, device):
        self.context, self.device = context, device
        self.kernel, self.held = context.prepare(line), None

    def launch(self, family, fields, numbers):
        args = kg.Args(family)
        for name, value in {**fields, **numbers}.items():
            setattr(args.part, name, value)
        size = self.context.workspace_bytes(self.kernel, args)
        stream = harness.current_stream(self.device)
        if size and (self.held is None or self.held.numel() < size + 256):
            self.held = torch.empty(size + 256, dtype=torch.uint8, device=self.device)
            self.context.workspace_init(self.start(), size, stream)
        if size:
            args.workspace, args.workspace_bytes = self.start(), size
        self.context.launch(self.kernel, args, stream)
        self.context.sync(stream)  # `fields` may go away now

    def start(self):
        return -(-self.held.data_ptr() // 256) * 256


class Attention:
    """Full attention of one layer over a pool of pages."""

    def __init__(self, module, decoder):
        self.module, self.decoder = module, decoder
        shape = (decoder.pages, PAGE, KV_HEADS, HEAD_DIM)
        self.k, self.v = (torch.full(shape, float("nan"), dtype=torch.bfloat16, device=decoder.device) for _ in "kv")

    def take(self, sequence, layer):
        """The reference's cache of one sequence: [1][Hkv][tokens][D]."""
        for i in range(layer.keys.shape[2]):
            page, slot = self.decoder.place(sequence, i)
            self.k[page, slot], self.v[page, slot] = layer.keys[0, :, i], layer.values[0, :, i]

    def forward(self, hidden_states, position_embeddings, **_):
        module, d = self.module, self.decoder
        n = hidden_states.shape[0]
        q, gate = module.q_proj(hidden_states).view(n, 1, -1, 2 * HEAD_DIM).chunk(2, dim=-1)
        shape = (n, 1, -1, HEAD_DIM)
        q = module.q_norm(q).transpose(1, 2)
        k = module.k_norm(module.k_proj(hidden_states).view(shape)).transpose(1, 2)
        v = module.v_proj(hidden_states).view(shape)
        rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
        q, k = rotate(q, k, *position_embeddings)
        q, k = q.transpose(1, 2)[:, 0].contiguous(), k.transpose(1, 2)
        for s in range(n):
            page, slot = d.place(s, int(d.lens[s]) - 1)
            self.k[page, slot], self.v[page, slot] = k[s, 0], v[s, 0]
        out = torch.full_like(q, float("nan"))
        d.attention.launch("attn", {
            "q": kg.tensor(q), "k": kg.tensor(self.k, "nhd"), "v": kg.tensor(self.v, "nhd"), "out": kg.tensor(out),
            "block_table": kg.tensor(d.table), "seq_lens": kg.tensor(d.lens)}, {"softmax_scale": module.scaling})
        out = out.view(n, 1, -1) * torch.sigmoid(gate.reshape(n, 1, -1))
        return module.o_proj(out), None


class DeltaNet:
    """Gated DeltaNet of one layer over a pool of slots, fused or in two kernels and the model's norm."""

    def __init__(self, module, decoder):
        self.module, self.decoder, device = module, decoder, decoder.device
        self.channels = 2 * K_HEADS * DIM + V_HEADS * DIM
        self.state = torch.full((decoder.slot_count, V_HEADS, DIM, DIM), float("nan"), device=device)
        self.conv = torch.full((decoder.slot_count, WIDTH - 1, self.channels), float("nan"), dtype=torch.bfloat16,
                               device=device)
        self.a_log = module.A_log.data.float()
        self.weight = module.conv1d.weight.data[:, 0].contiguous()

    def take(self, sequence, layer):
        """The reference keeps [K][V] a head, and one column more than the window."""
        slot = int(self.decoder.slots[sequence])
        self.state[slot] = layer.recurrent_states[0][0].transpose(1, 2)
        self.conv[slot] = layer.conv_states[0][0, :, -(WIDTH - 1):].transpose(0, 1)

    def project(self, hidden):
        m = self.module
        if self.decoder.layout == "interleaved":
            return m.in_proj_qkvz(hidden), m.in_proj_ba(hidden)
        return (torch.cat([m.in_proj_qkv(hidden), m.in_proj_z(hidden)], dim=-1),
                torch.cat([m.in_proj_b(hidden), m.in_proj_a(hidden)], dim=-1))

    def shared(self):
        d = self.decoder
        step = {"a_log": kg.tensor(self.a_log), "dt_bias": kg.tensor(self.module.dt_bias.data),
                "state": kg.tensor(self.state, "vk"), "slots": kg.tensor(d.slots)}
        conv = {"conv_weight": kg.tensor(self.weight), "conv_state": kg.tensor(self.conv, "sd"),
                "slots": kg.tensor(d.slots)}
        return step, conv, {"q_scale": DIM ** -0.5, "l2_eps": 1e-6}

    def forward(self, hidden_states, **_):
        d, n = self.decoder, hidden_states.shape[0]
        qkvz, ba = self.project(hidden_states[:, 0])
        step, conv, numbers = self.shared()
        rows = {"qkvz": kg.tensor(qkvz, d.layout), "ba": kg.tensor(ba, d.layout)}
        out = torch.full((n, V_HEADS, DIM), float("nan"), dtype=torch.bfloat16, device=d.device)
        if d.fused:
            d.fused.launch("gdn", {**step, **conv, **rows, "norm_weight": kg.tensor(self.module.norm.weight.data),
                                    "out": kg.tensor(out)},
                           {**numbers, "norm_eps": self.module.layer_norm_epsilon})
        else:
            x = torch.full((n, self.channels), float("nan"), dtype=torch.bfloat16, device=d.device)
            b, a = (torch.full((n, V_HEADS), float("nan"), dtype=torch.bfloat16, device=d.device) for _ in "ba")
            z = torch.full_like(out, float("nan"))
            d.unpack.launch("gdn", {**conv, **rows, "out": kg.tensor(x), "z_out": kg.tensor(z.view(n, -1)),
                                     "b_out": kg.tensor(b), "a_out": kg.tensor(a)}, {"l2_eps": numbers["l2_eps"]})
            d.step.launch("gdn", {**step, "x": kg.tensor(x), "b": kg.tensor(b), "a": kg.tensor(a),
                                   "out": kg.tensor(out)}, numbers)
            out = self.module.norm(out.view(-1, DIM), z.view(-1, DIM))
        return self.module.out_proj(out.view(n, 1, -1))


class Decoder:
    """A copy of the model in which kgen decodes; pages and slots lie at random places of their pools."""

    def __init__(self, model, kind, level, context, device, prompts, steps):
        self.device, self.layout = device, "interleaved" if kind == "next" else "flat"
        self.lens = torch.tensor([len(p) for p in prompts], dtype=torch.int32, device=device)
        self.make_pools(prompts, steps)
        self.make_kernels(context, level)
        self.model, self.layers = copy.deepcopy(model), []
        for layer in self.model.model.layers:
            linear = hasattr(layer, "linear_attn")
            module = layer.linear_attn if linear else layer.self_attn
            ours = (DeltaNet if linear else Attention)(module, self)
            module.forward = ours.forward
            self.layers.append(ours)

    def make_pools(self, prompts, steps):
        each = [-(-(len(p) + steps) // PAGE) for p in prompts]
        self.pages, self.slot_count = sum(each) + 5, len(prompts) + 3
        order = iter(torch.randperm(self.pages).tolist())
        table = [[next(order) for _ in range(count)] for count in each]
        table = [row + [row[0]] * (max(each) - len(row)) for row in table]
        self.table = torch.tensor(table, dtype=torch.int32, device=self.device)
        slots = torch.randperm(self.slot_count - 1)[:len(prompts)] + 1  # slot 0 stands for no sequence
        self.slots = slots.to(self.device, torch.int32)

    def make_kernels(self, context, level):
        def make(line):
            return Kernel(context, line, self.device)
        gdn = (f"x=bf16,hk={K_HEADS},hv={V_HEADS},state=f32,sl=vk,pad=nonpos")
        self.attention = make(f"attn:phase=decode,q=bf16,kv=bf16,d={HEAD_DIM},g={HEADS // KV_HEADS},page={PAGE}")
        self.fused = make(f"gdn:fuse=e,layout={self.layout},{gdn},betar=1") if level == "e" else None
        if level != "e":
            self.unpack = make(f"gdn:fuse=c,layout={self.layout},{gdn}")
            self.step = make(f"gdn:fuse=a,layout=presplit,{gdn},betar=1")

    def place(self, sequence, token):
        return int(self.table[sequence, token // PAGE]), token % PAGE

    def take(self, sequence, cache):
        for ours, layer in zip(self.layers, cache.layers):
            ours.take(sequence, layer)

    def decode(self, tokens):
        """[S] tokens -> [S][VOCAB] logits"""
        self.lens += 1
        positions = (self.lens - 1).long()[:, None]
        with torch.no_grad():
            return self.model(input_ids=tokens[:, None], position_ids=positions, use_cache=False).logits[:, -1].float()


# ---- comparison ----------------------------------------------------------------


class Reference:
    """transformers, one sequence at a time."""

    def __init__(self, model, prompts):
        self.model, self.caches = model, []
        logits = [self.step(prompt, None) for prompt in prompts]
        self.tokens = torch.stack(logits).argmax(-1)

    def step(self, tokens, cache):
        with torch.no_grad():
            done = self.model(input_ids=tokens[None], past_key_values=cache, use_cache=True)
        if cache is None:
            self.caches.append(done.past_key_values)
        return done.logits[0, -1].float()

    def decode(self, tokens):
        return torch.stack([self.step(t[None], cache) for t, cache in zip(tokens, self.caches)])


def compare(kind, level, context, device, options):
    model = build_model(kind, device)
    prompts = [torch.randint(VOCAB, (length,), device=device) for length in (3, 17, 40, 1)]
    ours = Decoder(model, kind, level, context, device, prompts, options.steps)
    half, exact = Reference(model, prompts), Reference(copy.deepcopy(model).float(), prompts)
    for sequence, cache in enumerate(half.caches):
        ours.take(sequence, cache)
    return follow(ours, half, exact, options.steps)


def follow(ours, half, exact, steps):
    """Counts of tokens: equal, near ties, wrong; and the largest distances from float32: ours, the reference's"""
    equal = ties = wrong = 0
    far = [0.0, 0.0]
    tokens = half.tokens
    for _ in range(steps):
        got, want, true = (run.decode(tokens) for run in (ours, half, exact))
        difference = (got - want).abs().amax(-1)
        if not torch.isfinite(got).all():
            return equal, ties, wrong + got.shape[0], float("inf"), far[1]
        best = want.topk(2).values
        near = best[:, 0] - best[:, 1] < 2 * difference
        same = got.argmax(-1) == want.argmax(-1)
        equal += int(same.sum())
        ties += int((~same & near).sum())
        wrong += int((~same & ~near).sum())
        spread = true.std(-1)
        far = [max(old, ((x - true).abs().amax(-1) / spread).max().item()) for old, x in zip(far, (got, want))]
        tokens = want.argmax(-1)
    return equal, ties, wrong, *far


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--models", default="next,3.5")
    p.add_argument("--levels", default="e,ac")
    p.add_argument("--auto", action="store_true", help="compile what the cache lacks")
    p.add_argument("--build", action="store_true", help="compile the kernels into out/cache; no GPU needed")
    p.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    options = p.parse_args()
    if options.build:
        return build()
    device = "cpu" if options.device.startswith("cpu") else "cuda"
    if device == "cuda":
        torch.empty(1, device="cuda")  # the primary context, which kgen then shares
    torch.manual_seed(options.seed)
    context = kg.Context(options.device, harness.CACHE, kg.AUTO if options.auto or device == "cpu" else kg.OFFLINE)
    print(f"seed {options.seed}, {context.name}", flush=True)
    failed = 0
    for kind in options.models.split(","):
        for level in options.levels.split(","):
            equal, ties, wrong, far, allowed = compare(kind, level, context, device, options)
            good = not wrong and far <= AS_NEAR * allowed
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} Qwen {kind:4} level {level:2}: {equal} tokens equal, "
                  f"{ties} near ties, {wrong} wrong; logits are {far:.3f} deviations from float32, the reference's {allowed:.3f}",
                  flush=True)
    context.close()
    return int(failed > 0)


class Lines:
    """Stands for a context: notes the specs instead of preparing them."""

    def __init__(self):
        self.specs = []

    def prepare(self, line):
        self.specs.append(line)


def build():
    lines, decoder = Lines(), Decoder.__new__(Decoder)
    decoder.device = "cpu"
    for decoder.layout in ("interleaved", "flat"):
        for level in ("e", "ac"):
            decoder.make_kernels(lines, level)
    return harness.build_specs(sorted(set(lines.specs)))


if __name__ == "__main__":
    sys.exit(main())
