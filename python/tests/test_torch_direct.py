"""The builtin function that runs a plan with torch tensors, on the stand-in for the driver (python.operations).
Tensors of the CPU say that they are those of a GPU: by exchange functions of this file."""

import ctypes
import os
import weakref

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available() or "ATTN_STANDIN_PLAN" not in os.environ:
    pytest.skip("needs the stand-ins of tests/standin", allow_module_level=True)

import attn.torch  # noqa: E402
from attn import _libattn  # noqa: E402
from attn.torch import direct  # noqa: E402
from attn.torch.signature import TORCH_DTYPES  # noqa: E402
from test_libattn import allocate  # noqa: E402

CPU, CUDA = 1, 2


class Tensor(ctypes.Structure):
    """The first fields of DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32)]


class Managed(ctypes.Structure):
    """The first fields of DLManagedTensorVersioned."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


ALLOCATE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.POINTER(Managed)),
                             ctypes.c_void_p, ctypes.c_void_p)
GIVE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))
READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ALLOCATE),
                ("managed", ctypes.c_void_p), ("give", GIVE), ("read", READ), ("stream", STREAM)]


class OnDevice:
    """Exchange functions for tensors of the CPU, in memory that the stand-in takes for a device's."""

    def __init__(self):
        self._real = Exchange.from_address(direct.EXCHANGE)
        self.table = Exchange(self._real.version, None, ALLOCATE(self._allocate), None, GIVE(self._give),
                              READ(self._read), STREAM(self._stream))

    def _allocate(self, prototype, made, context, set_error):
        prototype.contents.device = CPU
        status = self._real.allocate(prototype, made, context, set_error)
        made.contents.contents.tensor.device = CUDA
        made.contents.contents.tensor.data = allocate(1 << 20)  # what kernels would write is not looked at
        return status

    def _give(self, managed, made):
        managed.contents.tensor.device = CPU
        return self._real.give(managed, made)

    def _read(self, thing, tensor):
        status = self._real.read(thing, tensor)
        tensor.contents.device = CUDA
        return status

    def _stream(self, kind, device, stream):
        stream.contents.value = None
        return 0


def on_device(info):
    dtype = TORCH_DTYPES[info.dtype]
    count = 1 + sum((size - 1) * step for size, step in zip(info.dims, info.strides))
    size = count * dtype.itemsize
    memory = torch.frombuffer((ctypes.c_char * size).from_address(allocate(size)), dtype=dtype)
    return memory.as_strided(info.dims, info.strides)


@pytest.fixture
def made(monkeypatch):
    """A direct call, and tensors for it."""
    exchange = OnDevice()
    monkeypatch.setattr(direct, "EXCHANGE", ctypes.addressof(exchange.table))
    with open(os.environ["ATTN_STANDIN_PLAN"], "rb") as file:
        plan = _libattn.PlanFile(file.read())
    executable = _libattn.Executable(_libattn.runtime(0), plan, 0)
    assert not executable.params
    run = direct.make(executable, torch.device("cuda", 0), 1 << 30)
    yield run, executable, tuple(on_device(info) for info in executable.tensors if not info.is_output)
    del run, exchange


def test_outputs_are_as_the_plan_says(made):
    run, executable, tensors = made
    for _ in range(3):
        outputs = run(tensors, ())
        infos = [info for info in executable.tensors if info.is_output]
        assert [tuple(x.shape) for x in outputs] == [tuple(info.dims) for info in infos]
        assert [x.stride() for x in outputs] == [tuple(info.strides) for info in infos]
        assert [x.dtype for x in outputs] == [TORCH_DTYPES[info.dtype] for info in infos]


def test_parameters_are_tensors(made):
    run, _, (first, *others) = made
    assert run((torch.nn.Parameter(first, requires_grad=False), *others), ()) is not None


class Other(torch.Tensor):
    """Another kind of tensor."""


@pytest.mark.parametrize("change", [
    lambda x: x.float(), lambda x: x[..., :1], lambda x: x[0], lambda x: x.as_subclass(Other), lambda x: None,
    lambda x: 1, lambda x: x.transpose(0, 1),
])
def test_what_does_not_fit_is_left_to_others(made, change):
    run, _, (first, *others) = made
    assert run((change(first), *others), ()) is None
    assert run((), ()) is None
    assert run((first, *others), (1.0,)) is None
    assert run((first, *others), ()) is not None


def test_an_error_is_raised(made):
    run, _, (first, *others) = made
    apart = torch.empty_strided(first.shape, first.stride(), dtype=first.dtype)  # in memory of the host
    with pytest.raises(attn.BindingError, match="host memory"):
        run((apart, *others), ())
    assert run((first, *others), ()) is not None


def test_it_takes_two_arguments(made):
    run, _, tensors = made
    with pytest.raises(TypeError):
        run(tensors)


def test_nothing_is_kept_of_a_call(made):
    run, _, tensors = made
    outputs = run(tensors, ())
    kept = weakref.ref(outputs[0])
    del outputs
    assert kept() is None
