"""What calls of attn.torch.varlen_attention and schedules do with their arguments, on the stand-in for the driver (the
test python.operations), which runs no attention, but the check of lengths and page tables."""

import ctypes
import os
import threading

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available() or "ATTN_STANDIN_PLAN" not in os.environ:
    pytest.skip("needs the stand-ins of tests/standin", allow_module_level=True)

import attn.torch  # noqa: E402
from attn import _libattn  # noqa: E402
from attn.torch import schedules, varlen, varlen_calls, varlen_spec  # noqa: E402
from test_libattn import allocate  # noqa: E402
from test_torch_varlen import arguments  # noqa: E402


class Control(ctypes.Structure):
    """The first functions of StandinControl."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("reset", "script", "release", "blocked")] + [
        ("calls", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int))]


def counted(names=(b"cuLaunchKernelEx", b"cuMemsetD32Async", b"cuMemAlloc", b"cuMemFree")):
    """Calls of functions of the driver so far: launches, fills and allocations."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.standin_cuda.restype = ctypes.POINTER(Control)
    calls = driver.standin_cuda().contents.calls
    return [calls(name, -1) for name in names]


def memory(size, device=None):
    """Memory of the stand-in's device, which is the host's."""
    return torch.frombuffer((ctypes.c_char * size).from_address(allocate(size)), dtype=torch.uint8)


def on_device(tensor):
    made = memory(max(tensor.numel(), 1) * tensor.element_size()).view(tensor.dtype)
    return made[:tensor.numel()].view(tensor.shape).copy_(tensor)


