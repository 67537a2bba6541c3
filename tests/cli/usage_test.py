"""Messages for wrong command lines; help and versions."""
import numpy

import attnc
from attnc import NOOP


class Usage(attnc.Case):
    def message(self, *arguments, code=2, **how):
        process = self.attnc(*arguments, code=code, **how)
        self.assertEqual(process.stdout, "")
        return process.stderr.splitlines()[0]

    def test_unknown_commands(self):
        for word in ("chekc", "Check", "CHECK", "chek"):
            self.assertEqual(self.message(word, "x.attn"),
                             f"error: unknown command `{word}`; did you mean `check`?")
        self.assertEqual(self.message("frobnicate"), "error: unknown command `frobnicate`")
        self.assertEqual(self.message("cache", "lst"),
                         "error: unknown command `cache lst`; did you mean `cache list`?")
        self.assertEqual(self.message(), "error: `attnc` needs a command")
        self.assertIn("  check         Check specs", self.attnc(code=2).stderr)
        self.assertEqual(self.message("target", "lst"),
                         "error: unknown command `target lst`; did you mean `target list`?")
        self.assertEqual(self.message("cache"), "error: `attnc cache` needs a command")

    def test_unknown_options(self):
        spec = self.write("noop.attn", NOOP)
        for line, words in [
                (("compile", spec, "--targt", "h200", "-o", "x"),
                 "`attnc compile` has no option `--targt`; did you mean `--target`?"),
                (("compile", "--targt=h200", spec, "-o", "x"),
                 "`attnc compile` has no option `--targt`; did you mean `--target`?"),
                (("compile", spec, "--outptu", "x"),
                 "`attnc compile` has no option `--outptu`; did you mean `--output`?"),
                (("compile", spec, "--Target", "h200", "-o", "x"),
                 "`attnc compile` has no option `--Target`; did you mean `--target`?"),
                (("compile", spec, "-o", "x", "--grad"),
                 "`attnc compile` has no option `--grad`; did you mean `--direction both`?"),
                (("cache", "prune", "--max-byte", "1"),
                 "`attnc cache prune` has no option `--max-byte`; did you mean `--max-bytes`?"),
                (("check", spec, "--frobnicate"), "`attnc check` has no option `--frobnicate`"),
                (("inspect", spec, "more"), "`attnc inspect` does not take the argument `more`"),
                (("--frobnicate",), "`attnc` has no option `--frobnicate`")]:
            self.assertEqual(self.message(*line), f"error: {words}")

    def test_help(self):
        self.assertEqual(self.attnc("help").stdout, self.attnc("--help").stdout)
        for words in (["check"], ["cache", "prune"], ["help"]):
            self.assertEqual(self.attnc("help", *words).stdout,
                             self.attnc(*words, "--help").stdout)
        self.assertEqual(self.message("help", "chekc"),
                         "error: unknown command `chekc`; did you mean `check`?")

    def test_version(self):
        version = self.attnc("--version").stdout
        self.assertRegex(version, r"^attnc \d+\.\d+\.\d+\n$")
        self.assertEqual(self.attnc("-V").stdout, version)

    def test_a_spec_is_no_plan(self):
        spec = self.write("noop.attn", NOOP)
        process = self.attnc("inspect", spec, code=6)
        self.assertIn(f"use `attnc explain {spec}`", process.stderr)

    def test_a_folder_that_does_not_exist(self):
        spec = self.write("noop.attn", NOOP)
        output = self.folder / "none" / "x.attnplan"
        message = self.message("compile", spec, "--target", "h200", "-o", output, code=4)
        self.assertEqual(message, f"error[io]: -o {output}: folder {output.parent} does not exist")

    def test_a_list_of_sizes(self):
        spec = self.write("noop.attn", NOOP)
        message = self.message("explain", spec, "--bind", "Sq=16,32", code=1)
        self.assertEqual(message, "error[E0602]: --bind Sq=16,32: expected one size")
        for size in ("16", "16,", "16,16"):
            self.assertIn("Sq=16", self.attnc("check", spec, "--bind", f"Sq={size}").stdout)
            self.attnc("run", spec, "--backend", "reference", "--bind", f"Sq={size}")

    def test_files_are_in_logical_order(self):
        spec = self.write("noop.attn", NOOP)
        numpy.save(self.folder / "q.npy", numpy.zeros((1, 16, 2, 64), "float32"))
        message = self.message("run", spec, "--backend", "reference", "--in",
                               f"q=@{self.folder}/q.npy", code=2)
        self.assertIn("(files hold [B,H,S,D] for every layout)", message)


if __name__ == "__main__":
    attnc.main()
