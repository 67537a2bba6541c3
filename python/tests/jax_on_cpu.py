"""What tests of attn.jax without a GPU import first: JAX, whose arrays are those of the CPU and of 64 bits in their
modules."""

import pytest

jax = pytest.importorskip("jax")


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    """The CPU is the default device of the module."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture(scope="module", autouse=True)
def with_64_bits():
    """Arrays of 64 bits, which JAX has only if it is told so."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
