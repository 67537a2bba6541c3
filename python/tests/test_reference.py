"""Calls with arrays: the reference, compared with a dense evaluation in NumPy."""
import numpy as np
import pytest

import attn

SPEC = """attention tested(window = 5) {
  dims    B, Hq, Hkv, Sq, Skv, D;
  tensor  doc: i32[B, Skv];
  learn   slopes: f32[Hq];
  param   cap: f32;
  score   cap * tanh(score / cap) + slopes[h] * (kv_idx - q_idx);
  mask    doc[b, q_idx] == doc[b, kv_idx] && q_idx - kv_idx < window;
  outputs lse, o;
}
"""
CAP = 3.0


@pytest.fixture
def arrays():
    random = np.random.default_rng(1)
    made = {name: random.standard_normal(shape) for name, shape in (
        ("q", (2, 4, 9, 8)), ("k", (2, 2, 9, 8)), ("v", (2, 2, 9, 6)), ("do", (2, 4, 9, 6)))}
    made["slopes"] = random.standard_normal(4)
    made["doc"] = np.sort(random.integers(0, 3, (2, 9)), axis=1)
    return made


def dense(q, k, v, slopes, doc, window=5):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    rows, columns = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
    score = CAP * np.tanh(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) / CAP)
    score += slopes[None, :, None, None] * (columns - rows)
    visible = (doc[:, :, None] == doc[:, None, :]) & (rows - columns < window)
    score = np.where(visible[:, None], score, -np.inf)
    lse = np.log(np.exp(score).sum(-1))
    return np.exp(score - lse[..., None]) @ v, lse


def call_arguments(arrays, *without):
    return {name: value for name, value in {**arrays, "cap": CAP}.items() if name not in ("do", *without)}


def test_outputs_are_those_of_numpy(arrays):
    f = attn.compile(SPEC)
    lse, o = f(arrays["q"], arrays["k"], arrays["v"], doc=arrays["doc"], slopes=arrays["slopes"], cap=CAP)
    inputs = call_arguments(arrays, "cap")
    wanted_o, wanted_lse = dense(**inputs)
    assert o.dtype == lse.dtype == np.float64
    np.testing.assert_allclose(o, wanted_o, atol=1e-6)
    np.testing.assert_allclose(lse, wanted_lse, atol=1e-6)
    lse, o = attn.compile(SPEC, window=2)(**call_arguments(arrays))
    np.testing.assert_allclose(o, dense(**inputs, window=2)[0], atol=1e-6)


def test_gradients_are_finite_differences(arrays):
    f = attn.compile(SPEC)
    found = f.gradients(**call_arguments(arrays), do=arrays["do"])
    assert list(found) == ["q", "k", "v", "slopes"]
    inputs = call_arguments(arrays, "cap")
    step = 1e-5
    random = np.random.default_rng(2)
    for name, gradient in found.items():
        assert gradient.shape == arrays[name].shape
        for _ in range(5):
            place = tuple(random.integers(0, size) for size in gradient.shape)
            sums = []
            for sign in (1, -1):
                moved = arrays[name].copy()
                moved[place] += sign * step
                sums.append((dense(**{**inputs, name: moved})[0] * arrays["do"]).sum())
            np.testing.assert_allclose(gradient[place], (sums[0] - sums[1]) / (2 * step), atol=1e-4)


def test_the_dtype_of_q_is_that_of_o(arrays):
    f = attn.compile(SPEC)
    wanted, _ = dense(**call_arguments(arrays, "cap"))
    for dtype, error in ((np.float32, 1e-5), (np.float16, 3e-2)):
        lse, o = f(**{name: value.astype(dtype) if name in "qkv" else value
                      for name, value in call_arguments(arrays).items()})
        assert o.dtype == dtype and lse.dtype == np.float32
        np.testing.assert_allclose(o.astype(np.float64), wanted, atol=error)


def test_one_output_is_no_tuple(arrays):
    o = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, Dqk, Dv; }")(
        arrays["q"], arrays["k"], arrays["v"])
    assert isinstance(o, np.ndarray) and o.shape == (2, 4, 9, 6)


def test_arrays_with_dlpack_and_any_strides(arrays):
    class Foreign:
        """An array that has DLPack alone."""

        def __init__(self, array):
            self._array = array

        def __dlpack__(self, **options):
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    f = attn.compile(SPEC)
    given = call_arguments(arrays)
    plain = f(**given)
    given["q"] = Foreign(np.asfortranarray(arrays["q"]))
    given["slopes"] = list(arrays["slopes"])
    for found, wanted in zip(f(**given), plain):
        np.testing.assert_array_equal(found, wanted)


