"""How processes end that raise an exception while work of a group is under way: `torch_exits.py ROUNDS [BACKEND]` lets two
ranks do so again and again, prints how many ended how, and ends with 1 unless all ended with status 1, as Python says.

Each rank is a fork of this process, so that torch is imported once."""

import collections
import os
import random
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist

RANKS = 2
ON_PURPOSE = "on purpose"


class OnPurpose(Exception):
    pass


def work_under_way(backend, rank, port, pause_s):
    """Tensors that only the work holds, calls whose end Python hears of, and messages that nobody sends."""
    store = dist.TCPStore("127.0.0.1", port, RANKS, is_master=rank == 0)
    dist.init_process_group(backend, store=store, rank=rank, world_size=RANKS)
    dist.barrier()
    other = 1 - rank
    kept = [dist.irecv(torch.empty(1 << 12), other, tag=tag) for tag in range(4)]
    calls = 12 if rank == 0 else 6  # the others wait for a rank that is gone
    for _ in range(calls):
        work = dist.all_reduce(torch.ones(1 << 14), async_op=True)
        work.get_future().then(lambda done: None)
        kept.append(work)
    if rank == 0:
        kept.clear()
    time.sleep(pause_s)
    raise OnPurpose(ON_PURPOSE)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ended(status):
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"


def main():
    rounds = int(sys.argv[1])
    backend = sys.argv[2] if len(sys.argv) > 2 else "c4"
    counts = collections.Counter()
    for _ in range(rounds):
        port, children = free_port(), []
        for rank in range(RANKS):
            pause_s = random.choice((0, 0.05, 0.1))
            child = os.fork()
            if child == 0:
                output = tempfile.TemporaryFile()
                os.dup2(output.fileno(), 2)  # the traceback
                try:
                    return work_under_way(backend, rank, port, pause_s)
                except OnPurpose:
                    raise
                except BaseException:
                    os._exit(3)  # not what is tried here
            children.append(child)
        for child in children:
            counts[ended(os.waitpid(child, 0)[1])] += 1
    print(", ".join(f"{count} with {how}" for how, count in sorted(counts.items())), flush=True)
    sys.exit(0 if set(counts) == {"status 1"} else 1)


main()
