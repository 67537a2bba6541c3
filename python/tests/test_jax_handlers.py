"""The functions by which programs of XLA execute plans (python/native/xla), called by JAX's CPU on the stand-ins for the
driver and cuDNN (the test python.jax): $ATTN_STANDIN_PLAN is a plan for them."""

import base64
import ctypes
import os
import pathlib
import resource

import pytest

if "ATTN_STANDIN_PLAN" not in os.environ:
    pytest.skip("needs the stand-ins of tests/standin", allow_module_level=True)

from jax_on_cpu import jax, on_cpu  # noqa: E402, F401

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import attn.jax  # noqa: E402
from attn import _libattn  # noqa: E402
from attn.jax import handlers  # noqa: E402
from test_libattn import allocate  # noqa: E402

PLAN = pathlib.Path(os.environ["ATTN_STANDIN_PLAN"]).read_bytes()
SHAPE = (1, 2, 4, 8)
TARGET = "attn_plan_on_the_stand_in"


class Control(ctypes.Structure):
    """The first functions of StandinControl."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("reset", "script", "release", "blocked")] + [
        ("calls", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int)),
        ("live", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p))]


class Rule(ctypes.Structure):
    """StandinRule."""

    _fields_ = [("function", ctypes.c_char_p), ("kind", ctypes.c_int), ("nth", ctypes.c_long),
                ("status", ctypes.c_int), ("words", ctypes.c_char_p), ("delay_ms", ctypes.c_int),
                ("block", ctypes.c_int)]


@pytest.fixture(scope="module")
def control():
    driver = ctypes.CDLL("libcuda.so.1")
    driver.standin_cuda.restype = ctypes.POINTER(Control)
    return driver.standin_cuda().contents


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The handlers, by those of the stand-in, which lend them a stream and take the host's memory for a device's."""
    driver = pathlib.Path(os.environ["ATTN_CUDNN_DIR"])
    standin, own = ctypes.CDLL(str(driver / "libattn_standin_xla.so")), handlers.library()
    stages = ("instantiate", "initialize", "execute")
    addresses = [ctypes.cast(getattr(own, f"attn_xla_{stage}"), ctypes.c_void_p) for stage in stages]
    standin.standin_xla_use(*addresses)
    functions = {stage: jax.ffi.pycapsule(getattr(standin, f"standin_xla_{stage}")) for stage in stages}
    jax.ffi.register_ffi_target(TARGET, functions, platform="cpu")


def called(q, plan=None, index=0, params=(), shape=SHAPE, workspace=None):
    (info,) = _libattn.PlanFile(PLAN).plans
    size = info.workspace_bytes + handlers.WORKSPACE_ALIGNMENT if workspace is None else workspace
    results = [jax.ShapeDtypeStruct(shape, jnp.bfloat16), jax.ShapeDtypeStruct((size,), jnp.uint8)]
    text = base64.b64encode(PLAN).decode() if plan is None else plan
    return jax.ffi.ffi_call(TARGET, results, vmap_method="sequential")(
        q, plan=text, index=np.int64(index), params=np.array(params, np.float64))[0]


def some(seed, *batches):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(*batches, *SHAPE)), jnp.bfloat16)


def wanted(q):
    """What the plan makes of q, by a binding."""
    executable = _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(PLAN), 0)
    places = {info.name: allocate(info.bytes) for info in executable.tensors}
    given = np.ascontiguousarray(q)
    ctypes.memmove(places["q"], given.ctypes.data, given.nbytes)
    executable.bind({info.name: (places[info.name], info.dtype, info.dims, info.strides)
                     for info in executable.tensors}, {}, None).execute(0)
    found = np.empty_like(given)
    ctypes.memmove(found.ctypes.data, places["o"], found.nbytes)
    return found


def equal(x, y):
    return np.array_equal(np.asarray(x).view(np.uint16), np.asarray(y).view(np.uint16))


def test_a_compiled_program_executes_the_plan():
    q = some(1)
    run = jax.jit(called)
    assert equal(run(q), wanted(q))
    other = some(2)
    assert equal(run(other), wanted(other)) and not equal(run(q), run(other))


