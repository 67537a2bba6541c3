// The extension: `attnc lsp` for specs, and commands that draw, explain and run one.
"use strict";

const { execFile } = require("child_process");
const fs = require("fs");
const os = require("os");
const path = require("path");
const vscode = require("vscode");
const convert = require("./convert");
const { Connection } = require("./connection");

const SELECTOR = [{ language: "attn" }, { pattern: "**/*.attn.json" }];
const CAPABILITIES = {
  general: { positionEncodings: ["utf-16"] },
  textDocument: {
    publishDiagnostics: { versionSupport: true },
    completion: { completionItem: { snippetSupport: true, documentationFormat: ["markdown"] } },
    hover: { contentFormat: ["markdown"] },
    documentSymbol: { hierarchicalDocumentSymbolSupport: true },
    codeAction: { codeActionLiteralSupport: { codeActionKind: { valueSet: ["quickfix"] } } },
    rename: { prepareSupport: true },
    semanticTokens: { requests: { full: true }, tokenTypes: [], tokenModifiers: [], formats: ["relative"] },
    inlayHint: {},
  },
};

// `features` are undefined unless the server runs.
let output, diagnostics, connection, features;

const attnc = () => vscode.workspace.getConfiguration("attn").get("path") || "attnc";
const isSpec = (document) => vscode.languages.match(SELECTOR, document) > 0;
const named = (document) => ({ textDocument: { uri: document.uri.toString() } });
const placed = (document, position) => ({ ...named(document), position: convert.fromPosition(position) });

async function start() {
  const handlers = {
    "textDocument/publishDiagnostics": publish,
    "window/logMessage": ({ message }) => output.appendLine(message),
    "window/showMessage": ({ message }) => vscode.window.showWarningMessage(message),
  };
  const server = new Connection([attnc(), "lsp"], handlers, (line) => output.appendLine(line), failed);
  connection = server;
  const { capabilities } = await server.request("initialize", {
    processId: process.pid, rootUri: null, clientInfo: { name: "VS Code" }, capabilities: CAPABILITIES,
  });
  server.notify("initialized", {});
  features = register(server, capabilities);
  vscode.workspace.textDocuments.forEach(opened);
}

function failed(reason) {
  output.appendLine(`attnc lsp: ${reason}`);
  vscode.window.showErrorMessage(
    `attnc lsp does not run: ${reason}. Set "attn.path" to the path of attnc, then run "attn: Restart".`);
}

async function stop() {
  (features || []).forEach((feature) => feature.dispose());
  features = undefined;
  diagnostics.clear();
  if (connection) await connection.stop();
}

function publish({ uri, diagnostics: found }) {
  diagnostics.set(vscode.Uri.parse(uri), found.map(convert.diagnostic));
}

function opened(document) {
  if (!features || !isSpec(document)) return; // `start` opens what is open already
  const uri = document.uri.toString();
  const languageId = document.languageId === "attn" ? "attn" : "json";
  connection.notify("textDocument/didOpen", {
    textDocument: { uri, languageId, version: document.version, text: document.getText() },
  });
}

function changed({ document, contentChanges }) {
  if (!features || !isSpec(document) || contentChanges.length === 0) return;
  connection.notify("textDocument/didChange", {
    textDocument: { uri: document.uri.toString(), version: document.version },
    contentChanges: contentChanges.map(({ range, text }) => ({ range: convert.fromRange(range), text })),
  });
}

// Other specs may import it.
function saved(document) {
  if (features && isSpec(document)) connection.notify("textDocument/didSave", named(document));
}

function closed(document) {
  if (!features || !isSpec(document)) return;
  connection.notify("textDocument/didClose", named(document));
  diagnostics.delete(document.uri);
}

