"""What is shown beside data: colour, progress, --quiet, --verbose; data of every command as JSON."""
import json
import os
import pty
import re
import subprocess

import attnc
from attnc import NOOP, SPECS

ESCAPE = "\x1b["
BAD = NOOP.replace("bf16", "bf17")


class Console(attnc.Case):
    def run_with(self, *arguments, terminal=False, **variables):
        """(exit code, standard output, standard error); at a terminal both are one."""
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("NO_COLOR", "CLICOLOR_FORCE", "TERM")}
        environment.update({"TERM": "xterm", **variables})
        command = [attnc.ATTNC, *map(str, arguments)]
        if not terminal:
            process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800,
                                     check=False)
            return process.returncode, process.stdout, process.stderr
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs,
                              stderr=theirs) as process:
            os.close(theirs)
            text = b""
            try:
                while chunk := os.read(ours, 65536):
                    text += chunk
            except OSError:  # the end, of a terminal
                pass
        os.close(ours)
        return process.returncode, text.decode(), ""

    def test_colour(self):
        bad = self.write("bad.attn", BAD)
        for arguments, terminal, variables, expected in [
                ([], False, {}, False),
                ([], True, {}, True),
                ([], True, {"NO_COLOR": "1"}, False),
                ([], True, {"NO_COLOR": ""}, True),
                ([], True, {"TERM": "dumb"}, False),
                (["--color", "never"], True, {}, False),
                (["--color=always"], False, {}, True),
                (["--color", "always"], False, {"NO_COLOR": "1"}, True),
                ([], False, {"CLICOLOR_FORCE": "1"}, True),
                ([], False, {"CLICOLOR_FORCE": "0"}, False)]:
            for command in (["check", bad], ["help"], ["chekc"], ["target", "list"]):
                with self.subTest(command=command, arguments=arguments, terminal=terminal, **variables):
                    _, output, errors = self.run_with(*arguments, *command, terminal=terminal, **variables)
                    self.assertEqual(ESCAPE in output + errors, expected)

    def test_colour_changes_nothing_else(self):
        bad = self.write("bad.attn", BAD)
        for command in (["check", bad, SPECS / "noop.attn"], ["--help"], ["target"], ["help", "compile"],
                        ["compile", SPECS / "noop.attn", "--engin"], ["explain-code", "E9999"]):
            plain = self.run_with(*command)
            coloured = self.run_with(*command, "--color", "always")
            self.assertEqual(plain, tuple(re.sub("\x1b\\[[0-9;]*m", "", part) if isinstance(part, str)
                                          else part for part in coloured))

    def test_json_has_no_colour(self):
        bad = self.write("bad.attn", BAD)
        for command in (["check", bad], ["help"], ["target"], ["explain-code", "--list"], ["version"],
                        ["support", SPECS / "noop.attn", "--tier", "rules"], ["fmt", "--check", bad]):
            _, output, _ = self.run_with(*command, "--format", "json", "--color", "always")
            self.assertNotIn("\x1b", output)
            json.loads(output)

    def test_progress(self):
        for name in ("a.attn", "b.attn", "c.attn"):
            self.write(name, NOOP)
        for arguments in (["support", self.folder, "--tier", "rules", "--target", "h200,a100"],
                          ["check", self.folder]):
            code, output, errors = self.run_with(*arguments, "--progress")
            self.assertRegex(errors, fr"(?m)^{arguments[0]}: \d+ of \d+, \S+")
            self.assertNotRegex(output, r"\d+ of \d+, ")
            quiet = self.run_with(*arguments, "--progress", "--quiet")
            self.assertNotRegex(quiet[2], r"\d+ of \d+, ")
            without = self.run_with(*arguments)
            self.assertEqual((code, output), without[:2])
            self.assertNotRegex(without[2], r"\d+ of \d+, ")

    def test_progress_at_a_terminal(self):
        """One line, rewritten, and cleared before anything else and at the end."""
        self.write("a.attn", NOOP)
        _, text, _ = self.run_with("support", self.folder, SPECS / "noop.attn", "--tier", "rules", "--target", "h200", "--progress",
                                   terminal=True)
        lines = text.split("\r\n")
        self.assertTrue(any("\r\x1b[Ksupport: " in line for line in lines))
        for line in lines:
            self.assertNotIn("support: ", line.split("\r\x1b[K")[-1])

    def test_rows_are_printed_at_once(self):
        with subprocess.Popen([attnc.ATTNC, "support", *map(str, sorted(SPECS.glob("*.attn"))), "--target",
                               "h200", "--tier", "heuristics", "--format", "jsonl", "--jobs", "1"],
                              stdout=subprocess.PIPE, text=True) as process:
            first = json.loads(process.stdout.readline())
            self.assertIsNone(process.poll())  # the others take a fifth of a second each
            process.kill()
        self.assertEqual(first["targets"][0]["target"], "h200")

    def test_quiet(self):
        spec, plan = SPECS / "noop.attn", self.folder / "x.attnplan"
        for command in (["check", spec], ["check", SPECS / "causal.attn", spec], ["fmt", "--check", spec],
                        ["compile", spec, "--target", "h200", "--engine", "native", "-o", plan],
                        ["cache", "clear"]):
            self.assertEqual(self.run_with(*command, "-q"), (0, "", ""), command)
        self.assertIn("o ", self.run_with("run", self.write("noop.attn", NOOP), "-q", "--backend",
                                          "reference")[1])
        bad = self.write("bad.attn", BAD)
        self.assertEqual(self.run_with("check", bad, "-q"), self.run_with("check", bad))

    def test_verbose(self):
        spec, plan = SPECS / "noop.attn", self.folder / "x.attnplan"
        _, output, errors = self.run_with("compile", spec, "--target", "H100", "--engine", "native", "-o",
                                          plan, "-v")
        for words in (f"read {spec}", "target h100, compute capability 9.0: H200, H100", "compile `noop`",
                      f"wrote {plan}"):
            self.assertRegex(errors, rf"(?m)^\[ *\d+\.\d+ s\] .*{re.escape(words)}")
        self.assertNotIn("read ", output)


