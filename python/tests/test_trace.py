"""A traced mod computes the same scores as the mod itself, called with PyTorch's tensors."""
import os
import pathlib
import subprocess

import numpy
import pytest

torch = pytest.importorskip("torch")

from attn.trace import trace  # noqa: E402

import mods  # noqa: E402

SIZES = dict(B=2, Hq=4, Hkv=2, Sq=48, Skv=48, Dqk=8, Dv=48)
TOLERANCE = 1e-12  # of the largest element
ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTNC = os.environ.get("ATTN_ATTNC", str(ROOT / "build" / "attnc"))


def attnc(*arguments, text=None):
    return subprocess.run([ATTNC, *arguments], input=text, capture_output=True, text=True, timeout=300,
                          check=False)


@pytest.fixture
def doubles():
    """PyTorch computes in double precision, as the reference does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def inputs():
    """v is the identity, so that o holds the weights."""
    random = numpy.random.default_rng(5)
    q, k = random.normal(size=(2, 4, 48, 8)), random.normal(size=(2, 2, 48, 8))
    return {"q": q, "k": k, "v": numpy.tile(numpy.eye(48), (2, 2, 1, 1))}


def expected(score_mod, mask_mod, values):
    """Scores by the mods, in PyTorch: -inf where hidden."""
    keys = numpy.repeat(values["k"], 2, axis=1)
    scores = torch.from_numpy(values["q"] @ keys.swapaxes(2, 3) / numpy.sqrt(8))
    indexes = [torch.arange(extent) for extent in scores.shape]

    def every(function, with_score):
        for axis in range(3, -1, -1):
            dims = tuple(0 if i == axis else None for i in range(4))
            function = torch.vmap(function, ((0, *dims) if with_score else dims))
        return function

    if score_mod is not None:
        scores = every(score_mod, True)(scores, *indexes)
    if mask_mod is not None:
        scores = scores.masked_fill(~every(mask_mod, False)(*indexes), -torch.inf)
    return scores.detach().numpy()


def computed(traced, values, folder):
    """o and lse of the spec, by the reference."""
    spec = folder / "mod.attn"
    spec.write_text(traced.text, encoding="utf-8")
    command = ["run", str(spec), "--backend", "reference", "--unrounded"]
    captured = {name: numpy.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)
                for name, tensor in traced.tensors.items()}
    for name, value in (values | captured).items():
        numpy.save(folder / f"{name}.npy", value)
        command += ["--in", f"{name}=@{folder / name}.npy"]
    for name in ("o", "lse"):
        command += ["--out", f"{name}={folder / name}_out.npy"]
    done = attnc(*command)
    assert done.returncode == 0, traced.text + done.stderr
    return (numpy.load(folder / f"{name}_out.npy") for name in ("o", "lse"))


def softmax(scores):
    largest = scores.max(axis=-1, keepdims=True)
    empty = numpy.isneginf(largest)
    weights = numpy.exp(scores - numpy.where(empty, 0, largest))
    sums = numpy.where(empty, 1, weights.sum(axis=-1, keepdims=True))
    return weights / sums, numpy.where(empty, -numpy.inf, largest + numpy.log(sums))[..., 0]


def expect_same(actual, wanted):
    hidden = numpy.isneginf(wanted)
    numpy.testing.assert_array_equal(numpy.isneginf(actual), hidden)
    actual, wanted = (numpy.where(hidden, 0, values) for values in (actual, wanted))
    assert numpy.abs(actual - wanted).max() <= TOLERANCE * max(numpy.abs(wanted).max(), 1)


def expect_meaning(score_mod, mask_mod, folder, **options):
    traced = trace(score_mod, mask_mod, **SIZES, outputs=("o", "lse"), **options)
    values = inputs()
    weights, lse = softmax(expected(score_mod, mask_mod, values))
    o, actual_lse = computed(traced, values, folder)
    expect_same(actual_lse, lse)
    expect_same(o, weights)
    return traced


@pytest.mark.parametrize("name", mods.MODS)
def test_a_mod_means_the_same(name, doubles, tmp_path):
    expect_meaning(*mods.MODS[name](), tmp_path)


@pytest.mark.parametrize("name", mods.MODS)
def test_the_text_is_clean(name, doubles):
    traced = trace(*mods.MODS[name](), **SIZES, name=name)
    checked = attnc("check", "--deny", "warnings", "-", text=traced.text)
    assert checked.returncode == 0, traced.text + checked.stderr
    assert attnc("fmt", "-", text=traced.text).stdout == traced.text


def test_there_are_enough_mods():
    assert len(mods.MODS) >= 30
