"""One rank of a job on the GPU that all its ranks share: started by checks.py with RANK and WORLD_SIZE. What it found
goes to its standard output as one line of JSON, the last.

modes: allreduce, ddp, stamps, graph, loop, cost, call"""

import hashlib
import json
import os
import sys
import time

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def share_the_gpu():
    """Before NCCL reads its settings. A host of its own for each rank makes NCCL take several on one GPU, and the
    network between them; few channels let their kernels be resident together; one algorithm makes sums repeatable."""
    settings = {"NCCL_HOSTID": f"c4-gpu-test-{RANK}", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MNNVL_ENABLE": "0",
                "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_MIN_CTAS": "2",
                "NCCL_MAX_CTAS": "2", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_SOCKET_IFNAME": "lo",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    os.environ.pop("NCCL_COMM_ID", None)  # one communicator's only


def own_segment():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import segment
    return segment.of_process(os.environ.get("C4_RUN_DIR", "/dev/shm/c4"), os.getpid())


def counters():
    found = own_segment()
    if found is None:
        return None
    moved = {}
    for pair in found.queue_pairs():
        if pair["send"]:
            moved[pair["transport"]] = moved.get(pair["transport"], 0) + pair["completed_bytes"]
    return {"sent_bytes": moved, "communicators": list(found.communicators())}


def all_reduce(torch, dist, _):
    wrong = 0
    for count in (1, 1000, 1 << 18, 1 << 22):
        data = torch.arange(count, device="cuda", dtype=torch.float64) + RANK
        dist.all_reduce(data)
        expected = torch.arange(count, device="cuda", dtype=torch.float64) * WORLD + WORLD * (WORLD - 1) / 2
        wrong += int((data != expected).sum())
    return {"wrong": wrong}


def ddp(torch, dist, _):
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + RANK)
    digest = hashlib.sha256()
    for _step in range(20):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        for parameter in model.parameters():
            digest.update(parameter.grad.cpu().numpy().tobytes())
        optimizer.step()
    return {"gradients": digest.hexdigest()}


def stamps(torch, dist, _):
    """What CUDA's events say of each all-reduce, and what C4 wrote down."""
    durations = []
    data = torch.ones(1 << 22, device="cuda")
    for _step in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    for step in range(40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        part = data[: 1 << (12 + step % 11)]
        # On NCCL's own stream nothing can be recorded: the events lie around it on ours, which waits for it.
        begin.record()
        dist.all_reduce(part)
        end.record()
        torch.cuda.synchronize()
        durations.append({"count": part.numel(), "us": begin.elapsed_time(end) * 1000})
        data.fill_(1.0)
        time.sleep(0.002)
    time.sleep(0.3)  # what is read last
    found = own_segment()
    operations = found.operations() if found else []
    return {"events": durations, "operations": operations[-len(durations):]}


def graph(torch, dist, _):
    data = torch.ones(1 << 16, device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    before = counters()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(data)
    for _replay in range(10):
        captured.replay()
    torch.cuda.synchronize()
    time.sleep(0.3)
    finished = lambda found: max((one["finished"] for one in found["communicators"]), default=0) if found else 0
    return {"replays": 10, "finished": finished(counters()) - finished(before)}


def loop(torch, dist, arguments):
    """Until it is ended. `slow RANK MS S`: from second S on that rank comes late by that many milliseconds. `spin RANK S`:
    from second S on its GPU runs a kernel that does not end, and all that is asked for afterwards waits behind it."""
    slow = spinning = -1
    late_s = from_s = 0.0
    if arguments[:1] == ["slow"]:
        slow, late_s, from_s = int(arguments[1]), float(arguments[2]) / 1000, float(arguments[3])
    if arguments[:1] == ["spin"]:
        spinning, from_s = int(arguments[1]), float(arguments[2])
    begin = time.monotonic()
    data = torch.ones(1 << 20, device="cuda")
    print(json.dumps({"pid": os.getpid(), "rank": RANK}), flush=True)
    while True:
        if RANK == slow and time.monotonic() - begin > from_s:
            time.sleep(late_s)
        if RANK == spinning and time.monotonic() - begin > from_s:
            torch.cuda._sleep(1 << 50)
        dist.all_reduce(data)
        data.fill_(1.0)
        torch.cuda.synchronize()


def cost(torch, dist, _):
    times = {}
    for power in range(3, 29):
        if power > 12 and power % 2:
            continue
        data = torch.ones((1 << power) // 4, device="cuda")
        rounds = 200 if power <= 20 else 10
        for timed in (False, True):
            torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
            for _round in range(rounds if timed else 5):
                dist.all_reduce(data)
            torch.cuda.synchronize()
            if timed:
                times[1 << power] = (time.perf_counter() - begin) / rounds * 1e6
    return {"us": times}


def call(torch, dist, _):
    """What one call costs the thread that makes it: a communicator of one rank, 8 bytes."""
    data = torch.ones(2, device="cuda")
    best = None
    for _try in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _round in range(500):
            dist.all_reduce(data)
        spent = (time.perf_counter() - begin) / 500 * 1e6
        best = spent if best is None else min(best, spent)
    torch.cuda.synchronize()
    return {"us": best}


MODES = {"allreduce": all_reduce, "ddp": ddp, "stamps": stamps, "graph": graph, "loop": loop, "cost": cost, "call": call}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in MODES:
        sys.exit(f"usage: ranks.py {'|'.join(MODES)}")
    share_the_gpu()
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=RANK, world_size=WORLD)
    found = MODES[sys.argv[1]](torch, dist, sys.argv[2:])
    found["counters"] = counters()
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    dist.destroy_process_group()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
