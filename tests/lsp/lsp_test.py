"""lsp: the protocol, broken input, every spec and every diagnostic, and sessions of a real client."""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
ATTNC = os.environ["ATTNC"]
sys.path[:0] = [str(SOURCE / "tests" / "cli"), str(pathlib.Path(__file__).parent)]

import attnc  # noqa: E402
import client as lsp  # noqa: E402

CASES = sorted((SOURCE / "tests" / "golden" / "diagnostics" / "cases").glob("*.attn*"))
CASES = [path for path in CASES if path.name.endswith((".attn", ".attn.json"))]
SPEC = """attention f(w = 3) {
  dims    B = 1, Hq = 1, Sq = 8, D = 8;
  # é 😀
  mask    kv_idx < w;  # 😀
}
"""


def place(line, character):
    return {"line": line, "character": character}


def apply(text, edits):
    """Edits of `check --format json`, from the last: lines and columns from 1, in code points."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))]
    for edit in sorted(edits, key=lambda one: (one["line"], one["column"]), reverse=True):
        begin = starts[edit["line"] - 1] + edit["column"] - 1
        end = starts[edit["end_line"] - 1] + edit["end_column"] - 1
        text = text[:begin] + edit["text"] + text[end:]
    return text


class Server(attnc.Case):
    def setUp(self):
        super().setUp()
        self.client = lsp.Client(ATTNC)
        self.addCleanup(self.client.process.wait, 300)
        self.addCleanup(self.client.process.stdout.close)
        self.addCleanup(self.client.process.stdin.close)

    def ask(self, method, uri, **params):
        return self.client.request(f"textDocument/{method}", {"textDocument": {"uri": uri}, **params})

    def whole(self):
        return {"start": place(0, 0), "end": place(10000, 0)}


class Protocol(Server):
    def test_positions_are_counted_as_negotiated(self):
        for offered, chosen in ((["utf-16"], "utf-16"), (["utf-16", "utf-8"], "utf-8"), ([], "utf-16")):
            client = lsp.Client(ATTNC, offered)
            self.assertEqual(client.initialized["capabilities"]["positionEncoding"], chosen)
            client.open("untitled:x", SPEC)
            # Behind the comment, whose characters are 1 and 2 units, or 2 and 4 bytes.
            after = place(2, len("  # ") + (1 if chosen == "utf-16" else 2) + 1 + (2 if chosen == "utf-16" else 4))
            client.change("untitled:x", 2, [{"range": {"start": after, "end": after},
                                             "text": "\n  let unused_one = 1;"}])
            (found,) = client.diagnostics("untitled:x", 2)
            self.assertEqual((found["code"], found["range"]["start"]), ("W0201", place(3, 6)))
            self.assertEqual(found["tags"], [1])
            self.assertEqual(client.stop(), 0)
            client.process.stdin.close()
            client.process.stdout.close()
        self.assertEqual(self.client.stop(), 0)

    def test_the_last_of_many_changes_is_published(self):
        self.client.open("untitled:x", SPEC)
        for version in range(2, 300):
            self.client.change("untitled:x", version, [{"text": SPEC + "#" * version}])
        self.client.diagnostics("untitled:x", 299)
        versions = [found["version"] for found in self.client.published]
        self.assertEqual(versions, sorted(versions))
        self.assertEqual(self.client.stop(), 0)

    def test_hover_has_the_format_of_the_client(self):
        plain = lsp.Client(ATTNC, hover=["plaintext"])
        for client, kind in ((self.client, "markdown"), (plain, "plaintext")):
            client.open("untitled:x", SPEC)
            client.settle(0.05)
            for line, column in ((0, 12), (0, 10)):
                asked = {"textDocument": {"uri": "untitled:x"}, "position": place(line, column)}
                contents = client.request("textDocument/hover", asked)["contents"]
                self.assertEqual(contents["kind"], kind)
                self.assertEqual(contents["value"].startswith("```attn\n"), kind == "markdown")
                self.assertEqual("`" in contents["value"], kind == "markdown", contents["value"])
            self.assertEqual(client.stop(), 0)
        plain.process.stdin.close()
        plain.process.stdout.close()

    def test_a_huge_expression_does_not_block(self):
        """Its error comes from the slow checks; what is known without them is there at once."""
        huge = ("attention f {\n  let x = 1;\n"
                "  mask any(j in 0..1000: any(i in 0..1000: kv_idx == i * j * x));\n}\n")
        self.client.open("untitled:x", "attention f {}")
        self.client.diagnostics("untitled:x", 1)
        for version in range(2, 12):
            self.client.change("untitled:x", version, [{"text": huge + "#" * version}])
            self.assertEqual(self.client.diagnostics("untitled:x", version), [])
            hover = self.ask("hover", "untitled:x", position=place(1, 6))
            self.assertIn("let x", hover["contents"]["value"])
        self.ask("inlayHint", "untitled:x", range=self.whole())
        self.client.settle()
        codes = [one["code"] for one in self.client.published[-1]["diagnostics"]]
        self.assertEqual(codes, ["E0105"])
        self.assertEqual(self.client.stop(), 0)

    def test_a_change_is_published_if_a_request_follows_at_once(self):
        self.client.open("untitled:x", SPEC)
        self.client.diagnostics("untitled:x", 1)
        document = {"uri": "untitled:x"}
        self.client.raw(b"".join(self.frame(one) for one in (
            {"method": "textDocument/didChange", "params": {
                "textDocument": {**document, "version": 2}, "contentChanges": [{"text": SPEC + "x"}]}},
            {"id": 77, "method": "textDocument/documentSymbol", "params": {"textDocument": document}})))
        self.client.answer(77)
        self.assertEqual([one["code"] for one in self.client.diagnostics("untitled:x", 2)], ["E0102"])
        self.assertEqual(self.client.stop(), 0)

    def test_a_document_may_be_opened_again(self):
        self.client.open("untitled:x", SPEC)
        number = self.client.ask("textDocument/inlayHint", {
            "textDocument": {"uri": "untitled:x"}, "range": self.whole()})
        self.client.open("untitled:x", SPEC + "x", 5)
        self.assertEqual(self.client.answer(number)["error"]["code"], -32801)
        self.assertEqual([one["code"] for one in self.client.diagnostics("untitled:x", 5)], ["E0102"])
        self.assertEqual(self.client.stop(), 0)

    def test_edits_leave_the_text_that_the_editor_has(self):
        """Random edits, of characters of all sizes; then the server says the same as of the whole text."""
        chance = random.Random(7)
        text, uri = SPEC + "\r# old line end\n", "untitled:edited"
        self.client.open(uri, text)
        for version in range(2, 200):
            begin = chance.randrange(len(text) + 1)
            end = min(len(text), begin + chance.choice((0, 0, 1, 5)))
            new = chance.choice(("", "é", "😀", "\n", "x < ", ";", "fn f(a) = a;", "#"))
            edit = {"range": {"start": self.utf16(text, begin), "end": self.utf16(text, end)}, "text": new}
            text = text[:begin] + new + text[end:]
            self.client.change(uri, version, [edit])
        self.client.open("untitled:fresh", text)
        fresh = self.client.diagnostics("untitled:fresh", 1)
        self.assertEqual(self.client.diagnostics(uri, 199), fresh)
        for method in ("semanticTokens/full", "documentSymbol"):
            self.assertEqual(self.ask(method, uri), self.ask(method, "untitled:fresh"))
        self.assertEqual(self.client.stop(), 0)

    @staticmethod
    def utf16(text, offset):
        lines = text[:offset].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return place(len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2)

    def test_a_closed_document_has_no_diagnostics(self):
        self.client.open("untitled:x", SPEC.replace("< w", "< v"))
        self.assertEqual(len(self.client.diagnostics("untitled:x", 1)), 1)
        self.client.notify("textDocument/didClose", {"textDocument": {"uri": "untitled:x"}})
        self.assertEqual(self.client.diagnostics("untitled:x", None), [])
        self.assertEqual(self.client.stop(), 0)

    def test_a_request_can_be_cancelled(self):
        self.client.open("untitled:x", SPEC)
        numbers = [self.client.count + 1, self.client.count + 2]
        body = b"".join(self.frame(one) for one in (
            {"id": numbers[0], "method": "textDocument/inlayHint",
             "params": {"textDocument": {"uri": "untitled:x"}, "range": self.whole()}},
            {"method": "$/cancelRequest", "params": {"id": numbers[0]}}))
        self.client.raw(body)
        self.client.count += 1
        self.assertEqual(self.client.answer(numbers[0])["error"]["code"], -32800)
        self.assertEqual(self.client.stop(), 0)

    def test_a_request_that_waits_is_cancelled_at_once(self):
        """Also after many cancellations that came too late."""
        slow = ("fn f(x) { a = any(i in 0..4000: kv_idx == i * x); return kv_idx == x; }\n"
                "attention f {\n  mask any(j in 0..4000: f(j));\n}\n")
        self.client.open("untitled:x", slow)
        for number in range(10000, 11200):
            self.client.notify("$/cancelRequest", {"id": number})
        self.client.diagnostics("untitled:x", 1)
        hints = {"textDocument": {"uri": "untitled:x"}, "range": self.whole()}
        outline = {"textDocument": {"uri": "untitled:x"}}
        number = self.client.count + 1
        self.client.raw(b"".join(self.frame(one) for one in (
            {"id": number, "method": "textDocument/inlayHint", "params": hints},
            {"id": number + 1, "method": "textDocument/documentSymbol", "params": outline})))
        self.client.answer(number + 1)  # so the hints wait
        self.client.raw(b"".join(self.frame(one) for one in (
            {"method": "$/cancelRequest", "params": {"id": number}},
            {"id": number + 2, "method": "textDocument/documentSymbol", "params": outline})))
        self.client.count += 3
        self.client.answer(number + 2)
        self.assertIn(number, self.client.answers)
        self.assertEqual(self.client.answer(number)["error"]["code"], -32800)
        self.assertEqual(self.client.stop(), 0)

    @staticmethod
    def frame(message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        return b"Content-Length: %d\r\n\r\n" % len(body) + body

    def test_a_request_about_an_old_text_is_refused(self):
        self.client.open("untitled:x", SPEC)
        number = self.client.ask("textDocument/inlayHint", {
            "textDocument": {"uri": "untitled:x"}, "range": self.whole()})
        self.client.change("untitled:x", 2, [{"text": SPEC + "\n"}])
        answer = self.client.answer(number)
        self.assertEqual(answer["error"]["code"], -32801)
        self.assertEqual(self.client.stop(), 0)

    def test_ends(self):
        self.assertEqual(self.client.stop(), 0)
        for code, how in ((1, lambda one: one.notify("exit", None)),
                          (0, lambda one: one.process.stdin.close())):
            client = lsp.Client(ATTNC)
            client.open("untitled:x", SPEC)
            how(client)
            self.assertEqual(client.process.wait(300), code)
            client.process.stdout.close()
            if not client.process.stdin.closed:
                client.process.stdin.close()

    def test_only_initialize_comes_first(self):
        process = subprocess.run([ATTNC, "lsp", "--stdio"], capture_output=True, timeout=300, check=False,
                                 input=self.frame({"id": 1, "method": "textDocument/hover", "params": {}}))
        self.assertIn(b'"code":-32002', process.stdout)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.client.stop(), 0)

    def test_broken_messages_are_answered_or_skipped(self):
        uri = {"textDocument": {"uri": "untitled:x"}}
        self.client.open("untitled:x", SPEC)
        self.client.raw(b"nonsense\r\n\r\nContent-Length: 3\r\n\r\n{{{")
        self.client.raw(b"Content-Length: 4\r\n\r\nnull")
        self.client.raw(self.frame({"id": 900, "method": 3}))
        self.client.raw(self.frame({"result": 1, "id": "attnc-1"}))
        for method, params, code in (
                ("no/such", {}, -32601), ("textDocument/hover", {}, -32602),
                ("textDocument/hover", None, -32602), ("textDocument/hover", [1], -32602),
                ("textDocument/hover", {**uri, "position": {"line": "x", "character": 0}}, -32602),
                ("textDocument/hover", {**uri, "position": {"line": 1}}, -32602),
                ("textDocument/rename", {**uri, "position": place(0, 0)}, -32803),
                ("textDocument/hover", {"textDocument": {"uri": "untitled:y"}, "position": place(0, 0)}, -32602),
                ("initialize", {"capabilities": {}}, -32600)):
            with self.subTest(method=method, params=params):
                answer = self.client.answer(self.client.ask(method, params))
                self.assertEqual(answer["error"]["code"], code)
        for line, character in ((-5, -5), (2**40, 2**40), (1, 2**31), (4, 9)):
            self.ask("hover", "untitled:x", position=place(line, character))
            self.ask("completion", "untitled:x", position=place(line, character))
        self.client.notify("textDocument/didChange", {**uri, "contentChanges": [{"text": 3}]})
        self.client.notify("textDocument/didOpen", {})
        self.client.notify("no/such", {})
        self.assertEqual(self.client.stop(), 0)

    def test_json_nested_deep(self):
        """Copies and output of deep JSON would recurse."""
        self.client.open("untitled:x", SPEC)
        for depth in (1_000, 200_000):
            for begin, end in (("[", "]"), ('{"a":', "}")):
                deep = begin * depth + "1" + end * depth
                params = json.dumps({"textDocument": {"uri": "untitled:x"}, "position": place(0, 0)})
                for number, text in enumerate((
                        f'{{"id": 900, "method": "textDocument/hover", "params": {deep}}}',
                        f'{{"id": {deep}, "method": "textDocument/hover", "params": {params}}}',
                        f'{{"method": "$/cancelRequest", "params": {{"id": {deep}}}}}',
                        f'{{"method": "no/such", "params": {deep}}}', f'{{"id": 4, "result": {deep}}}',
                        deep, begin * depth)):
                    with self.subTest(depth=depth, begin=begin, number=number):
                        self.client.raw(b"Content-Length: %d\r\n\r\n" % len(text) + text.encode())
                        error = self.client.answer(900 if number == 0 else None)["error"]
                        self.assertEqual(error["code"], (-32602, *[-32600] * 5, -32700)[number])
        self.ask("hover", "untitled:x", position=place(0, 1))
        self.assertEqual(self.client.stop(), 0)

    def test_a_long_line(self):
        """The time is about that of the same text in many lines, not its square."""
        clauses = [{"dims": {"B": 1, "Hq": 1, "Sq": 64, "D": 8}}]
        clauses += [{"let": f"x{n}", "value": {"op": "+", "args": ["q_idx", n]}} for n in range(2500)]
        clauses += [{"mask": {"compare": [">"], "args": ["q_idx", 0]}}]
        text = json.dumps({"attention": "f", "clauses": clauses})
        self.client.open("untitled:x.json", text)
        self.client.diagnostics("untitled:x.json", 1, 100)
        before = self.cpu_seconds()
        for method in ("documentSymbol", "semanticTokens/full", "foldingRange"):
            self.ask(method, "untitled:x.json")
        at = place(0, text.index("q_idx") + 2)
        self.ask("references", "untitled:x.json", position=at, context={"includeDeclaration": True})
        self.ask("documentHighlight", "untitled:x.json", position=at)
        self.ask("inlayHint", "untitled:x.json", range=self.whole())
        self.assertLess(self.cpu_seconds() - before, 5)
        self.assertEqual(self.client.stop(), 0)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.client.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_many_files_in_a_circle_do_not_delay_an_answer(self):
        """The server analyzes one file after the other, and answers in between."""
        count = 300
        paths = [self.write(f"{number}.attn", f'import "{(number + 1) % count}.attn";\n'
                            f"fn g{number}(x) = x + 1;\n") for number in range(count)]
        for path in paths:
            self.client.open(path.as_uri(), path.read_text())
        self.ask("hover", paths[50].as_uri(), position=place(1, 3))
        self.assertEqual(self.client.stop(), 0)
        self.assertLess(len(self.client.published), count)

    def test_huge_and_odd_texts(self):
        for number, text in enumerate(("", "\0", "{" * 100000, "(" * 5000, "mask x;\n" * 4000, "\r" * 5000,
                                       "attention f { mask " + "-" * 20000 + "1; }", "a" * 2_000_000,
                                       '{"attention": ' + "[" * 20000)):
            uri = f"untitled:{number}"
            self.client.open(uri, text)
            self.client.diagnostics(uri, 1, 60)
            end = place(text.count("\n"), 10)
            for method in ("hover", "completion", "definition", "documentHighlight"):
                self.ask(method, uri, position=end)
            for method in ("documentSymbol", "semanticTokens/full", "foldingRange"):
                self.ask(method, uri)
        self.assertEqual(self.client.stop(), 0)


class Renames(Server):
    USE = 'import "lib.attn";\nattention f {\n  let far = 3;\n  mask tail(far);\n}\n'

    def setUp(self):
        super().setUp()
        self.uri = pathlib.Path(self.write("lib.attn", "fn tail(n) = kv_idx < n;\n")).as_uri()
        self.client.open(self.uri, "fn tail(n) = kv_idx < n;\n")

    def rename(self, name):
        return self.client.answer(self.client.ask("textDocument/rename", {
            "textDocument": {"uri": self.uri}, "position": place(0, 3), "newName": name}))

    def test_a_name_that_another_file_has_is_refused(self):
        self.write("a.attn", self.USE)
        self.write("b.attn", self.USE.replace("tail", "head").replace("import", "# import"))
        error = self.rename("far")["error"]
        self.assertEqual(error["code"], -32803)
        self.assertIn("`far` is already defined in ", error["message"])
        self.assertTrue(error["message"].endswith("a.attn"), error)
        self.write("a.attn", self.USE.replace("far", "near"))
        self.assertEqual(len(self.rename("far")["result"]["changes"]), 2)
        self.assertEqual(self.client.stop(), 0)

    def test_half_a_rename_is_refused(self):
        for number in range(199):
            self.write(f"{number}.attn", self.USE)
        self.assertEqual(len(self.rename("rear")["result"]["changes"]), 200)
        self.write("one_more.attn", self.USE)
        self.assertIn("more than 200 specs", self.rename("rear")["error"]["message"])
        self.assertEqual(self.client.stop(), 0)


class Specs(Server):
    def settled(self, path):
        """All diagnostics of a file: the hints wait for the slow ones."""
        uri = path.resolve().as_uri()
        self.client.open(uri, path.read_bytes().decode("utf-8"))
        self.ask("inlayHint", uri, range=self.whole())
        self.client.settle(0.05)
        return [one for one in self.client.published if one["uri"] == uri][-1]["diagnostics"]

    def test_diagnostics_are_those_of_check(self):
        """Every file with a case of a diagnostic gets what check says of it."""
        paths = [path for path in CASES if self.is_utf8(path)]
        process = attnc.run("check", *paths, "--format", "json")
        for path, entry in zip(paths, json.loads(process.stdout)["specs"], strict=True):
            with self.subTest(path=path.name):
                expected = [(one["code"], one["severity"]) for one in entry["diagnostics"]]
                names = {1: "error", 2: "warning"}
                found = [(one["code"], names[one["severity"]]) for one in self.settled(path)]
                self.assertEqual(found, expected)
        self.assertEqual(self.client.stop(), 0)

    @staticmethod
    def is_utf8(path):
        try:
            path.read_bytes().decode("utf-8")
            return b"\0" not in path.read_bytes()
        except UnicodeDecodeError:
            return False

    def test_every_request_about_every_spec(self):
        for path in sorted(attnc.SPECS.glob("**/*.attn")):
            uri = path.as_uri()
            text = path.read_text(encoding="utf-8")
            self.client.open(uri, text)
            self.assertEqual(self.ask("formatting", uri, options={"tabSize": 2, "insertSpaces": True}), [])
            self.assertGreater(len(self.ask("documentSymbol", uri)), 0)
            data = self.ask("semanticTokens/full", uri)["data"]
            self.assertEqual(len(data) % 5, 0)
            self.assertTrue(all(number >= 0 for number in data))
            self.assertEqual(self.client.diagnostics(uri, 1), [])
            line = max(range(text.count("\n")), key=lambda n: "kv_idx" in text.split("\n")[n])
            position = place(line, text.split("\n")[line].find("kv_idx") + 1)
            for method in ("hover", "definition", "completion", "documentHighlight", "prepareRename"):
                self.client.answer(self.client.ask(f"textDocument/{method}", {
                    "textDocument": {"uri": uri}, "position": position}))
            self.client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        self.assertEqual(self.client.stop(), 0)

    def test_typing_is_fast(self):
        """Some specs, here and under a sanitizer; typing_latency.py has them all."""
        paths = [attnc.SPECS / f"{name}.attn" for name in ("causal", "natten_2d", "t5_bias", "document_inner")]
        process = subprocess.run(
            [sys.executable, "-B", pathlib.Path(__file__).with_name("typing_latency.py"), ATTNC, *paths,
             "--stride", "7", "--json"], capture_output=True, text=True, timeout=1200, check=True)
        # Counts processor time, of which a busy machine takes no more; the limit is twenty times what it takes.
        self.assertLess(json.loads(process.stdout)["cpu_ms"], 20)
        self.assertEqual(self.client.stop(), 0)


class Fixes(attnc.Case):
    def test_every_fix_removes_its_diagnostic(self):
        paths = [path for path in CASES if Specs.is_utf8(path)]
        entries = json.loads(attnc.run("check", *paths, "--format", "json").stdout)["specs"]
        fixed = []
        for path, entry in zip(paths, entries, strict=True):
            for number, one in enumerate(entry["diagnostics"]):
                for which, fix in enumerate(one["fixes"]):
                    text = apply(path.read_text(encoding="utf-8"), fix["edits"])
                    # Beside the case, where its imports are, but in no folder of the sources.
                    name = f"{number}_{which}_{path.name}"
                    fixed.append((path, entry, one, fix, self.write(name, text)))
        for path in CASES:
            if not (self.folder / path.name).exists():
                self.write(path.name, path.read_bytes())
        self.assertGreater(len(fixed), 30)
        after = json.loads(attnc.run("check", *[one[-1] for one in fixed], "--format", "json").stdout)
        for (path, entry, one, fix, _), found in zip(fixed, after["specs"], strict=True):
            with self.subTest(case=path.name, message=one["message"], fix=fix["title"]):
                said = (one["code"], one["message"])
                before = [(d["code"], d["message"]) for d in entry["diagnostics"]]
                now = [(d["code"], d["message"]) for d in found["diagnostics"]]
                self.assertLess(now.count(said), before.count(said))


def run_sessions():
    """test_session.py with pytest, in the environment of .ci/setup-python or a Python that has pytest-lsp."""
    for python in (SOURCE / ".deps" / "python" / "bin" / "python", sys.executable):
        has = [str(python), "-c", "import pytest_lsp"]
        try:
            if subprocess.run(has, capture_output=True, check=False).returncode != 0:
                continue
        except OSError:
            continue
        return subprocess.run(
            [str(python), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-o",
             "asyncio_default_fixture_loop_scope=function", "-W",
             "error::pytest_lsp.LspSpecificationWarning", "test_session.py"],
            cwd=pathlib.Path(__file__).parent, check=False).returncode
    attnc.skip("no Python with pytest-lsp (.ci/setup-python makes one)")


if __name__ == "__main__":
    if sys.argv[1:] == ["sessions"]:
        sys.exit(run_sessions())
    unittest.main(verbosity=2)
