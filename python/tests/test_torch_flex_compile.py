"""attn.torch.flex_attention in programs that torch.compile and torch.export trace: no graph break, and the numbers of
an ordinary call."""

import functools

import pytest

torch = pytest.importorskip("torch")
import torch._dynamo.testing  # noqa: E402

from torch.nn.attention.flex_attention import AuxRequest, create_block_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402
from attn.torch import dynamo  # noqa: E402
from attn.trace import trace  # noqa: E402
from attn.tracing.recipes import sources  # noqa: E402
from mods import MODS, B, H, S  # noqa: E402

flex_attention = attn.torch.flex_attention


def qkv(batch=2, heads=4, key_heads=4, rows=12, keys=12, depth=8, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(batch, n, length, depth, generator=generator, dtype=dtype).requires_grad_()
            for n, length in ((heads, rows), (key_heads, keys), (key_heads, keys))]


def same(run, compiled, leaves, *args):
    """Outputs and gradients of a function, and of it compiled."""
    found, wanted = compiled(*args), run(*args)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(x.square().sum(), leaves, allow_unused=True) for x in (found, wanted)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", MODS)
def test_mods(name):
    score_mod, mask_mod = MODS[name]()
    known = trace(score_mod, mask_mod, B=B, Hq=H, Hkv=H // 2, Sq=S, Skv=S, Dqk=8, Dv=8)
    captured = [source.value for each in known.learned for source in sources(known.recipes[each])]
    q, k, v = qkv(B, H, H // 2, S, S)

    def run(q, k, v):
        return flex_attention(q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True)

    same(run, traced(run), [q, k, v, *{id(x): x for x in captured}.values()], q, k, v)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0], dtype=torch.float64, requires_grad=True)


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def test_mods_of_the_program():
    """That capture what the program computes, with gradients."""
    def run(q, k, v, weights, shift):
        table = weights.exp()

        def near(score, b, h, q_idx, kv_idx):
            return score + torch.softmax(table, 0)[h] * (kv_idx - q_idx) + SLOPES.sum() * q_idx * kv_idx

        return flex_attention(q, k, v, near, mask_mod=lambda b, h, i, j: i + shift >= j)

    q, k, v = qkv()
    weights = torch.randn(4, dtype=torch.float64, requires_grad=True)
    same(run, traced(run), [q, k, v, weights, SLOPES], q, k, v, weights, torch.tensor(2))


