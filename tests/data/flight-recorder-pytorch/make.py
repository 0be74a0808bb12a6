"""Dumps that PyTorch's Flight Recorder itself writes, of jobs of four ranks on CPUs over gloo that hang: `make.py FOLDER`.

absent/nccl_trace_rank_N: rank 2 never comes to the fourth barrier; pickled. mismatched/rank_N.json: rank 1 calls a broadcast
where the others call that barrier; JSON. Stack traces are left out. What gloo does not say (the members of groups, states) is
as PyTorch writes it."""
import os
import sys
import threading
import time

os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as processes  # noqa: E402
from torch._C import _distributed_c10d as c10d  # noqa: E402

RANKS = 4
DUMP_AFTER_S = 8


def dump(rank, kind, folder):
    time.sleep(DUMP_AFTER_S)
    if kind == "absent":
        with open(os.path.join(folder, f"nccl_trace_rank_{rank}"), "wb") as out:
            out.write(c10d._dump_fr_trace(True, False, False))
    else:
        text = c10d._dump_fr_trace_json(True)
        with open(os.path.join(folder, f"rank_{rank}.json"), "w") as out:
            out.write(text if isinstance(text, str) else text.decode())
    time.sleep(2)  # until the others have written theirs
    os._exit(0)


def train(rank, kind, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    pairs = [dist.new_group([first, first + 1]) for first in range(0, RANKS, 2)]
    threading.Thread(target=dump, args=(rank, kind, folder), daemon=True).start()
    values = torch.ones(8)
    for step in range(5):
        dist.all_reduce(values)
        dist.all_reduce(values, group=pairs[rank // 2])
        if rank % 2 == 0:
            dist.send(values, rank + 1)
        else:
            dist.recv(values, rank - 1)
        dist.all_gather([torch.ones(8) for _ in range(RANKS)], values)
        if kind == "absent" and step == 3 and rank == 2:
            time.sleep(10 * DUMP_AFTER_S)
        if kind == "mismatched" and step == 3 and rank == 1:
            dist.broadcast(values, 0)
        dist.barrier()


if __name__ == "__main__":
    for number, name in enumerate(("absent", "mismatched")):
        where = os.path.join(sys.argv[1], name)
        os.makedirs(where, exist_ok=True)
        try:
            processes.spawn(train, args=(name, where, 29511 + number), nprocs=RANKS)
        except processes.ProcessRaisedException:
            pass  # whose peers ended before it
