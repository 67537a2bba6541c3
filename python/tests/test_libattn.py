"""Runtime, Executable and Binding, with stand-ins for the driver and cuDNN: $ATTN_STANDIN_PLAN is a plan for
them, and the dynamic linker must find them first (the test python.runtime)."""
import ctypes
import os
import threading

import pytest

import attn
from attn import _libattn

PLAN = os.environ.get("ATTN_STANDIN_PLAN")
pytestmark = pytest.mark.skipif(PLAN is None, reason="needs the stand-ins of tests/standin")


@pytest.fixture(scope="module")
def plan():
    with open(PLAN, "rb") as file:
        return file.read()


@pytest.fixture(scope="module")
def executable(plan):
    return loaded(plan)


@pytest.fixture(scope="module")
def tensors(executable):
    """Device memory for each tensor, as `bind` takes it."""
    return {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides)
            for info in executable.tensors}


def loaded(plan):
    return _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(plan), 0)


def allocate(size):
    library = _libattn.library()
    pointer = ctypes.c_void_p
    library.attn_memory_allocate.argtypes = [pointer, ctypes.c_size_t, pointer, pointer]
    library.attn_memory_data.argtypes = [ctypes.c_void_p]
    library.attn_memory_data.restype = ctypes.c_void_p
    memory = ctypes.c_void_p()  # lives as long as the process
    assert library.attn_memory_allocate(_libattn.runtime(0)._handle, size, ctypes.byref(memory), None) == 0
    return library.attn_memory_data(memory)


def test_a_device_is_opened_once():
    runtime = _libattn.runtime(0)
    assert _libattn.runtime(0) is runtime
    found = runtime.describe()
    assert found["sm"] == 90 and found["cudnn_version"] == 91900
    assert found["device_name"] == "stand-in 0"
    with pytest.raises(attn.ArgumentError, match="there is no CUDA device 99: this machine has 2"):
        _libattn.Runtime(99)


def test_an_executable_is_described_as_its_plan(plan, executable):
    (info,) = _libattn.PlanFile(plan).plans
    for name in ("name", "direction", "signature", "target", "tensors", "params", "spec", "workspace_bytes"):
        assert getattr(executable, name) == getattr(info, name)


def test_a_binding_executes(executable, tensors):
    binding = executable.bind(tensors, {}, None)
    binding.execute(0)
    addresses = [tensors[info.name][0] for info in executable.tensors]
    for checked in (False, True):
        binding.set_addresses(addresses, checked=checked)
        binding.execute(0)
    binding.set_workspace(allocate(max(256, executable.workspace_bytes)))
    binding.execute(0)
    executable.bind(tensors, {}, allocate(max(256, executable.workspace_bytes))).execute(0)


def test_a_binding_made_while_its_stream_is_captured(executable, tensors):
    driver = ctypes.CDLL("libcuda.so.1")
    stream, graph, in_global_mode = ctypes.c_void_p(), ctypes.c_void_p(), 0
    executable.bind(tensors, {}, None).execute(0)  # which makes the context current
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, in_global_mode) == 0
    bindings = [executable.bind(tensors, {}, None, stream=stream.value) for _ in range(3)]
    for binding in bindings:
        binding.execute(stream.value)
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert driver.cuGraphDestroy(graph) == driver.cuStreamDestroy_v2(stream) == 0


@pytest.mark.parametrize("change, message", [
    ({"q": None}, "tensor 'q' (bf16 [1, 2, 4, 8]) is not given"),
    ({"q": {1: "f32"}}, "tensor 'q' is f32 but the plan needs bf16"),
    ({"q": {1: "bfloat16"}}, "q has dtype 'bfloat16', which no plan has\n"
                             "  note: dtypes are f16, bf16, f32, f64, i8, u8, i32, i64, bool, e4m3, e5m2, "
                             "e8m0"),
    ({"q": {2: (1, 2, 4, 9)}}, "tensor 'q' has dims [1, 2, 4, 9] but the plan needs [1, 2, 4, 8]"),
    ({"q": {3: (64, 32, 8, 2)}}, "tensor 'q' has strides [64, 32, 8, 2] but the plan needs [64, 32, 8, 1]"),
    ({"q": {0: 3}}, "tensor 'q' is at address 0x3, which is not a multiple of 16 bytes"),
    ({"k": {}}, "the plan has no tensor 'k'; it has q, o"),
])
def test_what_does_not_fit_is_named(executable, tensors, change, message):
    given = dict(tensors)
    for name, fields in change.items():
        tensor = list(tensors.get(name, tensors["q"]))
        for place, value in (fields or {}).items():
            tensor[place] = value
        given[name] = tuple(tensor)
        if fields is None:
            del given[name]
    with pytest.raises(attn.ArgumentError) as caught:
        executable.bind(given, {}, None)
    assert str(caught.value).startswith(message)


def test_later_changes_are_checked(executable, tensors):
    binding = executable.bind(tensors, {}, None)
    with pytest.raises(attn.ArgumentError, match="1 addresses are given for 2 tensors"):
        binding.set_addresses([256])
    with pytest.raises(attn.BindingError, match="which is not a multiple of 16 bytes"):
        binding.set_addresses([3, 3])
    with pytest.raises(attn.BindingError, match="the plan has no param 'x'"):
        binding.set_param("x", 1.0)
    binding.execute(0)


def test_a_plan_that_the_file_does_not_have(plan):
    with pytest.raises(attn.ArgumentError, match="there is no plan 1: the file has 1"):
        _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(plan), 1)


def test_many_threads_load_and_execute(plan, tensors):
    errors = []

    def work():
        try:
            for _ in range(20):
                loaded(plan).bind(tensors, {}, None).execute(0)
        except BaseException as error:  # noqa: B902, handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
