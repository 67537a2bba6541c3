"""A traced mod computes the same scores as the mod itself, called with PyTorch's tensors."""
import concurrent.futures
import enum
import gc
import inspect
import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

from attn.errors import ArgumentError, TraceError  # noqa: E402
from attn.trace import trace  # noqa: E402

import mods  # noqa: E402
import untraceable  # noqa: E402

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


def expected(score_mod, mask_mod, values, grad=False):
    """Scores by the mods, in PyTorch: -inf where hidden. A tensor if they need a gradient."""
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
    return scores if grad else scores.detach().numpy()


def computed(traced, values, folder, outputs=("o", "lse"), *options):
    """Outputs of the spec, by the reference."""
    spec = folder / "mod.attn"
    spec.write_text(traced.text, encoding="utf-8")
    command = ["run", str(spec), "--backend", "reference", "--unrounded", *options]
    captured = {name: numpy.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)
                for name, tensor in traced.tensors.items()}
    for name, value in (values | captured).items():
        numpy.save(folder / f"{name}.npy", value)
        command += ["--in", f"{name}=@{folder / name}.npy"]
    for name in outputs:
        command += ["--out", f"{name}={folder / name}_out.npy"]
    done = attnc(*command)
    assert done.returncode == 0, traced.text + done.stderr
    return (numpy.load(folder / f"{name}_out.npy") for name in outputs)


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


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of vmap
@pytest.mark.parametrize("name", mods.MODS)
def test_a_mod_means_the_same(name, doubles, tmp_path):
    expect_meaning(*mods.MODS[name](), tmp_path)


@pytest.mark.parametrize("name", mods.MODS)
def test_the_text_is_clean(name, doubles):
    traced = trace(*mods.MODS[name](), **SIZES, name=name)
    checked = attnc("check", "--deny", "warnings", "-", text=traced.text)
    assert checked.returncode == 0, traced.text + checked.stderr
    assert attnc("fmt", "-", text=traced.text).stdout == traced.text


LEARNED = ["relative_bias_table", "temperature", "bias_full", "bias_learned_parts", "swin", "t5_buckets",
           "graph_distance", "module"]


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_of_learned_tensors_are_autograd_s(name, doubles, tmp_path):
    pair = mods.MODS[name]()
    traced = trace(*pair, **SIZES)
    assert traced.learned
    values = inputs() | {"do": numpy.random.default_rng(7).normal(size=(2, 4, 48, 48))}
    o = torch.softmax(expected(*pair, values, grad=True), dim=-1)
    leaves = [traced.tensors[learned] for learned in traced.learned]
    leaves = [leaf if leaf.is_leaf else leaf._base for leaf in leaves]  # one without dimensions is a view
    wanted = torch.autograd.grad((o * torch.from_numpy(values["do"])).sum(), leaves)
    outputs = [f"d_{learned}" for learned in traced.learned]
    for actual, gradient in zip(computed(traced, values, tmp_path, outputs, "--grad"), wanted):
        expect_same(actual, gradient.numpy().reshape(actual.shape))


def test_there_are_enough_mods():
    assert len(mods.MODS) >= 30


# --- what is refused


@pytest.mark.parametrize("name", untraceable.ERRORS)
def test_a_refusal_names_the_line_and_what_to_write(name):
    mod, texts = untraceable.ERRORS[name]
    is_mask = next(iter(inspect.signature(mod).parameters)) != "score"
    with pytest.raises(TraceError) as caught:
        trace(*((None, mod) if is_mask else (mod, None)), **SIZES)
    error = caught.value
    for text in texts:
        assert text in str(error)
    lines, first = inspect.getsourcelines(mod)
    here = next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))
    definition = min(i for i, line in enumerate(lines) if line.startswith("def "))
    assert error.filename == untraceable.__file__
    assert error.lineno == first + (here if here != definition else 0)
    if here != definition:
        assert error.source_line == lines[here].strip()


def test_what_is_not_a_function_is_refused():
    with pytest.raises(TraceError, match="a score_mod is a function, not a `int`"):
        trace(3, **SIZES)


# --- texts


