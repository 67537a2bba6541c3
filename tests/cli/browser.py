"""A headless Chromium that opens pages, driven through the DevTools protocol over a pair of pipes."""
import json
import os
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60  # for one answer


def find():
    """The path of a browser that runs, or None."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


class Browser:
    """One page. Messages are JSON that ends in a zero byte: the browser reads descriptor 3 and writes
    descriptor 4."""

    def __init__(self, path, profile):
        self.last = 0
        self.complaints = []  # exceptions, and errors and warnings of the console
        read, self.requests = os.pipe()
        self.answers, write = os.pipe()

        def connect():
            # Copies at high numbers first, as 3 and 4 may be in use by the pipes themselves.
            ends = [os.dup2(read, 30), os.dup2(write, 31)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
             "--disable-background-networking", "--disable-extensions", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=connect, pass_fds=(3, 4))
        os.close(read)
        os.close(write)
        self.stream = os.fdopen(self.answers, "rb", buffering=0)
        self.rest = b""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self.send("Browser.close")
            self.process.wait(300)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.stream.close()
        os.close(self.requests)

    def read(self):
        while b"\0" not in self.rest:
            data = self.stream.read(65536)
            if not data:
                raise EOFError("the browser has ended")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def note(self, message):
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(str(parameters["args"]))

    def send(self, method, session=None, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.requests, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            answer = self.read()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)
        raise TimeoutError(method)

    def call(self, method, **parameters):
        """A method of the page."""
        return self.send(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of an expression of JavaScript, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def open(self, path, width=1280, height=900, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.scheme(scheme)
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + SECONDS
        while self.evaluate("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > end:
                raise TimeoutError(str(path))
            time.sleep(0.02)

    def scheme(self, scheme, media=""):
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key, shift=False):
        modifiers = 8 if shift else 0
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
