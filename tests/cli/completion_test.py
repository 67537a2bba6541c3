"""Completion: what attnc answers, and that bash, zsh and fish complete with its scripts. Each shell really
completes; one that is not installed is skipped, and says so."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

import attnc
from attnc import NOOP

# A line up to the cursor, and words that complete it; None: files, given below.
LINES = [
    ("attnc chec", ["check"]),
    ("attnc cache pr", ["prune"]),
    ("attnc compile --targ", ["--target"]),
    ("attnc compile --target h2", ["h200", "h20"]),
    ("attnc compile --target=h2", ["h200", "h20"]),
    ("attnc compile --engine na", ["native"]),
    ("attnc run --strategy comp", ["composite"]),
    ("attnc check --format j", ["json"]),
    ("attnc run --bind S", ["Sq=", "Skv="]),
    ("attnc run --without redundant,re", ["redundant,redundant", "redundant,reals"]),
    ("attnc -q help comp", ["compile", "completion"]),
    ("attnc explain-code E020", ["E0203"]),
    ("attnc run --in q=random:3 --strat", ["--strategy"]),
    ("attnc run --in q=@x.npy --strategy comp", ["composite"]),
]


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"SKIPPED: {program} is not installed")


class Completion(attnc.Case):
    def setUp(self):
        super().setUp()
        for name in ("one.attn", "two.attn.json", "three.attnplan", "four.txt", "five.npy"):
            self.write(name, NOOP)
        (self.folder / "folder").mkdir()
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "attnc").symlink_to(attnc.ATTNC)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                            "HOME": str(self.folder), "TERM": "dumb", "ATTNC": "attnc"}

    def answers(self, *words):
        return [line.split("\t")[0] for line in self.attnc("complete", *words).stdout.splitlines()]

    def test_answers(self):
        for line, expected in LINES:
            words = line.split()[1:]
            found = [word.removeprefix("--target=") for word in self.answers(*words)
                     if not word.startswith(":files")]
            self.assertLessEqual(set(expected), set(found), line)
            end = words[-1].removeprefix("--target=")
            self.assertTrue(all(word.startswith(end) for word in found), line)

    def test_files(self):
        for line, expected in [
                ("check x", ":files .attn .attn.json"), ("inspect ", ":files .attnplan"),
                ("run --backend auto x", ":files .attn .attn.json .attnplan"),
                ("compile --target=./", ":files .json"), ("compile -o x", ":files"),
                ("draw -o x", ":files .svg .png"), ("support --all ", ":folders"),
                ("run one.attn --in q=@da", ":files .npy"), ("run --in=q=@da", ":files .npy"),
                ("fmt a.attn b", ":files .attn .attn.json")]:
            self.assertIn(expected, self.answers(*line.split(" ")), line)
        self.assertEqual(self.answers("inspect", "x.attnplan", ""), [])

    def test_every_command_and_option(self):
        """Completion knows what the help knows."""
        def check(command):
            words = command["name"].split()[1:]
            options = [name for option in command["options"] for name in option["names"]
                       if name.startswith("--")]
            self.assertEqual(self.answers(*words, "-"), options, command["name"])
            self.assertLessEqual({below["name"].split()[-1] for below in command["commands"]},
                                 set(self.answers(*words, "")))
            for below in command["commands"]:
                check(below)
        check(self.attnc_json("help"))

    @needs("bash")
    def test_bash(self):
        def complete(line):
            script = (f'source <(attnc completion bash); COMP_WORDBREAKS=$\' \\t\\n"\\\'@><=;|&(:\'\n'
                      f"COMP_LINE='{line}'\n"
                      f"COMP_WORDS=({words_of(line)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
                      f'_attnc attnc "${{COMP_WORDS[COMP_CWORD]}}" ""; printf "%s\\n" "${{COMPREPLY[@]}}"')
            process = subprocess.run(["bash", "--norc", "-c", script], cwd=self.folder, timeout=600,
                                     env=self.environment, capture_output=True, text=True, check=True)
            return process.stdout.split()

        def words_of(line):  # as readline splits it
            words = [word for part in line.split(" ") for word in re.split("([=:@]+)", part)
                     if word or not part]
            return " ".join(f"'{word}'" for word in words)

        for line, expected in LINES:
            self.assertLessEqual(set(expected), set(complete(line)), line)
        self.assertEqual(set(complete("attnc check ")), {"one.attn", "two.attn.json", "folder", "programs"})
        self.assertEqual(complete("attnc inspect t"), ["three.attnplan"])
        self.assertIn("four.txt", complete("attnc compile --output=f"))
        self.assertEqual(complete("attnc support --all f"), ["folder"])
        self.assertEqual(complete("attnc run --in q=random:3 o"), ["one.attn"])
        self.assertEqual(complete("attnc run --in q=@five.npy o"), ["one.attn"])
        self.assertEqual(complete("attnc run one.attn --in q=@f"), ["@five.npy", "@folder/"])

    @needs("bash")
    def test_bash_at_a_terminal(self):
        for line, expected in [("attnc run --in q=random:3 on", "one.attn"),
                               ("attnc run one.attn --in q=@fi", "--in q=@five.npy"),
                               ("attnc run one.attn --in=q=@fi", "--in=q=@five.npy"),
                               ("attnc compile --output=fi", "--output=five.npy")]:
            screen = Terminal(["bash", "--norc", "-i"], self.folder, self.environment)
            self.addCleanup(screen.close)
            screen.send("PS1='re''ady'; source <(attnc completion bash)\n")
            screen.read_until("ready", silence=0.3)
            screen.send(f"{line}\t")
            self.assertIn(expected, screen.read_until(expected, seconds=60))

    @needs("fish")
    def test_fish(self):
        def complete(line):
            process = subprocess.run(
                ["fish", "-c", "attnc completion fish | source; complete -C $argv[1]", line],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600,
                check=True)
            return [each.split("\t")[0] for each in process.stdout.splitlines()]

        for line, expected in LINES:
            found = [word.removeprefix("--target=") for word in complete(line)]
            self.assertLessEqual(set(expected), set(found), line)
        self.assertEqual(set(complete("attnc check ")), {"one.attn", "two.attn.json", "folder/", "programs/"})
        self.assertEqual(complete("attnc inspect t"), ["three.attnplan"])

    @needs("zsh")
    def test_zsh(self):
        """zsh completes only at a terminal: the words that it then lists, or the line that it makes."""
        screen = Terminal(["zsh", "-f", "-i"], self.folder, self.environment)
        self.addCleanup(screen.close)
        screen.send("PROMPT='re''ady'; autoload -U compinit && compinit -u -D; "
                    "source <(attnc completion zsh)\n")
        screen.read_until("ready", silence=0.3)
        for line, expected in LINES + [("attnc inspect t", ["three.attnplan"]),
                                       ("attnc check o", ["one.attn"])]:
            screen.send(f"{line}\t\t")
            shown = screen.read_until(*expected, silence=0.3)
            for word in expected:
                self.assertIn(word, shown, line)
            screen.send("\x03")
            screen.read_until("ready", silence=0.3)


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, command, folder, environment):
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)

    def send(self, text):
        os.write(self.descriptor, text.encode())

    def read_until(self, *words, seconds=20, silence=0):
        """What is printed until all words were, and then nothing for some time."""
        text, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            done = all(word in text for word in words)
            if select.select([self.descriptor], [], [], silence if done else 0.1)[0]:
                text += os.read(self.descriptor, 65536).decode(errors="replace")
            elif done:
                break
        return text

    def close(self):
        os.close(self.descriptor)
        os.waitpid(self.process, 0)


class Manual(attnc.Case):
    """The manual page, made from the same tables."""

    def test_has_everything_that_the_help_has(self):
        page = self.attnc("help", "--man").stdout.replace("\\-", "-")
        def check(command):
            self.assertIn(command["usage"], page)
            for option in command["options"]:
                self.assertIn(", ".join(option["names"]), page)
            for below in command["commands"]:
                check(below)
        check(self.attnc_json("help"))

    def test_of_one_command(self):
        self.assertIn('.TH "ATTNC\\-COMPILE" 1', self.attnc("help", "compile", "--man").stdout)

    def test_renders(self):
        page = self.attnc("help", "--man").stdout
        programs = [command for command in (["groff", "-man", "-ww", "-z", "-Tutf8"],
                                            ["mandoc", "-Tlint", "-Wwarning"])
                    if shutil.which(command[0])]
        if not programs:
            self.skipTest("SKIPPED: neither groff nor mandoc is installed")
        for command in programs:
            process = subprocess.run(command, input=page, capture_output=True, text=True, check=False,
                                     timeout=600)
            found = [line for line in (process.stdout + process.stderr).splitlines()
                     if "missing date" not in line]  # the same page whenever it is built
            self.assertEqual(found, [], command)


if __name__ == "__main__":
    attnc.main()