def clauses(*mods, **options):
    """The clauses that depend on the mods."""
    text = trace(*mods, **SIZES, **options).text
    return [" ".join(line.split()) for line in text.splitlines()[4:-2]]


def test_a_text_as_a_whole():
    document = torch.arange(48, dtype=torch.int32) // 9

    def alibi(score, b, h, q_idx, kv_idx):
        return score + (kv_idx - q_idx) * torch.exp2(-8.0 * (h + 1) / 4)

    def packed(b, h, q_idx, kv_idx):
        return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)

    traced = trace(alibi, packed, **SIZES, dtype="f16", layout="bshd", scale=0.5, outputs=("o", "lse"),
                   dropout=0.1, deterministic=True)
    assert traced.text == """\
attention alibi_packed {
  dims    B = 2, Hq = 4, Hkv = 2, Sq = 48, Skv = 48, Dqk = 8, Dv = 48;
  dtype   f16;
  layout  bshd;
  tensor  document: i32[Skv] monotone;
  scale   0.5;
  score   score + (kv_idx - q_idx) * exp2(-8.0 * (h + 1) / 4);
  mask    document[q_idx] == document[kv_idx] && q_idx >= kv_idx;
  dropout 0.1;
  outputs o, lse;
  deterministic;
}
"""
    assert traced.tensors["document"] is document
    assert traced.learned == ()


def test_the_example_of_the_manual():
    page = (ROOT / "docs" / "flexattention.md").read_text(encoding="utf-8")
    section = page[page.index("## Tracing a mod"):]
    blocks = re.findall(r"^```(?:python|text)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", blocks[0]], capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout == blocks[1] + "\n", done.stderr


def test_a_score_of_minus_infinity_everywhere_else_is_a_mask():
    def causal(score, b, h, q_idx, kv_idx):
        return torch.where(q_idx >= kv_idx, score * 2, -float("inf"))

    def filled(score, b, h, q_idx, kv_idx):
        return score.masked_fill(q_idx < kv_idx, float("-inf"))

    def by_score(score, b, h, q_idx, kv_idx):
        return torch.where(score > 0, score, -float("inf"))

    assert clauses(causal) == ["score score * 2;", "mask q_idx >= kv_idx;"]
    assert clauses(filled) == ["mask q_idx >= kv_idx;"]
    assert clauses(by_score) == ["score where(score > 0, score, -inf);"]


def test_documents_are_monotone_only_if_they_are():
    def same(b, h, q_idx, kv_idx):
        return document[q_idx] == document[kv_idx]

    document = torch.arange(48) // 9
    assert clauses(None, same)[0] == "tensor document: i64[Skv] monotone;"
    assert clauses(None, same, facts=False)[0] == "tensor document: i64[Skv];"
    document = torch.arange(48) % 9
    assert clauses(None, same)[0] == "tensor document: i64[Skv];"


def test_learned_tensors_are_those_that_require_a_gradient():
    slope, table, limit = (torch.ones(4, requires_grad=grad) for grad in (True, False, True))

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + slope[h] * kv_idx + table[h]

    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx > limit[h]

    def learned(**options):
        return trace(score_mod, mask_mod, **SIZES, **options).learned

    assert learned() == ("slope",)
    assert learned(learn=True) == ("slope", "table")
    assert learned(learn=False) == ()
    assert learned(learn=("table",)) == ("table",)
    with pytest.raises(ArgumentError, match="no floating-point tensor `limit`"):
        learned(learn=["limit"])
    limit = slope
    with pytest.raises(TraceError, match="`slope` gets a gradient"):
        learned()


def test_names_are_those_of_variables_and_valid():
    offset, _hidden, i0 = torch.ones(4), torch.ones(4), torch.ones(4)
    tables, options = [torch.ones(4), torch.ones(4)], {"rel bias": torch.ones(4)}

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + offset[h] + _hidden[h] + i0[h] + tables[1][h] + options["rel bias"][h]

    assert list(trace(score_mod, **SIZES).tensors) == ["offset_", "hidden", "i0_", "tables_1",
                                                       "options_rel_bias"]
    assert trace(lambda score, b, h, q_idx, kv_idx: score * 2, **SIZES).text.startswith("attention traced {")
    assert trace(**SIZES, name="my attention!").text.startswith("attention my_attention {")