def test_a_plan_file_is_computed_with_its_parameters(arrays, tmp_path):
    sizes = {"B": 2, "Hq": 4, "Hkv": 2, "Sq": 64, "Skv": 64, "D": 64}
    spec = SPEC.replace("param   cap: f32;", "").replace("cap", "3.0")
    attn.compile(spec, target="h200", engine="native", window=2, **sizes).save(tmp_path / "x.attnplan")
    f = attn.load(tmp_path / "x.attnplan")
    _, o = f(**call_arguments(arrays, "cap"))
    np.testing.assert_allclose(o, dense(**call_arguments(arrays, "cap"), window=2)[0], atol=1e-6)


class OnGpu:
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self):
        raise AssertionError("not to be read")


@pytest.mark.parametrize("change, message", [
    ({"v": None}, "v must be given"),
    ({"doc": None, "cap": None}, "doc and cap must be given: f(q, k, v, cap=..)"),
    ({"dco": 1}, "`tested` has no input `dco`\n  note: it takes q, k, v, doc, slopes, cap"),
    ({"q": np.zeros((4, 9, 8))}, "q has shape [4, 9, 8]; it must be [B, Hq, Sq, D]"),
    ({"k": np.zeros((2, 2, 9, 7))}, "q has rows of 8 elements, but k of 7: D must be the same"),
    ({"k": np.zeros((2, 3, 9, 8)), "v": np.zeros((2, 3, 9, 6))},
     "q has 4 heads, which is not a multiple of the 3 heads of k and v"),
    ({"slopes": np.zeros(3)}, "slopes: the array has dims [3], slopes needs [4]"),
    ({"doc": np.zeros((2, 9))}, "doc: the array has floats (f64), doc needs i32"),
    ({"doc": np.full((2, 9), 2**40)}, "doc: the array holds 1099511627776, which is not a value of i32"),
    ({"doc": np.zeros((2, 9), complex)},
     "doc has dtype complex128; it must be of floats, integers or booleans"),
    ({"cap": "three"}, "cap is a param: it must be a number, not str"),
    ({"q": OnGpu()}, "q is in the memory of a GPU; of arrays there, only torch tensors can be given\n"
     "  note: torch.from_dlpack makes a tensor of it without a copy"),
])
def test_wrong_calls_say_what_is_wrong(arrays, change, message):
    given = {name: value for name, value in {**call_arguments(arrays), **change}.items()
             if value is not None}
    with pytest.raises(attn.BindingError) as caught:
        attn.compile(SPEC)(**given)
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, ValueError)


def test_positions_and_names_do_not_mix(arrays):
    f = attn.compile(SPEC)
    with pytest.raises(attn.BindingError, match="q was given twice"):
        f(arrays["q"], **call_arguments(arrays))
    with pytest.raises(attn.BindingError, match="4 tensors without names were given"):
        f(*[arrays[name] for name in ("q", "k", "v", "doc")])


PLAIN = "attention plain { dims B, Hq, Sq, D; tensor t: i32[Sq]; score score + t[kv_idx]; }"


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_arrays_of_the_other_byte_order(dtype):
    f, random = attn.compile(PLAIN), np.random.default_rng(0)
    q = random.standard_normal((1, 2, 3, 4)).astype(dtype)
    t = np.arange(3, dtype=">i4")
    native = q.astype(q.dtype.newbyteorder("="))
    np.testing.assert_array_equal(f(q, q, q, t=t), f(native, native, native, t=t.astype("i4")))
    found = f.gradients(q, q, q, t=t, do=q)
    np.testing.assert_array_equal(found["q"], f.gradients(native, native, native, t=t, do=native)["q"])


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8", ">u8", "i8"])
def test_integers_of_other_types(dtype):
    q, t = np.random.default_rng(0).standard_normal((1, 2, 3, 4)), np.array([1, 5, 2])
    f = attn.compile(PLAIN)
    np.testing.assert_array_equal(f(q, q, q, t=t.astype(dtype)), f(q, q, q, t=t.astype("i4")))


def test_elements_that_no_type_holds():
    q, t = np.ones((1, 2, 3, 4)), np.arange(3, dtype="i4")
    f = attn.compile(PLAIN)
    for args, inputs, words in (
            ((q.astype(np.longdouble), q, q), {"t": t}, "q has dtype .*, which has more than 64 bits"),
            ((q, q, q), {"t": np.array([1, 2, 2**64 - 1], dtype="u8")}, "t has the element 18446744073709551615"),
            ((q, q, q), {"t": t.astype("c8")}, "t has dtype complex64")):
        with pytest.raises(attn.BindingError, match=words) as caught:
            f(*args, **inputs)
        assert "attn-" not in str(caught.value)  # a temporary folder


def test_arrays_beside_tensors():
    torch = pytest.importorskip("torch")
    q, t = torch.randn(1, 2, 3, 4), np.arange(3)
    f = attn.compile(PLAIN)
    for dtype in (">i4", "u4", "u8"):
        torch.testing.assert_close(f(q, q, q, t=t.astype(dtype)), f(q, q, q, t=torch.arange(3).int()))
