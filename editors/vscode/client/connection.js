// JSON-RPC over the standard streams of `attnc lsp`. Knows nothing of VS Code.
"use strict";

const { spawn } = require("child_process");

const METHOD_NOT_FOUND = -32601;
const OUTDATED = [-32800, -32801]; // cancelled, or about a text that has changed

class Connection {
  // `command`: the words that start the server. `handlers`: functions of the parameters, by the method of a
  // notification of the server. `log`: takes lines of its standard error. `ended`: called once if the server
  // ends although nobody stopped it, with the reason.
  constructor(command, handlers, log, ended) {
    this.handlers = handlers;
    this.waiting = new Map();
    this.next = 1;
    this.received = Buffer.alloc(0);
    this.stopping = this.stopped = false;
    this.process = spawn(command[0], command.slice(1), { stdio: "pipe" });
    this.process.stdout.on("data", (data) => this.receive(data));
    this.process.stderr.on("data", (data) => log(data.toString().trimEnd()));
    this.process.stdin.on("error", () => {}); // the process has ended, which `exit` says
    this.process.on("error", (error) => this.end(error.message, ended));
    this.process.on("exit", (code, signal) => this.end(`it ended with ${signal || code}`, ended));
  }

  // The result, null if it is not wanted any more; rejected with the server's error, or if the server ends.
  // `token`: cancels it.
  request(method, params, token) {
    if (this.stopped) return Promise.reject(new Error("attnc lsp is not running"));
    const id = this.next++;
    this.send({ jsonrpc: "2.0", id, method, params });
    if (token) token.onCancellationRequested(() => this.notify("$/cancelRequest", { id }));
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  notify(method, params) {
    if (!this.stopped) this.send({ jsonrpc: "2.0", method, params });
  }

  async stop() {
    if (this.stopped) return;
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    const late = setTimeout(() => this.process.kill(), 2000);
    this.stopping = true;
    await this.request("shutdown", null).catch(() => {});
    this.notify("exit", null);
    this.stopped = true;
    await gone;
    clearTimeout(late);
  }

  send(message) {
    const body = Buffer.from(JSON.stringify(message));
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  receive(data) {
    this.received = Buffer.concat([this.received, data]);
    for (;;) {
      const headers = this.received.indexOf("\r\n\r\n");
      if (headers < 0) return;
      const length = /Content-Length: *(\d+)/i.exec(this.received.toString("ascii", 0, headers));
      const begin = headers + 4;
      const end = begin + Number(length ? length[1] : 0);
      if (this.received.length < end) return;
      const body = this.received.toString("utf8", begin, end);
      this.received = this.received.subarray(end);
      this.take(JSON.parse(body));
    }
  }

  take(message) {
    if (message.method === undefined) return this.answer(message);
    const handle = this.handlers[message.method];
    if (handle) handle(message.params);
    if (message.id === undefined) return;
    const error = { code: METHOD_NOT_FOUND, message: message.method };
    this.send({ jsonrpc: "2.0", id: message.id, ...(handle ? { result: null } : { error }) });
  }

  answer({ id, result, error }) {
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (!waiting) return;
    if (error && !OUTDATED.includes(error.code)) waiting.reject(new Error(error.message));
    else waiting.resolve(error ? null : result);
  }

  end(reason, ended) {
    for (const { reject } of this.waiting.values()) reject(new Error(reason));
    this.waiting.clear();
    if (!this.stopping && !this.stopped) ended(reason);
    this.stopped = true;
  }
}

module.exports = { Connection };
