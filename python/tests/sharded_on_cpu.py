"""One of the processes of test_torch_sharded.py: flex_attention of DTensors, and of parameters that FSDP divides, by
gloo and the reference."""

import copy
import datetime
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.attention.flex_attention import create_block_mask

import attn
import attn.torch
from attn.torch import flex_attention

B, HEADS, HEADS_KV, S, D = 4, 4, 2, 24, 8
DOC = (torch.arange(S) // 7).expand(B, S) + torch.arange(B)[:, None] * (torch.arange(S) > 9)
BIAS = torch.randn(B, HEADS, S, S, generator=torch.Generator().manual_seed(3)).requires_grad_()


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def documents(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (DOC[b, q_idx] == DOC[b, kv_idx]) & (h + kv_idx >= 1)


def biased(score, b, h, q_idx, kv_idx):
    return score * (b + 1) + BIAS[b, h, q_idx, kv_idx]


def whole(batches_kv=B, heads_kv=HEADS_KV):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*sizes, S, D, generator=generator)
            for sizes in ((B, HEADS), (batches_kv, heads_kv), (batches_kv, heads_kv))]


def gradients(o, leaves):
    weights = torch.randn(o.shape, generator=torch.Generator().manual_seed(2))
    if isinstance(o, DTensor):
        weights = distribute_tensor(weights, o.device_mesh, o.placements)
    found = torch.autograd.grad((o * weights).sum(), leaves)
    return [x.full_tensor() if isinstance(x, DTensor) else x for x in found]


def check(mesh, placements, options, tensors=None, of_kv=None):
    """Compares outputs and gradients with those of whole tensors."""
    tensors = whole() if tensors is None else tensors
    places = (placements, of_kv or placements, of_kv or placements)
    plain = [x.clone().requires_grad_() for x in tensors]
    divided = [distribute_tensor(x, mesh, place).requires_grad_() for x, place in zip(tensors, places)]
    learned = [BIAS] if options.get("score_mod") is biased else []
    expected = flex_attention(*plain, enable_gqa=True, return_lse=True, **options)
    for _ in range(2):
        found = flex_attention(*divided, enable_gqa=True, return_lse=True, **options)
        for one, other in zip(found, expected):
            assert isinstance(one, DTensor) and one.placements == tuple(placements)
            torch.testing.assert_close(one.full_tensor(), other)
    for one, other in zip(gradients(found[0], [*divided, *learned]), gradients(expected[0], [*plain, *learned])):
        torch.testing.assert_close(one, other)


def check_captured(mesh):
    """A DTensor that a mod captures, with its gradient."""
    whole_bias = torch.randn(HEADS, generator=torch.Generator().manual_seed(4)).requires_grad_()
    tensors = whole(heads_kv=HEADS)
    for placement in (Shard(0), Replicate()):
        bias = distribute_tensor(whole_bias.detach(), mesh, [placement]).requires_grad_()

        def mod(score, b, h, q_idx, kv_idx, bias=bias):
            return score + bias[h] * (kv_idx - q_idx)

        expected = flex_attention(*tensors, lambda score, b, h, i, j: score + whole_bias[h] * (j - i))
        found = flex_attention(*(distribute_tensor(x, mesh, [Shard(1)]) for x in tensors), mod)
        torch.testing.assert_close(found.full_tensor(), expected)
        for one, other in zip(gradients(found, [bias]), gradients(expected, [whole_bias])):
            torch.testing.assert_close(one, other)
        try:
            flex_attention(*tensors, mod)
        except attn.UnsupportedError as error:
            assert "bias is a DTensor" in str(error)
        else:
            raise AssertionError("a DTensor beside tensors")


def check_compiled(mesh):
    q = distribute_tensor(whole()[0], mesh, [Shard(1)])
    try:
        torch.compile(lambda q: flex_attention(q, q, q), fullgraph=True, backend="aot_eager")(q)
    except torch._dynamo.exc.Unsupported as error:
        assert "torch.compile does not follow here" in str(error)
    else:
        raise AssertionError("a DTensor in a graph")


def check_refusals(mesh):
    q, k, v = (distribute_tensor(x, mesh, [Shard(0)]) for x in whole())
    refusals = [
        ((q, k.full_tensor(), v), "key is no DTensor"),
        ((q, k.redistribute(placements=[Shard(1)]), v), "but key"),
        (tuple(x.redistribute(placements=[Shard(2)]) for x in (q, k, v)), "divided by batches"),
        (tuple(distribute_tensor(x[:3], mesh, [Shard(0)]) for x in whole()), "no 2 equal parts"),
        ((DTensor.from_local(whole()[0], mesh, [Partial()]), k, v), "divided by batches"),
    ]
    for tensors, message in refusals:
        try:
            flex_attention(*tensors, enable_gqa=True)
        except attn.Error as error:
            assert message in str(error), (message, str(error))
        else:
            raise AssertionError(message)


class Layer(torch.nn.Module):
    """Attention with a learned bias, which a mod captures."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(HEADS * D, 3 * HEADS * D)
        self.bias = torch.nn.Parameter(torch.randn(HEADS, 2 * S))

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, D)).permute(2, 0, 3, 1, 4)
        o = flex_attention(q, k, v, lambda score, b, h, i, j: score + self.bias[h, i - j + S], mask_mod=causal)
        return o.transpose(1, 2).flatten(2)


class Compiled(Layer):
    """The same with a module of the package, whose parameter is that which its mod captures."""

    def __init__(self):
        super().__init__()
        bias = self.bias
        del self.bias
        self.attention = attn.torch.Attention(
            score_mod=lambda score, b, h, i, j: score + bias[h, i - j + S], mask_mod=causal,
            B=2, Hq=HEADS, Sq=S, D=D)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, D)).permute(2, 0, 3, 1, 4)
        return self.attention(q, k, v).transpose(1, 2).flatten(2)


def check_fsdp(mesh, kind):
    """A step of training, of parameters that FSDP divides among the processes, is that of whole ones."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(5)
    model = kind()
    divided = fully_shard(copy.deepcopy(model), mesh=mesh)
    x = torch.randn(2, S, HEADS * D)
    for step in range(2):
        for each in (model, divided):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
            each(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    names = dict(model.named_parameters())
    for name, parameter in divided.named_parameters():
        assert isinstance(parameter, DTensor)
        torch.testing.assert_close(parameter.full_tensor(), names[name])


def run(rank, size, path):
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))
    try:
        mesh = init_device_mesh("cpu", (size,))
        block_mask = create_block_mask(documents, B, HEADS, S, S, device="cpu", BLOCK_SIZE=8)
        for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
            for options in ({}, {"mask_mod": causal}, {"score_mod": biased, "mask_mod": documents},
                            {"score_mod": biased, "block_mask": block_mask},
                            {"block_mask": create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=8)}):
                check(mesh, placements, options)
        check(mesh, [Shard(1)], {"score_mod": biased}, whole(heads_kv=1), [Replicate()])
        check(mesh, [Shard(0)], {"score_mod": biased}, whole(batches_kv=1), [Replicate()])
        for shape in ((size, 1), (1, size)):
            check(init_device_mesh("cpu", shape), [Shard(0), Shard(1)], {"score_mod": biased, "mask_mod": documents})
        check_captured(mesh)
        check_compiled(mesh)
        check_refusals(mesh)
        for kind in (Layer, Compiled):
            check_fsdp(mesh, kind)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
