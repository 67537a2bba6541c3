"""A process that ends while a thread of libattn still aborts the communicator, on the stand-ins; test_libattn_ranks.py
starts it. Whatever refers to the object when Python ends, `abort` must have returned."""

import ctypes
import sys
import threading
import time

from test_libattn import allocate
from test_libattn_ranks import Nccl, opened

import attn


def main(path, how):
    contents = open(path, "rb").read()
    communicators = Nccl().communicators(2)

    def abort():
        ctypes.CDLL("libnccl.so.2").ncclCommAbort(ctypes.c_void_p(communicators[0]))
        time.sleep(0.5)  # the main thread has its error already
        print("aborted", flush=True)

    ranks = [None, None]

    def open_rank(rank):
        ranks[rank] = opened(contents, communicators[rank], timeout_seconds=1, abort=abort if rank == 0 else None)

    threads = [threading.Thread(target=open_rank, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        executes_alone(ranks[0])
    except attn.NcclError as error:
        print("failed", flush=True)
        if how == "exit":
            sys.exit(0)
        if how == "close":
            ranks[0].close()
            print("closed", flush=True)
        ranks.append(error)  # its traceback refers to the object
        ranks.append(ranks)


def executes_alone(sharded):
    tensors = {info.name: (allocate(info.bytes), info.dtype, info.dims, info.strides)
               for info in sharded.tensors["fwd"]}
    binding = sharded.bind("fwd", tensors, {"t": 1.0})
    while True:
        binding.execute(0)
        sharded.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
