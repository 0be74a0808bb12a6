#!/usr/bin/env python3
"""The backend c4 beside gloo: the time of torch.distributed's collectives, and of a training step under
DistributedDataParallel.

    torch_bench.py [--ranks 2,4] [--sizes 4K,64M] [--seconds 0.3] [--markdown]

Starts the ranks itself, without agent or master. Each size is measured with both backends in the same processes, in
turns, so that what else the machine does hits both; what is told is the median of the slowest rank's times. Needs torch
and c4_torch in the Python that runs it (scripts/build_torch.sh) and takes the machine for some minutes.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def text_of(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def calls(operation, size, ranks):
    """The call on `size` bytes, for a group: as nccl-tests count, of the larger buffer."""
    import torch
    import torch.distributed as dist

    count = size // 4
    whole, part = torch.ones(count), torch.ones(count // ranks)
    if operation == "all_reduce":
        return lambda group: dist.all_reduce(whole, group=group)
    if operation == "all_gather":
        return lambda group: dist.all_gather_into_tensor(whole, part, group)
    if operation == "reduce_scatter":
        return lambda group: dist.reduce_scatter_tensor(part, whole, group=group)
    if operation == "broadcast":
        return lambda group: dist.broadcast(whole, 0, group)
    received = torch.ones(count)
    return lambda group: dist.all_to_all_single(received, whole, group=group)


def timed(call, group, times):
    """Microseconds a call, of the slowest rank."""
    import torch
    import torch.distributed as dist

    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(times):
        call(group)
    took = torch.tensor([(time.perf_counter() - began) / times * 1e6])
    dist.all_reduce(took, dist.ReduceOp.MAX, group)
    return took.item()


def compared(call, groups, seconds):
    """Median microseconds by group. How often a call is made is settled by rank 0, for all and both."""
    import torch
    import torch.distributed as dist

    first = max(timed(call, group, 2) for group in groups)
    times = torch.tensor([max(2, int(seconds * 1e6 / first / ROUNDS))])
    dist.broadcast(times, 0)
    samples = [[timed(call, group, int(times)) for group in groups] for _ in range(ROUNDS)]
    return [statistics.median(of_group) for of_group in zip(*samples, strict=True)]


def transformer_step(group):
    """A step of a small transformer under DistributedDataParallel."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
    model = nn.parallel.DistributedDataParallel(nn.TransformerEncoder(layer, 4), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(4, 32, 128)

    def step(_):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def rank_main(arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("c4")
    groups = [dist.group.WORLD, dist.new_group(backend="gloo")]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for operation in arguments.operations.split(","):
        for size in arguments.all_sizes:
            c4, gloo = compared(calls(operation, size, ranks), groups, arguments.seconds)
            if rank == 0:
                print(f"{ranks}\t{operation}\t{size}\t{c4:.1f}\t{gloo:.1f}", flush=True)
    steps = [transformer_step(group) for group in groups]
    samples = [[timed(step, group, 5) for step, group in zip(steps, groups, strict=True)] for _ in range(ROUNDS)]
    if rank == 0:
        c4, gloo = (statistics.median(of_group) for of_group in zip(*samples, strict=True))
        print(f"{ranks}\tDDP step\t0\t{c4:.1f}\t{gloo:.1f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(ranks, own_arguments):
    """The lines of one job."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    common |= {"C4_CONTROL": "0", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "0"}
    library = Path(__file__).resolve().parents[1] / "build" / "lib" / "libnccl.so.2"
    common.setdefault("C4_TORCH_LIBRARY", os.environ.get("C4_TORCH_LIBRARY", str(library)))
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *own_arguments],
            env={**os.environ, **common, "RANK": str(rank), "C4_BENCH_RANK": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"a rank of {ranks} failed: exit codes {[process.returncode for process in processes]}")
    return outputs[0].splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks")
    parser.add_argument("--sizes", default="4K,64M", help="smallest and largest, and every fourth power of two between")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="those to measure")
    parser.add_argument("--seconds", type=float, default=0.3, help="a size, an operation and a backend")
    parser.add_argument("--markdown", action="store_true", help="a table as in docs/benchmarks.md")
    arguments = parser.parse_args()
    smallest, largest = (bytes_of(size) for size in arguments.sizes.split(","))
    arguments.all_sizes = [smallest << 2 * power for power in range(20) if smallest << 2 * power <= largest]
    if "C4_BENCH_RANK" in os.environ:
        rank_main(arguments)
        return
    if arguments.markdown:
        print("| ranks | operation | size | c4 | gloo | gloo / c4 |\n|---|---|---|---|---|---|")
    for ranks in (int(number) for number in arguments.ranks.split(",")):
        for line in measure(ranks, sys.argv[1:]):
            _, operation, size, c4, gloo = line.split("\t")
            cells = [str(ranks), operation, text_of(int(size)) if int(size) else "", f"{c4} us", f"{gloo} us"]
            cells.append(f"{float(gloo) / float(c4):.2f}")
            if arguments.markdown:
                print("| " + " | ".join(cells) + " |", flush=True)
            else:
                print("{:>2} ranks  {:<15} {:>7}  c4 {:>12}  gloo {:>12}  x{}".format(*cells), flush=True)


if __name__ == "__main__":
    main()