def test_under_vmap_scan_and_shard_map():
    q = some(3, 2)
    each = [wanted(x) for x in q]
    assert all(equal(x, y) for x, y in zip(jax.jit(jax.vmap(called))(q), each))
    assert all(equal(x, y) for x, y in zip(jax.lax.scan(lambda c, x: (c, called(x)), 0, q)[1], each))
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("x",))
    mapped = jax.shard_map(lambda x: called(x[0])[None], mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    assert all(equal(x, y) for x, y in zip(jax.jit(mapped)(q), each))


def test_an_exported_program_has_the_plan_inside():
    pytest.importorskip("flatbuffers")
    q = some(4)
    checks = [jax.export.DisabledSafetyCheck.custom_call(TARGET)]
    exported = jax.export.export(jax.jit(called), disabled_checks=checks)(q)
    again = jax.export.deserialize(exported.serialize())
    assert equal(again.call(q), wanted(q))


def test_what_is_loaded_is_freed_with_the_program(control):
    before = [control.live(what) for what in (b"module", b"memory")]
    program = jax.jit(lambda q: called(q)).lower(some(5)).compile()
    program(some(5)).block_until_ready()
    del program
    jax.clear_caches()
    assert [control.live(what) for what in (b"module", b"memory")] == before


def test_calls_allocate_nothing(control):
    run, q = jax.jit(called), some(6)
    run(q).block_until_ready()
    before = [control.calls(name, -1) for name in (b"cuMemAlloc", b"cuMemFree", b"cuModuleLoadData")]
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        run(q)
    run(q).block_until_ready()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 2_000  # KiB
    assert [control.calls(name, -1) for name in (b"cuMemAlloc", b"cuMemFree", b"cuModuleLoadData")] == before


@pytest.mark.parametrize("changes, message", [
    ({"plan": "===="}, "plan_damaged.*not text in base64"),
    ({"plan": base64.b64encode(b"nothing").decode()}, r"\[attn plan_"),
    ({"plan": base64.b64encode(PLAN[:-40]).decode()}, r"\[attn plan_"),
    ({"index": 1}, "`index` is 1, and the file has 1 plans"),
    ({"index": -1}, "`index` is -1"),
    ({"params": (1.0,)}, "the plan has 0 params, the call 1"),
    ({"shape": (1, 2, 4, 4)}, r"o must have 128 bytes of bf16, and the call gives the shape \[1, 2, 4, 4\]"),
    ({"workspace": 16}, "the workspace must have")])
def test_wrong_calls_are_errors_of_types(changes, message):
    with pytest.raises(Exception, match=message) as caught:
        jax.jit(lambda q: called(q, **changes))(some(7)).block_until_ready()
    assert isinstance(attn.jax.error_of(caught.value), attn.Error)


def test_a_wrong_type_is_an_error():
    with pytest.raises(Exception, match="q must have 128 bytes of bf16") as caught:
        jax.jit(lambda q: called(q.astype(jnp.float32)))(some(7)).block_until_ready()
    assert isinstance(attn.jax.error_of(caught.value), attn.BindingError)


def test_a_failing_driver_is_an_error(control):
    run, q = jax.jit(called), some(8)
    run(q).block_until_ready()
    cudnn = ctypes.CDLL(str(pathlib.Path(os.environ["ATTN_CUDNN_DIR"]) / "libcudnn.so.9"))
    cudnn.standin_cudnn.restype = ctypes.POINTER(Control)
    script = ctypes.CFUNCTYPE(None, ctypes.POINTER(Rule))(cudnn.standin_cudnn().contents.script)
    script(ctypes.byref(Rule(b"cudnnBackendExecute", -1, 1, 5000, b"the stand-in says so", 0, 0)))
    with pytest.raises(Exception, match="the stand-in says so") as caught:
        run(q).block_until_ready()
    assert isinstance(attn.jax.error_of(caught.value), attn.CudnnError)
    assert equal(run(q), wanted(q))
