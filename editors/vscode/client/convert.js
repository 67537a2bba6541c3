// Values of the language server protocol as VS Code's, and back. Positions are the same in both: UTF-16.
"use strict";

const vscode = require("vscode");

const position = ({ line, character }) => new vscode.Position(line, character);
const range = ({ start, end }) => new vscode.Range(position(start), position(end));
const location = (found) => new vscode.Location(vscode.Uri.parse(found.uri), range(found.range));
const markdown = (text) => new vscode.MarkdownString(typeof text === "string" ? text : text.value);
const list = (found) => (Array.isArray(found) ? found : found ? [found] : []);

const fromPosition = ({ line, character }) => ({ line, character });
const fromRange = ({ start, end }) => ({ start: fromPosition(start), end: fromPosition(end) });

function diagnostic(found) {
  // The protocol counts severities from 1, VS Code from 0.
  const made = new vscode.Diagnostic(range(found.range), found.message, (found.severity || 1) - 1);
  made.source = found.source;
  made.code = found.code;
  made.original = found; // which code actions send back
  return made;
}

function hover(found) {
  if (!found) return null;
  return new vscode.Hover(list(found.contents).map(markdown), found.range && range(found.range));
}

function completion(found) {
  const items = (found && found.items) || found || [];
  return items.map((item) => {
    const label = item.labelDetails ? { label: item.label, ...item.labelDetails } : item.label;
    const made = new vscode.CompletionItem(label, (item.kind || 1) - 1);
    made.detail = item.detail;
    made.documentation = item.documentation && markdown(item.documentation);
    made.sortText = item.sortText;
    made.filterText = item.filterText;
    const text = item.textEdit ? item.textEdit.newText : item.insertText || item.label;
    made.insertText = item.insertTextFormat === 2 ? new vscode.SnippetString(text) : text;
    if (item.additionalTextEdits) made.additionalTextEdits = textEdits(item.additionalTextEdits);
    if (item.textEdit) made.range = range(item.textEdit.range || item.textEdit.replace);
    return made;
  });
}

function symbol(found) {
  const at = found.range || found.location.range;
  const made = new vscode.DocumentSymbol(
    found.name, found.detail || "", found.kind - 1, range(at), range(found.selectionRange || at));
  made.children = (found.children || []).map(symbol);
  return made;
}

const textEdits = (found) => (found || []).map((edit) => new vscode.TextEdit(range(edit.range), edit.newText));

function workspaceEdit(found) {
  if (!found) return null;
  const made = new vscode.WorkspaceEdit();
  for (const [uri, edits] of Object.entries(found.changes || {})) {
    made.set(vscode.Uri.parse(uri), textEdits(edits));
  }
  for (const change of found.documentChanges || []) {
    made.set(vscode.Uri.parse(change.textDocument.uri), textEdits(change.edits));
  }
  return made;
}

function codeAction(found) {
  const made = new vscode.CodeAction(found.title, vscode.CodeActionKind.QuickFix);
  made.edit = workspaceEdit(found.edit);
  made.isPreferred = found.isPreferred;
  return made;
}

function inlayHint(found) {
  const label = typeof found.label === "string" ? found.label : found.label.map((part) => part.value).join("");
  const made = new vscode.InlayHint(position(found.position), label, found.kind);
  made.paddingLeft = found.paddingLeft;
  made.paddingRight = found.paddingRight;
  if (found.tooltip) made.tooltip = markdown(found.tooltip);
  return made;
}

module.exports = {
  codeAction, completion, diagnostic, fromPosition, fromRange, hover, inlayHint, list, location, symbol,
  textEdits, workspaceEdit, range,
};
