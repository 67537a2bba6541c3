"""Every exit code, with commands that return it."""
import subprocess

import attnc
from attnc import NOOP, SPECS


class ExitCodes(attnc.Case):
    def test_0_ok(self):
        self.attnc("check", SPECS / "causal.attn")
        self.attnc("version")
        self.attnc("target", "list")

    def test_1_the_spec_has_errors(self):
        bad = self.write("bad.attn", "attention x { dims Q = 1; }")
        for command in (["check", bad], ["compile", bad, "-o", "x", "--target", "h200"],
                        ["explain", bad], ["run", bad]):
            process = self.attnc(*command, code=1)
            self.assertIn("error[E0401]", process.stderr)
            self.assertEqual(process.stdout, "")

    def test_2_usage(self):
        spec = self.write("noop.attn", NOOP)
        for command in ([], ["frobnicate"], ["check"], ["compile", spec], ["check", "--format", "x"],
                        ["run", spec, "--bind", "Sq"], ["run", spec, "--backend", "gpu"],
                        ["run", spec, "--bind", "Sq=1", "--bind", "Sq=2"], ["verify"], ["bench"],
                        ["compile", spec, "-o", "x", "--target", "h2000"],
                        ["run", spec, "--backend", "reference", "--in", "z=zeros"],
                        ["run", spec, "--backend", "reference", "--in", "q=much"],
                        ["run", spec, "--backend", "reference", "--out", "dq=dq.npy"],
                        ["run", spec, "--backend", "cudnn", "--unrounded"],
                        ["target", "show"], ["target", "show", "h2000"]):
            self.assertNotEqual(self.attnc(*command, code=2).stderr, "", command)

    def test_2_open_dimension(self):
        spec = self.write("open.attn", NOOP.replace("Sq = 16", "Sq"))
        process = self.attnc("run", spec, "--backend", "reference", code=2)
        self.assertIn("--bind Sq=", process.stderr)
        self.attnc("explain", spec, code=2)
        self.attnc("run", spec, "--backend", "reference", "--bind", "Sq=4")

    def test_3_valid_but_not_supported(self):
        spec, target = self.write("noop.attn", NOOP), self.refusing_target()
        process = self.attnc("compile", spec, "--target", target, "-o", self.folder / "x", code=3)
        self.assertIn("error[unsupported]", process.stderr)
        self.assertFalse((self.folder / "x").exists())
        self.attnc("compile", spec, "--target", target, "-o", self.folder / "x", "--direction", "bwd",
                   code=3)

    def test_4_the_surroundings_fail(self):
        self.attnc("check", self.folder / "none.attn", code=4)
        self.attnc("verify", "--all", self.folder / "none", code=4)
        empty = self.folder / "empty"
        empty.mkdir()
        self.attnc("verify", "--all", empty, code=4)
        process = self.attnc("compile", SPECS / "noop.attn", "--target", "h200", "--engine", "cudnn",
                             "-o", self.folder / "x", "--cudnn", empty, code=4)
        self.assertIn("error[cudnn]", process.stderr)
        process = self.attnc("compile", SPECS / "noop.attn", "--target", "h200", "-o",
                             empty / "none" / "x.attnplan", code=4)
        self.assertIn("error[io]", process.stderr)

    def test_4_a_file_is_not_read(self):
        spec = self.write("noop.attn", NOOP)
        wrong = self.write("q.npy", b"no array")
        for value in (f"@{wrong}", f"@{self.folder}/none.npy"):
            self.attnc("run", spec, "--backend", "reference", "--in", f"q={value}", code=4)

    def test_4_standard_output_fails(self):
        spec = self.write("noop.attn", NOOP)
        plan = self.folder / "x.attnplan"
        for redirection in ("> /dev/full", ">&-", "<&- >&-"):
            for command in (f"check {spec}", f"run {spec} --backend reference --format json",
                            f"explain {spec} --target h200", "--help", "target show h200",
                            f"compile {spec} --target h200 -o {plan}"):
                with self.subTest(command, redirection=redirection):
                    process = subprocess.run(
                        ["bash", "-c", f"{attnc.ATTNC} {command} {redirection}"], text=True,
                        capture_output=True, timeout=1800, check=False)
                    self.assertEqual(process.returncode, 4, process.stderr)
                    self.assertIn("error[io]: cannot write to standard output: ", process.stderr)
        self.attnc("inspect", plan)
        process = subprocess.run(["bash", "-c", f"{attnc.ATTNC} check none.attn > /dev/full"],
                                 text=True, capture_output=True, timeout=1800, check=False)
        self.assertIn("none.attn", process.stderr)

    def test_4_what_is_not_written_whole_leaves_the_old_file(self):
        """The limit of the size of files acts as a full disk does."""
        spec = self.write("spec.attn", NOOP + "# " + "x" * 4000)
        written = spec.read_bytes()
        for number, command in enumerate((
                f"draw {SPECS / 'causal.attn'} -o FILE.svg", f"draw {SPECS / 'causal.attn'} -o FILE.png",
                f"run {spec} --backend reference --out o=FILE.npy", f"convert {spec} -o FILE.json",
                f"compile {spec} --target h200 --engine native -o FILE.attnplan", f"fmt {spec}")):
            for old in (None, b"old"):
                with self.subTest(command=command, old=old):
                    file = self.folder / f"{number}{command.partition('FILE')[2].partition(' ')[0]}"
                    if old is not None:
                        file.write_bytes(old)
                    words = command.replace(f"FILE{file.suffix}", str(file))
                    process = subprocess.run(["bash", "-c", f"ulimit -f 1; {attnc.ATTNC} {words}"], text=True,
                                             capture_output=True, timeout=1800, check=False)
                    self.assertEqual(process.returncode, 4, process.stderr)
                    # (A worker, which compiles kernels, writes files too.)
                    self.assertRegex(process.stderr, r"error\[(io|worker)\]")
                    self.assertEqual(file.read_bytes() if file.exists() else None, old)
        self.assertEqual(spec.read_bytes(), written)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.suffix == ".tmp"], [])

    def test_6_unreadable_plan_file(self):
        plan = self.compile(NOOP)
        whole = plan.read_bytes()
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        old = whole.replace(b"\x89ATP", b"\x89ATN", 1)
        for content in (b"", b"no plan at all", whole[:100], whole[:-1], bytes(damaged), old):
            path = self.write("damaged.attnplan", content)
            for command in (["inspect", path], ["explain", path], ["run", path]):
                self.assertIn("error[plan_", self.attnc(*command, code=6).stderr)


if __name__ == "__main__":
    attnc.main()
