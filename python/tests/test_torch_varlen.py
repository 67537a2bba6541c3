"""What the specs of attn.torch.varlen_attention mean, by the reference; and what it refuses."""

import pytest

torch = pytest.importorskip("torch")
import attn.torch  # noqa: E402
from attn.torch import varlen_calls, varlen_spec  # noqa: E402
from attn.torch.varlen_arguments import Options, Tensors, capacity_of, check, key_of  # noqa: E402
from varlen_batches import Batch  # noqa: E402


def tensors_of(arguments):
    """As the function has them."""
    rows, heads, _ = arguments["q"].shape
    out = torch.empty(rows, heads, arguments["v_cache"].shape[3], dtype=arguments["q"].dtype)
    given = {"alibi_slopes": None, "s_aux": None, **arguments, "out": out, "lse_out": torch.empty(rows, heads)}
    return Tensors(**{name: given[name] for name in Tensors._fields})


def options_of(arguments):
    return Options(arguments.get("softmax_scale"), arguments.get("causal", True),
                   *arguments.get("window_size", (-1, -1)), arguments.get("softcap", 0.0))


def power(number):
    return (number - 1).bit_length()


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_of_its_spec(seed):
    """The spec of a batch, computed by the reference."""
    batch = Batch(seed, most_keys=None if seed % 4 else 40)
    arguments = batch.arguments
    tensors, options = tensors_of(arguments), options_of(arguments)
    check(tensors, options)
    key, params = key_of(tensors, options, capacity_of(tensors, power(max(batch.rows)), power(max(batch.keys))))
    assert key.least_sequences <= batch.count <= key.sequences
    assert max(batch.rows) <= key.rows and max(batch.keys) <= key.keys
    missing = key.sequences - batch.count
    table = torch.nn.functional.pad(tensors.block_table, (0, 0, 0, missing))[:, :key.columns]
    inputs = {"page_table": table, "lengths_kv": torch.nn.functional.pad(tensors.seqused_k, (0, missing)),
              "cu_seqlens_q": torch.cat([tensors.cu_seqlens_q, tensors.cu_seqlens_q[-1:].expand(missing)])}
    inputs |= {name: tensor for name, tensor in (("sinks", tensors.s_aux), ("slopes", tensors.alibi_slopes))
               if tensor is not None}
    pools = (x.nan_to_num(0).double().transpose(1, 2) for x in (tensors.k_cache, tensors.v_cache))
    f = attn.compile(varlen_spec.spec_of(key))
    with torch.no_grad():
        o, lse = f(tensors.q.double(), *pools, **inputs, **dict(zip(varlen_spec.params_of(key), params)))
    right = batch.expected()
    torch.testing.assert_close(o, right[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.double(), right[1], rtol=1e-4, atol=1e-4)


def arguments(**others):
    """Those of three sequences, of 2, 0 and 1 rows; q has 10 heads, and the cache 2."""
    given = dict(q=torch.zeros(3, 10, 64).bfloat16(), k_cache=torch.zeros(4, 16, 2, 64).bfloat16(),
                 v_cache=torch.zeros(4, 16, 2, 64).bfloat16(),
                 cu_seqlens_q=torch.tensor([0, 2, 2, 3], dtype=torch.int32),
                 seqused_k=torch.tensor([20, 5, 0], dtype=torch.int32),
                 block_table=torch.zeros(3, 2, dtype=torch.int32), max_seqlen_q=2, max_seqlen_k=20)
    return {**given, **others}


WRONG = {
    "q is a list, not a torch.Tensor": dict(q=[1.0], out=torch.zeros(1)),
    "q has shape [3, 640]; it must be [T, Hq, D]": dict(q=torch.zeros(3, 640).bfloat16(), out=torch.zeros(1)),
    "q is torch.float32; it must be torch.bfloat16 or torch.float16": dict(q=torch.zeros(3, 10, 64)),
    "k_cache is torch.float16, but q is torch.bfloat16": dict(k_cache=torch.zeros(4, 16, 2, 64).half()),
    "v_cache has shape [4, 8, 2, 64]; it must be [4, 16, 2, Dv]": dict(v_cache=torch.zeros(4, 8, 2, 64).bfloat16()),
    "q has 10 heads, which is no multiple of the 16 of k_cache": dict(
        k_cache=torch.zeros(4, 2, 16, 64).bfloat16(), v_cache=torch.zeros(4, 2, 16, 64).bfloat16()),
    "q has heads of 64 elements, but k_cache of 72": dict(k_cache=torch.zeros(4, 16, 2, 72).bfloat16()),
    "k_cache has strides [2144, 134, 67, 1]": dict(k_cache=torch.zeros(4, 16, 2, 67).bfloat16()[..., :64]),
    "seqused_k is torch.int64; it must be torch.int32": dict(seqused_k=torch.tensor([20, 5, 0])),
    "seqused_k has shape [2]; it must be [3]": dict(seqused_k=torch.zeros(2, dtype=torch.int32)),
    "cu_seqlens_q has shape [3]; it must be [4]": dict(cu_seqlens_q=torch.zeros(3, dtype=torch.int32)),
    "q has 3 rows, but block_table 2 sequences": dict(
        cu_seqlens_q=None, block_table=torch.zeros(2, 2).int(), seqused_k=torch.zeros(2).int(), max_seqlen_q=1),
    "max_seqlen_q must be 1 without cu_seqlens_q": dict(cu_seqlens_q=None),
    "block_table has strides [1, 3]": dict(block_table=torch.zeros(2, 3, dtype=torch.int32).t()),
    "out has shape [3, 10, 32]; it must be [3, 10, 64]": dict(out=torch.zeros(3, 10, 32).bfloat16()),
    "out is torch.float32, but q is torch.bfloat16": dict(out=torch.zeros(3, 10, 64)),
    "lse_out has shape [10, 3]; it must be [3, 10]": dict(lse_out=torch.zeros(10, 3)),
    "lse_out has strides [1, 3]; it must be contiguous": dict(lse_out=torch.zeros(10, 3).t()),
    "s_aux has shape [2]; it must be [10]": dict(s_aux=torch.zeros(2)),
    "s_aux is torch.float64": dict(s_aux=torch.zeros(10).double()),
    "alibi_slopes has shape [2, 10]; it must be [3, 10]": dict(alibi_slopes=torch.zeros(2, 10)),
    "alibi_slopes is torch.bfloat16; it must be torch.float32": dict(alibi_slopes=torch.zeros(10).bfloat16()),
    "softcap is -1; it must be a number above 0, or 0 for none": dict(softcap=-1),
    "softmax_scale is inf; it must be a number": dict(softmax_scale=float("inf")),
    "window_size is 7, and softcap 0.0": dict(window_size=7),
    "window_size has 1.5; it must be two ints": dict(window_size=(1.5, -1)),
    "max_seqlen_k is a Tensor; it must be an int": dict(max_seqlen_k=torch.tensor(20)),
    "max_seqlen_q and max_seqlen_k must be at most 2^24": dict(max_seqlen_k=1 << 25),
    "schedule is a int, not an attn.torch.Schedule": dict(schedule=3),
    "q requires a gradient, which varlen_attention does not have": dict(
        q=torch.zeros(3, 10, 64).bfloat16().requires_grad_()),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_named(message, monkeypatch):
    from attn.torch import varlen

    if "not a torch.Tensor" not in message:
        monkeypatch.setattr(varlen_calls, "device_of", lambda q: 0)
    monkeypatch.setattr(varlen_calls, "stream_of", lambda device: 0)
    monkeypatch.setattr(varlen, "is_capturing", lambda: False)
    with pytest.raises(attn.BindingError) as error:
        attn.torch.varlen_attention(**arguments(**WRONG[message]))
    assert message in str(error.value)


def test_it_needs_a_gpu():
    with pytest.raises(attn.BindingError, match="q is on cpu; it must be on a CUDA device"):
        attn.torch.varlen_attention(**arguments())
    with pytest.raises(attn.BindingError, match="q is on cpu; it must be on a CUDA device"):
        given = arguments()
        attn.torch.Schedule(*(given[name] for name in ("q", "k_cache", "v_cache", "block_table")), max_seqlen_q=2,
                            max_seqlen_k=20)


def test_keys_are_few():
    """Plans are for powers of two, and options that change nothing are not in a key."""

    def key(**others):
        given = arguments(**others)
        capacity = capacity_of(tensors_of(given), power(given["max_seqlen_q"]), power(given["max_seqlen_k"]))
        return key_of(tensors_of(given), options_of(given), capacity)[0]

    long = torch.zeros(3, 200, dtype=torch.int32)
    assert key() == key(softmax_scale=0.125) == key(window_size=(-1, 0)) == key(max_seqlen_k=32, window_size=(40, 9))
    assert key().keys == 32  # of 2 pages
    assert key(block_table=long) == key(block_table=long, max_seqlen_k=1024) != key(block_table=long, max_seqlen_k=1025)
    assert key(max_seqlen_q=3) == key(max_seqlen_q=4) != key()
    windows = [key(block_table=long, window_size=(left, -1)) for left in (7, 500)]
    assert windows[0] == windows[1] != key(block_table=long)
    one = key(max_seqlen_q=1)
    assert one == key(max_seqlen_q=1, causal=False) and not one.causal
    assert key(softcap=30.0) != key(softcap=50.0) != key()
