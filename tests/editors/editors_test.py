#!/usr/bin/env python3
"""The words that editors highlight, and that Python gives no captured tensor, are those of the grammar and of the
compiler's tables.

    editors_test.py SOURCE_FOLDER

With ATTN_UPDATE_GOLDEN=1 in the environment, rewrites the functions.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from textmate import Grammar

SOURCE = pathlib.Path(sys.argv.pop(1))
TEXTMATE = SOURCE / "editors" / "vscode" / "syntaxes" / "attn.tmLanguage.json"
VIM = SOURCE / "editors" / "vim" / "syntax" / "attn.vim"
WORDS = SOURCE / "python" / "attn" / "tracing" / "words.py"


def text(path):
    return (SOURCE / path).read_text(encoding="utf-8")


def listed(path, name):
    """The strings of a list in C++: kName[] = {"a", "b"}."""
    (words,) = re.findall(rf"{name}\[\] = {{(.*?)}}", text(path), re.DOTALL)
    return set(re.findall(r'"(\w+)"', words))


def functions():
    tables = text("compiler/sema/functions.def") + text("compiler/ir/real_functions.def")
    calls = re.findall(r"^ATTN_(?:REAL_)?FUNCTION\((\w+),", tables, re.MULTILINE)
    return sorted(set(calls) | listed("compiler/sema/calls.cpp", "kReductions"))


def highlighted():
    """Those, and the name of sums along keys, which is no function of a mod."""
    (name,) = re.findall(r'kCumsum = "(\w+)"', text("compiler/sema/sums.h"))
    return sorted({*functions(), name})


def real_functions():
    """Those of a single number."""
    return re.findall(r"^ATTN_REAL_FUNCTION\((\w+), \d+, 1,", text("compiler/ir/real_functions.def"), re.MULTILINE)


def python_words():
    """The text of python/attn/tracing/words.py."""
    lists = {"FUNCTIONS": functions(), "REAL_FUNCTIONS": real_functions()}
    lines = ['"""Functions of the language, and those of one real. tests/editors/editors_test.py writes this file."""']
    for name, words in lists.items():
        rows = textwrap.wrap(" ".join(words), 100, initial_indent="    ", subsequent_indent="    ")
        lines += ["", f'{name} = """', *rows, '""".split()']
    return "\n".join(lines) + "\n"


def update():
    """Rewrites the functions of both editors and of Python."""
    WORDS.write_text(python_words(), encoding="utf-8")
    prefix = "syntax keyword attnFunction contained "
    lines = textwrap.wrap(" ".join(highlighted()), 100, initial_indent=prefix, subsequent_indent=prefix)
    replace(VIM, rf"(?:^{prefix}.*\n)+", "".join(line + "\n" for line in lines))
    pattern = r'(?<="name": "support.function.attn",\n      "match": "\\\\b\()[\w|]+'
    replace(TEXTMATE, pattern, "|".join(highlighted()))


def replace(path, pattern, words):
    changed, count = re.subn(pattern, words, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert count == 1, f"{path}: {pattern} occurs {count} times"
    path.write_text(changed, encoding="utf-8")


def language():
    """{kind: words}, from the grammar and the compiler's tables."""
    rule = r"^[A-Z_]+ : ('[A-Za-z]+'(?: \| '[A-Za-z]+')*) ;$"
    rules = re.findall(rule, text("grammar/AttnSpec.g4"), re.MULTILINE)
    keywords = {word for found in rules for word in re.findall(r"\w+", found)}
    names = "compiler/sema/names.cpp"
    dtypes = set(re.findall(r"^ATTN_DTYPE\((\w+),", text("runtime/base/dtype.def"), re.MULTILINE))
    return {
        "keyword": keywords | {"monotone", "runs", "inf"},
        "function": set(highlighted()),
        "bound": listed(names, "kBound") - {"inf"},
        "dimension": listed(names, "kDimensions"),
        "type": dtypes - {"boolean", "e8m0"} | {"bool"},  # no spec writes the type of scales of blocks
    }


def alternatives(pattern):
    """The words of \\b(a|b)\\b, or in Vim \\<\\%(a\\|b\\)\\>; of one word too."""
    plain = re.sub(r"\\b|\\<|\\>|\\s.*|\\%|\\(?=[|)])|\(\?.*", " ", pattern)
    return set(re.findall(r"\w+", plain.split("[")[0]))


