"""Attention.bucketed, by the reference: calls of all lengths agree with those of exact sizes."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn._libattn import Shapes  # noqa: E402

SPEC = """
attention documents {
  dims    B, Hq, Hkv, Sq, Skv, D;
  tensor  doc: i32[B, Skv] monotone;
  learn   bias: f32[Hq, Skv];
  param   cap: f32;
  align   bottom_right;
  score   cap * tanh(score / cap) + bias[h, kv_idx];
  mask    q_idx >= kv_idx && doc[b, q_idx] == doc[b, kv_idx];
  outputs o, lse;
}
"""


def inputs(rows, columns):
    generator = torch.Generator().manual_seed(rows)
    shapes = ((2, 4, rows, 16), (2, 2, columns, 16), (2, 2, columns, 16), (4, columns))
    q, k, v, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes
    )
    doc = torch.randint(0, 4, (2, columns), generator=generator).sort(1).values.int()
    return (q, k, v), {"doc": doc, "bias": bias.float().detach().requires_grad_(), "cap": 20.0}


@pytest.mark.parametrize("sizes", ((1, 1), (7, 16), (8, 9), (16, 16)))
def test_outputs_and_gradients_are_those_of_exact_sizes(sizes):
    f = attn.compile(SPEC)
    bucketed = f.bucketed(8, 16)
    tensors, others = inputs(*sizes)
    leaves = (*tensors, others["bias"])
    d_o = torch.randn((2, 4, sizes[0], 16), dtype=torch.float64)
    found = []
    for each in (f, bucketed):
        o, lse = each(*tensors, **others)
        assert o.shape == d_o.shape
        found.append([o, lse, *torch.autograd.grad(o, leaves, d_o)])
    for exact, padded in zip(*found):
        torch.testing.assert_close(padded, exact, rtol=1e-6, atol=1e-6)


CAUSAL = "attention causal { dims B, Hq, Sq, D; mask q_idx >= kv_idx; }"


def test_calls_are_padded_to_the_least_lengths(monkeypatch):
    asked, padded = [], []
    choose = Shapes.choose
    monkeypatch.setattr(Shapes, "choose", lambda self, sizes: asked.append(sizes) or choose(self, sizes))
    f = attn.compile(CAUSAL).bucketed(Sq=[64, 8], Skv=[16, 32])
    f.attention = lambda q, k, v, **_: padded.append((q.shape[2], k.shape[2])) or q
    lengths = ((1, 1), (8, 17), (9, 16), (0, 32), (64, 32), (9, 16), (1, 1))
    for rows, columns in lengths:
        q, k = torch.ones(1, 1, rows, 8), torch.ones(1, 1, columns, 8)
        assert torch.equal(f(q, k, k), q)
    assert padded == [(8, 16), (8, 32), (64, 16), (8, 32), (64, 32), (64, 16), (8, 16)]
    assert len(asked) == 9, "lengths of an axis that come again do not ask again"
    assert sum(len(shapes._shapes) for shapes in f._shapes.values()) == 4, "one for each length, not each pair"


@pytest.mark.parametrize("sizes", ({"B": 1, "Sq": 2**64 + 1, "Skv": 1}, {"B": 1, "S": 1}, {"Sq": -1}))
def test_no_size_is_cut_or_left_out(sizes):
    with pytest.raises(attn.ArgumentError, match="is no size of a plan"):
        Shapes([{"B": 1, "Sq": 8, "Skv": 8}]).choose(sizes)


def test_a_compiled_program_pads_too():
    f = attn.compile(CAUSAL).bucketed(8, 16)
    compiled = torch.compile(lambda q: f(q, q, q) * 2, backend="eager")
    for rows in (5, 8, 11):
        q = torch.randn(1, 2, rows, 8)
        torch.testing.assert_close(compiled(q), f(q, q, q) * 2)


def test_given_lengths_are_kept():
    f = attn.compile("attention padded { dims B, Hq, Sq, D; lengths kv; mask q_idx >= kv_idx; }")
    q = torch.randn(2, 1, 11, 8)
    lengths = torch.tensor([3, 11], dtype=torch.int32)
    expected = f(q, q, q, lengths_kv=lengths)
    found = f.bucketed(Sq=[11, 12], Skv=[64])(q, q, q, lengths_kv=lengths)
    torch.testing.assert_close(found, expected)


def test_a_length_beyond_the_buckets_is_refused():
    f = attn.compile(CAUSAL).bucketed(8, 4)
    assert repr(f) == "<attn.torch.Bucketed causal(Sq=[4, 8], Skv=[4, 8])>"
    q = torch.randn(1, 1, 9, 8)
    with pytest.raises(attn.BindingError, match="Sq is 9, and the largest bucket of `causal` 8"):
        f(q, q, q)


@pytest.mark.parametrize("clause", (
    "mask kv_idx < Skv - 1;", "scale 1 / Sq;", "let n = Skv; mask kv_idx < n;",
    "tensor t: f32[Skv + 1]; score t[kv_idx];", "mask any(j in 0..Skv: j == kv_idx);",
))
def test_what_padding_would_change_is_refused(clause):
    f = attn.compile(f"attention reads {{ dims B, Hq, Sq = 8, Skv = 8, D; {clause} }}")
    with pytest.raises(attn.ArgumentError, match="in an expression, which padding would change"):
        f.bucketed(64)


def test_lengths_of_runs_and_unknown_functions_are_refused(tmp_path):
    f = attn.compile(
        "attention limited { dims B, Hq, Sq, D; tensor d: i32[B, Skv] monotone runs(8, 8);"
        " mask d[b, q_idx] == d[b, kv_idx]; }"
    )
    with pytest.raises(attn.ArgumentError, match="d has runs of a limited length"):
        f.bucketed(64)
    (tmp_path / "tail.attn").write_text("fn tail(n) = kv_idx >= Skv - n;")
    path = tmp_path / "imports.attn"
    path.write_text('import "tail.attn";\nattention imports { dims B, Hq, Sq, D; mask tail(4); }')
    with pytest.raises(attn.ArgumentError, match="reads Skv in an expression"):
        attn.compile(path).bucketed(64)


def test_the_standard_library_reads_no_length():
    for path in (attn.specs._find.specs_folder() / "lib").glob("*.attn"):
        code = [line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines()]
        assert not any("Sq" in line or "Skv" in line for line in code), path.name
    text = 'import "masks.attn";\nattention near { dims B, Hq, Sq, D; mask window(4); }'
    q = torch.randn(1, 1, 9, 8)
    f = attn.compile(text)
    torch.testing.assert_close(f.bucketed(16)(q, q, q), f(q, q, q))


def test_wrong_buckets():
    f = attn.compile("causal")
    for lengths in ((), (0, 8), (8.5,)):
        with pytest.raises(attn.ArgumentError, match="must have buckets, which are positive integers"):
            f.bucketed(*lengths)
    with pytest.raises(attn.ArgumentError, match="serve all lengths"):
        attn.compile("thd").bucketed(64)
