"""One of the two processes of test_distributed.py: PyTorch's gloo, and the reference of attnc."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

import attn
import attn.torch

SIZES = {"B": 2, "Hq": 4, "Hkv": 2, "Sq": 48, "D": 16}
SPEC = """attention documents {
  dims    B, Hq, Hkv, Sq, D;
  tensor  doc: i32[B, Skv];
  learn   slopes: f32[Hq];
  param   cap: f32;
  score   cap * tanh(score / cap) + slopes[h] * (kv_idx - q_idx);
  mask    q_idx >= kv_idx && doc[b, q_idx] == doc[b, kv_idx];
  outputs o, lse;
}
"""
CROSS = "attention cross { dims B = 1, Hq = 2, Hkv = 2, Sq = 20, Skv = 64, D = 16; mask kv_idx < 2 * q_idx + 20; }"

DROPOUT = "attention d { dims B = 1, Hq = 2, Hkv = 2, Sq = 64, D = 16; mask q_idx >= kv_idx; dropout 0.3; }"


class Passing(TorchDispatchMode):
    """Sees operators, and does nothing about them."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def leaves(sharded, *tensors):
    return [sharded.shard(x.detach()).clone().requires_grad_() for x in tensors]


def same(sharded, tensor, whole, dim=2, of=None):
    torch.testing.assert_close(tensor, sharded.shard(whole, dim, of), rtol=0, atol=1e-12)


def check_gradients():
    f = attn.compile(SPEC)
    torch.manual_seed(0)
    q, k, v, d_o = (torch.randn(2, h, 48, 16, dtype=torch.float64) for h in (4, 2, 2, 4))
    inputs = {"doc": (torch.arange(48) // 13).int().expand(2, 48), "cap": 20.0}
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    slopes = torch.linspace(0, 1, 4, dtype=torch.float64).requires_grad_()
    o, lse = f(*whole, **inputs, slopes=slopes)
    expected = torch.autograd.grad(o, (*whole, slopes), d_o)

    sharded = attn.torch.distribute(f, **SIZES)
    assert attn.torch.distribute(f, **SIZES) is sharded
    assert len(sharded.rows) == len(sharded.keys) == 24
    for mode in (None, Passing()):
        mine = leaves(sharded, q, k, v)
        if mode is None:
            found, found_lse = sharded(*mine, **inputs, slopes=slopes)
            gradients = torch.autograd.grad(found, (*mine, slopes), sharded.shard(d_o))
        else:
            with mode:
                found, found_lse = sharded(*mine, **inputs, slopes=slopes)
                gradients = torch.autograd.grad(found, (*mine, slopes), sharded.shard(d_o))
            for direction in ("forward", "backward"):
                assert f"attn.distributed_{direction}.default" in mode.seen
        same(sharded, found, o.detach())
        same(sharded, found_lse, lse.detach())
        for gradient, wanted in zip(gradients, expected[:3]):
            same(sharded, gradient, wanted)
        torch.testing.assert_close(gradients[3], expected[3], rtol=0, atol=1e-12)
    torch.testing.assert_close(sharded.unshard(found), o.detach(), rtol=0, atol=1e-12)

    through = attn.compile(SPEC.replace("outputs", "grad q, k, v, slopes, lse; outputs"))
    d_lse = torch.randn(2, 4, 48, dtype=torch.float64)
    expected = torch.autograd.grad(through(*whole, **inputs, slopes=slopes), (*whole, slopes), (d_o, d_lse))
    sharded = attn.torch.distribute(through, **SIZES)
    mine = leaves(sharded, q, k, v)
    found = sharded(*mine, **inputs, slopes=slopes)
    gradients = torch.autograd.grad(found, (*mine, slopes), (sharded.shard(d_o), sharded.shard(d_lse)))
    for gradient, wanted in zip(gradients, expected[:3]):
        same(sharded, gradient, wanted)
    torch.testing.assert_close(gradients[3], expected[3], rtol=0, atol=1e-12)
    # One rank alone reaches lse.
    found = sharded(*mine, **inputs, slopes=slopes)
    loss = found[sharded.rank].sum()
    assert all(x.isfinite().all() for x in torch.autograd.grad(loss, mine))


def check_captured():
    """Traced functions that differ only in the tensors that they captured are different attentions."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 1, 32, 16, dtype=torch.float64) for _ in "qkv")

    def biased(bias):
        return attn.compile(score_mod=lambda score, b, h, q, k: score + bias[k], B=1, Hq=1, Hkv=1, Sq=32, D=16)

    for f in [biased(torch.randn(32)) for _ in range(2)]:
        sharded = attn.torch.distribute(f)
        same(sharded, sharded(*(sharded.shard(x) for x in (q, k, v))), f(q, k, v))
        assert attn.torch.distribute(f) is sharded


def check_dropout():
    """The weights that the whole attention drops, of rank 0's seed."""
    f = attn.compile(DROPOUT)
    torch.manual_seed(2)
    whole = [torch.randn(1, 2, 64, 16, dtype=torch.float64).requires_grad_() for _ in "qkv"]
    numbers = {"offset": torch.tensor([5])}
    o = f(*whole, seed=torch.tensor([3]), **numbers)
    expected = torch.autograd.grad(o, whole, torch.ones_like(o))
    sharded = attn.torch.distribute(f)
    mine = leaves(sharded, *whole)
    found = sharded(*mine, seed=torch.tensor([3 + dist.get_rank()]), **numbers)
    gradients = torch.autograd.grad(found, mine, torch.ones_like(found))
    for x, wanted in zip((found, *gradients), (o.detach(), *expected)):
        same(sharded, x, wanted)


def check_values():
    """Divided for given documents, and without a rank whose loss needs the rows."""
    doc = torch.arange(48, dtype=torch.int32).expand(2, 48) // 24
    sharded = attn.torch.distribute(SPEC, values={"doc": doc}, **SIZES)
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, h, 48, 16, dtype=torch.float64) for h in (4, 2, 2))
    mine = leaves(sharded, q, k, v)
    given = {"slopes": torch.ones(4), "cap": 5.0}
    o, _ = sharded(*mine, **given)
    same(sharded, o.detach(), attn.compile(SPEC)(q, k, v, doc=doc, **given)[0])
    torch.autograd.backward(o.sum() if dist.get_rank() == 0 else (o * 0).sum())