def test_dimensions_are_named_where_a_plain_variable_indexes_them():
    table, key_heads, other = torch.ones(2, 4, 48, 48), torch.ones(2), torch.ones(48, 50)

    def score_mod(score, b, h, q_idx, kv_idx):
        x = table[b, h, q_idx, kv_idx] + key_heads[h // 2]
        return score + x + other[q_idx, kv_idx] + other[kv_idx - 1, q_idx + 1]

    assert clauses(score_mod, lambda b, h, q_idx, kv_idx: kv_idx > 0)[:3] == [
        "tensor table: f32[B, Hq, Sq, Skv];", "tensor key_heads: f32[Hkv];", "tensor other: f32[48, 50];"]


def test_rows_of_captured_tensors_can_be_unpacked_and_reduced():
    spans = torch.tensor([[0, 9], [9, 48]])

    def mask_mod(b, h, q_idx, kv_idx):
        start, end = spans[b]
        return (kv_idx >= start) & (kv_idx < end) & ((spans[:, 0] <= q_idx).sum() > 0)

    assert clauses(None, mask_mod) == [
        "tensor spans: i64[2, 2];",
        "mask kv_idx >= spans[b, 0] && kv_idx < spans[b, 1] && sum(j in 0..2: spans[j, 0] <= q_idx) > 0;"]


def test_one_tensor_is_captured_once_and_parts_of_it_are_read_in_place():
    table = torch.ones(3, 4, requires_grad=True)
    parts = [table]

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + table[0, h] + parts[0][1][h] + table[-1][-1]

    assert clauses(score_mod) == ["learn table: f32[3, 4];",
                                  "score score + table[0, h] + table[1, h] + table[2, 3];"]


def test_a_value_computed_from_a_captured_tensor_is_captured_too():
    lens = torch.tensor([3, 9])

    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < lens.max() * 2

    traced = trace(None, mask_mod, **SIZES)
    assert "kv_idx < lens[0];" in traced.text
    assert traced.tensors["lens"].tolist() == [18]


def test_numbers_that_a_mod_makes_are_constants():
    def score_mod(score, b, h, q_idx, kv_idx):
        x = torch.where(kv_idx > 3, torch.tensor(2.5), torch.zeros_like(score))
        return score + x * numpy.float32(2) + torch.full((), 3)

    assert clauses(score_mod) == ["score score + where(kv_idx > 3, 2.5, 0.0) * 2.0 + 3;"]


class Shown(int):
    """A number that says another thing of itself."""

    def __repr__(self):
        return "a number"


class Real(float, enum.Enum):
    HALF = 0.5


def test_numbers_of_other_classes_are_their_numbers():
    """Members of an enumeration, NumPy numbers, and numbers whose text is that of another number."""
    flags = enum.IntFlag("Flags", {"NEAR": 3})

    def mask(b, h, q, k):
        return (q - k < flags.NEAR) | (k < Shown(2)) & (q < Shown(7))

    text = trace(lambda s, b, h, q, k: s * Real.HALF + numpy.float64(0.25) * k, mask, **SIZES).text
    assert "q_idx - kv_idx < 3 || (kv_idx < 2 && q_idx < 7)" in text
    assert "score * 0.5 + 0.25 * kv_idx" in text


def test_only_what_changes_no_zero_is_left_out():
    """-0.0 + 0.0 is 0.0; of integers, and from -0.0 on, every 0 can go."""
    t = torch.zeros(48)

    def score(change):
        def mod(s, b, h, i, j):
            return s * t[change(i)] if change in of_integers else s * change(t[j])

        return re.search(r"score +(.*);", trace(mod, **SIZES).text).group(1)

    of_integers = [lambda i: i + 0, lambda i: 0 + i, lambda i: i - 0, lambda i: i * 1]
    for change in of_integers:
        assert score(change) == "score * t[q_idx]"
    for change in (lambda x: x - 0.0, lambda x: x - 0, lambda x: x * 1, lambda x: 1.0 * x, lambda x: x + -0.0):
        assert score(change) == "score * t[kv_idx]"
    assert score(lambda x: x + 0.0) == "score * (t[kv_idx] + 0.0)"
    assert score(lambda x: 0 + x) == "score * (0 + t[kv_idx])"
    assert "0.0" in score(lambda x: x - -0.0)


def test_values_can_be_printed(capsys):
    def score_mod(score, b, h, q_idx, kv_idx):
        print(f"{q_idx - kv_idx:4}", score * 2)
        return score

    trace(score_mod, **SIZES)
    assert capsys.readouterr().out == "q_idx - kv_idx score * 2\n"


def test_the_mod_and_the_profiler_are_left_as_they_were():
    table = numpy.ones(4)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + table[h]

    def profiler(*event):
        pass

    sys.setprofile(profiler)
    try:
        trace(score_mod, **SIZES)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert score_mod.__closure__[0].cell_contents is table


NUMPY = """
import sys
sys.modules["torch"] = None
import numpy as np
from attn.trace import trace

class Scores:
    def __init__(self):
        self.bias = np.ones((4, 48), np.float32)

    def __call__(self, score, b, h, q_idx, kv_idx):
        far = np.where(np.abs(q_idx - kv_idx) > LIMITS[b], np.tanh(score), score)
        return np.maximum(far, -2) + self.bias[h][kv_idx] + helper(h)

def helper(h):
    return np.float64(2) * TABLE["slopes"][h]

LIMITS, TABLE = np.array([3, 4]), {"slopes": np.ones(4)}
print(trace(Scores(), B=2, Hq=4, Hkv=4, Sq=48, Skv=48, Dqk=8, Dv=8).text)
"""


def test_numpy_is_enough():
    done = subprocess.run([sys.executable, "-c", NUMPY], capture_output=True, text=True, timeout=60,
                          check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stderr == ""
    assert done.stdout == """\
attention Scores {
  dims    B = 2, Hq = 4, Hkv = 4, Sq = 48, Skv = 48, D = 8;
  dtype   bf16;
  layout  bhsd;
  tensor  LIMITS: i64[B];
  tensor  bias: f32[Hq, Skv];
  tensor  TABLE_slopes: f64[Hq];
  score   max(where(abs(q_idx - kv_idx) > LIMITS[b], tanh(score), score), -2) + bias[h, kv_idx]
          + 2.0 * TABLE_slopes[h];
  outputs o;
}

"""


def test_arrays_mean_the_same(tmp_path):
    bias, ids = numpy.cos(numpy.arange(4 * 48.0)).reshape(4, 48), numpy.arange(48) // 11

    def with_arrays(score, b, h, q_idx, kv_idx):
        return torch.where(ids[q_idx] == ids[kv_idx], score + bias[h, kv_idx], score)

    tensors = torch.from_numpy(bias), torch.from_numpy(ids)

    def with_tensors(score, b, h, q_idx, kv_idx):
        return torch.where(tensors[1][q_idx] == tensors[1][kv_idx], score + tensors[0][h, kv_idx], score)

    traced = trace(with_arrays, **SIZES, outputs=("o", "lse"))
    weights, lse = softmax(expected(with_tensors, None, inputs()))
    o, actual_lse = computed(traced, inputs(), tmp_path)
    expect_same(actual_lse, lse)
    expect_same(o, weights)


def test_threads_trace_at_the_same_time():
    wanted = {name: trace(*make(), **SIZES).text for name, make in mods.MODS.items()}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        texts = {name: pool.submit(lambda make=make: trace(*make(), **SIZES).text)
                 for name, make in mods.MODS.items()}
    assert {name: text.result() for name, text in texts.items()} == wanted


def test_garbage_that_is_collected_within_a_mod_is_not_part_of_it():
    calls, threshold = [], gc.get_threshold()

    def collects(phase, info):
        calls.append(phase)

    def mod(score, b, h, q_idx, kv_idx):
        for _ in range(20):
            score = score + q_idx * 0.5
        return score

    gc.callbacks.append(collects)
    gc.set_threshold(1, 1, 1)
    try:
        found = trace(mod, B=1, Hq=1, Hkv=1, Sq=4, Skv=4, Dqk=8, Dv=8)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collects)
    assert calls and found.opaque is None
