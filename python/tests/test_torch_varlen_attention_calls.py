"""What calls and schedules of attn.torch.VarlenAttention do with their arguments, on the stand-in for the driver (the
test python.operations), which runs no attention, but the check of lengths and page tables."""

import gc
import os
import weakref

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available() or "ATTN_STANDIN_PLAN" not in os.environ:
    pytest.skip("needs the stand-ins of tests/standin", allow_module_level=True)

import attn.torch  # noqa: E402
from attn import _libattn  # noqa: E402
from attn.torch import varlen_calls, varlen_kernels  # noqa: E402
from test_torch_varlen_calls import differences, counted, on_device, on_the_stand_in, placed  # noqa: E402, F401
from varlen_mods import SPECS  # noqa: E402


@pytest.fixture(autouse=True)
def not_captured(monkeypatch):
    monkeypatch.setattr(varlen_kernels, "is_capturing", lambda: False)


def call_of(**others):
    return placed(out=torch.zeros(3, 10, 64).bfloat16(), **others)


def schedule_of(attend, given, **options):
    return attend.schedule(*(given[name] for name in ("q", "k_cache", "v_cache", "block_table")),
                           **{"max_seqlen_q": 2, "max_seqlen_k": 32, **options})


def bound_of(attend):
    """Bindings of calls without a schedule, of the one plan."""
    (calls,) = attend._calls.values()
    return list(calls._bound.values())


