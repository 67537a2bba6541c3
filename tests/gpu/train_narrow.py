"""train_narrow.py [--steps 200] [--device cuda] [--rows 256] [--engine native]: trains a small transformer on the bytes
of docs/*.md, its attention in bf16 and then in 8 bits: the hybrid format with delayed scaling, by `quantize per_tensor`
of attn.torch. Prints both losses (means of the last tenth of the steps) and their ratio. The exit code is 1 if the
loss in 8 bits is more than 2 % above that of bf16, or no number.

    PYTHONPATH=python ATTN_ATTNC=build/attnc ATTN_LIBRARY=build/libattn.so.1 python3 tests/gpu/train_narrow.py

Both runs see the same batches and begin with the same weights. On the CPU (--device cpu, few --rows and --steps) the
reference computes, rounding as kernels do.
"""
import argparse
import pathlib
import sys
import time

import torch
from torch import nn

import attn
import attn.torch

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BATCHES, HEADS, KEY_HEADS, DEPTH, LAYERS = 8, 4, 2, 64, 4
WIDTH = HEADS * DEPTH
WORSE = 1.02
SPEC = """attention train_narrow {{
  dims B = {batches}, Hq = {heads}, Hkv = {key_heads}, Sq = {rows}, Skv = Sq, D = {depth};
  layout bshd;
  mask q_idx >= kv_idx;
  {types}
  grad q, k, v;
}}
"""
TYPES = {"bf16": "dtype bf16; outputs o, lse;",
         "8 bits": "dtype e4m3; quantize per_tensor, do: e5m2, gradients: e5m2, scale_s = 256, descale_s = 1 / 256; "
                   "outputs o, lse, amax_s, amax_o;"}
LARGEST = {**dict.fromkeys(("q", "k", "v", "o"), 448.0), **dict.fromkeys(("do", "dp", "dq", "dk", "dv"), 57344.0)}
STEPS_OF_HISTORY = 16
FIRST = 4.0  # what magnitudes are taken to be before the first step


class DelayedScaling:
    """The scales of one attention: each from the largest magnitudes of the steps before."""

    def __init__(self, scales, device):
        self.names = scales
        self.history = {name: torch.full((STEPS_OF_HISTORY,), FIRST, device=device) for name in LARGEST}
        self.amax = {f"amax_{name}": torch.zeros(1, device=device) for name in ("dp", "dq", "dk", "dv")}
        self.step = 0

    def remember(self, name, x):
        magnitude = x.detach().abs().max().float()
        history = self.history[name]
        history[:] = magnitude if self.step == 0 else torch.cat([history[1:], magnitude.reshape(1)])

    def given(self):
        scales = {f"scale_{name}": (LARGEST[name] / history.max().clamp_min(1e-12)).reshape(1)
                  for name, history in self.history.items()}
        scales |= {f"de{name}": 1 / scale for name, scale in scales.items()}
        return {name: scales[name] for name in self.names if name in scales} | self.amax

    def end_of_step(self):
        for name, x in self.amax.items():
            self.remember(name.removeprefix("amax_"), x)
        self.step += 1


class Attention(nn.Module):
    def __init__(self, attention, types, device):
        super().__init__()
        self.attention = attention
        self.inputs = nn.Linear(WIDTH, (HEADS + 2 * KEY_HEADS) * DEPTH, bias=False)
        self.outputs = nn.Linear(WIDTH, WIDTH, bias=False)
        self.scaling = DelayedScaling(attention.scales, device) if types != "bf16" else None

    def forward(self, x):
        batches, rows, _ = x.shape
        parts = self.inputs(x).split([HEADS * DEPTH, KEY_HEADS * DEPTH, KEY_HEADS * DEPTH], -1)
        # [B, H, S, D], with rows before heads in memory.
        q, k, v = (part.unflatten(-1, (-1, DEPTH)).transpose(1, 2) for part in parts)
        if self.scaling is None:
            o, _ = self.attention(q, k, v)
        else:
            o, _, _, amax_o = self.attention(q, k, v, **self.scaling.given())
            for name, tensor in {"q": q, "k": k, "v": v, "o": amax_o}.items():
                self.scaling.remember(name, tensor)
            if o.requires_grad:
                o.register_hook(lambda d_o: self.scaling.remember("do", d_o))
        return self.outputs(o.transpose(1, 2).reshape(batches, rows, WIDTH))


class Layer(nn.Module):
    def __init__(self, *how):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(*how)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.dense(self.between(x))


class Model(nn.Module):
    def __init__(self, rows, *how):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(rows, WIDTH)
        self.layers = nn.ModuleList(Layer(*how) for _ in range(LAYERS))
        self.last, self.logits = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.logits(self.last(x)).float()

    def end_of_step(self):
        for layer in self.layers:
            if layer.attention.scaling is not None:
                layer.attention.scaling.end_of_step()


def batches_of(options, device):
    """The same batches in every run: rows + 1 bytes each."""
    data = torch.tensor(list("".join(path.read_text() for path in sorted(DOCS.glob("*.md"))).encode()))
    generator = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        begins = torch.randint(len(data) - options.rows - 1, (BATCHES,), generator=generator)
        yield torch.stack([data[i:i + options.rows + 1] for i in begins.tolist()]).to(device)


def train(options, types):
    """The loss of each step."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    text = SPEC.format(batches=BATCHES, heads=HEADS, key_heads=KEY_HEADS, rows=options.rows, depth=DEPTH,
                       types=TYPES[types])
    how = {} if device.type == "cpu" else {"engine": options.engine}
    model = Model(options.rows, attn.compile(text, **how), types, device).to(device, torch.bfloat16)
    # Weights and their moments in f32, as training has them.
    masters = [weight.detach().float().requires_grad_() for weight in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for number, tokens in enumerate(batches_of(options, device)):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1, (number + 1) / 20)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        for master, weight in zip(masters, model.parameters()):
            master.grad = weight.grad.float()
            weight.grad = None
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            for master, weight in zip(masters, model.parameters()):
                weight.copy_(master)
        model.end_of_step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--engine", default="native", help="of attnc compile, on the GPU")
    return parser.parse_args()


def main():
    options = parse()
    means = {}
    for types in TYPES:
        begin = time.monotonic()
        losses = train(options, types)
        last = losses[-max(1, options.steps // 10):]
        means[types] = sum(last) / len(last)
        print(f"{types}: loss {losses[0]:.4f} at first, {means[types]:.4f} at last, {time.monotonic() - begin:.1f} s",
              flush=True)
    ratio = means["8 bits"] / means["bf16"]
    print(f"ratio {ratio:.4f}, at most {WORSE} wanted")
    return 0 if ratio <= WORSE else 1  # NaN fails


if __name__ == "__main__":
    sys.exit(main())
