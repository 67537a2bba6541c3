"""serve: one process runs the commands of a client, each in a child of its own."""
import array
import json
import os
import signal
import socket
import subprocess
import threading

import attnc


class Client:
    def __init__(self):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([attnc.ATTNC, "serve"], stdin=theirs)

    def connect(self):
        ours, theirs = socket.socketpair()
        with theirs:
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
            self.control.sendmsg([b"."], [passed])
        return ours

    def send(self, *arguments, text="", folder="/", environment=None):
        connection = self.connect()
        request = {"arguments": arguments, "input": text, "folder": str(folder),
                   "environment": dict(os.environ) if environment is None else environment}
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection

    def answer(self, connection):
        with connection:
            return json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))

    def ask(self, *arguments, **how):
        return self.answer(self.send(*arguments, **how))

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return file.read().split()

    def close(self):
        self.control.close()
        return self.process.wait(60)


class Serve(attnc.Case):
    def setUp(self):
        super().setUp()
        self.client = Client()
        self.addCleanup(self.client.close)

    def test_answers_are_those_of_the_command(self):
        (self.folder / "own.attn").write_text("fn near(n) = abs(q_idx - kv_idx) < n;\n")
        text = 'import "own.attn";\nattention x { dims B, Hq, Sq, D; mask near(3); }\n'
        for arguments, given in ((("describe", "-", "--format", "json"), text), (("version",), ""),
                                 (("check", "-"), "attention x { dims B; mask wrong(); }"), (("nothing",), ""),
                                 (("convert", "-", "--to", "json"), text)):
            expected = attnc.run(*arguments, stdin=given, folder=self.folder)
            found = self.client.ask(*arguments, text=given, folder=self.folder)
            self.assertEqual((found["code"], found["output"], found["errors"]),
                             (expected.returncode, expected.stdout, expected.stderr), arguments)

    def test_commands_do_not_see_each_other(self):
        warned = "attention x { dims B = 1, Hq = 1, Sq = 8, D = 8; mask q_idx < 0; }"
        self.assertEqual(self.client.ask("describe", "-", "--deny", "warnings", text=warned)["code"], 1)
        self.assertEqual(self.client.ask("describe", "-", text=warned)["code"], 0)
        there = self.client.ask("cache", "path", environment={"ATTN_CACHE_DIR": "/there"})["output"]
        self.assertEqual(there.strip(), "/there")
        self.assertNotEqual(self.client.ask("cache", "path")["output"], there)

    def test_many_at_the_same_time(self):
        found = [None] * 12

        def ask(place):
            text = f"attention x{place} {{ dims B, Hq, Sq, D; }}"
            found[place] = json.loads(self.client.ask("describe", "-", "--format", "json", text=text)["output"])

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([said["name"] for said in found], [f"x{place}" for place in range(len(found))])

    def test_a_command_that_is_killed_harms_no_other(self):
        # Its request does not end, so it waits.
        with self.client.connect() as waiting:
            other = self.client.ask("version")
            self.assertEqual(other["code"], 0)
            (child,) = self.client.children()
            os.kill(int(child), signal.SIGSEGV)
            answer = json.loads(b"".join(iter(lambda: waiting.recv(1 << 16), b"")))
        self.assertEqual(answer["signal"], signal.SIGSEGV)
        self.assertEqual(self.client.ask("version")["code"], 0)

    def test_a_client_that_gives_up_ends_its_command(self):
        waiting = self.client.connect()
        self.client.ask("version")
        (child,) = self.client.children()
        waiting.close()
        while os.path.exists(f"/proc/{child}"):
            self.client.ask("version")

    def test_requests_that_are_none(self):
        for text in (b"", b"[]", b"{}", b"{\xff"):
            connection = self.client.connect()
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(self.client.answer(connection).get("code"), 70, text)
        self.assertEqual(self.client.ask("version", folder="/nowhere")["code"], 70)

    def test_it_ends_with_its_client(self):
        with self.client.connect():
            self.client.ask("version")
            (child,) = self.client.children()
            self.assertEqual(self.client.close(), 0)
            while os.path.exists(f"/proc/{child}"):  # init reaps it
                pass


if __name__ == "__main__":
    attnc.main()
