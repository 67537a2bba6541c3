"""Specs from text, files, dicts and names; what their errors say."""
import json
import pathlib

import numpy as np
import pytest

import attn
from attn.specs import Spec

CAUSAL = """attention causal {
  dims    B, Hq = 4, Sq, D = 8;
  mask    q_idx >= kv_idx;
  outputs lse, o;
}
"""


def test_a_spec_is_made_of_text_file_dict_and_name(tmp_path):
    file = tmp_path / "mine.attn"
    file.write_text(CAUSAL)
    tree = Spec(CAUSAL).tree
    for source in (CAUSAL, str(file), file, tree, Spec(CAUSAL)):
        said = Spec.of(source).described()
        assert said.name == "causal"
        assert said.outputs == ("lse", "o")
        assert Spec.of(source).dsl == CAUSAL
    assert Spec.of("gemma2_local").described().name == "gemma2_local"
    assert Spec.of("gemma2_local.attn").described().parameters == ("window",)


def test_every_standard_spec_is_read():
    assert len(attn.specs.names()) > 70
    for name in ("thd", "dropout", "t5_bias", "paged_decode"):
        said = Spec.of(name).described()
        assert said.sizes["B"] and said.dtype == "bf16"
    assert [*Spec.of("thd").described().inputs] == ["cu_seqlens_q", "cu_seqlens_kv"]
    assert [*Spec.of("padding").described().inputs] == ["lengths_q", "lengths_kv"]
    assert [one.optional for one in Spec.of("dropout").described().inputs.values()] == [True, True]
    assert Spec.of("t5_bias").described().learned == ("table",)
    assert Spec.of("t5_bias").described().gradients == ("q", "k", "v", "table")
    assert Spec.of("temperature").described().params == ("temperature",)


def test_declarations_are_found():
    spec = Spec("attention x { dims B, Hq, Sq, D; tensor doc: i32[B, Skv] monotone; "
                "learn bias: f32[Hq]; score score + bias[h]; mask doc[b, q_idx] == doc[b, kv_idx]; }")
    assert [(one.name, one.dtype, one.dims, one.learned) for one in spec.described().inputs.values()] == [
        ("doc", "i32", ("B", "Skv"), False), ("bias", "f32", ("Hq",), True)]
    assert spec.described().gradients == ("q", "k", "v", "bias")


def test_sizes_follow_names():
    spec = Spec(CAUSAL)
    assert spec.described().open == ["B", "Sq"]
    assert spec.described({"B": 2, "Sq": 16, "D": 32}).sizes == {
        "B": 2, "Hq": 4, "Hkv": 4, "Sq": 16, "Skv": 16, "Dqk": 32, "Dv": 32}
    assert spec.described({"B": 2, "Sq": [16, 32]}).sizes["Skv"] == [16, 32]


@pytest.mark.parametrize("dims, bindings, missing", [
    ("D", {}, ["D"]), ("D", {"Dqk": 8}, ["Dv"]), ("D", {"Dv": 8}, ["Dqk"]), ("D", {"D": 8}, []),
    ("Hkv = 2", {}, ["D"]), ("Hkv = 2", {"Dqk": 8}, []), ("Dv", {}, ["D"]), ("Dqk = 8, Dv", {}, ["Dv"]),
    ("Dqk, Dv = 8", {}, ["Dqk"]), ("Dqk, Dv = Dqk", {"Dqk": 8}, [])])
def test_open_head_dimensions_are_those_that_the_compiler_wants(dims, bindings, missing):
    spec = Spec(f"attention x {{ dims B = 1, Hq = 2, Sq = 64, {dims}; }}")
    assert spec.described(bindings).open == missing


def test_an_error_has_its_place_and_carets():
    with pytest.raises(attn.SpecError) as caught:
        Spec.of("attention x {\n  dims B = 1, Hq = 1, Sq = 4, D = 8;\n  mask windw(3);\n}").check({})
    assert str(caught.value) == (
        "error[E0203]: unknown function `windw`\n"
        "  --> <spec>:3:8\n"
        "   |\n"
        " 3 |   mask windw(3);\n"
        "   |        ^^^^^")
    (found,) = caught.value.diagnostics
    assert (found.code, found.severity, found.line, found.column) == ("E0203", "error", 3, 8)
    assert found.message == "unknown function `windw`"
    assert found.text.endswith("^^^^^")


def test_an_error_names_the_file(tmp_path):
    file = tmp_path / "wrong.attn"
    file.write_text("attention x {\n  dims B = ;\n}\n")
    with pytest.raises(attn.SpecError) as caught:
        attn.compile(file)
    assert caught.value.diagnostics[0].file == str(file)
    assert f"--> {file}:2:12" in str(caught.value)


