#!/usr/bin/env python3
"""The words that editors highlight are those of the grammar and of the compiler's tables.

    editors_test.py SOURCE_FOLDER

With ATTN_UPDATE_GOLDEN=1 in the environment, rewrites the functions.
"""

import json
import os
import pathlib
import re
import sys
import textwrap
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
TEXTMATE = SOURCE / "editors" / "vscode" / "syntaxes" / "attn.tmLanguage.json"
VIM = SOURCE / "editors" / "vim" / "syntax" / "attn.vim"


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


def update():
    """Rewrites the functions of both editors."""
    prefix = "syntax keyword attnFunction "
    lines = textwrap.wrap(" ".join(functions()), 100, initial_indent=prefix, subsequent_indent=prefix)
    replace(VIM, rf"(?:^{prefix}.*\n)+", "".join(line + "\n" for line in lines))
    pattern = r'(?<="name": "support.function.attn",\n      "match": "\\\\b\()[\w|]+'
    replace(TEXTMATE, pattern, "|".join(functions()))


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
        "function": set(functions()),
        "bound": listed(names, "kBound") - {"inf"},
        "dimension": listed(names, "kDimensions"),
        "type": dtypes - {"boolean"} | {"bool"},
    }


def alternatives(pattern):
    return {word for group in re.findall(r"\\b\(([\w|]+)\)\\b", pattern) for word in group.split("|")}


def textmate_patterns(node):
    """(scope, pattern) of every rule."""
    if isinstance(node, dict):
        if "match" in node and "name" in node:
            yield node["name"], node["match"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from textmate_patterns(child)


def textmate():
    scopes = {
        "keyword.control.attn": "keyword",
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
        "attnConstant": "keyword",
        "attnFunction": "function",
        "attnBound": "bound",
        "attnDimension": "dimension",
        "attnType": "type",
    }
    words = {kind: set() for kind in groups.values()}
    for group, rest in re.findall(
        r"^syntax keyword (\w+) (.*)$", VIM.read_text(encoding="utf-8"), re.MULTILINE
    ):
        words[groups[group]] |= set(rest.split())
    words["bound"].add("score")  # in Vim a keyword has one group; `score` is a clause
    return words


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
