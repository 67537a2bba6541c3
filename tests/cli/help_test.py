"""Help texts: golden files, and completeness."""
import re
import shlex

import attnc
from attnc import SOURCE, SPECS

ROWS = (SOURCE / "tools" / "commands.def").read_text(encoding="utf-8")
COMMANDS = [name.replace("_", "-") for name in re.findall(r"^ATTN_COMMAND\((\w+)\)", ROWS, re.MULTILINE)]
PRINT_NO_DATA = ["lsp", "cache", "completion"]  # cache has commands of its own
CACHE_COMMANDS = ["path", "list", "info", "verify", "prune", "clear"]


class Help(attnc.Case):
    def test_texts(self):
        for command in [[]] + [[name] for name in COMMANDS] + [
                ["target", name] for name in ("list", "show", "dump")] + [
                ["cache", name] for name in CACHE_COMMANDS]:
            process = self.attnc(*command, "--help")
            self.assertEqual(process.stderr, "")
            self.expect_golden("-".join(["help"] + command) + ".txt", process.stdout)

    def test_examples_of_the_manual_page(self):
        page = self.attnc("help", "--man").stdout
        self.assertEqual(self.attnc("help", "compile", "--man").stdout.count("EXAMPLES"), 0)
        examples = re.findall(r"^attnc .*$", page.split(".SH EXAMPLES\n")[1].replace("\\-", "-"), re.MULTILINE)
        self.assertGreaterEqual({line.split()[1] for line in examples},
                                {"check", "compile", "explain", "run", "verify", "bench", "draw", "report"})
        (self.folder / "specs").symlink_to(SPECS)
        for example in examples:
            command, *words = shlex.split(example)[1:]
            if command not in ("check", "run", "draw", "explain-code"):  # takes long, or needs a plan or a GPU
                self.assertTrue((SOURCE / words[0]).exists() or words[0].endswith(".attnplan"), example)
                for option in (word for word in words if word.startswith("-")):
                    self.assertIn(option, self.attnc(command, "--help").stdout, example)
            else:
                self.attnc(command, *words, folder=self.folder)

    def test_lists_every_command_and_no_other(self):
        text = self.attnc("--help").stdout
        listed = re.findall(r"^  ([a-z-]+)  ", text.split("Commands:")[1].split("\n\n")[0], re.MULTILINE)
        self.assertEqual(listed, COMMANDS)

    def test_the_manual_lists_every_command(self):
        page = (SOURCE / "docs" / "cli.md").read_text(encoding="utf-8")
        listed = re.findall(r"^attnc ([a-z-]+)", page.split("```")[1], re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(COMMANDS))
        sections = re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE)
        self.assertGreaterEqual({*sections, "completion"}, set(COMMANDS))  # it is under Common behaviour

    def test_commands_that_print_data_take_a_format(self):
        for name in COMMANDS:
            if name not in PRINT_NO_DATA:
                self.assertIn("--format", self.attnc(name, "--help").stdout, name)
        for name in CACHE_COMMANDS:
            self.assertIn("--format", self.attnc("cache", name, "--help").stdout, name)


if __name__ == "__main__":
    attnc.main()