class Layer(torch.nn.Module):
    """As a model has it: a mod that is a method, and a block mask from outside."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(32, 96, dtype=torch.float64)
        self.slopes = torch.nn.Parameter(torch.linspace(0, 1, 4, dtype=torch.float64))

    def bias(self, score, b, h, q_idx, kv_idx):
        return score + self.slopes[h] * (kv_idx - q_idx)

    def forward(self, x, block_mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        o = flex_attention(q, k, v, score_mod=self.bias, block_mask=block_mask)
        return x + o.transpose(1, 2).flatten(2)


def block_mask_of(rows, keys=None, mask_mod=causal):
    return create_block_mask(mask_mod, None, None, rows, keys or rows, device="cpu", BLOCK_SIZE=16)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_a_layer(backend):
    model, x = Layer(), torch.randn(2, 40, 32, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    same(model, compiled, list(model.parameters()), x, block_mask_of(40))


def test_sizes_that_change():
    """Are compiled once, if a mod computes with none of them."""
    torch._dynamo.reset()
    counts = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    documents = torch.arange(64) // 9

    def run(q, k, v, of):
        return flex_attention(q, k, v, alibi, mask_mod=lambda b, h, i, j: (of[i] == of[j]) & (i >= j))

    compiled = torch.compile(run, backend=counts, fullgraph=True, dynamic=True)
    seen = []
    for batch, rows in ((2, 12), (3, 19), (2, 33)):
        q, k, v = qkv(batch, rows=rows, keys=rows)
        same(run, compiled, [q, k, v], q, k, v, documents[:rows])
        seen.append(counts.frame_count)
    assert seen[0] == seen[-1]


def test_sizes_that_mods_compute_with():
    def run(q, k, v):
        return flex_attention(q, k, v, mask_mod=lambda b, h, i, j: i + (k.shape[2] - q.shape[2]) >= j)

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows, keys in ((12, 12), (5, 19), (7, 33)):
        q, k, v = qkv(rows=rows, keys=keys)
        same(run, compiled, [q, k, v], q, k, v)


def test_block_masks_of_lengths_that_change():
    torch._dynamo.reset()
    counts = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(flex_attention, backend=counts, fullgraph=True, dynamic=True)
    seen = []
    for rows in (40, 77, 99):
        q, k, v = qkv(rows=rows, keys=rows)
        torch.testing.assert_close(compiled(q, k, v, block_mask=block_mask_of(rows)),
                                   flex_attention(q, k, v, mask_mod=causal))
        seen.append(counts.frame_count)
    assert seen[0] == seen[-1]


def test_aux():
    def run(q, k, v):
        o, aux = flex_attention(q, k, v, alibi, mask_mod=causal, return_aux=AuxRequest(lse=True, max_scores=True))
        return o * aux.lse[..., None] + aux.max_scores[..., None]

    q, k, v = qkv()
    same(run, traced(run), [q, k, v, SLOPES], q, k, v)


def test_exported():
    class Model(Layer):
        def forward(self, x):
            return super().forward(x, block_mask)

    block_mask, model, x = block_mask_of(40), Model(), torch.randn(2, 40, 32, dtype=torch.float64)
    for strict in (True, False):
        with torch.no_grad():
            program = torch.export.export(model, (x,), strict=strict)
            torch.testing.assert_close(program.module()(x), model(x))
        assert any(node.target is torch.ops.attn.forward.default for node in program.graph.nodes)


def test_selective_checkpointing():
    """Saves what the operator gave, and computes the rest again."""
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    calls = []

    def policy(context, operator, *args, **kwargs):
        calls.append(operator)
        saves = operator is torch.ops.attn.forward.default
        return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    q, k, v = qkv()

    def run(q, k, v):
        return flex_attention(q * 2, k, v, alibi, mask_mod=causal)

    def checkpointed(q, k, v):
        return checkpoint(run, q, k, v, use_reentrant=False, context_fn=contexts)

    same(run, traced(checkpointed), [q, k, v], q, k, v)
    same(run, checkpointed, [q, k, v], q, k, v)
    assert torch.ops.attn.forward.default in calls


def test_autocast():
    q, k, v = qkv(dtype=torch.float32)

    def run(q, k, v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return flex_attention(q, k, v, mask_mod=causal)

    assert traced(run)(q, k, v).dtype == torch.bfloat16
    torch.testing.assert_close(traced(run)(q, k, v), run(q, k, v))


def test_dropout_is_drawn():
    q, k, v = qkv()
    run = traced(lambda q, k, v: flex_attention(q, k, v, dropout_p=0.5))
    assert not torch.equal(run(q, k, v), run(q, k, v))


def test_what_cannot_be_traced_is_said():
    q, k, v = qkv()
    run = traced(lambda q, k, v: flex_attention(q, k, v, lambda score, b, h, i, j: torch.sort(score)[0]))
    with pytest.raises(Exception, match="`sort`") as caught:
        run(q, k, v)
    assert "test_torch_flex_compile.py" in str(caught.value)


def test_arguments_that_do_not_fit_are_said():
    """Also where the graph may break: then as without torch.compile."""
    q, k, v = qkv(rows=40, keys=40)
    short, whole = block_mask_of(32), block_mask_of(40)
    for words, call in {
        "block_mask is of 32 rows and 32 keys": lambda q: flex_attention(q, k, v, block_mask=short),
        "pass enable_gqa=True": lambda q: flex_attention(q, k[:, :1], v[:, :1]),
        "block_mask and mask_mod were both given": lambda q: flex_attention(q, k, v, block_mask=whole, mask_mod=causal),
        "block_mask is a slice of another one": lambda q: flex_attention(q, k, v, block_mask=whole[:, :, 1:]),
        r"give x.transpose\(1, 2\) of others": lambda q: flex_attention(q[0], k, v),
    }.items():
        with pytest.raises(attn.BindingError, match=words):
            call(q)
        with pytest.raises(torch._dynamo.exc.Unsupported, match=words):
            traced(call)(q)
        with pytest.raises(attn.BindingError, match=words):
            traced(call, fullgraph=False)(q)


def test_other_versions_of_pytorch_break_the_graph(monkeypatch):
    monkeypatch.setattr(dynamo, "VERSIONS", ((1, 0), (1, 13)))
    from torch._dynamo.variables import higher_order_ops

    monkeypatch.delitem(higher_order_ops._hop_name_to_variable_class, dynamo.NAME, raising=False)
    q, k, v = qkv()
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: flex_attention(*x, alibi, mask_mod=causal) * 2, backend="eager")
    torch.testing.assert_close(compiled(q, k, v), flex_attention(q, k, v, alibi, mask_mod=causal) * 2)


def test_the_names_of_pytorch_that_are_not_public_are_there():
    assert dynamo.is_supported()
    from torch._dynamo.variables import higher_order_ops

    for name in ("TorchHigherOrderOperatorVariable", "discard_graph_changes", "speculate_subgraph", "unimplemented",
                 "VariableTracker", "_hop_name_to_variable_class"):
        assert hasattr(higher_order_ops, name)


@pytest.mark.parametrize("batch, rows, keys", [(0, 5, 6), (2, 0, 6), (2, 5, 0), (0, 0, 0)])
def test_without_a_batch_a_row_or_a_key(batch, rows, keys):
    q, k, v = qkv(batch, rows=rows, keys=keys)

    def run(q, k, v):
        return flex_attention(q, k, v, alibi, mask_mod=causal)

    same(run, traced(run), [q, k, v, SLOPES], q, k, v)
    found = torch.vmap(lambda q: run(q, k, v))(torch.stack([q, q]))
    torch.testing.assert_close(found, torch.stack([run(q, k, v)] * 2))
    if batch and rows:  # torch.export takes no inputs without elements as they are
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return flex_attention(q, k, v, mask_mod=causal)

        torch._dynamo.reset()
        for strict in (True, False):
            with torch.no_grad():
                program = torch.export.export(Model(), (q, k, v), strict=strict)
                torch.testing.assert_close(program.module()(q, k, v), flex_attention(q, k, v, mask_mod=causal))