class Data(attnc.Case):
    """--format json of the commands that had only text."""

    def test_fmt(self):
        self.write("neat.attn", self.attnc("fmt", "-", stdin=NOOP).stdout)
        ugly = self.write("ugly.attn", NOOP.replace("  dims", "dims"))
        text = self.attnc("fmt", "--check", self.folder, "--format", "json", code=1).stdout
        self.assertEqual([(entry["file"].split("/")[-1], entry["differs"])
                          for entry in json.loads(text)["files"]],
                         [("neat.attn", False), ("ugly.attn", True)])
        self.attnc("fmt", self.folder)
        self.assertEqual(self.attnc("fmt", "--check", ugly).stdout, "")
        entry, = self.attnc_json("fmt", "-", stdin=NOOP)["files"]
        self.assertEqual(entry["text"], self.attnc("fmt", "-", stdin=NOOP).stdout)

    def test_convert(self):
        spec = self.write("noop.attn", NOOP)
        result = self.attnc_json("convert", spec)
        self.assertEqual((result["form"], result["text"]), ("json", self.attnc("convert", spec).stdout))
        output = self.folder / "noop.attn.json"
        self.assertEqual(self.attnc_json("convert", spec, "-o", output),
                         {"form": "json", "file": str(output)})

    def test_opt(self):
        spec = self.write("noop.attn", NOOP)
        result = self.attnc_json("opt", spec, "--pass", "simplify,ranges", "--each")
        self.assertEqual([each["pass"] for each in result["passes"]], ["simplify", "ranges"])
        self.assertEqual(result["ir"], self.attnc("opt", spec, "--pass", "simplify,ranges").stdout)

    def test_help(self):
        help_ = self.attnc_json("help", "compile")
        target, = [option for option in help_["options"] if "--target" in option["names"]]
        self.assertEqual(target["default"], "native")
        self.assertIn("h200", target["choices"])

    def test_target(self):
        self.assertEqual(self.attnc_json("target", "show", "9.0"), self.attnc_json("target", "show", "SM_90"))
        self.assertIn("targets", self.attnc_json("target"))

    def test_a_folder_is_searched_recursively(self):
        for name in ("a.attn", "b/c.attn", "b/.hidden/d.attn", "b/e.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(name, NOOP)
        process = self.attnc("check", self.folder)
        self.assertEqual(process.stderr, "2 specs: 2 ok\n")
        self.assertEqual([entry["file"] for entry in self.attnc_json("check", self.folder)["specs"]],
                         [str(self.folder / name) for name in ("a.attn", "b/c.attn")])
        self.write("f.attn", BAD)
        self.assertIn("3 specs: 2 ok, 1 not", self.attnc("check", self.folder, code=1).stderr)


if __name__ == "__main__":
    attnc.main()