def test_two_errors_are_two_diagnostics():
    with pytest.raises(attn.SpecError) as caught:
        attn.compile("attention x { dims B = 1, Hq = 1, Sq = 4, D = 8; mask one(); score two(); }")
    assert [found.code for found in caught.value.diagnostics] == ["E0203", "E0203"]
    assert "`one`" in caught.value.diagnostics[0].text
    assert "`two`" in caught.value.diagnostics[1].text


def test_imports_are_searched_for_beside_the_file(tmp_path):
    (tmp_path / "mine.attn").write_text("fn near(n) = abs(q_idx - kv_idx) < n;\n")
    spec = tmp_path / "user.attn"
    spec.write_text('import "mine.attn";\nattention x { dims B = 1, Hq = 1, Sq = 4, D = 8; mask near(3); }\n')
    attn.compile(spec)


def test_a_warning_is_a_python_warning():
    text = "attention x { dims B = 1, Hq = 1, Sq = 4, D = 8; mask q_idx < 0; }"
    for target in ("h200", None):
        with pytest.warns(attn.SpecWarning, match="no query sees any key") as caught:
            attn.compile(text, target=target, engine="native")
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.raises(attn.SpecError, match="W0"):
        attn.compile(text, deny_warnings=True)


@pytest.mark.parametrize("source, message", [
    ("gemma2_locl", "`gemma2_locl` is neither a file, nor the text of a spec, nor a standard spec\n"
                    "  note: did you mean `gemma2_local`?\n"
                    "  note: attn.specs.names() lists the standard specs"),
    (3, "a spec cannot be made of int\n"
        "  note: give a path, the text of a spec, its JSON form as a dict, or the name of one of "
        "attn.specs.names()"),
])
def test_what_is_no_spec_is_refused(source, message):
    with pytest.raises(attn.ArgumentError) as caught:
        Spec.of(source)
    assert str(caught.value) == message


def test_a_missing_file_is_named():
    with pytest.raises(attn.CompilerError, match="nowhere.attn: no such file, and no standard spec"):
        Spec.of("nowhere.attn")
    with pytest.raises(attn.CompilerError, match="nowhere/x.attn cannot be read: No such file"):
        Spec.of(pathlib.Path("nowhere/x.attn"))


def test_a_dict_is_checked_like_text():
    tree = json.loads(json.dumps(Spec(CAUSAL).tree))
    tree["clauses"][1] = {"mask": {"op": ">=", "args": ["q_idx", "kv_index"]}}
    with pytest.raises(attn.SpecError, match="unknown name `kv_index`"):
        attn.compile(tree)


def importing(folder, condition):
    folder.mkdir(exist_ok=True)
    (folder / "rows.attn").write_text(f"fn seen() = {condition};\n")
    path = folder / "own.attn"
    path.write_text('import "rows.attn";\nattention own { dims B, Hq, Sq, D; mask seen(); }\n')
    return path


@pytest.mark.parametrize("form", ["dsl", "json"])
def test_an_attention_keeps_what_it_imports(tmp_path, form):
    path = importing(tmp_path, "q_idx >= kv_idx")
    source = attn.Spec.of(path)
    if form == "json":
        path = tmp_path / "own.attn.json"
        path.write_text(json.dumps(source.tree))
    f = attn.compile(path)
    assert not f.source.tree.get("preamble") or "import" not in f.spec
    q = np.random.default_rng(0).standard_normal((1, 1, 4, 8))
    before = f(q, q, q)
    importing(tmp_path, "q_idx <= kv_idx")
    np.testing.assert_array_equal(f(q, q, q), before)
    assert abs(attn.compile(path)(q, q, q) - before).max() > 0.1
    (tmp_path / "rows.attn").unlink()
    np.testing.assert_array_equal(f(q, q, q), before)
    with pytest.raises(attn.SpecError, match="rows.attn"):
        attn.compile(path)
    with pytest.raises(attn.SpecError, match="rows.attn"):
        attn.Spec.of(path).standing_alone()


def test_a_spec_without_imports_stands_alone_as_it_is():
    spec = attn.Spec("attention own { dims B, Hq, Sq, D; } # no import\n")
    assert spec.standing_alone() is spec


def test_clauses_are_replaced_in_the_text():
    spec = attn.Spec("# Kept.\nattention own { dims B, Hq, Sq, D; dtype f16; tensor t: f32[Sq]; mask t[q_idx] > 0; }\n")
    other = spec.edited("--dtype", "bf16")
    assert other.described().dtype == "bf16" and "# Kept." in other.text and "tensor" in other.text
    assert spec.edited("--outputs", "lse").described().outputs == ("lse",)
    assert spec.edited() is spec
