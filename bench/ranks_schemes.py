"""Ring attention and Ulysses of attnc's own plans, over torch.distributed: what ranks.py compares with.

Each scheme has this rank's rows as `own`, and runs `forward(q, k, v)` and, after it, `backward(do)`, of tensors
[1, H, rows, D] that are views of bshd memory. Kernels are those of attnc; transport and merging are PyTorch's,
as in ring-flash-attention and DeepSpeed-Ulysses.
"""
import ranks_plans
import torch
import torch.distributed as dist
from attn.torch.variant import Pair

from attn import _libattn


def load(contents, device):
    places = {info.direction: place for place, info in enumerate(_libattn.PlanFile(contents).plans)}
    return Pair(contents, places, device)


def merge(o, lse, o_part, lse_part):
    """Merges o in f32 and lse with those of other keys; lse is -inf where a row sees none of them."""
    top = torch.maximum(lse, lse_part)
    top = torch.where(top == -torch.inf, 0.0, top)
    weight, weight_part = torch.exp(lse - top), torch.exp(lse_part - top)
    total = weight + weight_part
    scale = torch.where(total > 0, 1 / total, 0.0)
    merged = (weight * scale)[..., None] * o + (weight_part * scale)[..., None] * o_part.float()
    return merged, top + torch.log(total)


class Merging:
    """`merge` as one kernel, by torch.compile, or as PyTorch's operators where that fails."""

    def __init__(self):
        self.call, self.error = torch.compile(merge, dynamic=True), ""

    def __call__(self, *tensors):
        try:
            return self.call(*tensors)
        except Exception as error:  # any: of Dynamo, Inductor, Triton or a C compiler
            if self.call is merge:
                raise
            self.call, self.error = merge, f"{type(error).__name__}: {error}".splitlines()[0]
            return merge(*tensors)


