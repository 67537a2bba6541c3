"""Schedules and checks of bindings, with stand-ins for the driver: $ATTN_SCHEDULED_PLAN is a plan for them that takes
a schedule (the test python.runtime)."""
import ctypes
import os

import pytest

import attn
from attn import _libattn
from test_libattn import allocate

PLAN, OTHER = os.environ.get("ATTN_SCHEDULED_PLAN"), os.environ.get("ATTN_STANDIN_PLAN")
pytestmark = pytest.mark.skipif(PLAN is None, reason="needs the stand-ins of tests/standin")


def loaded(path):
    with open(path, "rb") as file:
        return _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(file.read()), 0)


@pytest.fixture(scope="module")
def executable():
    return loaded(PLAN)


class Layer:
    """A binding with memory of its own; the memory of the stand-in's device is the host's."""

    def __init__(self, executable, lengths=(5, 2)):
        tensors = {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides)
                   for info in executable.tensors}
        for name in ("q", "k", "v"):
            ctypes.memset(tensors[name][0], 1, 96)
        self.tensors = {name: tensor[0] for name, tensor in tensors.items()}
        self.set_lengths(*lengths)
        self.binding = executable.bind(tensors, {"cap": 2.0, "window": 3}, None)

    def set_lengths(self, *lengths):
        (ctypes.c_int32 * len(lengths)).from_address(self.tensors["lengths_kv"])[:] = lengths

    def o(self):
        self.binding.execute(0)
        return ctypes.string_at(self.tensors["o"], 96)


def test_a_schedule_is_made_once_for_layers(executable):
    first, second = Layer(executable), Layer(executable)
    own = second.o()
    schedule = _libattn.Schedule(executable)
    for layer in (first, second):
        layer.binding.use_schedule(schedule)
    with pytest.raises(attn.BindingError, match="was not built yet"):
        first.binding.execute(0)
    schedule.build(first.binding, 0)
    made = first.o()
    assert second.o() == made != own  # of which the options differ, which count for a stand-in
    schedule.build(first.binding, 0, sequences=1)
    assert second.o() != made
    number = allocate(8)
    schedule.build(first.binding, 0, device_sequences=number)
    assert second.o() != made
    before = first.o()
    schedule.build(first.binding, 0, device_sequences=number, shared_keys=-1)
    assert first.o() != before
    schedule.build(first.binding, 0, shared_keys=2)
    assert first.o() not in (before, made)
    assert isinstance(schedule.flags(0), int)
    del schedule  # the bindings keep it
    assert first.o() == second.o() != made
    second.binding.use_schedule(None)
    assert second.o() == own


def test_options_that_cannot_be_are_named(executable):
    _libattn.Schedule(executable, max_parts=2, split_keys=2, sm_margin=1, capacity_keys=10)
    with pytest.raises(attn.ArgumentError, match="split_keys is given without capacity_keys"):
        _libattn.Schedule(executable, split_keys=2)
    layer = Layer(executable)
    with pytest.raises(attn.ArgumentError, match="the number of sequences is 3; it must be 0 to 2"):
        _libattn.Schedule(executable).build(layer.binding, 0, sequences=3)
    with pytest.raises(attn.ArgumentError, match="the number of shared keys is -3"):
        _libattn.Schedule(executable).build(layer.binding, 0, shared_keys=-3)
    with pytest.raises(attn.UnsupportedError, match="the executable takes no schedule"):
        _libattn.Schedule(loaded(OTHER))


def test_a_binding_is_checked(executable):
    layer = Layer(executable)
    layer.binding.check(0)
    layer.set_lengths(6, 2)
    with pytest.raises(attn.BindingError, match="tensor 'lengths_kv' has 6 at 0, but a sequence has 0 to 5 keys"):
        layer.binding.check(0)