def placed(**others):
    return {name: on_device(value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments(**others).items()}


@pytest.fixture(autouse=True)
def on_the_stand_in(monkeypatch):
    monkeypatch.setattr(varlen_calls, "DEVICE_TYPE", 1)
    monkeypatch.setattr(varlen_calls, "_memory", memory)
    monkeypatch.setattr(varlen_calls, "device_of", lambda q: 0)
    monkeypatch.setattr(varlen_calls, "stream_of", lambda device: 0)
    monkeypatch.setattr(varlen_spec, "_TARGET", "h200")
    for module in (varlen, varlen_spec):
        monkeypatch.setattr(module, "is_capturing", lambda: False)
    monkeypatch.setattr(varlen, "_of_thread", varlen._OfThread())
    _libattn.runtime(0)


def schedule_of(given, **options):
    return attn.torch.Schedule(*(given[name] for name in ("q", "k_cache", "v_cache", "block_table")),
                               **{"max_seqlen_q": 2, "max_seqlen_k": 32, **options})


def differences(before):
    return [now - then for now, then in zip(counted(), before)]


def test_repeated_calls_launch_and_do_nothing_else():
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    before = counted()
    assert attn.torch.varlen_attention(**given) is given["out"]
    own = differences(before)
    assert own[2:] == [0, 0]
    schedule = schedule_of(given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attn.torch.varlen_attention(**given, schedule=schedule)
    before = counted()
    attn.torch.varlen_attention(**given, schedule=schedule)
    assert differences(before) == [own[0] - 1, 0, 0, 0]
    before = counted()
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    assert differences(before)[0] == 1 and differences(before)[2:] == [0, 0]


ASKED = (b"cuTensorMapEncodeTiled", b"cuPointerGetAttributes", b"cuMemsetD8Async", b"cuMemsetD32Async", b"cuMemAlloc",
         b"cuMemFree", b"cuStreamIsCapturing", b"cuCtxSetCurrent", b"cuLaunchKernelEx", b"cuCtxGetCurrent")


def asked(run):
    """What a repeated run asks of the driver: calls of each of ASKED."""
    before = counted(ASKED)
    run()
    return [now - then for now, then in zip(counted(ASKED), before)]


def test_a_repeated_call_with_a_schedule_is_a_launch():
    """Whatever moves: maps are encoded of what did. So is a build, also with a number on the device."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    schedule = schedule_of(given)
    starts, lengths = given["cu_seqlens_q"], given["seqused_k"]
    schedule.build(starts, lengths)

    def call(**others):
        attn.torch.varlen_attention(**{**given, **others}, schedule=schedule)

    call()
    nothing = [0] * 8
    others = {name: on_device(given[name]) for name in ("q", "out", "block_table", "k_cache", "v_cache")}
    assert asked(call)[:8] == nothing
    maps = {"q": 0, "out": 0, "block_table": 0, "k_cache": 0, "v_cache": 0}
    for name, other in others.items():
        maps[name] = asked(lambda: call(**{name: other}))[0]
        again = asked(lambda: call(**{name: other}))
        assert again[:8] == nothing and again[9] == 1
        call()
    assert maps["block_table"] == 0 and 0 < sum(maps.values()) and max(maps.values()) <= 4
    number = on_device(torch.tensor([2], dtype=torch.int32))
    for count in (None, 0, 3, number):
        schedule.build(starts, lengths, count)
        assert asked(lambda: schedule.build(starts, lengths, count)) == [*nothing, 1, 1]
    for count, shared in ((None, 16), (number, 32), (on_device(torch.tensor([2, 16], dtype=torch.int32)), None)):
        schedule.build(starts, lengths, count, shared)
        assert asked(lambda: schedule.build(starts, lengths, count, shared_keys=shared)) == [*nothing, 1, 1]
    schedule.build(None, lengths)
    schedule.check()


def test_tables_of_every_width_have_one_binding():
    """The check reads the rows of the table of the last run."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    schedule = schedule_of(given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    pages = given["block_table"]
    for width in (2, 7, 3, 2, 9):
        wide = on_device(torch.full((3, width), 99, dtype=torch.int32))
        wide[:, :2] = pages
        for table in (wide, wide[:, :2]):
            for options in ({}, {"schedule": schedule}):
                attn.torch.varlen_attention(**{**given, "block_table": table}, **options)
        ((scheduled,),) = schedule._calls.values()
        scheduled.binding.check(0)
        wide[0, 0] = 99
        with pytest.raises(attn.BindingError, match=r"page_table' has page 99 at \[0, 0\]"):
            scheduled.binding.check(0)
    narrow = on_device(torch.zeros(3, 1).int())
    with pytest.raises(attn.BindingError, match="block_table has 1 pages"):
        attn.torch.varlen_attention(**{**given, "block_table": narrow}, schedule=schedule)


def test_a_binding_has_no_memory_for_what_the_schedule_has():
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    driver = ctypes.CDLL("libcuda.so.1")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def free_bytes():
        driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value

    before = free_bytes()
    schedule = schedule_of(given)
    own, workspace = before - free_bytes(), schedule._executable.workspace_bytes
    assert 0 < workspace and own < 1.2 * workspace + (1 << 20)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    for k_cache in (given["k_cache"], on_device(torch.zeros(4, 2, 16, 64).bfloat16()).transpose(1, 2)):
        attn.torch.varlen_attention(**{**given, "k_cache": k_cache}, schedule=schedule)
    assert before - free_bytes() < own + (1 << 20)


def test_settings_are_compared_by_value():
    """Lists may change, so that they are looked at each time; so are numbers of other types."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    schedule = schedule_of(given, window_size=(7, -1))
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    window = [7, -1]
    for _ in range(2):
        attn.torch.varlen_attention(**given, window_size=window, softcap=0, causal=1, schedule=schedule)
        attn.torch.varlen_attention(**given, window_size=(7, -1), softcap=0.0, schedule=schedule)
    window[0] = 8
    with pytest.raises(attn.BindingError, match=r"bounds \(8,\), but the schedule's \(7,\)"):
        attn.torch.varlen_attention(**given, window_size=window, schedule=schedule)
    q = given["q"].clone().requires_grad_()
    with pytest.raises(attn.BindingError, match="q requires a gradient"):
        attn.torch.varlen_attention(**{**given, "q": q}, window_size=(7, -1), schedule=schedule)


def test_tensors_may_be_others():
    """Fewer sequences and rows have the binding of the first call, other strides have another one."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    (calls,) = varlen._of_thread.calls.values()
    one = {"q": given["q"][:1], "out": given["out"][:1], "cu_seqlens_q": given["cu_seqlens_q"][2:]}
    attn.torch.varlen_attention(**{**given, **one, "seqused_k": given["seqused_k"][:1],
                                   "block_table": given["block_table"][:1]})
    assert len(calls) == 1
    outside = on_device(torch.zeros(4, 2, 16, 64).bfloat16()).transpose(1, 2)
    attn.torch.varlen_attention(**{**given, "k_cache": outside})
    (calls,) = varlen._of_thread.calls.values()
    assert len(calls) == 2 and calls[0].own_schedule is calls[1].own_schedule
    for cache in (outside, given["k_cache"]):
        attn.torch.varlen_attention(**{**given, "k_cache": cache})
    assert [len(calls) for calls in varlen._of_thread.calls.values()] == [2]
    wrong = {**given, "k_cache": given["k_cache"].half()}
    with pytest.raises(attn.BindingError, match="k_cache is torch.float16"):
        attn.torch.varlen_attention(**wrong)


def test_each_call_has_its_own_tensors():
    """The check of a binding reads what the last run was given."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    ((call,),) = varlen._of_thread.calls.values()
    call.binding.check(0)
    for name, wrong, said in (("seqused_k", [33, 0, 0], "lengths_kv"), ("block_table", [[9, 0]] * 3, "page_table"),
                              ("cu_seqlens_q", [0, 2, 1, 1], "cu_seqlens_q")):
        tensor = on_device(torch.tensor(wrong, dtype=torch.int32))
        attn.torch.varlen_attention(**{**given, name: tensor})
        with pytest.raises(attn.BindingError, match=said):
            call.binding.check(0)
        attn.torch.varlen_attention(**given)
        call.binding.check(0)
    assert len(*varlen._of_thread.calls.values()) == 1


def test_what_is_no_tensor_is_refused_later_too():
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    for wrong in ([0, 2, 2, 3], None, 3):
        with pytest.raises(attn.BindingError, match="seqused_k is a "):
            attn.torch.varlen_attention(**{**given, "seqused_k": wrong})

    class Subclass(torch.Tensor):
        pass

    with pytest.raises(attn.BindingError, match="k_cache is a Subclass, not a torch.Tensor"):
        attn.torch.varlen_attention(**{**given, "k_cache": given["k_cache"].as_subclass(Subclass)})


def test_outputs():
    given = placed()
    o, lse = on_device(torch.zeros(3, 10, 64).bfloat16()), on_device(torch.zeros(3, 10))
    assert attn.torch.varlen_attention(**given, out=o) is o
    assert attn.torch.varlen_attention(**given, out=o, lse_out=lse) == (o, lse)
    for _ in range(2):
        assert attn.torch.varlen_attention(**given, out=o, lse_out=lse, return_lse=True)[1] is lse


def test_nothing_to_compute():
    given = placed(q=torch.zeros(0, 10, 64).bfloat16(), cu_seqlens_q=torch.zeros(1).int(),
                   seqused_k=torch.zeros(0).int(), block_table=torch.zeros(0, 2).int())
    o, lse = attn.torch.varlen_attention(**given, return_lse=True)
    assert o.shape == (0, 10, 64) and lse.shape == (0, 10)


def test_threads_have_calls_of_their_own():
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    found = {}

    def call(name):
        attn.torch.varlen_attention(**given)
        (found[name],) = varlen._of_thread.calls.values()

    call("main")
    thread = threading.Thread(target=call, args=("other",))
    thread.start()
    thread.join()
    assert found["main"][0] is not found["other"][0]


def test_captures_have_calls_of_their_own(monkeypatch):
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    (ours,) = varlen._of_thread.calls.values()
    for module in (varlen, varlen_spec):
        monkeypatch.setattr(module, "is_capturing", lambda: True)
    monkeypatch.setattr(varlen, "_captured", {})
    for number in (7, 7, 8):
        monkeypatch.setattr(varlen, "_capture_of", lambda stream: number)
        attn.torch.varlen_attention(**given)
    kept = [call for of_capture in varlen._captured.values() for calls in of_capture.values() for call in calls]
    assert len(kept) == 2 and all(call.captured and call not in ours for call in kept)
    with pytest.raises(attn.BindingError, match="cannot be compiled while a CUDA graph is captured"):
        attn.torch.varlen_attention(**given, softcap=3.0)


def captured(run):
    """The graph of what is run with a stream, which is captured in the mode of PyTorch, global."""
    driver, stream, graph = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    run(stream.value)
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    return graph


@pytest.mark.parametrize("scheduled", [False, True])
def test_calls_are_captured(monkeypatch, scheduled):
    """New bindings and schedules, which allocate, and ones that there are."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    attn.torch.varlen_attention(**given)
    options = {"schedule": schedule_of(given)} if scheduled else {}
    for module in (varlen, varlen_spec):
        monkeypatch.setattr(module, "is_capturing", lambda: True)
    monkeypatch.setattr(varlen, "_captured", {})
    monkeypatch.setattr(varlen, "_capture_of", lambda stream: stream)

    def run(stream):
        monkeypatch.setattr(varlen_calls, "stream_of", lambda device: stream)
        if scheduled:
            options["schedule"].build(given["cu_seqlens_q"], given["seqused_k"])
        for _ in range(2):
            attn.torch.varlen_attention(**given, **options)

    assert captured(run).value


def test_a_repeated_call_knows_of_its_capture(monkeypatch):
    """The driver is asked, since PyTorch takes longer to answer."""
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    schedule = schedule_of(given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attn.torch.varlen_attention(**given, schedule=schedule)
    ((call,),) = schedule._calls.values()
    assert not call.captured

    def run(stream):
        monkeypatch.setattr(varlen_calls, "stream_of", lambda device: stream)
        schedule.build(given["cu_seqlens_q"], given["seqused_k"])
        attn.torch.varlen_attention(**given, schedule=schedule)

    assert captured(run).value
    assert call.captured and schedule._calls.popitem()[1] == [call]


def test_captured_calls_are_kept(monkeypatch):
    given = placed(out=on_device(torch.zeros(3, 10, 64).bfloat16()))
    schedule = schedule_of(given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    monkeypatch.setattr(varlen, "is_capturing", lambda: True)
    attn.torch.varlen_attention(**given, schedule=schedule)
    monkeypatch.setattr(varlen, "is_capturing", lambda: False)
    (calls,) = schedule._calls.values()
    (captured,) = calls
    for step in range(varlen_calls._MOST_VIEWS + 3):
        out = on_device(torch.zeros(3, 11 + step, 64).bfloat16())[:, :10]
        attn.torch.varlen_attention(**{**given, "out": out}, schedule=schedule)
    (calls,) = schedule._calls.values()
    assert captured in calls and len(calls) == varlen_calls._MOST_VIEWS + 2


def test_a_schedule_is_checked():
    """Lengths, tables and numbers of sequences are those that are given."""
    given = placed(seqused_k=torch.tensor([20, 5, 0], dtype=torch.int32),
                   block_table=torch.tensor([[3, 1], [2, 99], [99, 99]], dtype=torch.int32))
    schedule = schedule_of(given)
    starts, lengths, table, cache = (given[name] for name in ("cu_seqlens_q", "seqused_k", "block_table", "k_cache"))
    with pytest.raises(attn.BindingError, match="was not built yet"):
        schedule.check()
    schedule.build(starts, lengths)
    schedule.check(table, cache)
    table[1, 0] = 4
    with pytest.raises(attn.BindingError, match="page_table"):
        schedule.check(table, cache)
    schedule.build(starts, lengths, num_sequences=1)
    schedule.check(table, cache)
    schedule.build(starts, lengths, num_sequences=on_device(torch.tensor([2], dtype=torch.int32)))
    with pytest.raises(attn.BindingError, match="page_table"):
        schedule.check(table, cache)
    lengths[0] = 33
    with pytest.raises(attn.BindingError, match="tensor 'lengths_kv' has 33 at 0, but a sequence has 0 to 32 keys"):
        schedule.check()
    lengths[0] = 20
    starts[1:] = 3
    with pytest.raises(attn.BindingError, match="cu_seqlens_q"):
        schedule.check()
    assert schedule.flags() == 0


def test_one_row_of_each_sequence():
    given = placed(cu_seqlens_q=None, max_seqlen_q=1)
    given["out"] = on_device(torch.zeros(3, 10, 64).bfloat16())
    schedule = schedule_of(given, max_seqlen_q=1)
    schedule.build(None, given["seqused_k"])
    schedule.check()
    for _ in range(2):
        attn.torch.varlen_attention(**given)
        attn.torch.varlen_attention(**given, schedule=schedule)


OTHERS = {
    "softcap is 30.0, but the schedule's 0.0": dict(softcap=30.0),
    "softmax_scale is 0.5, but the schedule's None": dict(softmax_scale=0.5),
    "causal is False, but the schedule's True": dict(causal=False),
    "return_lse is True, but the schedule's False": dict(lse_out=torch.zeros(3, 10)),
    "that window_size has a left bound is True": dict(window_size=(7, -1)),
    "the type of s_aux is 'f32', but the schedule's ''": dict(s_aux=torch.zeros(10)),
    "the page of k_cache is 32, but the schedule's 16": dict(
        k_cache=torch.zeros(4, 32, 2, 64).bfloat16(), v_cache=torch.zeros(4, 32, 2, 64).bfloat16()),
    "k_cache's number of heads is 1": dict(
        k_cache=torch.zeros(4, 16, 1, 64).bfloat16(), v_cache=torch.zeros(4, 16, 1, 64).bfloat16()),
    "max_seqlen_q is 3, but the schedule is for 2": dict(max_seqlen_q=3),
    "max_seqlen_k is 33, but the schedule is for 32": dict(max_seqlen_k=33),
    "block_table has 9 sequences, but the schedule is for 8": dict(
        block_table=torch.zeros(9, 2).int(), seqused_k=torch.zeros(9).int(), cu_seqlens_q=torch.zeros(10).int()),
    "block_table has 1 pages of a sequence, but the schedule's 2": dict(block_table=torch.zeros(3, 1).int()),
}


@pytest.mark.parametrize("message", OTHERS)
def test_a_schedule_of_another_call_is_refused(message):
    given = placed(out=torch.zeros(3, 10, 64).bfloat16())
    schedule = schedule_of(given)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attn.torch.varlen_attention(**given, schedule=schedule)
    with pytest.raises(attn.BindingError) as error:
        attn.torch.varlen_attention(**{**given, **placed(**OTHERS[message], out=given["out"]), "schedule": schedule})
    assert message in str(error.value)


def test_windows_of_a_schedule():
    """Bounds are params of one plan, but not of one schedule."""
    given = placed(out=torch.zeros(3, 10, 64).bfloat16())
    schedule = schedule_of(given, window_size=(7, -1))
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    attn.torch.varlen_attention(**given, window_size=[7, -1], schedule=schedule)
    with pytest.raises(attn.BindingError, match=r"bounds \(8,\), but the schedule's \(7,\)"):
        attn.torch.varlen_attention(**given, window_size=(8, -1), schedule=schedule)
    assert schedule_of(given, window_size=(8, -1))._executable is schedule._executable


def test_what_a_build_refuses():
    given = placed()
    schedule, starts, lengths = schedule_of(given), given["cu_seqlens_q"], given["seqused_k"]
    for message, wrong in {
        "seqused_k is torch.int64": (starts, lengths.long()),
        r"cu_seqlens_q has shape \[3\]; it must be \[4\]": (starts[1:], lengths),
        "seqused_k has 9 sequences, but the schedule is for 8": (None, torch.zeros(9).int()),
        "num_sequences is 4, but must be 0 to 3": (starts, lengths, 4),
        "num_sequences is torch.int64": (starts, lengths, torch.tensor([3])),
        "num_sequences is torch.int32 of shape .* two adjacent elements": (
            starts, lengths, torch.zeros(1, dtype=torch.int32), None),
        "shared_keys is None, which needs a tensor": (starts, lengths, 3, None),
        "shared_keys is -1; it must be a number": (starts, lengths, 3, -1),
        "shared_keys is 2.0; it must be a number": (starts, lengths, 3, 2.0),
    }.items():
        with pytest.raises(attn.BindingError, match=message):
            schedule.build(*wrong)
    with pytest.raises(attn.ArgumentError, match="max_parts is -1"):
        schedule_of(given, max_parts=-1)
    split = schedule_of(given, split_keys=16)  # with the capacity of the cache
    with pytest.raises(attn.ArgumentError, match="shared keys are given for a schedule with split_keys"):
        split.build(starts, lengths, shared_keys=16)
    small = {name: on_device(torch.zeros(40, 1, 2, 64).bfloat16()) for name in ("k_cache", "v_cache")}
    with pytest.raises(attn.UnsupportedError, match="since pages are no multiples of 16 rows"):
        schedule_of({**given, **small}).build(starts, lengths, shared_keys=16)
    assert schedules.Schedule is attn.torch.Schedule
