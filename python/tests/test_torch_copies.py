"""Modules that hold an attention are copied, pickled, saved, and sent to other processes."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import LEARNED, learned, slopes, tensors  # noqa: E402

WAYS = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "torch.save": lambda x: saved(x),
}


def saved(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", WAYS)
def test_an_attention(way):
    f = attn.compile(learned("o, lse"))
    inputs = tensors()
    wanted = f(*inputs, slopes=slopes())
    g = WAYS[way](f)
    torch.testing.assert_close(g(*inputs, slopes=slopes()), wanted)
    assert g.spec == f.spec and g._lock is not f._lock


@pytest.mark.parametrize("way", WAYS)
def test_with_a_plan(way):
    f = attn.compile(LEARNED.format(outputs="o"), target="h200", engine="native", B=1, Hq=2, Hkv=2, Sq=64, Skv=64, D=64)
    g = WAYS[way](f)
    assert g.bytes == f.bytes and g.target == "h200" and g.plans == f.plans


@pytest.mark.parametrize("way", WAYS)
def test_buckets(way):
    f = attn.compile("attention c { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; }").bucketed(8, 16)
    inputs = tensors()
    torch.testing.assert_close(WAYS[way](f)(*inputs), f(*inputs))


TABLE = torch.randn(4, dtype=torch.float64, requires_grad=True)


def bias(score, b, h, q_idx, kv_idx):
    return score + torch.softmax(TABLE, 0)[h] * (kv_idx - q_idx) + TABLE.exp().sum() * kv_idx


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_captured_tensors_that_are_computed(way):
    f = attn.compile(score_mod=bias, B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)
    inputs = tensors()
    torch.testing.assert_close(WAYS[way](f)(*inputs), f(*inputs))


class Layer(torch.nn.Module):
    """Whose attention captures a parameter."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.attend = attn.compile(score_mod=self.bias, B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)

    def bias(self, score, b, h, q_idx, kv_idx):
        return score + self.slopes[h] * (kv_idx - q_idx)

    def forward(self, q, k, v):
        return self.attend(q, k, v)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_a_layer_has_its_own_parameters(way):
    layer, inputs = Layer(), tensors()
    other = WAYS[way](layer)
    with torch.no_grad():
        other.slopes.mul_(2)
    wanted = layer(*inputs)
    assert not torch.allclose(other(*inputs), wanted)
    other(*inputs).sum().backward()
    assert other.slopes.grad is not None and layer.slopes.grad is None
    with torch.no_grad():
        other.slopes.div_(2)
    torch.testing.assert_close(other(*inputs), wanted)


def test_an_average_of_weights():
    averaged = torch.optim.swa_utils.AveragedModel(Layer())
    averaged.update_parameters(Layer())
    averaged(*tensors()).sum().backward()


def work(layer, inputs, results):
    results.put(layer(*inputs).detach().numpy())


def test_another_process():
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    layer, inputs, results = Layer(), [x.detach() for x in tensors()], context.Queue()
    process = context.Process(target=work, args=(layer, inputs, results))
    process.start()
    found = results.get(timeout=120)
    process.join()
    torch.testing.assert_close(torch.from_numpy(found), layer(*inputs).detach())
