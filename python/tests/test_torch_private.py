"""Names of PyTorch that are not public: those of the versions that the package says it is tested with."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

import attn.torch  # noqa: E402
from attn.torch import autograd, dynamo, operators, private  # noqa: E402

PACKAGE = pathlib.Path(attn.__file__).parent
FILES = {"torch/private.py", "torch/dynamo.py"}
PRIVATE = re.compile(r"torch(?:\.\w+)*\._\w+|from torch(?:\.\w+)*\._\w+ import|torch\.[\w.]*import _\w+")
# The tracer, which does not import PyTorch, compares what mods call with such names, and calls some.
WORDS = {"tracing/copies.py", "tracing/reads.py", "tracing/watching.py", "tracing/rows.py"}


def versions():
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return private.VERSIONS[0] <= (major, minor) <= private.VERSIONS[1]


def test_they_are_in_two_files():
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")
             if PRIVATE.search("\n".join(line.partition("#")[0] for line in path.read_text().splitlines()))}
    assert found - WORDS <= FILES


@pytest.mark.skipif(not versions(), reason="another version than those of private.VERSIONS")
def test_they_are_there():
    assert private.count_modes() == 0 and not private.is_transformed()
    assert private.current_stream is not None and private.exchange_capsule() is not None
    assert private.graph_state(torch.device("cpu")) is None or torch.cuda.is_available()
    assert dynamo.is_supported()
    private.assert_later(torch.tensor(True), "")
    with pytest.raises(RuntimeError, match="said"):
        private.assert_later(torch.tensor(False), "said")


def test_torch_func():
    seen = []

    def look(x):
        seen.append((private.is_transformed(), private.is_wrapped(x), private.is_tracking(x)))
        assert type(private.unwrapped(x)) is torch.Tensor
        return x.sum()

    torch.func.grad(look)(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2, 1))
    assert seen == [(True, True, True), (True, True, False)]


def test_dispatch_modes():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Mode():
        assert private.count_modes() == 1


def kernel(prefix):
    """The keys with which the operators below are called, and whether these are plain."""
    library = torch.library.Library(f"attn_test_{prefix}", "DEF")
    library.define("f(Tensor x) -> Tensor")
    seen = []
    operator = getattr(torch.ops, f"attn_test_{prefix}").f

    def below(x):
        return x + 1

    def above(keys, x):
        seen.append(private.is_plain(keys))
        return below(x) if seen[-1] else private.redispatched(operator.default, keys, x)

    library.impl("f", below, "CompositeExplicitAutograd")
    library.impl("f", above, "Autograd", with_keyset=True)
    return library, operator, seen


def test_what_sees_an_operator_below_autograd():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    library, operator, seen = kernel("plain")
    x = torch.ones(2)
    assert operator(x).tolist() == [2, 2] and seen.pop() is True
    assert operator(x.requires_grad_()).tolist() == [2, 2] and seen.pop() is True
    assert operator(torch.ones(2, device="meta")).is_meta and seen.pop() is False
    with FakeTensorMode() as mode:
        assert operator(mode.from_tensor(torch.ones(2))).shape == (2,) and seen.pop() is False
    assert "attn_test_plain.f" in make_fx(operator)(torch.ones(2)).code and seen.pop() is False
    negative = torch.ones(2, dtype=torch.complex64).conj().imag  # reads its elements negated
    assert negative.is_neg() and operator(negative).tolist() == [1, 1] and seen.pop() is False


def test_operators_call_their_kernels_at_once(monkeypatch):
    """Where nothing is recorded and nothing else sees them, autograd's kernel does not go through the dispatcher."""
    f = attn.compile("attention a { dims B, Hq, Sq, D; }")
    x = torch.randn(1, 2, 8, 8)
    again = []
    redispatched = private.redispatched
    monkeypatch.setattr(autograd.private, "redispatched",
                        lambda *args: (again.append(None), redispatched(*args))[1])
    arguments = (operators.facts_of(f).name, ["q", "k", "v"], [x, x, x], [], False)
    expected = torch.ops.attn.forward(*arguments)[0]
    assert not again
    y = x.clone().requires_grad_()
    o, lse = torch.ops.attn.forward(arguments[0], ["q", "k", "v"], [y, y, y], [], True)
    assert len(again) == 1 and torch.equal(o, expected)
    o.sum().backward()
    assert len(again) == 1 and y.grad is not None


def test_an_operator_has_no_second_derivative():
    f = attn.compile("attention a { dims B, Hq, Sq, D; }")
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    o = torch.ops.attn.forward(operators.facts_of(f).name, ["q", "k", "v"], [x, x, x], [], True)[0]
    (first,) = torch.autograd.grad(o.sum(), x, create_graph=True)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        first.sum().backward()
