"""Attentions on several GPUs by ctypes, on the stand-ins of tests/standin: ranks are threads."""
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import threading
import time
import weakref

import pytest

import attn
from attn import _distributed, _libattn, plan

from test_libattn import allocate

pytestmark = pytest.mark.skipif("ATTN_STANDIN_PLAN" not in os.environ, reason="needs the stand-ins of tests/standin")
SPEC = attn.Spec.of("attention x { dims B = 1, Hq = 2, Hkv = 2, Sq = 256, D = 64; mask q_idx >= kv_idx; "
                    "param t: f32; score score / t; outputs o, lse; shard sequence; }")


@pytest.fixture(scope="module")
def files():
    """For two ranks, and another one."""
    return [plan.build_ranks(SPEC, {"Sq": size}, 2, "h200", engine="native", direction="fwd", cache=False)
            for size in (256, 384)]


class Nccl:
    """The stand-in's control table (tests/standin/standin.h): nine functions of every stand-in, then its own."""

    def __init__(self):
        library = ctypes.CDLL("libnccl.so.2")
        library.standin_nccl.restype = ctypes.POINTER(ctypes.c_void_p)
        table = library.standin_nccl()
        pointer = ctypes.c_void_p
        self._make = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(pointer))(table[9])
        self._destroy = ctypes.CFUNCTYPE(None, pointer)(table[10])

    def communicators(self, count):
        made = (ctypes.c_void_p * count)()
        self._make(count, made)
        return list(made)

    def destroy(self, communicators):
        for each in communicators:
            self._destroy(each)


def in_ranks(count, body):
    """What body(rank, communicator) returns or raises, of each rank."""
    nccl, found = Nccl(), [None] * count
    communicators = nccl.communicators(count)

    def work(rank):
        try:
            found[rank] = body(rank, communicators[rank])
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nccl.destroy(communicators)
    for each in found:
        if isinstance(each, Exception) and not isinstance(each, attn.Error):
            raise each
    return found


def opened(contents, communicator, **options):
    return _distributed.Distributed(_libattn.runtime(0), contents, communicator, **{"timeout_seconds": 5, **options})


def test_ranks_execute(files):
    def body(rank, communicator):
        sharded = opened(files[0], communicator)
        assert (sharded.name, sharded.rank, sharded.ranks, sharded.directions) == ("x", rank, 2, ("fwd",))
        assert len(sharded.family) == 32 and sharded.sharding
        assert (sharded.device_bytes > 0) == (rank == 1)  # keys arrive at the rank of the later rows
        homes = [[number for begin, end in sharded.home(each, which) for number in range(begin, end)]
                 for which in (_distributed.ROWS, _distributed.KEYS) for each in (0, 1)]
        tensors = {info.name: info for info in sharded.tensors["fwd"]}
        assert list(tensors) == ["q", "k", "v", "o", "lse"]
        assert tensors["q"].dims == (1, 2, len(homes[rank]), 64)
        assert [param.name for param in sharded.params["fwd"]] == ["t"]
        given = {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides) for info in tensors.values()}
        with pytest.raises(attn.BindingError, match="'q'"):
            sharded.bind("fwd", {**given, "q": (given["q"][0], "f32", *given["q"][2:])}, {"t": 1.0})
        with pytest.raises(attn.ArgumentError, match="not compiled or loaded for bwd: it has fwd"):
            sharded.bind("bwd", given, {})
        binding = sharded.bind("fwd", given, {"t": 1.0})
        binding.execute(0)
        binding.set_addresses([allocate(info.bytes) for info in tensors.values()])
        binding.set_param("t", 2.0)
        binding.execute(0)
        with pytest.raises(attn.ArgumentError, match="1 addresses are given for 5 tensors"):
            binding.set_addresses([256])
        sharded.check()
        return homes

    first, second = in_ranks(2, body)
    assert first == second
    for which in (first[:2], first[2:]):
        assert sorted(number for home in which for number in home) == list(range(256))


def test_a_communicator_of_another_size(files):
    for error in in_ranks(3, lambda rank, communicator: opened(files[0], communicator)):
        assert isinstance(error, attn.ArgumentError), error


def test_ranks_with_different_files(files):
    for error in in_ranks(2, lambda rank, communicator: opened(files[rank], communicator)):
        assert isinstance(error, attn.Error) and error.status == "mismatch", error


def test_a_rank_that_cannot_open_is_named(files):
    first, second = in_ranks(2, lambda rank, communicator: opened(files[0] if rank == 0 else b"?", communicator))
    assert isinstance(first, attn.PlanError) and "rank 1" in str(first), first
    assert isinstance(second, attn.PlanError), second


def test_a_rank_that_does_not_come(files):
    aborted = []

    def body(rank, communicator):
        def abort():
            aborted.append(rank)
            ctypes.CDLL("libnccl.so.2").ncclCommAbort(ctypes.c_void_p(communicator))

        if rank == 0:
            opened(files[0], communicator, timeout_seconds=1, abort=abort)

    error, _ = in_ranks(2, body)
    assert isinstance(error, attn.NcclError), error
    assert aborted == [0]


