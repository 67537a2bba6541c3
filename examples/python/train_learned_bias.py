"""A GPT block whose attention has a learned slope per head, trained on packed documents.

    PYTHONPATH=python python examples/python/train_learned_bias.py [--steps 200]

Runs on a GPU by attnc's kernels, and without one by the reference (take a few steps then). The attention is
a spec; the slopes get their gradients from the backward kernel. Prints the loss.
"""

import argparse

import torch

import attn
import attn.torch

SPEC = """
attention packed_alibi {
  dims    B, Hq, Sq, D;
  tensor  doc: i32[B, Skv] monotone;
  learn   slopes: f32[Hq];
  score   score + slopes[h] * (kv_idx - q_idx);
  mask    doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx;
}
"""


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )
        self.slopes = torch.nn.Parameter(2.0 ** -torch.arange(1, heads + 1))
        self.attend = attn.compile(SPEC)

    def forward(self, x: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))  # [B, S, 3, H, D]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # strided views: nothing is copied
        o = self.attend(q, k, v, doc=doc, slopes=self.slopes)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Model(torch.nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, doc)
        return self.head(x)


def packed(batch: int, length: int, words: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [B, S] and the document of each [B, S]: documents repeat a short pattern of their own."""
    document = torch.arange(length, device=device) // 64
    first = torch.randint(words, (batch, int(document[-1]) + 1), device=device)
    place = torch.arange(length, device=device) % 5
    tokens = (first[:, document] + place * (1 + first[:, document] % 7)) % words
    return tokens, document.int().expand(batch, -1).contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    words = 64
    model = Model(words, width=128, heads=2, layers=2).to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(arguments.steps):
        tokens, doc = packed(4, arguments.length, words, arguments.device)
        with torch.autocast(arguments.device, dtype=torch.bfloat16):
            logits = model(tokens, doc)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == arguments.steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