def check_cross():
    sharded = attn.torch.distribute(CROSS, training=False)
    q, k = torch.randn(1, 2, 20, 16, dtype=torch.float64), torch.randn(1, 2, 64, 16, dtype=torch.float64)
    dist.broadcast(q, 0)
    dist.broadcast(k, 0)
    o = sharded(sharded.shard(q), sharded.shard(k), sharded.shard(k))
    same(sharded, o, attn.compile(CROSS)(q, k, k))
    assert sharded.unshard(sharded.shard(k), of="keys").equal(k)


def check_errors():
    """An error of one rank is raised on all."""
    rank = dist.get_rank()

    def refused(message, kind=attn.ArgumentError, **sizes):
        try:
            attn.torch.distribute(SPEC, **sizes)
        except kind as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)

    refused("but sizes of rank 1 and of rank 0 differ", **{**SIZES, "Sq": 48 + rank})
    refused("`documents` has no size for Sq", **(SIZES if rank == 0 else {"B": 2, "Hq": 4, "Hkv": 2, "D": 16}))
    refused("not on meta", device=("cpu", "meta")[rank], **SIZES)
    if rank == 0:
        refused("rank 1 did not come within 1 s", attn.NcclError, timeout_seconds=1, **SIZES)
    dist.barrier()


def check_steps():
    """An error of all ranks is forgotten, and that of one is remembered, also by the group's other attentions."""
    sharded = attn.torch.distribute(CROSS, timeout_seconds=1)
    other = attn.torch.distribute(CROSS, training=False, timeout_seconds=1)
    q, k, v = (sharded.shard(torch.ones(1, 2, rows, 16, dtype=torch.float64)) for rows in (20, 64, 64))
    wrong = q[:, :1]

    def refused(message, kind, call):
        try:
            call()
        except kind as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)

    def lost(_):
        raise MemoryError("what was saved")

    refused("q has shape", attn.BindingError, lambda: sharded(wrong, k, v))
    sharded(q, k, v)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lost):
        o = sharded(q.clone().requires_grad_(), k, v)
    refused("what was saved", MemoryError, lambda: o.sum().backward())
    other(q, k, v)
    if dist.get_rank() == 1:
        other.close()
        refused("was closed", attn.ArgumentError, lambda: other(q, k, v))
        for _ in range(2):
            refused("failed on rank 1, but not on rank 0 within 1 s", attn.NcclError, lambda: sharded(q, k, v))
    other.close()
    sharded.close()


def check_end():
    """Rank 1 ends, which is told to the one that waits for it."""
    if dist.get_rank() == 0:
        try:
            attn.torch.distribute(CROSS.replace("16", "32"))
        except attn.NcclError as error:
            assert error.message == "rank 1 is lost: it has ended", error
        else:
            raise AssertionError("nobody was missed")


CHECKS = (check_gradients, check_captured, check_dropout, check_values, check_cross, check_steps, check_errors,
          check_end)


def run(rank, size, store):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    timeout = datetime.timedelta(seconds=100)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timeout)
    try:
        for check in CHECKS:
            check()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
