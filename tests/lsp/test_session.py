"""A session of a real client (pytest-lsp, over pygls), with the capabilities of real editors.

The first is recorded in session.golden, which ATTN_UPDATE_GOLDEN=1 rewrites. pytest-lsp warns about answers that
the client has not said it understands; the warnings are errors here.
"""
import asyncio
import json
import os
import pathlib

import pytest
import pytest_lsp
from lsprotocol import converters, types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

FOLDER = pathlib.Path(__file__).parent
GOLDEN = FOLDER / "session.golden"
SPEC = FOLDER / "three_mistakes.attn"
COMMAND = [os.environ["ATTNC"], "lsp"]
EDITORS = ["visual_studio_code", "neovim", "emacs"]


@pytest_lsp.fixture(config=ClientServerConfig(server_command=COMMAND), params=EDITORS)
async def client(request, lsp_client: LanguageClient):
    lsp_client.editor = request.param
    await lsp_client.initialize_session(types.InitializeParams(
        capabilities=client_capabilities(request.param), root_uri=FOLDER.as_uri()))
    yield
    await lsp_client.shutdown_session()


class Editor:
    """One open document, in memory: the edits of the server are applied to it."""

    def __init__(self, client, path, text):
        self.client, self.uri, self.text, self.version = client, path.as_uri(), text, 1
        self.log = []
        client.text_document_did_open(types.DidOpenTextDocumentParams(
            types.TextDocumentItem(self.uri, "attn", self.version, text)))

    @property
    def document(self):
        return types.TextDocumentIdentifier(self.uri)

    def record(self, title, value):
        plain = converters.get_converter().unstructure(value)
        text = plain if isinstance(plain, str) else json.dumps(plain, indent=1, ensure_ascii=False)
        self.log.append(f"## {title}\n{text.replace(self.uri, 'URI')}\n")

    async def diagnostics(self):
        """The diagnostics of this version, once the slow checks are done: the hints wait for them."""
        whole = types.Range(types.Position(0, 0), types.Position(99, 0))
        await self.client.text_document_inlay_hint_async(types.InlayHintParams(self.document, whole))
        for _ in range(1000):
            if self.uri in self.client.diagnostics:
                break
            await asyncio.sleep(0.01)
        return list(self.client.diagnostics[self.uri])

    def at(self, word, inside=0, occurrence=1):
        offset = -1
        for _ in range(occurrence):
            offset = self.text.index(word, offset + 1)
        before = self.text[:offset + inside].split("\n")
        return types.Position(len(before) - 1, len(before[-1]))  # the spec is ASCII

    def offset(self, position):
        lines = self.text.split("\n")
        return sum(len(line) + 1 for line in lines[:position.line]) + position.character

    def apply(self, edits):
        """From the last, so that positions hold; as one change of several ranges."""
        changes = []
        for edit in sorted(edits, key=lambda one: self.offset(one.range.start), reverse=True):
            begin, end = self.offset(edit.range.start), self.offset(edit.range.end)
            self.text = self.text[:begin] + edit.new_text + self.text[end:]
            changes.append(types.TextDocumentContentChangePartial(range=edit.range, text=edit.new_text))
        self.version += 1
        self.client.diagnostics.pop(self.uri, None)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(uri=self.uri, version=self.version), changes))

    def edits(self, workspace_edit):
        if workspace_edit.changes is not None:
            return workspace_edit.changes[self.uri]
        (change,) = workspace_edit.document_changes
        assert change.text_document.uri == self.uri
        return change.edits

    async def fix(self, diagnostic):
        actions = await self.client.text_document_code_action_async(types.CodeActionParams(
            self.document, diagnostic.range, types.CodeActionContext([diagnostic])))
        self.record(f"actions for {diagnostic.code}", [action.title for action in actions])
        self.apply(self.edits(actions[0].edit))


async def repair(editor):
    """Takes the first fix of the first diagnostic until there is none."""
    rounds = 0
    while found := await editor.diagnostics():
        editor.record("diagnostics", found)
        await editor.fix(found[0])
        rounds += 1
        assert rounds <= 3
    return rounds


