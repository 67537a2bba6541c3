"""Each test has a plan cache of its own, and JAX eight devices of the CPU, for which it optimizes little."""
import os

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
                                   " --xla_llvm_disable_expensive_passes=true")
# Inductor starts a Python with PyTorch for each instruction set, to see if it works, and others that compile for it.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / "cache"))
