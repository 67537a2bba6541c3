"""Plans compiled without a GPU, saved and loaded; damaged and foreign files."""
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

import attn
from attn import _attnc, _libattn

SIZES = {"B": 1, "Hq": 4, "Hkv": 2, "Sq": 256, "D": 64, "window": 64}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    os.environ["ATTN_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    return attn.compile("gemma2_local", target="h200", engine="native", **SIZES)


@pytest.fixture
def plan_file(compiled, tmp_path):
    path = tmp_path / "gemma.attnplan"
    compiled.save(path)
    return path


def test_a_plan_has_what_inspect_prints(compiled, plan_file):
    manifest = _attnc.run(["inspect", str(plan_file)])
    (info,) = compiled.plans
    assert (info.name, info.target, info.sm, info.direction) == ("gemma2_local", "h200", 90, "fwd")
    assert info.signature == manifest["signature"]
    assert info.cudnn_version == manifest["cudnn_version"] or info.cudnn_version == 0
    assert info.workspace_bytes == manifest["workspace_bytes"]
    assert info.sizes == manifest["shape"]["sizes"] == compiled.sizes
    assert sorted(info.padded) == sorted(manifest["shape"]["padded"])
    tensors = manifest["program"]["tensors"]
    assert [(one.name, one.role, one.dtype, list(one.dims), list(one.strides), one.alignment)
            for one in info.tensors] == [
        (one["name"], one["role"], one["dtype"], one["dims"], one["strides"], one["alignment"])
        for one in tensors]
    assert [one.name for one in info.tensors if one.is_output] == ["o", "lse"]


def test_a_saved_plan_is_loaded(compiled, plan_file):
    loaded = attn.load(plan_file)
    assert loaded.bytes == compiled.bytes
    assert loaded.plans == compiled.plans
    assert loaded.bindings == SIZES
    assert "q_idx - kv_idx < window" in loaded.spec
    assert "1 plan for h200" in repr(loaded)


def test_saving_replaces_a_file_at_once(compiled, tmp_path):
    path = tmp_path / "x.attnplan"
    path.write_bytes(b"old")
    compiled.save(str(path))
    assert path.read_bytes() == compiled.bytes
    assert os.listdir(tmp_path) == ["x.attnplan"]
    with pytest.raises(attn.CompilerError, match="cannot be written: No such file or directory"):
        compiled.save(tmp_path / "nowhere" / "x.attnplan")


def test_a_training_pair_and_several_sizes():
    found = attn.compile("sink_global", target="h200", engine="native", direction="both", B=[1, 2],
                         Hq=4, Hkv=2, Sq=256)
    assert [(plan.direction, plan.sizes["B"]) for plan in found.plans] == [
        ("fwd", 1), ("bwd", 1), ("fwd", 2), ("bwd", 2)]
    file = _libattn.PlanFile(found.bytes)
    assert file.choose(90, {"B": 2}) == {"fwd": 2, "bwd": 3}
    assert file.choose(90, {"B": 3}) == file.choose(80, {"B": 2}) == {}
    with pytest.raises(attn.ArgumentError, match="plans for Sq=256 differ in B: give that size too"):
        file.choose(90, {"Sq": 256})


def test_the_cache_is_used(compiled):
    again = attn.compile("gemma2_local", target="h200", engine="native", **SIZES)
    assert again.bytes == compiled.bytes


def test_a_form_is_built_again(compiled):
    contents = compiled.build(sizes={"Sq": 128}, direction="fwd")
    (info,) = _libattn.PlanFile(contents).plans
    assert info.sizes["Sq"] == 128 and info.target == "h200"


def test_explain_is_of_the_plan_or_of_a_target(compiled):
    assert "attnc kernels write o, lse" in compiled.explain()
    assert "for h100" in attn.compile("gemma2_local", **SIZES).explain(target="h100")


def test_there_is_no_plan_without_target_or_gpu():
    if attn.plan.local_gpu() is not None:
        pytest.skip("this machine has a GPU")
    found = attn.compile("gemma2_local", **SIZES)
    assert found.plans == () and found.bytes is None and found.target is None
    with pytest.raises(attn.ArgumentError) as caught:
        found.save("x.attnplan")
    assert str(caught.value) == (
        "`gemma2_local` has no plan to save\n"
        "  note: compile it for a GPU: attn.compile(.., target=\"h200\"); attn.targets() lists all, and "
        "none of them needs to be here")
    with pytest.raises(attn.CudaError) as caught:
        _libattn.runtime(0)
    assert caught.value.failure == "no_driver"


@pytest.mark.parametrize("options, message", [
    ({"target": "h2000"}, 'unknown target "h2000"; targets are h200, h100'),
    ({"engine": "flash"}, "engine is 'flash'; it must be one of auto, cudnn, native, unfused"),
    ({"direction": "up", "target": "h200"}, "direction is 'up'; it must be one of fwd, bwd, both"),
    ({"windw": 3}, "`gemma2_local` has no dimension or parameter `windw`\n  note: it has B, Hq"),
    ({"window": "x"}, "window must be a number, not str"),
    ({"score_mod": abs}, "a spec and mods were both given"),
])
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(attn.ArgumentError) as caught:
        attn.compile("gemma2_local", **options)
    assert message in str(caught.value)


def test_nothing_to_compile():
    with pytest.raises(attn.ArgumentError, match="nothing to compile was given"):
        attn.compile()


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def test_functions_are_compiled():
    found = attn.compile(mask_mod=causal, B=1, Hq=4, Sq=256, D=64, target="h200", engine="native")
    assert found.spec == found.plans[0].spec
    assert "mask    q_idx >= kv_idx;" in found.spec
    assert found.sizes["Skv"] == 256 and found.captured == {}


@pytest.mark.parametrize("sizes, message", [
    ({"B": 1, "Sq": 4}, "functions are traced for given sizes, and Hq, D are missing\n"
                        "  note: attn.compile(score_mod=f, B=2, Hq=8, Sq=1024, D=64)"),
    ({"B": 1, "Hq": 1, "Sq": 4, "D": 8, "window": 3}, "`window` is no size, and no option of a trace\n"),
])
def test_functions_need_sizes(sizes, message):
    with pytest.raises(attn.ArgumentError) as caught:
        attn.compile(mask_mod=causal, **sizes)
    assert str(caught.value).startswith(message)


def test_the_tracer_is_a_function_of_the_package():
    assert "q_idx >= kv_idx" in attn.trace(None, causal, B=1, Hq=1, Hkv=1, Sq=4, Skv=4, Dqk=8, Dv=8).text


def test_a_plan_needs_all_sizes():
    with pytest.raises(attn.ArgumentError) as caught:
        attn.compile("attention x { dims B, Hq = 4, Sq, D = 64; mask q_idx >= kv_idx; }", target="h200")
    assert str(caught.value) == ("`x` has no size for B, Sq, and a plan for h200 needs all sizes\n"
                                 "  note: give them: attn.compile(.., B=.., Sq=..)")


def test_an_input_is_no_parameter():
    with pytest.raises(attn.ArgumentError, match="`temperature` is an input: give it at each call"):
        attn.compile("temperature", temperature=2.0)


def test_what_no_engine_computes_is_unsupported():
    with pytest.raises(attn.UnsupportedError) as caught:
        attn.compile("mxfp8", target="a100", engine="native")
    assert "have no scales of blocks" in str(caught.value)


def test_damaged_and_foreign_files(compiled, tmp_path):
    good = compiled.bytes
    middle = len(good) // 2
    damaged = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1:]
    for contents, status in ((b"", "plan_truncated"), (good[:100], "plan_truncated"),
                             (good[:-1], "plan_truncated"), (b"text" * 100, "plan_foreign"),
                             (b"\x89ATN" + good[4:], "plan_foreign"), (damaged, "plan_damaged")):
        path = tmp_path / f"{status}.attnplan"
        path.write_bytes(contents)
        with pytest.raises(attn.PlanError) as caught:
            attn.load(path)
        assert caught.value.status == status