def test_repeated_calls_launch_and_do_nothing_else():
    attend, given = attn.torch.VarlenAttention(SPECS["chunks"], chunk=16), call_of()
    assert attend(**given) is given["out"]
    before = counted()
    attend(**given)
    own = differences(before)
    assert own[2:] == [0, 0]
    schedule = schedule_of(attend, given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    schedule.check(given["block_table"], given["k_cache"])
    attend(**given, schedule=schedule)
    before = counted()
    attend(**given, schedule=schedule)
    assert differences(before) == [own[0] - 1, 0, 0, 0] and schedule.flags() == 0
    assert len(attend._kernels) == 1 and len(bound_of(attend)) == 1 and len(schedule._calls._bound) == 1


def test_masks_that_are_no_bands_have_lists_of_all_sequences():
    """Lengths of sequences that a call has not are 0, and begin where the rows end."""
    attend, given = attn.torch.VarlenAttention(SPECS["dilated"]), call_of()
    attend(**given)
    (calls,) = attend._calls.values()
    assert calls._starts.tolist() == [0, 2, 2, 3, 3, 3, 3, 3, 3] and calls._lengths.tolist() == [20, 5] + 6 * [0]
    one = {"q": given["q"][:1], "out": given["out"][:1], "cu_seqlens_q": None, "seqused_k": given["seqused_k"][:1],
           "block_table": given["block_table"][:1], "max_seqlen_q": 2}
    with pytest.raises(attn.BindingError, match="max_seqlen_q must be 1 without cu_seqlens_q"):
        attend(**{**given, **one})
    attend(**{**given, **one, "max_seqlen_q": 1})
    assert list(attend._calls.values())[-1]._starts.tolist() == [0] + 8 * [1]
    with pytest.raises(attn.UnsupportedError, match="its mask is no band of keys"):
        schedule_of(attend, given)


def test_inputs():
    attend, given = attn.torch.VarlenAttention(SPECS["prefix"]), call_of()
    prefix = on_device(torch.tensor([3, 4, 5], dtype=torch.int32))
    attend(**given, prefix=prefix)
    (kernels,) = attend._kernels.values()
    assert kernels._padded["prefix"].tolist() == [3, 4, 5, 0, 0, 0, 0, 0]
    whole = on_device(torch.arange(8, dtype=torch.int32))
    assert kernels.split({"prefix": whole}, 3)[0]["prefix"] is whole
    for message, wrong in {
        r"`prefix` is missing: give it by name\n  note: it is i32 \[8\]": {},
        "has no input `suffix`": {"prefix": prefix, "suffix": prefix},
        r"prefix is i64 \[3\]; it must be i32 \[8\]": {"prefix": prefix.long()},
        r"prefix is i32 \[9\]; it must be i32 \[8\]": {"prefix": torch.zeros(9, dtype=torch.int32)},
        "prefix is a list, not a torch.Tensor": {"prefix": [1, 2, 3]},
        "it must be contiguous": {"prefix": whole[::3]},
    }.items():
        with pytest.raises(attn.BindingError, match=message):
            attend(**given, **wrong)


def test_inputs_of_fewer_sequences_than_the_batch_are_refused():
    """Also where a call before gave more, and of a schedule's inputs, and of what mods captured."""
    attend, given = attn.torch.VarlenAttention(SPECS["prefix"]), call_of()
    all_three = on_device(torch.tensor([3, 4, 5], dtype=torch.int32))
    two = all_three[:2]
    attend(**given, prefix=all_three)
    with pytest.raises(attn.BindingError, match=r"prefix is \[2\], of 2 sequences, but the batch has 3"):
        attend(**given, prefix=two)
    schedule = schedule_of(attend, given, prefix=two)
    with pytest.raises(attn.BindingError, match=r"prefix is \[2\], of 2 sequences, but the batch has 3"):
        schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    schedule.build(given["cu_seqlens_q"][:3], given["seqused_k"][:2])
    with pytest.raises(attn.BindingError, match="of 2 sequences, but the batch has 3"):
        attend(**given, schedule=schedule)
    mods = attn.torch.VarlenAttention(mask_mod=lambda b, h, q, kv: (q >= kv) | (kv < two[b]))
    with pytest.raises(attn.BindingError, match="of 2 sequences, but the batch has 3"):
        mods(**given)


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_first_call_is_not_captured(monkeypatch, scheduled):
    """What it fills would be filled by the graph alone, and read by later calls."""
    attend, given = attn.torch.VarlenAttention(SPECS["prefix"]), call_of()
    whole, three = (on_device(torch.arange(count, dtype=torch.int32)) for count in (8, 3))
    schedule = schedule_of(attend, given, prefix=whole)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    options = {"prefix": whole, "schedule": schedule if scheduled else None}

    def refused(missing, **others):
        with pytest.raises(attn.BindingError, match=missing) as raised, monkeypatch.context() as patched:
            patched.setattr(varlen_kernels, "is_capturing", lambda: True)
            attend(**{**given, **options, **others})
        assert "call it once before the capture" in str(raised.value)

    refused("no call with tensors of such strides" if scheduled else "no memory yet for calls without a schedule")
    attend(**given, **options)
    refused("no call with tensors of such strides", out=on_device(torch.zeros(3, 11, 64).bfloat16())[:, :10])
    refused("prefix has no memory yet for as many sequences", prefix=three)
    attend(**given, **{**options, "prefix": three})
    monkeypatch.setattr(varlen_kernels, "is_capturing", lambda: True)
    attend(**given, **options)
    attend(**given, **{**options, "prefix": three})


@pytest.mark.parametrize("scheduled", [False, True])
def test_bindings_of_other_strides_are_bounded(monkeypatch, scheduled):
    """But for those that CUDA graphs use."""
    attend, given = attn.torch.VarlenAttention(SPECS["chunks"]), call_of()
    options = {}
    if scheduled:
        options["schedule"] = schedule_of(attend, given)
        options["schedule"].build(given["cu_seqlens_q"], given["seqused_k"])
    attend(**given, **options)
    with monkeypatch.context() as patched:
        patched.setattr(varlen_kernels, "is_capturing", lambda: True)
        attend(**given, **options)
    bindings = weakref.WeakSet()
    bind = _libattn.Executable.bind

    def noted(*arguments):
        made = bind(*arguments)
        bindings.add(made)
        return made

    monkeypatch.setattr(_libattn.Executable, "bind", noted)
    for step in range(varlen_calls._MOST_VIEWS + 5):
        attend(**{**given, "out": on_device(torch.zeros(3, 11 + step, 64).bfloat16())[:, :10]}, **options)
    gc.collect()
    assert len(bindings) == varlen_calls._MOST_VIEWS + 1
    newest = set(bindings)
    attend(**given, **options)  # the captured one is still there
    assert set(bindings) == newest


def test_a_schedule_that_is_dropped_is_destroyed_with_its_bindings(monkeypatch):
    """Which own no memory for what it has."""
    attend, given = attn.torch.VarlenAttention(SPECS["chunks"]), call_of()
    used, bind = [], _libattn.Executable.bind

    def noted(*arguments):
        used.append(arguments[-1])
        return bind(*arguments)

    monkeypatch.setattr(_libattn.Executable, "bind", noted)
    schedule = schedule_of(attend, given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    schedule.check(given["block_table"], given["k_cache"])
    attend(**given, schedule=schedule)
    assert len(used) == 3 and all(each is schedule._schedule for each in used)
    attend(**given)
    assert used[3] is not None
    used.clear()
    gone = weakref.ref(schedule._schedule)
    del schedule
    gc.collect()
    assert gone() is None


def test_params_of_a_schedule_are_those_of_its_calls():
    attend, given = attn.torch.VarlenAttention(SPECS["distance"]), call_of()
    inputs = {"slopes": on_device(torch.linspace(0, 1, 10)), "t": 0.5}
    for t in (0.5, 0.7, 0.5):
        attend(**given, **{**inputs, "t": t})
    assert len(bound_of(attend)) == 1
    schedule = schedule_of(attend, given, **inputs)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attend(**given, schedule=schedule)
    attend(**given, schedule=schedule, slopes=on_device(torch.zeros(10)))  # of another layer
    with pytest.raises(attn.BindingError, match=r"t are \(0.7,\), but the schedule's \(0.5,\)"):
        attend(**given, schedule=schedule, t=0.7)


def test_a_schedule_of_another_call_is_refused():
    attend, given = attn.torch.VarlenAttention(SPECS["chunks"]), call_of()
    schedule = schedule_of(attend, given)
    with pytest.raises(attn.BindingError, match="was not built yet"):
        schedule.check(given["block_table"], given["k_cache"])
    schedule.build(given["cu_seqlens_q"], given["seqused_k"], num_sequences=2)
    attend(**given, schedule=schedule)
    for message, wrong in {
        "max_seqlen_q and max_seqlen_k are 3 and 20, but the schedule is for 2 and 32": dict(max_seqlen_q=3),
        "block_table has 9 sequences, but the schedule is for 8": dict(
            block_table=torch.zeros(9, 2).int(), seqused_k=torch.zeros(9).int(), cu_seqlens_q=torch.zeros(10).int()),
        "the schedule was made for another call": dict(lse_out=torch.zeros(3, 10)),
    }.items():
        with pytest.raises(attn.BindingError, match=message):
            attend(**{**given, **placed(**wrong, out=given["out"])}, schedule=schedule)
    with pytest.raises(attn.BindingError, match="seqused_k has 9 sequences"):
        schedule.build(None, torch.zeros(9).int())


def test_a_schedule_of_another_attention_is_refused():
    given = call_of()
    first, second = (attn.torch.VarlenAttention(SPECS["chunks"], chunk=chunk) for chunk in (24, 48))
    schedule = schedule_of(first, given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    with pytest.raises(attn.BindingError, match="the schedule is of another attention"):
        second(**given, schedule=schedule)


def test_mods():
    slopes = on_device(torch.linspace(0, 1, 10))

    def score_mod(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx)

    attend = attn.torch.VarlenAttention(score_mod=score_mod, mask_mod=lambda b, h, q, kv: q >= kv, softmax_scale=0.1)
    given = call_of()
    o, lse = attend(**given, return_lse=True)
    assert lse.shape == (3, 10)
    (kernels,) = attend._kernels.values()
    assert kernels.captured["slopes"] is slopes and kernels.takes_schedule
    schedule = schedule_of(attend, given, return_lse=True)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attend(**given, return_lse=True, schedule=schedule)
