"""compile and inspect: without a GPU, reproducible, with reasons for refusals."""
import json
import os
import signal
import unittest.mock

import attnc
from attnc import NOOP, SOURCE, SPECS

# A spec with sizes that the fused backward supports.
TRAINED = NOOP.replace("Sq = 16, Skv = 24", "Sq = 128").replace("outputs o, lse", "grad q, v")
SOFTCAP = NOOP.replace("outputs", "score 50 * tanh(score / 50);\n  outputs")


class Compile(attnc.Case):
    def test_inspect(self):
        plan = self.compile(NOOP, "--bind", "Sq=32")
        text = self.attnc("inspect", plan).stdout
        for words in ("a plan of `noop`", "Sq=32", "h200 (sm_90)", "9.", "[1,2,32,64]"):
            self.assertIn(words, text)
        manifest = self.attnc_json("inspect", plan)
        self.assertEqual(manifest["target"]["name"], "h200")
        self.assertEqual(manifest["spec"]["text"], NOOP)
        self.assertEqual(len(manifest["signature"]), 32)
        self.assertEqual(manifest, self.attnc_json("inspect", plan))
        self.assertIn(f"{plan}: this is a plan file, not a spec\n  = note: `attnc inspect {plan}` shows it\n"
                      f"  = note: `attnc compile --recompile {plan} -o NEW` compiles its programs again\n",
                      self.attnc("convert", plan, code=2).stderr)

    def test_the_same_spec_has_the_same_signature(self):
        first = self.attnc_json("inspect", self.compile(NOOP))
        second = self.attnc_json("inspect", self.compile(NOOP.replace("  ", " ")))
        other = self.attnc_json("inspect", self.compile(NOOP, "--bind", "Sq=32"))
        self.assertEqual(first["signature"], second["signature"])
        self.assertNotEqual(first["signature"], other["signature"])

    def sizes(self, plans, *names):
        return [tuple(one["manifest"]["shape"]["sizes"][name] for name in names) for one in plans]

    def test_a_set_of_sizes_is_one_plan_for_each(self):
        text = NOOP.replace("Sq = 16", "Sq = {16, 32}")
        plan = self.folder / "x.attnplan"
        process = self.attnc("compile", "-", "--target", "h200", "-o", plan, stdin=text)
        self.assertIn(f"{plan}: `noop` Sq=16 for h200", process.stdout)
        self.assertIn(f"{plan}: `noop` Sq=32 for h200", process.stdout)
        self.assertEqual([path.name for path in self.folder.glob("x*")], ["x.attnplan"])
        self.assertEqual(self.sizes(self.attnc_json("inspect", plan)["plans"], "Sq", "Skv"),
                         [(16, 24), (32, 24)])
        self.assertIn("2 plans", self.attnc("check", "-", stdin=text).stdout)
        self.compile(text, "--bind", "Sq=64")

    def test_several_sizes_of_a_binding(self):
        text = NOOP.replace("B = 1", "B = {1, 2}").replace("Sq = 16, ", "")
        plan = self.compile(text, "--bind", "Sq=16,32,16", "--bind", "D=64")
        plans = self.attnc_json("inspect", plan)["plans"]
        self.assertEqual(self.sizes(plans, "Sq", "B"), [(16, 1), (16, 2), (32, 1), (32, 2)])
        self.attnc("compile", "-", "--target", "h200", "-o", plan, "--bind", "Sq=16,x", code=1,
                   stdin=text)
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "a100", "-o", again)
        plans = self.attnc_json("inspect", again)["plans"]
        self.assertEqual(self.sizes(plans, "Sq", "B"), [(16, 1), (16, 2), (32, 1), (32, 2)])
        # With Skv = 0 the number of key heads makes no difference.
        plan = self.compile(NOOP, "--bind", "Skv=0", "--bind", "Hkv=1,2")
        self.assertEqual(self.attnc_json("inspect", plan)["shape"]["sizes"]["Hkv"], 1)

    def test_several_targets_are_plans_of_one_file(self):
        plan = self.folder / "x.attnplan"
        process = self.attnc("compile", "-", "--target", "a100,l40s", "--bind", "Sq=16,32", "-o", plan, stdin=NOOP)
        self.assertIn("runs on compute capability 8.0: A100", process.stdout)
        self.assertIn("runs on compute capability 8.9: L40S", process.stdout)
        plans = [each["manifest"] for each in self.attnc_json("inspect", plan)["plans"]]
        self.assertEqual([(each["target"]["name"], each["shape"]["sizes"]["Sq"]) for each in plans],
                         [("a100", 16), ("a100", 32), ("l40s", 16), ("l40s", 32)])
        process = self.attnc("explain", plan, "--bind", "Sq=16")
        self.assertIn("has plans for several GPUs: those for a100 are taken", process.stderr)
        self.assertIn("for a100 (sm_80)", process.stdout)
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "l40s,h200", "-o", again)
        plans = self.attnc_json("inspect", again)["plans"]
        self.assertEqual([each["manifest"]["target"]["name"] for each in plans], ["l40s", "l40s", "h200", "h200"])
        process = self.attnc("compile", "-", "--target", "a10,rtx3090", "-o", plan, stdin=NOOP, code=2)
        self.assertIn("a10 and rtx3090 are both sm_86", process.stderr)
        process = self.attnc("compile", "-", "--target", "h200, a800,a100", "-o", plan, stdin=NOOP, code=2)
        self.assertIn("a800 and a100 are both sm_80", process.stderr)
        self.attnc("compile", "-", "--target", "h200,", "-o", plan, stdin=NOOP, code=2)
        chosen = SPECS / "chosen_tokens.attn"
        process = self.attnc("compile", chosen, "--target", "h200,a100", "-o", plan, code=3)
        self.assertIn("error[unsupported]: for a100: ", process.stderr)
        process = self.attnc("compile", "-", "--target", "h200,b200", "--ranks", "2", "-o", plan, stdin=NOOP, code=2)
        self.assertIn("--ranks takes one --target", process.stderr)

    def test_a_warning_of_all_sizes_is_said_once(self):
        spec = self.write("unused.attn", """attention unused {
  dims B = 1, Hq = 1, Sq = {16, 32}, D = 64;
  let unused = kv_idx + 1;
}
""")
        call = ["compile", spec, "--target", "h200", "-o", self.folder / "x.attnplan"]
        self.assertEqual(self.attnc(*call).stderr.count("warning[W0201]"), 1)
        denied = self.attnc(*call, "--deny", "warnings", code=1)
        self.assertEqual(denied.stderr.count("warning[W0201]"), 1)

    def test_a_plan_among_several_is_picked_by_its_sizes(self):
        plan = self.compile(NOOP, "--bind", "Sq=16,32")
        self.assertEqual(len(self.attnc_json("inspect", plan)["plans"]), 2)
        one = self.attnc_json("inspect", plan, "--bind", "Sq=32", "--bind", "D=64")
        self.assertEqual(one["shape"]["sizes"]["Sq"], 32)
        explained = self.attnc_json("explain", plan, "--bind", "Sq=32")
        self.assertEqual(explained["program"], one["program"])
        result = self.attnc_json("run", plan, "--backend", "reference", "--bind", "Sq=32")
        self.assertEqual(result["outputs"]["o"]["dims"], [1, 2, 32, 64])
        for command in (["run", "--backend", "reference"], ["explain"]):
            process = self.attnc(*command, plan, code=2)
            self.assertIn(f"{plan}: the plan file has plans for several sizes of Sq", process.stderr)
            self.assertIn("it has: forward Sq=16, forward Sq=32", process.stderr)
        for command in (["run", "--backend", "reference"], ["explain"], ["inspect"]):
            process = self.attnc(*command, plan, "--bind", "Sq=48", code=2)
            self.assertIn("no plan for Sq=48", process.stderr)
            self.attnc(*command, plan, "--bind", "window=48", code=2)
            self.attnc(*command, plan, "--bind", "Sq=1x", code=2)

    def test_of_several_sizes_one_that_is_refused(self):
        path, plan = self.write("noop.attn", NOOP), self.folder / "x.attnplan"
        call = ["compile", path, "--target", "h200", "-o", plan, "--bind", "B=1,2147483647"]
        process = self.attnc(*call, code=3)
        self.assertIn("error[unsupported]: B=2147483647: ", process.stderr)
        self.assertFalse(plan.exists())
        process = self.attnc(*call, "--keep-going", code=3)
        self.assertIn("error[unsupported]: B=2147483647: ", process.stderr)
        self.assertEqual(self.attnc_json("inspect", plan)["shape"]["sizes"]["B"], 1)
        result = self.attnc_json(*call, "--keep-going", code=3)
        self.assertEqual(result["manifest"]["shape"]["sizes"]["B"], 1)
        failed, = result["failed"]
        self.assertEqual(failed["bindings"], {"B": "2147483647"})
        self.assertEqual(failed["error"]["code"], "unsupported")
        plan.unlink()
        call[-1] = "B=2147483647,0"
        result = self.attnc_json(*call, "--keep-going", code=3)
        self.assertEqual([one["error"]["code"] for one in result["failed"]],
                         ["invalid_spec", "unsupported"])
        self.assertFalse(plan.exists())

    def test_of_a_pair_every_size_is_one(self):
        plan = self.compile(TRAINED, "--bind", "Sq=128,256")
        plans = self.attnc_json("inspect", plan)["plans"]
        self.assertEqual([one["direction"] for one in plans], ["forward", "backward"] * 2)
        self.assertEqual(self.sizes(plans, "Sq"), [(128,)] * 2 + [(256,)] * 2)
        explained = self.attnc_json("explain", plan, "--bind", "Sq=256")
        self.assertEqual(explained["backward"]["program"], plans[3]["manifest"]["program"])

    def test_a_plan_says_of_which_sizes_it_may_be_less(self):
        plan = self.compile(NOOP.replace("outputs", "lengths kv;\n  outputs"))
        shape = self.attnc_json("inspect", plan)["shape"]
        self.assertEqual(shape["sizes"], {"B": 1, "Hq": 2, "Hkv": 1, "Sq": 16, "Skv": 24,
                                          "Dqk": 64, "Dv": 64})
        self.assertEqual(shape["padded"], ["B", "Skv"])
        self.assertRegex(self.attnc("inspect", plan).stdout,
                         "sizes +B=1 Hq=2 Hkv=1 Sq=16 Skv=24 Dqk=64 Dv=64; also serves smaller B, Skv")

    def test_imports_are_part_of_a_plan(self):
        self.write("my.attn", "fn mine(w) = q_idx - kv_idx < w && q_idx >= kv_idx;\n")
        spec = self.write("x.attn", 'import "my.attn";\n' + NOOP.replace("outputs", "mask mine(3);\n  outputs"))
        plan = self.folder / "x.attnplan"
        self.attnc("compile", spec, "--target", "h200", "-o", plan)
        text = self.attnc_json("inspect", plan)["spec"]["text"]
        self.assertIn("fn mine(w)", text)
        self.assertNotIn("import", text)
        (self.folder / "my.attn").unlink()
        self.attnc("compile", "--recompile", plan, "--target", "a100", "-o", self.folder / "y.attnplan")

    def test_json(self):
        plan = self.folder / "x.attnplan"
        result = self.attnc_json("compile", "-", "--target", "a100", "-o", plan, stdin=NOOP)
        self.assertEqual(result["plan"], str(plan))
        self.assertEqual(result["manifest"]["target"]["sm"], 80)

    def test_targets_by_other_names(self):
        for name, target in (("H100", "h100"), ("h20", "h100"), ("GH200", "h200"), ("sm_80", "a100")):
            with self.subTest(name):
                found = self.attnc("target", "show", name).stdout
                self.assertEqual(found, self.attnc("target", "show", target).stdout)
        plan = self.compile(NOOP, target="H100")
        self.assertEqual(self.attnc_json("inspect", plan)["target"]["name"], "h100")
        listed = self.attnc("target").stdout
        self.assertEqual(listed, self.attnc("target", "list").stdout)
        for name in ("h100", "gh200", "h800", "sm_120"):
            self.assertIn(name, listed)

    def test_statistics_alone(self):
        plan = self.compile(NOOP.replace("outputs o, lse", "outputs lse"))
        program = self.attnc_json("inspect", plan)["program"]
        self.assertEqual([tensor["name"] for tensor in program["tensors"]], ["q", "k", "v", "lse"])
        self.assertIn("o", [tensor["name"] for tensor in program["internals"]])
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "a100", "-o", again)
        tensors = self.attnc_json("inspect", again)["program"]["tensors"]
        self.assertEqual([tensor["name"] for tensor in tensors], ["q", "k", "v", "lse"])

    def test_json_may_begin_with_blanks(self):
        spec = self.write("x.attn", NOOP)
        text = "\n " + self.attnc("convert", spec, "--to", "json").stdout
        plan = self.compile(text)
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "a100", "-o", again)
        self.attnc("explain", again)

    def test_target_files(self):
        file = self.write("mine.json", self.attnc("target", "show", "h200").stdout)
        plan = self.compile(NOOP, target=file)
        self.assertEqual(self.attnc_json("inspect", plan)["target"]["name"], "mine")
        broken = self.write("broken.json", "{}")
        self.attnc("compile", "-", "--target", broken, "-o", plan, code=2, stdin=NOOP)

    def test_recompile(self):
        plan = self.compile(NOOP)
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "l40s", "--engine", "cudnn", "-o", again)
        before, after = self.attnc_json("inspect", plan), self.attnc_json("inspect", again)
        self.assertEqual(after["target"]["name"], "l40s")
        self.assertEqual(before["program"], after["program"])
        apart = self.folder / "apart.attnplan"
        self.attnc("compile", plan, "--recompile", "--target", "l40s", "--engine", "cudnn", "-o", apart)
        self.assertEqual(self.attnc_json("inspect", apart)["program"], after["program"])
        process = self.attnc("compile", SPECS / "noop.attn", "--recompile", "--target", "l40s", "-o", apart, code=2)
        self.assertIn("--recompile needs PLAN, a plan file", process.stderr)
        self.attnc("compile", "--recompile", plan, "--bind", "Sq=1", "-o", again, code=2)
        self.attnc("compile", SPECS / "noop.attn", "--recompile", plan, "-o", again, code=2)

    def tensors(self, manifest):
        return [tensor["name"] for tensor in manifest["program"]["tensors"]]

    def test_a_grad_clause_makes_a_pair(self):
        plan = self.compile(TRAINED)
        forward, backward = self.attnc_json("inspect", plan)["plans"]
        self.assertEqual((forward["direction"], backward["direction"]), ("forward", "backward"))
        self.assertEqual(self.tensors(forward["manifest"]), ["q", "k", "v", "o", "lse"])
        self.assertEqual(set(self.tensors(backward["manifest"])),
                         {"q", "k", "v", "o", "lse", "do", "dq", "dv"})
        self.assertEqual((forward["manifest"]["format"], backward["manifest"]["format"]), (1, 1))
        text = self.attnc("inspect", plan).stdout
        for direction in ("forward", "backward"):
            self.assertEqual(text.count(f"{plan}: a {direction} plan of `noop`\n"), 1)
        self.assertIn("cotangent", text)
        self.assertRegex(text, "fused.delta .* at every execute +written by cuDNN in step 0")

    def test_directions(self):
        plain = NOOP.replace("Sq = 16, Skv = 24", "Sq = 128").replace("o, lse", "o")
        self.assertEqual(self.tensors(self.attnc_json("inspect", self.compile(plain))),
                         ["q", "k", "v", "o"])
        both = self.attnc_json("inspect", self.compile(plain, "--direction", "both"))
        self.assertEqual([plan["direction"] for plan in both["plans"]], ["forward", "backward"])
        self.assertIn("dk", self.tensors(both["plans"][1]["manifest"]))
        plan = self.compile(TRAINED, "--direction", "fwd")
        self.assertEqual(self.tensors(self.attnc_json("inspect", plan)), ["q", "k", "v", "o"])
        self.assertIn(": a plan of", self.attnc("inspect", plan).stdout)
        plan = self.compile(TRAINED, "--direction", "bwd")
        self.assertEqual(self.attnc_json("inspect", plan)["format"], 1)
        self.assertIn(": a backward plan of", self.attnc("inspect", plan).stdout)
        explained = self.attnc_json("explain", plan)
        self.assertNotIn("program", explained)
        self.assertEqual(explained["backward"]["program"],
                         self.attnc_json("inspect", plan)["program"])

    def test_json_of_a_pair(self):
        plan = self.folder / "x.attnplan"
        result = self.attnc_json("compile", "-", "--target", "h200", "-o", plan, stdin=TRAINED)
        self.assertEqual(list(result), ["plan", "plans"])
        self.assertEqual([list(one) for one in result["plans"]],
                         [["direction", "strategy", "refused", "manifest"]] * 2)
        inspected = self.attnc_json("inspect", plan)["plans"]
        self.assertEqual([one["manifest"] for one in result["plans"]],
                         [one["manifest"] for one in inspected])

    def test_recompile_keeps_the_pair(self):
        plan = self.compile(TRAINED)
        again = self.folder / "again.attnplan"
        self.attnc("compile", "--recompile", plan, "--target", "b200", "-o", again)
        before, after = (self.attnc_json("inspect", path)["plans"] for path in (plan, again))
        for old, new in zip(before, after, strict=True):
            self.assertEqual(old["direction"], new["direction"])
            self.assertEqual(old["manifest"]["program"], new["manifest"]["program"])
            self.assertEqual(new["manifest"]["target"]["name"], "b200")
        self.attnc("compile", "--recompile", plan, "--direction", "fwd", "-o", again, code=2)

    def test_a_pair_fails_as_one(self):
        spec = self.write("paged.attn", TRAINED.replace("bshd", "paged(page = 16)"))
        plan = self.folder / "x.attnplan"
        process = self.attnc("compile", spec, "--target", "h200", "-o", plan, code=3)
        self.assertIn("error[unsupported]: backward: ", process.stderr)
        self.assertIn("use --direction fwd to compile only the forward", process.stderr)
        self.assertIn(f"--> {spec}:1:", process.stderr)
        self.assertFalse(plan.exists())
        self.attnc("compile", spec, "--target", "h200", "-o", plan, "--direction", "fwd")

    def test_bound_strides_are_for_our_kernels(self):
        spec = self.write("rows.attn", TRAINED.replace("bshd", "thd(strides = bound)"))
        plan = self.folder / "x.attnplan"
        for engine, target in (("cudnn", "h200"), ("unfused", "h200"), ("cudnn", "b200")):
            process = self.attnc("compile", spec, "--engine", engine, "--target", target, "-o", plan,
                                 "--direction", "fwd", code=3)
            self.assertIn("the strides of `k` are bound, and only attnc's own kernels take these", process.stderr)
        process = self.attnc("compile", spec, "--target", "h200", "-o", plan, code=3)
        self.assertIn("the strides of `k` are bound, and no backward takes these", process.stderr)
        self.assertIn("leave out `strides = bound` for training", process.stderr)
        self.attnc("compile", spec, "--target", "h200", "-o", plan, "--direction", "fwd")

    def test_what_is_no_place_for_a_plan(self):
        spec = self.write("noop", NOOP)
        plan = self.compile(NOOP)
        other = self.write("other.attn", NOOP)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for output in (spec, other, self.folder / "new.attn", self.folder / "new.attn.json", fifo,
                       self.folder, "-"):
            with self.subTest(output):
                process = self.attnc("compile", spec, "--target", "h200", "-o", output, code=2,
                                     folder=self.folder)
                self.assertIn(f"-o {output}: ", process.stderr)
                self.assertIn(".attnplan", process.stderr)
        self.attnc("compile", "--recompile", plan, "--target", "h200", "-o", plan, code=2)
        self.assertEqual((spec.read_text(), other.read_text()), (NOOP, NOOP))
        self.assertFalse((self.folder / "new.attn").exists())
        self.attnc("compile", spec, "--target", "h200", "-o", plan)

    def test_refused_by_cudnn(self):
        path, target = self.write("noop.attn", NOOP), self.refusing_target()
        words = ("compile", path, "--target", target, "-o", self.folder / "x")
        process = self.attnc(*words, code=3)
        self.assertIn("error[unsupported]: ", process.stderr)
        self.assertNotIn("heuristic  engine", process.stderr)
        process = self.attnc(*words, "--verbose", code=3)
        self.assertIn("heuristic  engine", process.stderr)
        process = self.attnc("compile", path, "--target", target, "-o", self.folder / "x",
                             "--format", "json", code=3)
        configs = json.loads(process.stdout)["error"]["detail"]["configs"]
        self.assertGreater(len(configs), 0)
        for config in configs:
            self.assertIn("engine", config)
            self.assertTrue(config["status"])
            self.assertTrue(config["reason"])

    def test_split_where_no_fused_kernel_serves(self):
        spec = SOURCE / "tests/gpu/surface/sink_all_outputs.attn"
        plan = self.folder / "x.attnplan"
        process = self.attnc("compile", spec, "--target", "a100", "--engine", "cudnn", "-o", plan, code=3)
        self.assertIn("beside a sink", process.stderr)
        self.attnc("compile", spec, "--target", "a100", "-o", plan, "--engine", "unfused")
        steps = self.attnc_json("inspect", plan)["program"]["steps"]
        self.assertEqual([step["step"] for step in steps],
                         ["derive", "cudnn", "derive", "derive", "cudnn", "derive"])
        text = self.attnc("explain", plan).stdout
        self.assertIn("between the steps", text)
        self.attnc("compile", spec, "--target", "h200", "-o", plan, "--allow-unfused", "--strategy",
                   "unfused", code=2)
        # With a fused kernel nothing runs unfused.
        process = self.attnc("compile", self.write("noop.attn", NOOP), "--target", "h200",
                             "-o", plan, "--allow-unfused")
        self.assertNotIn("unfused", process.stderr + process.stdout)

    def test_a_refusal_says_if_unfused_serves(self):
        said = "`--allow-unfused` computes it without a fused kernel"
        spec = self.write("x.attn", NOOP.replace("outputs", "score atan2(score, 1.0); outputs"))
        compile_it = ("compile", spec, "--target", "a100", "--bind", "D=512", "-o", self.folder / "x")
        self.assertEqual(self.attnc(*compile_it, code=3).stderr.count(said), 1)
        self.assertNotIn(said, self.attnc(*compile_it, "--engine", "cudnn", code=3).stderr)

    def test_a_refusal_begins_with_the_score_and_what_native_lacks(self):
        wide = NOOP.replace("outputs", "score tanh(score / 50) * 50; outputs")
        spec = self.write("wide.attn", wide)
        process = self.attnc("compile", spec, "--target", "h200", "--direction", "both", "--bind", "D=512", "-o",
                             self.folder / "x", code=3)
        self.assertIn("`tanh(score / 50) * 50`: attnc's own engine has no backward above D 256 (this is 512)",
                      process.stderr.splitlines()[0])
        self.assertIn("= note: strategy `composite`: cuDNN's kernel supports head dimensions of at most 256 here",
                      process.stderr)
        self.assertIn(f"--> {spec}:", process.stderr)

    def test_refused_by_lowering_shows_the_place(self):
        spec = self.write("sum.attn", NOOP.replace(
            "outputs", "scale 0.5;\n  score score + int(score);\n  outputs"))
        process = self.attnc("compile", spec, "--target", "h200", "--engine", "cudnn", "-o",
                             self.folder / "x", code=3)
        self.assertIn(f"--> {spec}:6:", process.stderr)
        self.assertIn("^", process.stderr)

    def test_engine(self):
        spec, plan = SPECS / "causal.attn", self.folder / "engine.attnplan"
        compile = ["compile", spec, "--target", "h200", "-o", plan]
        for engine, strategy in [("auto", "native"), ("cudnn", "composite"), ("native", "native")]:
            self.assertEqual(self.attnc_json(*compile, "--engine", engine)["strategy"], strategy)
        self.assertIn("; composite (cudnn), ", self.attnc(*compile).stdout)
        self.attnc("compile", spec, "--target", "a100", "-o", plan, "--engine", "native")
        self.attnc("compile", spec, "--target", "a100", "-o", plan, "--engine", "native", "--direction", "both")
        self.attnc(*compile, "--engine", "cutlass", code=2)
        for other in [["--strategy", "composite"], ["--allow-unfused"]]:
            self.attnc(*compile, "--engine", "cudnn", *other, code=2)

    def test_timeout(self):
        spec, plan = self.write("noop.attn", NOOP), self.folder / "x.attnplan"
        self.attnc("compile", spec, "--target", "h200", "-o", plan, "--timeout", "0", code=2)
        self.attnc("compile", spec, "--target", "h200", "-o", plan, "--timeout", "500")

    def test_memory_limit(self):
        spec, plan = self.write("noop.attn", NOOP), self.folder / "x.attnplan"
        compile = ["compile", spec, "--target", "h200", "--engine", "native", "-o", plan]
        self.attnc(*compile, "--memory-limit", "0", code=2)
        # An answer of before takes little memory.
        self.enterContext(unittest.mock.patch.dict(os.environ, {"ATTN_ANSWERS_DIR": ""}))
        process = self.attnc(*compile, "--memory-limit", "64", code=4, folder=self.folder)
        self.assertIn("took more than 64 MiB of memory and was killed", process.stderr)
        self.attnc(*compile, "--memory-limit", "5000")

    def test_a_worker_that_dies(self):
        spec = self.write("softcap.attn", SOFTCAP)
        plan = self.folder / "x.attnplan"
        process = self.attnc("compile", spec, "--target", "h200", "--engine", "cudnn", "-o", plan,
                             "--cudnn", os.environ["ATTN_CRASHING_CUDNN"], code=4, folder=self.folder)
        self.assertIn("error[worker]", process.stderr)
        self.assertIn("SIGSEGV", process.stderr)
        self.assertIn(f"--> {spec}:5:", process.stderr)
        self.assertIn("score 50 * tanh(score / 50);", process.stderr)
        # No files are left in the current folder.
        self.assertEqual(list(self.folder.glob("attnc-worker-*.json")), [])
        repros = list((self.folder / "cache" / "repro").glob("attnc-worker-*.json"))
        self.assertGreaterEqual(len(repros), 1)  # one for each strategy that died
        for repro in repros:
            self.assertIn(str(repro), process.stderr)
        self.assertFalse(plan.exists())
        again = attnc.run("worker", stdin=repro.read_text())
        self.assertEqual(again.returncode, -signal.SIGSEGV)
        # A strategy that was not allowed is suggested.
        compile = ["compile", spec, "--target", "a100", "--bind", "D=512", "-o", plan, "--cudnn",
                   os.environ["ATTN_CRASHING_CUDNN"]]
        process = self.attnc(*compile, code=4)
        self.assertIn("`--allow-unfused` computes it without a fused kernel", process.stderr)
        # The crash has no lasting effect: the same spec compiles afterwards.
        self.attnc("compile", spec, "--target", "h200", "--engine", "cudnn", "-o", plan)


if __name__ == "__main__":
    attnc.main()