async def test_session(client):
    editor = Editor(client, SPEC, SPEC.read_text(encoding="utf-8"))
    assert await repair(editor) == 3
    editor.record("repaired", editor.text)

    where = editor.at("window(", 0)
    found = await client.text_document_completion_async(types.CompletionParams(editor.document, where))
    labels = [item.label for item in found.items]
    assert {"doc", "window", "causal", "tanh", "q_idx", "Sq", "softcap"} <= set(labels)
    assert "score" not in labels  # a mask cannot read it
    editor.record("completion in a mask, first", labels[:3])
    (causal,) = [item for item in found.items if item.label == "causal"]
    editor.record("completion item", causal)
    (softcap,) = [item for item in found.items if item.label == "softcap"]
    editor.record("completion item that is not imported yet", softcap)

    for word, inside in (("mask ", 0), ("packed", 0), ("doc[", 0), ("Skv", 0), ("window(", 0), ("lse", 1)):
        hover = await client.text_document_hover_async(
            types.HoverParams(editor.document, editor.at(word, inside)))
        contents = hover.contents
        value = contents.value if hasattr(contents, "value") else contents
        editor.record(f"hover {word.strip()}", value)

    prepared = await client.text_document_prepare_rename_async(
        types.PrepareRenameParams(editor.document, editor.at("cap *", 0)))
    editor.record("prepare rename", prepared)
    renamed = await client.text_document_rename_async(
        types.RenameParams(editor.document, editor.at("cap *", 0), "limit"))
    editor.apply(editor.edits(renamed))
    assert editor.text.count("limit") == 3 and "cap " not in editor.text
    assert await editor.diagnostics() == []
    formatted = await client.text_document_formatting_async(types.DocumentFormattingParams(
        editor.document, types.FormattingOptions(2, True)))
    editor.record("formatting", formatted)
    editor.record("renamed", editor.text)

    if client.editor != EDITORS[0]:
        return
    text = "\n".join(editor.log)
    if os.environ.get("ATTN_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), f"differs from {GOLDEN}"


async def test_what_cannot_be_renamed(client):
    editor = Editor(client, SPEC, SPEC.read_text(encoding="utf-8"))
    for word, reason in (("Hq", "word of the language"), ("window(", "standard library"), ("q_idx", "word")):
        with pytest.raises(Exception, match=reason):
            await client.text_document_rename_async(
                types.RenameParams(editor.document, editor.at(word), "other"))
    for name, reason in (("1x", "not a name"), ("score", "reserved"), ("doc", "already defined")):
        with pytest.raises(Exception, match=reason):
            await client.text_document_rename_async(
                types.RenameParams(editor.document, editor.at("cap"), name))


async def test_names_across_files(client, tmp_path):
    library = tmp_path / "mine.attn"
    library.write_text("# Near the diagonal.\nfn near(w) = abs(q_idx - kv_idx) <= w;\n")
    other = tmp_path / "other.attn"
    other.write_text('import "mine.attn";\nattention other {\n  dims B = 1, Hq = 1, Sq = 8, D = 8;\n'
                     "  mask near(3);\n}\n")
    text = other.read_text().replace("other", "spec").replace("near(3)", "near(4)")
    editor = Editor(client, tmp_path / "spec.attn", text)
    place = editor.at("near(4)")
    found = await client.text_document_definition_async(types.DefinitionParams(editor.document, place))
    assert (found.uri, found.range.start) == (library.as_uri(), types.Position(1, 3))
    context = types.ReferenceContext(include_declaration=True)
    references = await client.text_document_references_async(
        types.ReferenceParams(text_document=editor.document, position=place, context=context))
    assert {one.uri for one in references} == {library.as_uri(), other.as_uri(), editor.uri}
    renamed = await client.text_document_rename_async(
        types.RenameParams(editor.document, place, "close"))
    changes = renamed.changes or {one.text_document.uri: one.edits for one in renamed.document_changes}
    assert {uri: [edit.range.start.line for edit in edits] for uri, edits in changes.items()} == {
        library.as_uri(): [1], other.as_uri(): [3], editor.uri: [3]}


async def test_json(client, tmp_path):
    text = ('{"attention": "f", "clauses": [{"dims": {"B": 1, "Hq": 1, "Sq": 8, "D": 8}},\n'
            '  {"mask": {"op": ">=", "args": ["q_idx", "kv_idy"]}}]}\n')
    editor = Editor(client, tmp_path / "f.attn.json", text)
    (found,) = await editor.diagnostics()
    assert found.code == "E0201" and found.range.start == editor.at("kv_idy")
    await editor.fix(found)
    assert await editor.diagnostics() == []
    symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(editor.document))
    assert "f" in [one.name for one in symbols]
    hover = await client.text_document_hover_async(types.HoverParams(editor.document, editor.at("kv_idx")))
    assert "key's position" in str(hover.contents)
    edits = await client.text_document_formatting_async(types.DocumentFormattingParams(
        editor.document, types.FormattingOptions(2, True)))
    editor.apply(edits)
    assert json.loads(editor.text) == json.loads(text.replace("kv_idy", "kv_idx"))
    assert await client.text_document_formatting_async(types.DocumentFormattingParams(
        editor.document, types.FormattingOptions(2, True))) == ()
