"""What the ranks of a test's job do, by name: `torch_job.py NAME`; test_torch.py starts the jobs."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

LOOP_S = 300  # that a job lasts which the test ends
SLOW_FROM_S = 25  # in which what is usual is learnt


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
    """Rank 1 does not come to the second all-reduce. The first whose time is up says which call it is, and leaves; the
    others may hear of that before their own time is up."""
    dist.init_process_group("c4", timeout=datetime.timedelta(seconds=2))
    store = dist.distributed_c10d._get_default_store()
    limit = datetime.timedelta(seconds=LOOP_S)
    total = torch.ones(4)
    dist.all_reduce(total)
    if dist.get_rank() == 1:
        store.wait([f"failed {rank}" for rank in range(dist.get_world_size()) if rank != 1], limit)
        store.set("seen", "")
        os._exit(0)
    began = time.monotonic()
    try:
        dist.all_reduce(total)
    except dist.DistBackendError as error:
        assert "c4:all_reduce number 2" in str(error), error
        if "timed out after 2000 ms" in str(error):
            assert time.monotonic() - began > 1.9
            log("timed out")
        else:
            assert "closed by it" in str(error), error
    else:
        raise AssertionError("the time-out passed by")
    try:
        dist.all_reduce(total)
    except dist.DistBackendError:
        log("failed for good")
    else:
        raise AssertionError("a group that failed goes on")
    store.set(f"failed {dist.get_rank()}", "")
    if dist.get_rank() == 0:
        store.wait(["seen"], limit)  # rank 0 has the store
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


def loop(late_from_s=LOOP_S):
    """Trains until the test ends it; rank 2 comes late to each step from then on."""
    import torch_training

    dist.init_process_group("c4")
    trained = torch.nn.parallel.DistributedDataParallel(torch_training.model())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    batch = torch.ones(8, torch_training.WIDTH)
    began = time.monotonic()
    step = 0
    while time.monotonic() - began < LOOP_S:
        if dist.get_rank() == 2 and time.monotonic() - began > late_from_s:
            time.sleep(0.1)
        optimizer.zero_grad()
        trained(batch).square().mean().backward()
        optimizer.step()
        step += 1
        if step == 20:
            log("trains")


def slowing():
    loop(SLOW_FROM_S)


def accelerated():
    """A script of accelerate's: it takes the group that is there."""
    import torch_training
    from accelerate import Accelerator

    dist.init_process_group("c4")
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == dist.get_world_size() and dist.get_backend() == "c4", accelerator.state
    torch.manual_seed(5)
    data = torch.randn(64, torch_training.WIDTH)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model = torch_training.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    assert losses[-1] < losses[0], losses
    for parameter in model.parameters():
        everybody = accelerator.gather(parameter.detach().reshape(1, -1))
        assert torch.equal(everybody, everybody[:1].expand_as(everybody))
    log("accelerated")


def huge():
    """More bytes than 32 bits count, and elements that no 32 bits number."""
    dist.init_process_group("c4")
    total = torch.full(((4 << 30) + 8,), dist.get_rank() + 1, dtype=torch.uint8)
    dist.all_reduce(total)
    assert total[0] == 3 and total[-1] == 3 and total[1 << 31] == 3, total
    assert total.min() == 3 and total.max() == 3, total
    log("4 GiB and 8 B")


def marked():
    """Trains until the test ends it, marked; two micro-batches a step, and rank 2 computes longer than the others."""
    import torch_training
    from c4_train.marks import mark

    dist.init_process_group("c4")
    late_s = 0.04 if dist.get_rank() == 2 else 0.005

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch_training.model()

        def forward(self, x):
            time.sleep(late_s)
            return self.inner(x)

    trained = torch.nn.parallel.DistributedDataParallel(Slow())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    refused_marks(trained, optimizer)
    assert mark(trained, optimizer).active
    batch = torch.ones(8, torch_training.WIDTH)
    began = time.monotonic()
    step = 0
    while time.monotonic() - began < LOOP_S:
        optimizer.zero_grad()
        with trained.no_sync():
            trained(batch).square().mean().backward()
        trained(batch).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            trained(batch)  # nothing to learn from: no micro-batch
        step += 1
        if step == 20:
            log("trains")


def refused_marks(model, optimizer):
    from c4_train.marks import mark

    class Mesh:
        mesh_dim_names = ("rows",)

    refusals = {
        "at least one optimizer": lambda: mark(model),
        "torch.nn.Module": lambda: mark(optimizer, optimizer),
        "torch.optim.Optimizer": lambda: mark(model, model),
        "a dimension rows": lambda: mark(model, optimizer, mesh=Mesh()),
        "-1 layers": lambda: mark(model, optimizer, layers=-1),
    }
    for word, call in refusals.items():
        try:
            call()
        except (TypeError, ValueError) as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"what should be refused ({word}) was not")


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
