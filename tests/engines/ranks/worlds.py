"""Ranks as processes of a test: a pool that runs one function after another on all of them."""

import os
import pickle
import socket
import sys
import traceback

from forked import forking


class World:
    """`size` ranks that meet over gloo, as on machines of `local` ranks. `run(function, *args)` gives what the function
    returns on each."""

    def __init__(self, size, local):
        context = forking()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.size = size
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, rank, size, local, port, list(sys.path)), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function, *args):
        """The results of the ranks, by rank. Raises the error of the lowest rank that had one."""
        for pipe in self.pipes:
            pipe.send((function, args))
        answers = [self._answer(rank) for rank in range(self.size)]
        for failed, value in answers:
            if failed:
                raise value
        return [value for _, value in answers]

    def _answer(self, rank):
        try:
            return self.pipes[rank].recv()
        except EOFError:
            self.processes[rank].join(10)
            return True, RuntimeError(f"rank {rank} ended with {self.processes[rank].exitcode}")

    def close(self):
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            process.kill()


def serve(pipe, rank, size, local, port, path):
    """The life of a rank: call the functions that come through the pipe."""
    sys.path[:] = path
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(local),
        "LOCAL_RANK": str(rank % local),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        try:
            answer = False, function(*args)
        except Exception as error:
            traceback.print_exc()
            answer = True, error
        try:
            pipe.send(answer)
        except (pickle.PicklingError, TypeError, AttributeError):
            pipe.send((True, RuntimeError(f"{answer[1]!r} cannot be sent")))
