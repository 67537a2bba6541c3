"""A small client of `attnc lsp`, for measurements and broken messages: no packages, no promises."""
import json
import os
import pathlib
import queue
import subprocess
import threading
import time


class Client:
    def __init__(self, attnc, encodings=("utf-16",), hover=("markdown",)):
        self.process = subprocess.Popen([attnc, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.messages = queue.Queue()
        self.answers = {}
        self.published = []
        self.count = 0
        threading.Thread(target=self._read, daemon=True).start()
        text = {"completion": {"completionItem": {"snippetSupport": True}},
                "hover": {"contentFormat": list(hover)},
                "documentSymbol": {"hierarchicalDocumentSymbolSupport": True}}
        self.initialized = self.request("initialize", {"processId": None, "rootUri": None, "capabilities": {
            "general": {"positionEncodings": list(encodings)}, "textDocument": text}})
        self.notify("initialized", {})

    def _read(self):
        stream = self.process.stdout
        while True:
            length = None
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if length is None:
                break
            self.messages.put(json.loads(stream.read(length)))
        self.messages.put(None)

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method, params):
        self.send({"method": method, "params": params})

    def ask(self, method, params):
        """Sends a request, and returns its id."""
        self.count += 1
        self.send({"id": self.count, "method": method, "params": params})
        return self.count

    def next(self, timeout=300):
        message = self.messages.get(timeout=timeout)
        if message is None:
            raise EOFError("the server has ended")
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published.append(message["params"])
        elif "method" not in message:
            self.answers[message["id"]] = message
        return message

    def answer(self, number, timeout=300):
        while number not in self.answers:
            self.next(timeout)
        return self.answers.pop(number)

    def request(self, method, params, timeout=300):
        message = self.answer(self.ask(method, params), timeout)
        if "error" in message:
            raise RuntimeError(message["error"])
        return message["result"]

    def open(self, uri, text, version=1):
        self.notify("textDocument/didOpen", {"textDocument": {
            "uri": uri, "languageId": "attn", "version": version, "text": text}})

    def change(self, uri, version, changes):
        self.notify("textDocument/didChange", {
            "textDocument": {"uri": uri, "version": version}, "contentChanges": changes})

    def diagnostics(self, uri, version, timeout=300):
        """The first diagnostics of this version."""
        while True:
            for found in self.published:
                if found["uri"] == uri and found.get("version") == version:
                    return found["diagnostics"]
            self.next(timeout)

    def settle(self, seconds=0.3):
        """Takes messages until none comes for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self.next(left)
                end = time.monotonic() + seconds
            except queue.Empty:
                return

    def cpu_seconds(self):
        """The processor time that the server has taken."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(300)
