"""What attn.torch.VarlenAttention computes of specs and mods, by the reference; and what it refuses."""

import pytest

torch = pytest.importorskip("torch")
import attn.torch  # noqa: E402
from attn.torch import varlen_kernels  # noqa: E402
from attn.torch.varlen_arguments import Options, capacity_of, check  # noqa: E402
from attn.torch.varlen_kernels import Asked, paged, sizes_of  # noqa: E402
from test_torch_varlen import arguments, power, tensors_of  # noqa: E402
from varlen_batches import Batch  # noqa: E402
from varlen_mods import NONE, PARTS, RULES, SPECS, expected, inputs_of  # noqa: E402


def by_reference(asked, batch, inputs):
    """o and lse of a batch, of the spec that kernels are compiled of."""
    tensors = tensors_of(batch.arguments)
    check(tensors, Options(None, False, -1, -1, 0.0))
    sizes = sizes_of(tensors, capacity_of(tensors, power(max(batch.rows)), power(max(batch.keys))))
    source, captured = asked.source(sizes)
    bindings = {**sizes.dims, **asked.parameters}
    said = source.described(bindings)
    varlen_kernels._check(said, sizes)
    missing = sizes.sequences - batch.count
    pad = torch.nn.functional.pad
    given = {**captured, **inputs, "page_table": pad(tensors.block_table, (0, 0, 0, missing))[:, :sizes.columns],
             "lengths_kv": pad(tensors.seqused_k, (0, missing)),
             "cu_seqlens_q": torch.cat([tensors.cu_seqlens_q, tensors.cu_seqlens_q[-1:].expand(missing)])}
    for name, tensor in given.items():
        if said.inputs.get(name) is not None and said.inputs[name].dims[0] == "B" and len(tensor) == batch.count:
            given[name] = torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])])
    pools = (x.nan_to_num(0).double().transpose(1, 2) for x in (tensors.k_cache, tensors.v_cache))
    with torch.no_grad():
        return attn.compile(source, **bindings)(tensors.q.double(), *pools, **given)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", range(6))
def test_the_reference_of_a_spec(name, seed):
    batch = Batch(seed, most_keys=100, rows=("decode", "few", "mixed")[seed % 3], causal=True)
    inputs = inputs_of(name, batch)
    o, lse = by_reference(Asked(SPECS[name], (None, None), None, {}), batch, inputs)
    right = expected(name, batch, inputs)
    torch.testing.assert_close(o, right[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.double(), right[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [5, 8])
def test_the_reference_of_mods(count):
    """Positions are those in sequences; what is captured is an input, also of fewer sequences than the plan has."""
    batch = Batch(3, sizes=(2, 5, 64, 64, 16, torch.bfloat16), count=count, most_keys=100, rows="few", causal=True)
    inputs = inputs_of("prefix", batch)
    prefix = inputs["prefix"]

    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) | (kv_idx < prefix[b])

    o, lse = by_reference(Asked(None, (None, mask_mod), None, {}), batch, {})
    right = expected("prefix", batch, inputs)
    torch.testing.assert_close(o, right[0], rtol=1e-4, atol=1e-4)
    slopes = torch.linspace(0, 1, 10)

    def score_mod(score, b, h, q_idx, kv_idx):
        return 0.7 * score - slopes[h] * torch.log(1.0 + (q_idx - kv_idx).abs())

    asked = Asked(None, (score_mod, lambda b, h, q_idx, kv_idx: q_idx >= kv_idx), 0.2, {})
    o, lse = by_reference(asked, batch, {})
    rule = lambda *given: (*RULES["distance"](*given)[:2], NONE)  # noqa: E731
    right = expected(rule, batch, {"slopes": slopes, "t": 0.7})
    torch.testing.assert_close(o, right[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.double(), right[1], rtol=1e-4, atol=1e-4)


def test_parameters_of_a_spec():
    batch = Batch(4, most_keys=60, rows="few", causal=True)
    whole, chunk = (by_reference(Asked(SPECS["chunks"], (None, None), None, parameters), batch, {})
                    for parameters in ({"chunk": 4096}, {"chunk": 24}))
    torch.testing.assert_close(chunk[0], expected("chunks", batch, {})[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(whole[0], batch.expected()[0], rtol=1e-4, atol=1e-4)


SIZES = sizes_of(tensors_of(arguments()), capacity_of(tensors_of(arguments()), 1, 5))

REFUSED = {
    "reads the size Skv, which is the most that a plan serves": f"{PARTS} mask kv_idx < Skv - 8 || q_idx >= kv_idx;",
    "dropout is for training": f"{PARTS} dropout 0.1;",
    "caches of 8 bits are not read": f"{PARTS} dtype e4m3; quantize per_tensor, o: bf16;",
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    source = attn.specs.Spec.of(f"attention wrong {{ {REFUSED[message]} }}")
    with pytest.raises((attn.UnsupportedError, attn.SpecError)) as error:
        made = source if "e4m3" in source.text else paged(source, SIZES)
        varlen_kernels._check(made.described(SIZES.dims), SIZES)
    assert message in str(error.value)


def test_what_is_asked_for_wrongly():
    for message, wrong in {
        "give a spec, or score_mod, mask_mod or both": {},
        "and not both of these": {"spec": "causal", "mask_mod": lambda b, h, q, k: q >= k},
        "mods have no parameter window": {"mask_mod": lambda b, h, q, k: q >= k, "window": 5},
        "a spec says its own scale": {"spec": "causal", "softmax_scale": 0.5},
    }.items():
        with pytest.raises(attn.ArgumentError, match=message):
            attn.torch.VarlenAttention(**wrong)
    with pytest.raises(attn.BindingError, match="q is on cpu; it must be on a CUDA device"):
        attn.torch.VarlenAttention("causal")(**arguments())


def test_rows_are_the_last_of_a_sequence():
    """Whatever a spec says of its layout, alignment, types and outputs."""
    text = "attention a { dims B = 1, Hq = 2, Sq = 8, D = 16; dtype f16; layout bhsd; mask q_idx >= kv_idx;" \
           " outputs lse; grad q; }"
    made = paged(attn.specs.Spec.of(text), SIZES)
    said = made.described(SIZES.dims)
    assert said.facts["align"] == "bottom_right" and said.dtype == "bf16" and said.outputs == ("o", "lse")
    assert said.packed == ("q",) and set(said.tables) == {"k", "v"} and said.bound >= {"q", "k", "v", "o"}
