// The extension for VS Code with `attnc lsp`, and a stand-in for VS Code: vscode_client.js EXTENSION ATTNC
//
// Opens a spec with a mistake, and prints what a user would see, as JSON.
"use strict";

const Module = require("module");
const path = require("path");

const [extension, attnc] = process.argv.slice(2);
const shown = { diagnostics: [], messages: [], printed: [] };
const providers = {};
const listeners = {};
const commands = {};

class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range { constructor(start, end) { Object.assign(this, { start, end }); } }
class Plain { constructor(...parts) { this.parts = parts; } }
class Diagnostic { constructor(range, message, severity) { Object.assign(this, { range, message, severity }); } }
class CompletionItem { constructor(label, kind) { Object.assign(this, { label, kind }); } }
class CodeAction { constructor(title, kind) { Object.assign(this, { title, kind }); } }
class TextEdit { constructor(range, newText) { Object.assign(this, { range, newText }); } }
class DocumentSymbol { constructor(name, detail, kind) { Object.assign(this, { name, detail, kind }); } }
class InlayHint { constructor(position, label) { Object.assign(this, { position, label }); } }
class Hover { constructor(contents) { this.contents = contents; } }
class MarkdownString { constructor(value) { this.value = value; } }
class Location { constructor(uri, range) { Object.assign(this, { uri, range }); } }
class WorkspaceEdit { constructor() { this.edits = {}; } set(uri, edits) { this.edits[uri] = edits; } }

const nothing = { dispose() {} };
const listen = (name) => (listener) => { listeners[name] = listener; return nothing; };
const provide = (name) => (_, provider) => { providers[name] = provider; return nothing; };
const languages = {
  match: (_, document) => (document.languageId === "attn" ? 10 : 0),
  createDiagnosticCollection: () => ({
    set: (uri, found) => { shown.diagnostics = found; }, delete() {}, clear() {}, dispose() {},
  }),
};
for (const name of ["Hover", "Completion", "Definition", "Reference", "Rename", "DocumentFormattingEdit",
                    "DocumentSymbol", "CodeActions", "DocumentSemanticTokens", "InlayHints"]) {
  const method = `register${name}${name === "Completion" ? "Item" : ""}Provider`;
  languages[method] = provide(name);
}

const document = {
  uri: { toString: () => "file:///spec.attn" }, languageId: "attn", version: 1, isDirty: false,
  text: "attention x(window = 4) {\n  dims  B = 1, Hq = 2, Sq = 64, D = 64;\n" +
    "  mask  q_idx >= kv_idx && q_idx - kv_idx < windw;\n}\n",
  getText() { return this.text; },
};
const vscode = {
  Position, Range, Diagnostic, CompletionItem, CodeAction, TextEdit, DocumentSymbol, InlayHint, Hover,
  MarkdownString, Location, WorkspaceEdit, SnippetString: Plain, SemanticTokens: Plain,
  SemanticTokensLegend: Plain, CodeActionKind: { QuickFix: "quickfix" }, ViewColumn: { Beside: 2 },
  Uri: { parse: (text) => text },
  languages,
  commands: { registerCommand: (name, command) => { commands[name] = command; return nothing; } },
  window: {
    createOutputChannel: () => ({ appendLine: (line) => shown.printed.push(line), show() {}, dispose() {} }),
    showErrorMessage: (text) => shown.messages.push(text),
    showWarningMessage: (text) => shown.messages.push(text),
    activeTextEditor: undefined,
  },
  workspace: {
    getConfiguration: () => ({ get: () => attnc }),
    textDocuments: [document],
    onDidOpenTextDocument: listen("open"),
    onDidChangeTextDocument: listen("change"),
    onDidSaveTextDocument: listen("save"),
    onDidCloseTextDocument: listen("close"),
  },
};

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

async function until(condition) {
  for (let tries = 0; tries < 1000; ++tries) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`nothing happened: ${JSON.stringify(shown)}`);
}

async function main() {
  const client = require(path.join(extension, "client", "extension.js"));
  await client.activate({ subscriptions: [] });
  if (shown.messages.length > 0) return;
  await until(() => shown.diagnostics.length > 0);
  const { range, message, code } = shown.diagnostics[0];
  const fixes = await providers.CodeActions.provideCodeActions(
    document, range, { diagnostics: shown.diagnostics });
  const completions = await providers.Completion.provideCompletionItems(document, new Position(2, 8));
  const hover = await providers.Hover.provideHover(document, new Position(2, 9));
  const renamed = await providers.Rename.provideRenameEdits(document, new Position(0, 13), "width");
  const edits = fixes[0].edit.edits["file:///spec.attn"];
  Object.assign(shown, {
    first: { message, code, line: range.start.line },
    fix: { title: fixes[0].title, text: edits[0].newText },
    completes: completions.filter(({ label }) => (label.label || label) === "window")
      .map(({ detail, additionalTextEdits }) => [detail, (additionalTextEdits || []).length]),
    hovers: hover.contents.length > 0,
    renames: Object.values(renamed.edits).flat().length,
    outline: (await providers.DocumentSymbol.provideDocumentSymbols(document)).map(({ name }) => name),
  });
  document.version = 2;
  listeners.change({ document, contentChanges: [{ range: edits[0].range, text: edits[0].newText }] });
  await until(() => shown.diagnostics.length === 0);
  await client.deactivate();
}

main().catch((error) => { shown.error = error.stack; }).then(() => {
  console.log(JSON.stringify(shown));
  process.exit(0);
});
