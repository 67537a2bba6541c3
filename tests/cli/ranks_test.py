"""explain and compile --ranks: balance and bytes of masks whose sharding is known, plans, refusals."""
import contextlib
import fcntl
import os
import struct
import subprocess
import termios

import numpy

import attnc
from attnc import SPECS


class Ranks(attnc.Case):
    def ranks(self, spec, count, *arguments):
        return self.attnc_json("explain", SPECS / f"{spec}.attn", "--ranks", str(count), *arguments)

    def scheme(self, explained, name):
        return next(scheme for scheme in explained["schemes"] if scheme["name"] == name)

    def test_causal_is_folded(self):
        found = self.ranks("causal", 4, "--bind", "Sq=65536")
        self.assertEqual((found["dealing"], found["groups_of_heads"], found["dealt"]), ("folded", 1, "rows"))
        self.assertEqual(found["of_ranks"][0]["rows"], [[0, 8192], [57344, 65536]])
        self.assertLess(found["balance"], 1.001)
        self.assertAlmostEqual(self.scheme(found, "ring")["balance"], 1.75, places=2)
        self.assertGreater(found["one_gpu_ms"] / found["forward_ms"], 3.6)
        # All rows are somewhere, once; what is received was sent.
        rows = sorted(tuple(each) for rank in found["of_ranks"] for each in rank["rows"])
        self.assertEqual((rows[0][0], rows[-1][1]), (0, 65536))
        self.assertTrue(all(end == begin for (_, end), (begin, _) in zip(rows, rows[1:])))
        for way in ("inside", "between"):
            self.assertEqual(sum(rank["received"][way] for rank in found["of_ranks"]),
                             sum(rank["sent"][way] for rank in found["of_ranks"]))

    def test_window_sends_its_edges(self):
        found = self.ranks("sliding_window", 8, "--bind", "Sq=131072")
        # 4096 keys before the first row of a rank: 8 heads of 128, k and v, 2 bytes.
        self.assertEqual(found["received"], 4096 * 8 * 128 * 2 * 2)
        self.assertGreater(self.scheme(found, "ring")["received"], 20 * found["received"])

    def test_documents_of_given_values(self):
        ids = self.folder / "doc.npy"
        numpy.save(ids, numpy.tile(numpy.arange(32768, dtype=numpy.int32) // 1024, (4, 1)))
        unknown = self.ranks("document_causal", 8, "--bind", "Sq=32768")
        known = self.ranks("document_causal", 8, "--bind", "Sq=32768", "--in", f"doc=@{ids}")
        self.assertFalse(unknown["exact"])
        self.assertTrue(known["exact"])
        self.assertGreater(unknown["received"], 0)
        self.assertEqual(known["received"], 0)  # each document is whole
        self.assertEqual(known["balance"], 1)

    def test_one_row_is_merged_from_all_keys(self):
        found = self.ranks("decode", 8)
        self.assertEqual(found["dealt"], "keys")
        self.assertEqual([rank["keys"] for rank in found["of_ranks"]],
                         [[[1024 * rank, 1024 * (rank + 1)]] for rank in range(8)])

    def test_clause_decides_what_is_divided(self):
        text = (SPECS / "causal.attn").read_text(encoding="utf-8")
        for axis, groups in (("sequence", 1), ("heads", 4), ("both", 2)):
            spec = self.write(f"{axis}.attn", text.replace("dtype ", f"shard   {axis};\n  dtype "))
            found = self.attnc_json("explain", spec, "--ranks", "4")
            self.assertEqual(found["groups_of_heads"], groups, axis)

    def test_many_ranks(self):
        found = self.ranks("noop", 128, "--bind", "Sq=65536")
        self.assertEqual(len(found["of_ranks"]), 128)
        self.assertGreater(sum(rank["received"]["between"] for rank in found["of_ranks"]), 0)
        text = self.attnc("explain", SPECS / "noop.attn", "--ranks", "128", "--bind", "Sq=65536").stdout
        self.assertIn("of 128 ranks, those with least and most", text)

    def test_text(self):
        process = self.attnc("explain", SPECS / "prefix_lm.attn", "--grad", "--ranks", "4", "--bind", "Sq=16384")
        self.expect_golden("explain-ranks.txt", process.stdout)

    def test_lines_are_as_wide_as_the_terminal(self):
        for columns in (60, 120):
            with self.subTest(columns):
                text = self.on_terminal(columns, "explain", SPECS / "prefix_lm.attn", "--ranks", "4")
                notes = [line for line in text.splitlines() if "  " not in line[2:]]
                self.assertLessEqual(max(map(len, notes)), columns)
                self.assertEqual("over the mean; received: by the rank" in text, columns > 100)

    def on_terminal(self, columns, *arguments):
        """Standard output of a terminal of so many columns."""
        ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen([attnc.ATTNC, *map(str, arguments)], stdout=its, env={**os.environ, "NO_COLOR": "1"})
        os.close(its)
        text = b""
        with contextlib.suppress(OSError):  # at the end
            while more := os.read(ours, 1 << 16):
                text += more
        os.close(ours)
        self.assertEqual(process.wait(), 0)
        return text.decode().replace("\r\n", "\n")

    def test_compile(self):
        spec = self.write("heads.attn", """attention heads {
          dims B = 1, Hq = 4, Hkv = 2, Sq = 256, D = 64; shard heads; mask q_idx >= kv_idx; }""")
        options = ("--ranks", "2", "--target", "h200", "--engine", "native", "--use-cache", "-o")
        plan = self.folder / "heads.attnplan"
        made = self.attnc_json("compile", spec, *options, plan)
        file = self.attnc_json("inspect", plan)
        self.assertEqual(file["ranks"], made["ranks"])
        # Both ranks compute the same for other heads.
        self.assertEqual([each["name"] for each in made["plans"]], ["heads_part0"])
        self.assertEqual(len(file["plans"]), 1)
        ranks = file["ranks"]
        self.assertEqual(ranks["homes"], [{"rows": rows, "keys": rows} for rows in ([0, 128], [128, 256])])
        part, = ranks["teams"][0]
        self.assertEqual((part["rows"], part["keys"], part["forward"]), ([0, 256], [0, 256], ["heads_part0"]))
        self.assertEqual([tensor["name"] for tensor in ranks["forward"]], ["q", "k", "v", "o", "lse"])
        self.assertEqual(ranks["backward"], [])
        text = self.attnc("inspect", plan).stdout
        self.assertIn("`heads` on 2 ranks", text)
        self.assertEqual(self.attnc("inspect", plan, "--bind", "Sq=256").stdout, text)
        self.assertIn("the plan file has no plan for Sq=3", self.attnc("inspect", plan, "--bind", "Sq=3", code=2).stderr)
        # What explain shows is received and sent: half of each rank's rows and keys, and of o.
        table = self.attnc("compile", spec, *options, self.folder / "text.attnplan").stdout
        explained = self.attnc("explain", spec, "--ranks", "2").stdout
        for rank in ("0", "1"):
            row, = (line.split() for line in explained.splitlines() if line.split()[:1] == [rank])
            self.assertIn(" ".join(row[5:9]), " ".join(table.split()))
        self.assertRegex(table, "total workspace\n +heads_part0 +forward +.* B\n  runs on compute capability 9.0: ")
        self.assertEqual(made["plan"], str(plan))
        split = self.attnc_json("compile", spec, *options, plan, "--split-files")
        self.assertEqual((list(made), made["files"]), (["plan", "files", "ranks", "plans"], [str(plan)]))
        self.assertEqual((list(split), split["plan"]), (list(made), str(plan)))
        self.assertEqual(split["files"], [f"{plan}.0", f"{plan}.1"])
        self.assertEqual([self.attnc_json("inspect", path)["ranks"]["rank"] for path in split["files"]], [0, 1])
        of_rank = self.attnc_json("inspect", f"{plan}.1")
        self.assertEqual((of_rank["ranks"]["rank"], of_rank["ranks"]["family"]), (1, file["ranks"]["family"]))
        # The hash is of the dtype and the plans too.
        half = self.write("half.attn", spec.read_text(encoding="utf-8").replace("shard", "dtype f16; shard"))
        half_plan = self.folder / "half.attnplan"
        self.assertNotEqual(self.attnc_json("compile", half, *options, half_plan)["ranks"]["family"],
                            file["ranks"]["family"])
        for command in ("run", "explain", "draw"):
            process = self.attnc(command, plan, code=2)
            self.assertIn("divided among several GPUs", process.stderr)
        for command in ("check", "compile"):
            more = ("--ranks", "2", *options[2:], plan.with_suffix(".x")) if command == "compile" else ()
            process = self.attnc(command, plan, *more, code=2)
            self.assertIn(f"{plan}: this is a plan file of an attention that is divided among several GPUs, not a "
                          f"spec\n  = note: `attnc inspect {plan}` shows it\n  = note: to divide it otherwise, give",
                          process.stderr)

    def test_backward_exchanges_of_ranks_without_parts(self):
        spec = self.write("late.attn", """attention late { dims B = 1, Hq = 2, Sq = 512, D = 64; shard sequence;
          mask q_idx >= 256 && kv_idx >= 256 && q_idx >= kv_idx; grad q, k, v; }""")
        made = self.attnc_json("compile", spec, "--ranks", "4", "--target", "h200", "--engine", "native", "-o",
                               self.folder / "late.attnplan")
        ranks = made["ranks"]
        self.assertEqual(ranks["teams"][0], [])
        self.assertEqual([tensor["name"] for tensor in ranks["backward"]],
                         ["q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"])
        self.assertTrue(all(part["forward"] and part["backward"] for team in ranks["teams"] for part in team))

    def test_tensors_that_callers_bind(self):
        spec = self.write("bound.attn", """attention bound { dims B = 2, Hq = 4, Hkv = 2, Sq = 256, D = 64;
          shard sequence; tensor w: f32[Hq]; learn bias: f32[Hq]; tensor unused: f32[Sq]; param slope: f32;
          lengths q, kv; mask q_idx >= kv_idx; sink w[h]; score score * slope + bias[h];
          outputs o, sum_exp_with_sink; grad q, k, bias; }""")
        ranks = self.attnc_json("compile", spec, "--ranks", "2", "--target", "h200", "--engine", "native",
                                "--direction", "fwd", "-o", self.folder / "bound.attnplan")["ranks"]
        self.assertTrue(ranks["clears_padding"])
        self.assertEqual([tensor["name"] for tensor in ranks["forward"]],
                         ["q", "k", "v", "lengths_q", "lengths_kv", "w", "bias", "o", "lse", "sum_exp_with_sink"])
        self.assertEqual(ranks["backward"], [])
        self.assertEqual(ranks["params"], [{"name": "slope", "dtype": "f32"}])
        # Lengths are masks of the parts; the part without the sink has other statistics.
        names = [{each["name"]: each["in_plan"] for each in part["renamed"]}
                 for team in ranks["teams"] for part in team]
        self.assertTrue(all(each["lengths_q"] == "whole_lengths_q" for each in names))
        self.assertEqual([each.get("sum_exp_with_sink") for each in names].count("sum_exp"), len(names) - 2)

    def test_parts_without_a_share_of_the_gradients(self):
        # The sinks of the row are in the part of one rank.
        spec = self.write("sinks.attn", """attention f { dims B = 1, Hq = 2, Sq = 1, Skv = 64, D = 16; learn s: f32[Hq];
          sink s[h]; grad s; shard sequence; }""")
        made = self.attnc_json("compile", spec, "--ranks", "2", "--target", "h200", "--engine", "native", "--direction",
                               "bwd", "-o", self.folder / "sinks.attnplan")
        self.assertEqual([each["name"] for each in made["ranks"]["backward"] if each["role"] == "gradient"], ["d_s"])

    def test_random_dropout_of_the_whole(self):
        spec = self.write("random.attn", "attention f { dims B = 1, Hq = 2, Sq = 64, D = 64; dropout 0.5; }")
        options = ("--target", "h200", "--engine", "native", "-o", self.folder / "random.attnplan")
        self.assertIn("`f` on 1 rank\n", self.attnc("compile", spec, "--ranks", "1", *options).stdout)
        # Parts draw the numbers of their heads, rows and keys in the whole.
        heads = self.write("heads.attn", "attention f { dims B = 1, Hq = 4, Sq = 64, D = 64; dropout 0.5; "
                                         "shard heads; }")
        plan = self.folder / "heads.attnplan"
        made = self.attnc_json("compile", heads, "--ranks", "2", *options[:-1], plan)
        self.assertEqual([tensor["name"] for tensor in made["ranks"]["forward"]],
                         ["q", "k", "v", "seed", "offset", "o", "lse"])
        sources = [step["source"] for file in self.attnc_json("inspect", plan)["plans"]
                   for step in file["program"]["steps"] if "drawn_head" in step.get("source", "")]
        self.assertEqual(len(sources), 2)
        self.assertIn("(long long)h + 2)", "".join(sources))
        process = self.attnc("compile", heads, "--ranks", "2", *options[:2], "--engine", "cudnn", *options[4:], code=3)
        self.assertIn("draws the numbers of the whole attention", process.stderr)

    def test_random_dropout_that_is_refused(self):
        # All commands say the same.
        few = self.write("few.attn", "attention f { dims B = 1, Hq = 1, Sq = 1, Skv = 64, D = 64; dropout 0.5; }")
        odd = self.write("odd.attn", "attention f { dims B = 1, Hq = 1, Sq = 256, D = 580; dropout 0.5; }")
        compiles = ("--target", "h200", "-o", self.folder / "a.attnplan")
        for spec, messages in ((few, ["rows 0..1, keys 16..32: random dropout draws numbers for 32 keys at a time"]),
                               (odd, ["only attnc's own kernels can", "attnc's own engine has no forward above D 576 (this is 580)"])):
            for command, *more in (("explain",), ("draw",), ("compile", *compiles)):
                process = self.attnc(command, spec, "--ranks", "4", *more, code=3)
                for message in messages:
                    self.assertIn(message, process.stderr)

    def test_random_dropout_with_a_window(self):
        window = self.write("window.attn", """attention f { dims B = 1, Hq = 1, Sq = 40, D = 64; dropout 0.5;
          mask q_idx >= kv_idx && q_idx - kv_idx < 4; }""")
        made = self.attnc_json("compile", window, "--ranks", "2", "--target", "h200", "-o", self.folder / "a.attnplan")
        self.assertEqual([part["keys"] for team in made["ranks"]["teams"] for part in team], [[0, 32], [0, 40]])

    def test_nothing_to_compute(self):
        spec = self.write("hidden.attn", "attention f { dims B = 1, Hq = 1, Sq = 64, D = 8; mask false; }")
        text = self.attnc("explain", spec, "--ranks", "2").stdout
        self.assertNotIn("nan", text)
        self.assertIn(" -\n", text)

    def test_simulate(self):
        sizes = [word for name in ("B=1", "Hq=4", "Hkv=2", "Sq=48", "D=8") for word in ("--bind", name)]
        found = self.ranks("gpt_oss", 3, "--grad", "--simulate", *sizes, "--bind", "window=10")
        self.assertEqual(sorted(found["differences"]), ["d_sinks", "dk", "dq", "dv", "lse", "o"])
        self.assertLess(max(found["differences"].values()), 1e-12)
        text = self.attnc("explain", SPECS / "causal.attn", "--ranks", "2", "--simulate", *sizes).stdout
        self.assertIn("simulated: ", text)
        found = self.ranks("document_causal", 2, "--simulate", *sizes, "--in", "doc=random")
        self.assertLess(max(found["differences"].values()), 1e-12)
        statistics = self.write("max.attn", """attention f { dims B = 1, Hq = 1, Sq = 48, D = 8; mask q_idx >= kv_idx;
          outputs o, max, sum_exp; }""")
        found = self.attnc_json("explain", statistics, "--ranks", "2", "--simulate")
        self.assertEqual(sorted(found["differences"]), ["lse", "max", "o", "sum_exp"])
        self.assertLess(max(found["differences"].values()), 1e-12)

    def test_gradients_through_lse(self):
        spec = self.write("through.attn", """attention f { dims B = 1, Hq = 4, Hkv = 2, Sq = 48, D = 8; learn s: f32[Hq];
          mask q_idx > kv_idx; sink s[h]; outputs o, lse; grad q, k, v, s, lse; }""")
        found = self.attnc_json("explain", spec, "--ranks", "3", "--simulate")
        self.assertEqual(sorted(found["differences"]), ["d_s", "dk", "dq", "dv", "lse", "o"])
        self.assertLess(max(found["differences"].values()), 1e-12)
        made = self.attnc_json("compile", spec, "--ranks", "2", "--target", "h200", "-o", self.folder / "a.attnplan")
        given = [each["name"] for each in made["ranks"]["backward"] if each["role"] == "cotangent"]
        self.assertEqual(given, ["do", "dlse"])

    def test_weights_of_large_scores_are_less_exact(self):
        spec = self.write("slopes.attn", """attention fuzz { dims B = 2, Hq = 6, Hkv = 2, Sq = 1, Skv = 257, D = 4;
          dtype f16; lengths kv = [251, 0]; learn t0: f32[Hq]; score score + t0[h] * (q_idx - kv_idx);
          score gelu(score); mask kv_idx > 37; mask kv_idx < 125 || q_idx >= kv_idx; learn sk: f32[Hq]; sink sk[h]; }""")
        found = self.attnc_json("explain", spec, "--ranks", "8", "--simulate", "--grad", "--ranks-per-host", "1")
        self.assertLess(max(found["differences"].values()), 1e-11)  # and the exit code is 0
        short = self.write("short.attn", "attention f { dims B = 1, Hq = 2, Sq = 16, D = 4; learn t: f32[Hq]; "
                                         "score score * t[h]; }")
        found = self.attnc_json("explain", short, "--ranks", "2", "--simulate", "--grad")
        self.assertIn("d_t", found["differences"])

    def test_simulation_takes_what_only_scores_read(self):
        spec = self.write("gather.attn", """attention gather { dims B = 1, Hq = 4, Hkv = 2, Sq = 16, D = 8;
          tensor t: i32[4]; tensor u: f32[4]; score score + u[t[h]]; }""")
        found = self.attnc_json("explain", spec, "--ranks", "2", "--simulate", "--in", "t=3", "--in", "q=zeros")
        self.assertLess(max(found["differences"].values()), 1e-12)
        self.assertEqual(found["inputs"], {})  # the sharding is right for any
        self.refuses("u[t[h]]: index 0 is 9, outside 0..3", spec, "--ranks", "2", "--simulate", "--in", "t=9", code=2)
        for name in ("t=3", "q=zeros"):
            self.refuses("no mask reads it, so its values do not change how the attention is divided", spec, "--ranks",
                         "2", "--in", name)
        self.refuses("the spec has no such tensor or param", spec, "--ranks", "2", "--simulate", "--in", "x=3")

    def test_simulation_of_hours_is_refused(self):
        spec = self.write("long.attn", "attention long { dims B = 1, Hq = 1, Sq = 2097152, D = 1; }")
        process = self.attnc("explain", spec, "--ranks", "2", "--simulate", code=2)
        self.assertIn("the simulation would take about", process.stderr)
        self.assertIn("--yes runs it all the same", process.stderr)

    def test_large_sizes(self):
        # Each rank has the limits of one GPU.
        causal = SPECS / "causal.attn"
        self.refuses("on each of 8 ranks, the sizes of `causal` need tensors or scores of 1.8e+19 elements", causal,
                     "--bind", "Sq=2147483647", "--ranks", "8", code=3)
        # Blocks of the work map have more keys than are seen of a part, which is not cut for ever.
        found = self.ranks("causal", 2, *(word for name in ("Hq=1", "Hkv=1", "Sq=536870912")
                                          for word in ("--bind", name)))
        self.assertLess(found["balance"], 1.01)
        # Bytes of all ranks can be counted.
        wide = self.write("wide.attn", "attention wide { dims B, Hq, Hkv = Hq, Sq, Skv, D = 128; }")
        self.refuses("the sizes of `wide` need tensors of 1.3e+20 elements", wide, "--ranks", "1024",
                     *(word for name in ("B=1000000", "Hq=1000000", "Sq=4", "Skv=1000000") for word in ("--bind", name)),
                     code=3)

    def refuses(self, message, *arguments, code=2):
        process = self.attnc("explain", *arguments, code=code)
        self.assertIn(message, process.stderr)

    def test_a_network_within_a_host_is_said_to_have_no_effect(self):
        explain = ("explain", SPECS / "causal.attn", "--network", "100g", "--ranks")
        note = "--network has no effect: all ranks are on one host of 8 (--ranks-per-host)"
        self.assertIn(note, self.attnc(*explain, "2").stderr)
        self.assertNotIn("--network", self.attnc(*explain, "2", "--ranks-per-host", "1").stderr)

    def test_refusals(self):
        causal = SPECS / "causal.attn"
        sink = self.write("sink.attn", "attention f { dims B = 1, Hq = 1, Sq = 16, Skv = 2, D = 8; sink 0; }")
        self.refuses("16 rows and 2 keys cannot be divided among 4 ranks", sink, "--ranks", "4", code=3)
        self.refuses("have no meaning with --ranks", causal, "--ranks", "2", "--engine", "native")
        self.refuses("--simulate needs --ranks", causal, "--simulate")
        for more in ((), ("--ranks", "2")):
            self.refuses("--yes needs --simulate", causal, "--yes", *more)
        self.refuses("--link, --network, --ranks-per-host and --in need --ranks", causal, "--link", "120")
        two = self.write("two.attn", """attention two { dims B = 1, Hq = 1, Sq = 64, D = 8; tensor x: i32[Sq];
          tensor y: i32[Sq]; mask x[q_idx] == x[kv_idx] && y[q_idx] == y[kv_idx]; }""")
        self.refuses("masks also read y: give its value too", two, "--ranks", "2", "--in", "x=random")
        for speed in ("fast", "1e-320", "0.001g", "-1", "nan", "inf"):
            self.refuses(f"`{speed}` is not a link", causal, "--ranks", "2", f"--link={speed}")
        self.refuses("1 rows and 4 keys cannot be divided among 8 ranks", SPECS / "decode.attn", "--ranks", "8",
                     "--bind", "Skv=4", "--bind", "Hkv=1", code=3)
        heads = self.write("heads.attn", "attention f { dims B = 1, Hq = 6, Sq = 64, D = 8; shard heads; }")
        self.refuses("6 key heads cannot be divided among 4 ranks\n  = note: 3 ranks are possible", heads, "--ranks",
                     "4", code=3)
        open_size = self.write("open.attn", "attention f { dims B = 1, Hq = 6, D = 8; }")
        self.refuses("the dimension Sq is open", open_size, "--ranks", "4")
        random = self.write("random.attn", "attention f { dims B = 1, Hq = 1, Sq = 40, D = 64; dropout 0.5; }")
        for more, message in ((["--keep-going"], "--keep-going cannot be used with --ranks"),
                              (["--recompile", "x"], "give either SPEC or --recompile PLAN")):
            process = self.attnc("compile", random, "--ranks", "2", *more, "-o", self.folder / "a.attnplan", code=2)
            self.assertIn(message, process.stderr)
        process = self.attnc("compile", random, "--split-files", "-o", self.folder / "a.attnplan", code=2)
        self.assertIn("--split-files needs --ranks", process.stderr)


if __name__ == "__main__":
    attnc.main()