// What the server can do, as providers.
function register(server, capabilities) {
  const ask = (method, params, token) => server.request(`textDocument/${method}`, params, token);
  const each = (found, one) => convert.list(found).map(one);
  const languages = vscode.languages;
  const provided = {
    hoverProvider: () => languages.registerHoverProvider(SELECTOR, {
      provideHover: async (document, position, token) =>
        convert.hover(await ask("hover", placed(document, position), token)),
    }),
    completionProvider: ({ triggerCharacters = [] }) => languages.registerCompletionItemProvider(SELECTOR, {
      provideCompletionItems: async (document, position, token) =>
        convert.completion(await ask("completion", placed(document, position), token)),
    }, ...triggerCharacters),
    definitionProvider: () => languages.registerDefinitionProvider(SELECTOR, {
      provideDefinition: async (document, position, token) =>
        each(await ask("definition", placed(document, position), token), convert.location),
    }),
    referencesProvider: () => languages.registerReferenceProvider(SELECTOR, {
      provideReferences: async (document, position, context, token) =>
        each(await ask("references", { ...placed(document, position), context }, token), convert.location),
    }),
    renameProvider: ({ prepareProvider }) => languages.registerRenameProvider(SELECTOR, {
      provideRenameEdits: async (document, position, newName, token) =>
        convert.workspaceEdit(await ask("rename", { ...placed(document, position), newName }, token)),
      prepareRename: prepareProvider && (async (document, position, token) => {
        const found = await ask("prepareRename", placed(document, position), token);
        if (!found) throw new Error("this cannot be renamed");
        return convert.range(found.range || found);
      }),
    }),
    documentFormattingProvider: () => languages.registerDocumentFormattingEditProvider(SELECTOR, {
      provideDocumentFormattingEdits: async (document, options, token) =>
        convert.textEdits(await ask("formatting", { ...named(document), options }, token)),
    }),
    documentSymbolProvider: () => languages.registerDocumentSymbolProvider(SELECTOR, {
      provideDocumentSymbols: async (document, token) =>
        each(await ask("documentSymbol", named(document), token), convert.symbol),
    }),
    codeActionProvider: () => languages.registerCodeActionsProvider(SELECTOR, {
      provideCodeActions: async (document, range, context, token) => {
        const about = context.diagnostics.map(({ original }) => original).filter(Boolean);
        const params = { ...named(document), range: convert.fromRange(range), context: { diagnostics: about } };
        return each(await ask("codeAction", params, token), convert.codeAction);
      },
    }),
    semanticTokensProvider: ({ legend }) => languages.registerDocumentSemanticTokensProvider(SELECTOR, {
      provideDocumentSemanticTokens: async (document, token) => {
        const found = await ask("semanticTokens/full", named(document), token);
        return found && new vscode.SemanticTokens(new Uint32Array(found.data));
      },
    }, new vscode.SemanticTokensLegend(legend.tokenTypes, legend.tokenModifiers)),
    inlayHintProvider: () => languages.registerInlayHintsProvider(SELECTOR, {
      provideInlayHints: async (document, range, token) => each(
        await ask("inlayHint", { ...named(document), range: convert.fromRange(range) }, token),
        convert.inlayHint),
    }),
  };
  return Object.entries(provided)
    .filter(([name]) => capabilities[name])
    .map(([name, provider]) => provider(capabilities[name]));
}

// Runs attnc on the spec in the active editor, with the text as it is on the screen.
async function run(words, made) {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !isSpec(editor.document)) {
    return vscode.window.showWarningMessage("Open a .attn file first.");
  }
  const document = editor.document;
  if (document.isDirty && !(await document.save())) return undefined;
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "attn-"));
  const arguments_ = words(document.fileName, folder);
  execFile(attnc(), arguments_, { cwd: path.dirname(document.fileName) }, (error, stdout, stderr) => {
    if (error) {
      output.appendLine(`$ attnc ${arguments_.join(" ")}\n${stderr || error.message}`);
      output.show(true);
    } else {
      made(stdout, stderr, folder, path.basename(document.fileName));
    }
    fs.rmSync(folder, { recursive: true, force: true });
  });
}

function page(title, html, enableScripts) {
  const panel = vscode.window.createWebviewPanel("attn", title, vscode.ViewColumn.Beside, { enableScripts });
  panel.webview.html = html;
}

function draw() {
  return run((file, folder) => ["draw", file, "-o", path.join(folder, "mask.svg")], (_, said, folder, name) => {
    if (said) output.appendLine(said.trimEnd());
    page(name, fs.readFileSync(path.join(folder, "mask.svg"), "utf8"), false);
  });
}

function report() {
  return run((file, folder) => ["report", file, "-o", path.join(folder, "report.html")],
    (_, said, folder, name) => page(name, fs.readFileSync(path.join(folder, "report.html"), "utf8"), true));
}

const print = (words) => () => run(words, (said) => {
  output.appendLine(said);
  output.show(true);
});

const COMMANDS = {
  "attn.draw": draw,
  "attn.report": report,
  "attn.explain": print((file) => ["explain", file]),
  "attn.run": print((file) => ["run", file]),
  "attn.restart": async () => {
    await stop();
    await start();
  },
};

async function activate(context) {
  output = vscode.window.createOutputChannel("attn");
  diagnostics = vscode.languages.createDiagnosticCollection("attn");
  context.subscriptions.push(output, diagnostics, { dispose: stop });
  for (const [name, command] of Object.entries(COMMANDS)) {
    context.subscriptions.push(vscode.commands.registerCommand(name, command));
  }
  context.subscriptions.push(
    vscode.workspace.onDidOpenTextDocument(opened),
    vscode.workspace.onDidChangeTextDocument(changed),
    vscode.workspace.onDidSaveTextDocument(saved),
    vscode.workspace.onDidCloseTextDocument(closed));
  await start().catch((error) => output.appendLine(error.message)); // `failed` has told the user
}

module.exports = { activate, deactivate: stop };
