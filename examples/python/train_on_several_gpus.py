"""A GPT on packed documents whose rows are divided among GPUs: context parallelism, of any mask.

    PYTHONPATH=python torchrun --nproc-per-node 2 examples/python/train_on_several_gpus.py [--length 131072]

Each process has the tokens `sharded.rows` of the sequence: embeddings, norms, linear layers and the loss need
no others. Only the attention does, and it is one call. Without GPUs (gloo), the reference computes; take a
small --length then.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

import attn
import attn.torch

SPEC = """
attention documents {
  dims    B, Hq, Hkv, Sq, D;
  tensor  doc: i32[B, Skv] monotone;
  mask    doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx;
}
"""
HEADS, KEY_HEADS, DEPTH, WORDS = 8, 2, 64, 512


class Block(torch.nn.Module):
    def __init__(self, attention: attn.torch.Distributed):
        super().__init__()
        width = HEADS * DEPTH
        self.attention = attention  # the layers share it, and its memory
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, (HEADS + 2 * KEY_HEADS) * DEPTH)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm(x)).unflatten(-1, (-1, DEPTH)).transpose(1, 2)  # [B, H, rows, D]
        q, k, v = qkv.split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        o = self.attention(q, k, v, doc=doc)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Model(torch.nn.Module):
    def __init__(self, attention: attn.torch.Distributed, length: int, layers: int):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, HEADS * DEPTH)
        self.places = torch.nn.Embedding(length, HEADS * DEPTH)
        self.blocks = torch.nn.ModuleList(Block(attention) for _ in range(layers))
        self.head = torch.nn.Linear(HEADS * DEPTH, WORDS)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x, doc)
        return self.head(x)


def packed(length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens that count up from a random one in each document, and the number of each token's document."""
    ends = torch.randint(1, length, (max(1, length // 512),), device=device).sort().values
    places = torch.arange(length, device=device)
    doc = torch.bucketize(places, ends, right=True)
    first = torch.randint(WORDS, (len(ends) + 1,), device=device)
    return (first[doc] + places).remainder(WORDS)[None], doc.int()[None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    sharded = attn.torch.distribute(SPEC, B=1, Hq=HEADS, Hkv=KEY_HEADS, Sq=arguments.length, D=DEPTH)
    torch.manual_seed(0)  # the same model and tokens everywhere
    model = Model(sharded, arguments.length, arguments.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks: {sharded.sharding}")
    for step in range(arguments.steps):
        tokens, doc = packed(arguments.length + 1, device)
        doc = doc[:, :-1].contiguous()  # whole: any row may ask for any key's document
        mine, target = sharded.shard(tokens[:, :-1], dim=1), sharded.shard(tokens[:, 1:], dim=1)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(mine, sharded.rows, doc)
        loss = F.cross_entropy(logits[0].float(), target[0], reduction="sum") / arguments.length
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # of all rows
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0 and (step % 5 == 0 or step == arguments.steps - 1):
            print(f"step {step}: loss {total.item():.3f}")
    sharded.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