def textmate_patterns(node):
    """(scope, pattern) of every rule."""
    if isinstance(node, dict):
        if "begin" in node and "beginCaptures" in node:
            yield node["beginCaptures"]["1"]["name"], node["begin"]
        elif "match" in node and "name" in node:
            yield node["name"], node["match"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from textmate_patterns(child)


def textmate():
    scopes = {
        "keyword.control.attn": "keyword",
        "storage.modifier.attn": "keyword",
        "constant.language.attn": "keyword",
        "support.function.attn": "function",
        "variable.language.attn": "bound",
        "variable.other.constant.attn": "dimension",
        "support.type.attn": "type",
    }
    words = {kind: set() for kind in scopes.values()}
    for scope, pattern in textmate_patterns(json.loads(TEXTMATE.read_text(encoding="utf-8"))):
        if scope in scopes:
            words[scopes[scope]] |= alternatives(pattern)
    return words


def vim():
    groups = {
        "attnClause": "keyword",
        "attnReturn": "keyword",
        "attnIn": "keyword",
        "attnFact": "keyword",
        "attnConstant": "keyword",
        "attnFunction": "function",
        "attnBound": "bound",
        "attnDimension": "dimension",
        "attnType": "type",
    }
    words = {kind: set() for kind in groups.values()}
    source = VIM.read_text(encoding="utf-8").replace("\n  \\", " ")
    for group, rest in re.findall(r"^syntax keyword (\w+) contained (.*)$", source, re.MULTILINE):
        words[groups[group]] |= set(rest.split())
    for starts in re.findall(r"matchgroup=attnClause (.*?) matchgroup=NONE", source):
        for start in re.findall(r'start="(.*?)"', starts):
            words["keyword"] |= alternatives(start)
    return words


# A text, and the words of it that are keywords, names that FlexAttention binds, functions and types.
SHOWN = """# mask
attention x(score = 3, window = 4_096) {
  dims B = 2, Sq = {128, 256}, D = 64;
  tensor lengths: i32[B] monotone;
  mask (q_idx >= kv_idx);
  mask !(b == 0) && any(j in 0..4: j == h);
  score -score * 2.5e-3 +
    score;  # scale
  scale (1 / sqrt(D));
}
fn f(x, mask) { y = x + mask; return y; }
fn causal() = q_idx >= kv_idx;
import "masks.attn";
"""
KEYWORDS = "attention dims tensor mask mask in score scale fn return fn import"
BOUND = "score q_idx kv_idx b h score score q_idx kv_idx"
SCOPES = {"keyword.control": KEYWORDS, "variable.language": BOUND, "support.function": "any sqrt",
          "support.type": "i32", "storage.modifier": "monotone"}
GROUPS = {"attnClause attnReturn attnIn": KEYWORDS, "attnBound": BOUND, "attnFunction": "any sqrt",
          "attnType": "i32", "attnFact": "monotone"}

# Prints "GROUP WORD" for each word of the file.
VIM_SCRIPT = r"""
set nocompatible
syntax on
execute 'set runtimepath^=' . $ATTN_VIM
execute 'edit ' . $ATTN_FILE
set syntax=attn
let found = []
for number in range(1, line('$'))
  let [text, column] = [getline(number), 0]
  while 1
    let [word, start, end] = matchstrpos(text, '\w\+', column)
    if start < 0 | break | endif
    call add(found, synIDattr(synID(number, start + 1, 1), 'name') . ' ' . word)
    let column = end
  endwhile
endfor
call writefile(found, $ATTN_FOUND)
quitall!
"""


def shown_by_vim(text):
    """[(group, word)], or None without a Vim that knows syntax."""
    vim = shutil.which("vim")
    version = vim and subprocess.run([vim, "--version"], capture_output=True, text=True).stdout
    if not vim or "+syntax" not in version:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "x.attn").write_text(text)
        (folder / "show.vim").write_text(VIM_SCRIPT)
        names = {"ATTN_VIM": SOURCE / "editors" / "vim", "ATTN_FILE": folder / "x.attn",
                 "ATTN_FOUND": folder / "found"}
        environment = {**os.environ, **{key: str(path) for key, path in names.items()}}
        subprocess.run([vim, "-u", "NONE", "-es", "-S", str(folder / "show.vim")], env=environment,
                       timeout=600, stdin=subprocess.DEVNULL, check=False, capture_output=True)
        lines = (folder / "found").read_text().splitlines()
        return [tuple(line.split(" ", 1)) for line in lines]


class Editors(unittest.TestCase):
    maxDiff = None

    def test_the_language_is_found(self):
        words = language()
        self.assertLessEqual({"attention", "mask", "return", "True", "in"}, words["keyword"])
        self.assertLessEqual({"where", "softplus", "any"}, words["function"])
        self.assertLessEqual({"bf16", "bool"}, words["type"])

    def test_vscode(self):
        self.assertEqual(textmate(), language())

    def test_vim(self):
        self.assertEqual(vim(), language())

    def test_python(self):
        self.assertEqual(WORDS.read_text(encoding="utf-8"), python_words())

    def check_shown(self, found, expected):
        for scopes, words in expected.items():
            with self.subTest(scopes):
                self.assertEqual(" ".join(word for scope, word in found if scope in scopes.split()), words)

    def test_a_word_is_a_keyword_where_a_statement_begins(self):
        grammar = Grammar(json.loads(TEXTMATE.read_text(encoding="utf-8")))
        tokens = grammar.tokens(SHOWN)
        self.check_shown([(scope, word) for word, scope in tokens], SCOPES)
        comments = [word for word, scope in tokens if scope.startswith("comment")]
        self.assertEqual(comments, ["# mask", "# scale"])

    def test_a_word_is_a_keyword_where_a_statement_begins_in_vim(self):
        found = shown_by_vim(SHOWN)
        if found is None:
            self.skipTest("Vim with syntax highlighting is not installed")
        self.check_shown(found, GROUPS)

    def test_patterns_compile(self):
        patterns = list(textmate_patterns(json.loads(TEXTMATE.read_text(encoding="utf-8"))))
        self.assertGreaterEqual(len(patterns), 8)
        for scope, pattern in patterns:
            with self.subTest(scope):
                re.compile(pattern)

    def test_the_extension_is_whole(self):
        folder = TEXTMATE.parents[1]
        contributes = json.loads((folder / "package.json").read_text())["contributes"]
        for entry, key in (("languages", "configuration"), ("grammars", "path")):
            json.loads((folder / contributes[entry][0][key]).read_text())


if __name__ == "__main__":
    if os.environ.get("ATTN_UPDATE_GOLDEN") == "1":
        update()
    unittest.main()