class Ulysses:
    """Rows are exchanged for heads, so that a rank has all rows of some heads."""

    def __init__(self, case, folder, device, values):
        (plan,) = ranks_plans.plans_of(case, "ulysses")
        self.pair = load(ranks_plans.read(folder, plan), device)
        self.values, self.ranks = values, case.ranks
        part = case.size // case.ranks
        self.own = torch.arange(dist.get_rank() * part, (dist.get_rank() + 1) * part, device=device)

    def to_heads(self, x):
        """[1, H, rows, D] -> [1, H / ranks, all rows, D]."""
        rows, heads, depth = x.shape[2], x.shape[1], x.shape[3]
        sent = x[0].transpose(0, 1).reshape(rows, self.ranks, heads // self.ranks, depth)
        sent = sent.transpose(0, 1).contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        return received.view(1, self.ranks * rows, heads // self.ranks, depth).transpose(1, 2)

    def to_rows(self, x):
        """Back."""
        heads, rows, depth = x.shape[1], x.shape[2] // self.ranks, x.shape[3]
        sent = x[0].transpose(0, 1).contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        received = received.view(self.ranks, rows, heads, depth).transpose(0, 1)
        return received.reshape(1, rows, self.ranks * heads, depth).transpose(1, 2)

    def forward(self, q, k, v):
        given = {"q": self.to_heads(q), "k": self.to_heads(k), "v": self.to_heads(v), **self.values}
        found = self.pair.run_forward(given, {})
        self.saved = {**given, "o": found["o"], "lse": found["lse"]}
        return self.to_rows(found["o"])

    def backward(self, d_o):
        found = self.pair.run_backward({**self.saved, "do": self.to_heads(d_o)}, {})
        return tuple(self.to_rows(found[name]) for name in "qkv")


class Ring:
    """k and v go round; each step computes what its rows see of them, while the next ones arrive. Rows are
    contiguous, or, if the mask is causal, an early and a late chunk: then ranks have the same work."""

    def __init__(self, case, folder, device, values):
        self.rank, self.ranks, self.values = dist.get_rank(), case.ranks, values
        self.zigzag = case.mask == "causal"
        self.merge = Merging()
        part = case.size // case.ranks
        self.half = part // 2
        numbers = torch.arange(case.size, device=device)
        if self.zigzag:
            chunks = numbers.view(2 * case.ranks, self.half)
            self.own = torch.cat([chunks[self.rank], chunks[2 * case.ranks - 1 - self.rank]])
        else:
            self.own = numbers[self.rank * part : (self.rank + 1) * part]
        self.pairs = {}
        for plan in ranks_plans.plans_of(case, "ring"):
            key = plan.name.rpartition("_ring_")[2].partition("_")[2]
            if self.zigzag or key.startswith(f"{self.rank}_"):
                self.pairs[key] = load(ranks_plans.read(folder, plan), device)

    def step(self, source):
        """The plan for the keys of a rank, which rows and keys it takes, or None if they see nothing."""
        everything, early, late = slice(None), slice(0, self.half), slice(self.half, None)
        if not self.zigzag:
            return self.pairs.get(f"{self.rank}_{source}"), everything, everything
        if source == self.rank:
            return self.pairs["own"], everything, everything
        if source < self.rank:
            return self.pairs["early"], everything, early
        return self.pairs["late"], late, everything

    def pass_on(self, tensors):
        """Sends them to the next rank, and returns those of the one before, and what to wait for."""
        received = [torch.empty_like(each) for each in tensors]
        following, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        work = dist.batch_isend_irecv([
            *(dist.P2POp(dist.isend, each, following) for each in tensors),
            *(dist.P2POp(dist.irecv, each, before) for each in received)])
        return received, work

    def steps(self, k, v):
        """(source, k, v) of each step; the next k and v are under way meanwhile."""
        for step in range(self.ranks):
            last = step == self.ranks - 1
            received, work = ([k, v], []) if last else self.pass_on([k, v])
            yield (self.rank - step) % self.ranks, k, v
            for each in work:
                each.wait()
            k, v = received

    def forward(self, q, k, v):
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
        o = lse = None
        for source, k_now, v_now in self.steps(dense(k), dense(v)):
            pair, rows, keys = self.step(source)
            if pair is None:
                continue
            k_seen, v_seen = (view(x)[:, :, keys] for x in (k_now, v_now))
            found = pair.run_forward({"q": q[:, :, rows], "k": k_seen, "v": v_seen, **self.values}, {})
            if o is None:
                o, lse, first = found["o"].float(), found["lse"], found["o"]
            else:
                o[:, :, rows], lse[:, :, rows] = self.merge(o[:, :, rows], lse[:, :, rows], found["o"], found["lse"])
                first = None
        o = first if first is not None else o.to(q.dtype)
        self.saved = q, k, v, o, lse
        return o

    def backward(self, d_o):
        q, k, v, o, lse = self.saved
        d_q = torch.zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3], device=q.device).transpose(1, 2)
        sums, work = None, []  # dk and dv of the keys at hand, which travel behind them
        for step, (source, k_now, v_now) in enumerate(self.steps(dense(k), dense(v))):
            pair, rows, keys = self.step(source)
            found = None
            if pair is not None:
                given = {"q": q[:, :, rows], "o": o[:, :, rows], "do": d_o[:, :, rows],
                         "lse": lse[:, :, rows].contiguous(), "k": view(k_now)[:, :, keys],
                         "v": view(v_now)[:, :, keys], **self.values}
                found = pair.run_backward(given, {})
                d_q[:, :, rows] += found["q"]
            for each in work:
                each.wait()
            if sums is None:
                sums = [torch.zeros(x.shape, device=x.device) for x in (k_now, v_now)]
            if found is not None:
                for total, name in zip(sums, "kv"):
                    view(total)[:, :, keys] += found[name]
            sums, work = self.pass_on(sums)
        for each in work:
            each.wait()
        return (d_q.to(q.dtype), *(view(each).to(q.dtype) for each in sums))


def dense(x):
    """bshd, as it is sent."""
    return x.transpose(1, 2).contiguous()


def view(x):
    return x.transpose(1, 2)


SCHEMES = {"ring": Ring, "ulysses": Ulysses}
