"""An object in a process of its own: what breaks that process, or its GPU context, ends nothing else.

    worker = Remote(make, *arguments)       # calls make(*arguments) there; both can be pickled
    worker.call("method", *arguments)       # its result, its exception, or Ended
    worker.stop()
"""
import multiprocessing

SPAWN = multiprocessing.get_context("spawn")  # a fork would share the parent's CUDA


class Ended(RuntimeError):
    """The process ended, or was ended because a call took too long."""


def serve(pipe, make, arguments):
    made = make(*arguments)
    while request := pipe.recv():
        name, given = request
        try:
            answer = True, getattr(made, name)(*given)
        except Exception as error:  # the caller's to handle
            answer = False, RuntimeError(str(error).strip() or type(error).__name__)
        pipe.send(answer)


class Remote:
    def __init__(self, make, *arguments):
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, name, *arguments, limit=None):
        """Raises Ended if there is no answer within `limit` seconds."""
        try:
            self.pipe.send((name, arguments))
            if not self.pipe.poll(limit):
                self.process.kill()
                raise Ended(f"no answer within {limit} s")
            succeeded, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            raise Ended(f"its process ended with exit code {self.process.exitcode}") from error
        if succeeded:
            return answer
        raise answer

    def stop(self):
        """Kills: a broken context may never end by itself."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