def test_a_file_that_is_missing_or_a_folder(tmp_path):
    with pytest.raises(attn.CompilerError, match="x.attnplan cannot be read: No such file or directory"):
        attn.load(tmp_path / "x.attnplan")
    with pytest.raises(attn.CompilerError, match="cannot be read: Is a directory"):
        attn.load(tmp_path)


def test_many_threads_load_at_once(plan_file):
    found, errors = [], []

    def load():
        try:
            found.append(attn.load(plan_file).plans)
            with pytest.raises(attn.PlanError, match="not an attnc plan"):
                _libattn.PlanFile(b"foreign" * 20)
        except BaseException as error:  # noqa: B902, handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found) == 8 and all(plans == found[0] for plans in found)


def test_near_engines_are_measured_where_pytorch_measures(monkeypatch):
    torch = pytest.importorskip("torch")
    asked = []
    monkeypatch.setattr(attn.plan, "_compiled", lambda options, *_: asked.append(options) or b"")
    for benchmark in (False, True):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
        attn.plan.build(attn.Spec.of("causal"), {})
    assert ["--no-autotune" in options for options in asked] == [True, False]


def test_missing_programs_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTN_ATTNC", str(tmp_path / "attnc"))
    with pytest.raises(attn.CompilerError) as caught:
        attn.targets()
    assert str(caught.value) == (f"ATTN_ATTNC is {tmp_path}/attnc, which is not a file\n"
                                 "  note: set it to the path of attnc, or unset it")


