"""What the ranks of a test's job do, by name: `torch_job.py NAME`; test_torch.py starts the jobs."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

LOOP_S = 60  # that a job lasts which the test ends


def log(*words):
    print(f"rank {os.environ['RANK']}:", *words, flush=True)


def both():
    dist.init_process_group("c4")
    return dist.group.WORLD, dist.new_group(backend="gloo")


def collectives():
    import torch_collectives

    for name in torch_collectives.run(*both()):
        log(name)
    # The same in two groups of half the ranks, at the same time.
    half = dist.get_world_size() // 2
    for members in (list(range(half)), list(range(half, 2 * half))):
        pair, other = dist.new_group(members), dist.new_group(members, backend="gloo")
        if dist.get_rank() in members:
            for name in torch_collectives.run(pair, other):
                log(name, "in a half")


def training():
    import torch_training

    for name in torch_training.run(*both()):
        log(name)
    losses = torch_training.meshes()
    assert losses[-1] < losses[0], losses
    log("meshes")


def mixed_backends():
    dist.init_process_group("cpu:c4,cuda:gloo")
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total[0] == dist.get_world_size(), total
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    total = torch.ones(1)
    dist.all_reduce(total, group=half)
    assert total[0] == 2, total
    log("mixed and split")


def time_out():
    """Rank 1 does not come to the second all-reduce: the others' time-out says which call it is and of whom."""
    dist.init_process_group("c4", timeout=datetime.timedelta(seconds=2))
    total = torch.ones(4)
    dist.all_reduce(total)
    store = dist.distributed_c10d._get_default_store()
    others = [f"timed out {rank}" for rank in range(dist.get_world_size()) if rank != 1]
    if dist.get_rank() == 1:
        store.wait(others, datetime.timedelta(seconds=LOOP_S))
        os._exit(0)
    began = time.monotonic()
    try:
        dist.all_reduce(total)
    except dist.DistBackendError as error:
        assert "c4:all_reduce number 2" in str(error) and "timed out after 2000 ms" in str(error), error
        assert time.monotonic() - began > 1.9
    else:
        raise AssertionError("the time-out passed by")
    try:
        dist.all_reduce(total)
    except dist.DistBackendError as error:
        assert "timed out" in str(error), error
    else:
        raise AssertionError("a group that failed goes on")
    log("timed out")
    store.set(f"timed out {dist.get_rank()}", "")
    time.sleep(1)  # rank 0 has the store
    os._exit(0)


def pending():
    """A process group that is destroyed while work is pending: the work fails, and nobody waits for ever."""
    dist.init_process_group("c4")
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        letter = dist.irecv(torch.ones(4), 1)
        dist.destroy_process_group()
        for one in (work, letter):
            try:
                one.wait()
            except RuntimeError as error:
                assert "destroyed" in str(error), error
            else:
                raise AssertionError("the work is through")
    else:
        time.sleep(3)
    log("destroyed")
    os._exit(0)


def forked():
    """Children of a fork, as of a data loader, leave the group alone."""
    dist.init_process_group("c4")
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    loader = torch.utils.data.DataLoader(torch.arange(32.0), batch_size=8, num_workers=2, multiprocessing_context="fork")
    total = sum(batch.sum() for batch in loader)
    dist.all_reduce(total)
    assert total == 496 * dist.get_world_size(), total
    log("forked")


def dump():
    """Rank 2 stays away from the last barrier; everybody writes what PyTorch's Flight Recorder knows."""
    dist.init_process_group("c4")
    for _ in range(3):
        dist.all_reduce(torch.ones(8))
    dist.barrier()
    if dist.get_rank() != 2:
        dist.barrier(async_op=True)
    time.sleep(1)
    recorded = torch._C._distributed_c10d._dump_fr_trace(True, False, False, backend="c4")
    with open(os.path.join(sys.argv[2], f"nccl_trace_rank_{dist.get_rank()}"), "wb") as out:
        out.write(recorded)
    log("dumped")
    time.sleep(3)  # until everybody has
    os._exit(0)


def loop():
    """Trains until the test ends it."""
    import torch_training

    dist.init_process_group("c4")
    trained = torch.nn.parallel.DistributedDataParallel(torch_training.model())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    batch = torch.ones(8, torch_training.WIDTH)
    began = time.monotonic()
    step = 0
    while time.monotonic() - began < LOOP_S:
        optimizer.zero_grad()
        trained(batch).square().mean().backward()
        optimizer.step()
        step += 1
        if step == 20:
            log("trains")


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
