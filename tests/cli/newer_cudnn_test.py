"""Tests with cuDNN 9.28 or later from the folder $ATTN_NEWER_CUDNN, passed as --cudnn. Skipped if it is
not set."""
import json
import os
import pathlib
import re

import attnc
from attnc import SOURCE, SPECS

NEWER = os.environ.get("ATTN_NEWER_CUDNN", "")
SURFACE = SOURCE / "tests" / "gpu" / "surface"
TARGETS = sorted(path.stem for path in (SOURCE / "runtime" / "targets").glob("*.json") if path.stem != "h100")

# cuDNN 9.19 supports these only as several nodes, 9.28 also as one node.
ONE_NODE = [SPECS / f"{name}.attn" for name in (
    "causal", "causal_bottom_right", "sliding_window", "symmetric_window", "softcap",
    "gemma2_local", "alibi", "bias_full", "gpt_oss", "head_dim_256", "temperature")] + [
    SURFACE / f"{name}.attn" for name in (
        "dropout", "dropout_causal", "padding_causal", "padding_bottom_right_window", "thd_window",
        "paged_decode_softcap", "sink", "sink_padding", "padding_softcap")]


class NewerCudnn(attnc.Case):
    def compile_json(self, spec, target, *arguments):
        if "--strategy" not in arguments:
            arguments += ("--engine", "cudnn")
        return self.attnc_json("compile", spec, "--target", target, "--cudnn", NEWER, "-o",
                               self.folder / "x.attnplan", *arguments)

    def test_every_target(self):
        for target in TARGETS:
            result = self.compile_json(SPECS / "gemma2_local.attn", target)
            self.assertGreaterEqual(result["manifest"]["cudnn_version"], 92800)
            self.assertEqual(result["strategy"], "composite")

    def test_properties_of_a_data_sheet(self):
        for target, told in (("h200", False), ("a100", True)):
            process = self.attnc("compile", SPECS / "noop.attn", "--target", target, "--cudnn",
                                 NEWER, "-o", self.folder / "x.attnplan")
            self.assertEqual("attnc target dump" in process.stderr, told, process.stderr)
            process = self.attnc("compile", SPECS / "noop.attn", "--target", target, "-o",
                                 self.folder / "x.attnplan")
            self.assertNotIn("attnc target dump", process.stderr)

    def test_attention_as_one_node(self):
        for spec in ONE_NODE:
            with self.subTest(spec.name):
                result = self.compile_json(spec, "h200", "--strategy", "unified")
                graph = [step["graph"] for step in result["manifest"]["program"]["steps"]
                         if step["step"] == "cudnn"][0]
                self.assertEqual(graph["nodes"][-1]["op"], "sdpa_forward")

    def test_scales_of_blocks(self):
        folder = SOURCE / "tests" / "gpu" / "mxfp8"
        for name, direction in (("noop", "fwd"), ("causal", "fwd"), ("causal", "bwd"), ("window", "fwd"),
                                ("padding", "fwd"), ("padding", "bwd"), ("sink", "fwd")):
            with self.subTest(name, direction=direction):
                result = self.compile_json(folder / f"{name}.attn", "b200", "--direction", direction)
                operations = [node["op"] for step in result["manifest"]["program"]["steps"]
                              if step["step"] == "cudnn" for node in step["graph"]["nodes"]]
                self.assertEqual(operations.count("block_dequantize"), 3 if direction == "fwd" else 7)
                heuristic = result["manifest"]["compiled"][0]["heuristic"]
                self.assertEqual(heuristic, "A" if direction == "fwd" else "NONE")

    def test_numbers_are_those_of_the_header(self):
        header = pathlib.Path(NEWER).parent / "include" / "cudnn_graph_v9.h"
        if not header.exists():
            self.skipTest(f"{header} is not there")
        numbers = dict(re.findall(r"(CUDNN_\w+)\s*=\s*(\d+)", header.read_text()))
        rows = re.findall(r"^ATTN_NEWER_(\w+)\((\w+), (\d+), \d+\)",
                          (SOURCE / "runtime" / "cudnn" / "newer.def").read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 20)
        for kind, name, number in rows:
            full = f"CUDNN_ATTR_{name}" if kind == "ATTRIBUTE" else f"CUDNN_BACKEND_{name}_DESCRIPTOR"
            self.assertEqual(numbers[full], number, full)

    def test_support_has_a_column_for_each(self):
        result = self.attnc_json("support", SPECS / "causal.attn", "--target", "h200",
                                 "--strategy", "unified", "--tier", "heuristics", "--cudnn",
                                 self.older_folder(), "--cudnn", NEWER, code=3)
        older, newer = result["specs"][0]["targets"]
        self.assertEqual((older["outcome"], newer["outcome"]), ("refused", "served"))
        self.assertEqual(newer["strategy"], "unified")
        self.assertNotEqual(older["reason"], "")
        text = self.attnc("support", SPECS / "causal.attn", "--target", "h200,b200", "--tier",
                          "heuristics", "--cudnn", self.older_folder(), "--cudnn", NEWER).stdout
        self.assertRegex(text, r"h200 cuDNN 9\.19\.\d+ +b200 cuDNN 9\.19\.\d+ +h200 cuDNN 9\.\d\d")

    def test_a_single_row_on_blackwell(self):
        for spec in ("decode", "decode_gqa", "paged_decode"):
            self.compile_json(SPECS / f"{spec}.attn", "b200")

    def older_folder(self):
        """Folder of the cuDNN that is found without --cudnn."""
        return os.path.dirname(json.loads(
            attnc.run("version", "--format", "json").stdout)["cudnn"]["path"])


if __name__ == "__main__":
    if not NEWER:
        attnc.skip("ATTN_NEWER_CUDNN is not set to a folder of cuDNN 9.28 or later")
    attnc.main()