def test_attnc_that_crashes_is_an_error(monkeypatch, tmp_path):
    program = tmp_path / "attnc"
    program.write_text("#!/bin/sh\nkill -SEGV $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("ATTN_ATTNC", str(program))
    with pytest.raises(attn.CompilerError, match="attnc was ended by signal 11"):
        attn.targets()


def test_one_process_runs_all_commands(tmp_path):
    program, calls = tmp_path / "attnc", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {_attnc.path()} "$@"\n')
    program.chmod(0o755)
    text = """
import numpy as np
import attn

f = attn.compile("gemma2_local", window=8)
q, k, v = (np.ones((1, heads, 16, 128), "float32") for heads in (8, 4, 4))
o, lse = f(q, k, v)
f.gradients(q, k, v, do=o)
attn.compile("causal", Sq=64, target="h200", engine="native", cache=False).explain()
attn.compile(mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, B=1, Hq=8, Sq=16, D=64)(q[..., :64], *[q[..., :64]] * 2)
"""
    package = str(pathlib.Path(attn.__file__).parents[1])
    subprocess.run([sys.executable, "-c", text], check=True,
                   env={**os.environ, "ATTN_ATTNC": str(program), "PYTHONPATH": package})
    assert calls.read_text() == "serve\n"


def test_a_process_that_was_ended_is_started_again():
    before = attn.targets()
    _attnc._server._process.kill()
    _attnc._server._process.wait()
    assert attn.targets() == before


def test_a_forked_process_may_ask_too():
    targets = attn.targets()
    child = os.fork()
    if child == 0:
        os._exit(0 if attn.targets() == targets else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert attn.targets() == targets


def test_nothing_is_compiled_before_it_is_needed(monkeypatch, compiled):
    asked = []
    monkeypatch.setattr(attn.plan, "local_gpu", lambda: {"name": "H200", "sm": 90})
    monkeypatch.setattr(attn.plan, "build", lambda spec, bindings, *_, **__: asked.append(bindings) or compiled.bytes)
    f = attn.compile("gemma2_local", Sq=128)
    assert repr(f).endswith("Dv=256): no plan>") and asked == []
    assert len(f.plans) == 1 and f.bytes == compiled.bytes and asked == [{"Sq": 128}]
    attn.compile("gemma2_local", Sq=256, builds=False)  # calls may not compile
    assert asked[1:] == [{"Sq": 256}]
    assert attn.compile("attention open { dims B, Hq, Sq, D; }").bytes is None and len(asked) == 2


def test_versions_agree():
    version = json.loads(subprocess.run([str(_attnc.path()), "version", "--format", "json"],
                                        capture_output=True, text=True, check=True).stdout)
    assert attn.__version__ == version["attnc"] == _libattn.version()


def test_a_plan_of_another_cudnn_is_compiled_again(tmp_path):
    """Here: the same cuDNN, so nothing happens, and nothing is said."""
    found = attn.compile("gemma2_local", target="h200", engine="native", **SIZES)
    found.save(tmp_path / "x.attnplan")
    if attn.plan.local_gpu() is None:
        assert attn.load(tmp_path / "x.attnplan", recompile=True).bytes == found.bytes


def test_recompile_gives_a_plan_for_another_gpu(compiled):
    contents = attn.plan.recompile(compiled.bytes, "h100")
    (info,) = _libattn.PlanFile(contents).plans
    assert info.target == "h100"