def test_a_rank_that_is_known_not_to_come(files):
    """To an exchange, because it had to give up."""
    def body(rank, communicator):
        heard = []

        def lost():
            assert gc.isenabled(), "it is the process's, not the library's"
            heard.append(rank)
            return "rank 1 is gone: é" if len(heard) > 1 else None

        sharded = opened(files[0], communicator, timeout_seconds=100, lost=lost)
        given = {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides)
                 for info in sharded.tensors["fwd"]}
        binding = sharded.bind("fwd", given, {"t": 1.0})
        binding.execute(0)
        if rank == 0:
            with pytest.raises(attn.NcclError, match="rank 1 is gone: é"):
                binding.execute(0)
                for _ in range(500):
                    sharded.check()
                    time.sleep(0.02)
            with pytest.raises(attn.NcclError, match="rank 1 is gone: é"):
                sharded.check()
            assert len(heard) == 2
        else:
            sharded.abort("no memory")
            with pytest.raises(attn.NcclError, match="no memory"):
                binding.execute(0)
        return heard

    assert len(in_ranks(2, body)[0]) == 2


def test_garbage_of_a_thread_of_the_library_does_not_wait_for_it():
    over, waited = threading.Event(), []
    handles = [_libattn._Handle("attn_plan_close") for _ in range(3)]
    for number, handle in enumerate(handles):
        handle._destroy = lambda _, number=number: waited.append((number, over.wait(10)))
        handle.itself = handle
    with _distributed._leaving_to(_distributed._later()):
        del handle, handles
        gc.collect()
        assert not waited
        over.set()
    _distributed._later().finish()
    assert sorted(waited) == [(number, True) for number in range(3)]


@pytest.mark.parametrize("where", ["in a thread of the library", "elsewhere"])
def test_a_binding_in_garbage_is_destroyed_before_its_object_and_both_before_the_callbacks(where, monkeypatch):
    done, called = [], object()  # by what stands for the callbacks, which alone refers to it
    before = sys.getrefcount(called)

    def destroying(handle, name, value):
        handle.value.value = value
        handle._destroy = lambda given: done.append((name, sys.getrefcount(called) > before)) if given else None

    monkeypatch.setattr(_distributed, "_call", lambda *_: None)
    sharded = _distributed.Distributed.__new__(_distributed.Distributed)
    sharded._bindings, sharded.tensors = weakref.WeakSet(), {"fwd": ()}
    sharded._handle = _libattn._Handle("attn_distributed_destroy", [called])
    sharded.itself = binding = _distributed.Binding(sharded, "fwd", None)
    destroying(sharded._handle, "object", 1)
    destroying(binding._handle, "binding", 2)
    del sharded, binding
    if where == "elsewhere":
        gc.collect()
    else:
        with _distributed._leaving_to(_distributed._later()):
            gc.collect()
        _distributed._later().finish()
    assert done == [("binding", True), ("object", True)]
    gc.collect()
    assert sys.getrefcount(called) == before, "nothing is left"


def test_threads_share_what_makes_later_calls(monkeypatch):
    made = []

    class Slow:
        def __init__(self):
            time.sleep(0.05)
            made.append(self)

    monkeypatch.setattr(_distributed, "_laters", {})
    monkeypatch.setattr(_libattn, "Later", Slow)
    threads = [threading.Thread(target=_distributed._later) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def finishes(later):
    thread = threading.Thread(target=later.finish, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def test_later_calls_are_made_after_one_that_raises(monkeypatch):
    ignored, later = [], _libattn.Later()
    monkeypatch.setattr(sys, "unraisablehook", lambda about: ignored.append(repr(about.exc_value)))
    for number in range(2):
        later.add(lambda number=number: 1 // number)
    later.add(sys.exit)
    later.add(lambda: ignored.append("made"))
    assert finishes(later)
    assert ignored == [repr(ZeroDivisionError("integer division or modulo by zero")), "SystemExit()", "made"]


def test_nobody_waits_for_later_calls_that_nobody_makes(monkeypatch):
    monkeypatch.setattr(_libattn.Later, "_run", lambda self: None)
    assert finishes(_libattn.Later())


def test_what_is_closed_is_refused(files):
    def body(rank, communicator):
        sharded = opened(files[0], communicator)
        given = {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides)
                 for info in sharded.tensors["fwd"]}
        binding = sharded.bind("fwd", given, {"t": 1.0})
        sharded.close()
        sharded.close()
        for call in (lambda: binding.execute(0), sharded.check, lambda: sharded.bind("fwd", given, {"t": 1.0})):
            with pytest.raises(attn.ArgumentError):
                call()

    in_ranks(2, body)


@pytest.mark.parametrize("how, lines", [
    ("keep", ["failed", "aborted"]), ("exit", ["failed", "aborted"]), ("close", ["failed", "aborted", "closed"])])
def test_no_thread_is_left_when_python_ends(files, tmp_path, how, lines):
    path = tmp_path / "x.attnplan"
    path.write_bytes(files[0])
    script = pathlib.Path(__file__).with_name("ranks_that_end.py")
    folders = {"PYTHONPATH": f"{script.parents[1]}:{script.parent}"}
    done = subprocess.run([sys.executable, script, path, how], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **folders})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == lines, done.stdout + done.stderr
