"""Bindings that a launch keeps."""

import sys
import threading
import types

import pytest

torch = pytest.importorskip("torch")

from attn.torch import launch  # noqa: E402


class Executable:
    """Has no tensors; its bindings do nothing."""

    tensors, params, workspace_bytes = (), (), 0

    def bind(self, tensors, params, **how):
        return types.SimpleNamespace()


@pytest.fixture
def often_switched():
    """Threads take turns after a microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_forget_the_oldest_bindings_of_all(monkeypatch, often_switched):
    monkeypatch.setattr(launch.direct, "make", lambda *arguments: None)
    monkeypatch.setattr(launch, "is_capturing", lambda: False)
    kernels = launch.Launch(Executable(), torch.device("cpu"))
    errors = []

    def bind():
        try:
            for step in range(2000):
                kernels._binding(0, (), (), None, (("k", (step,), (1,)),))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=bind) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(kernels._bound) == launch.MOST_VIEWS
