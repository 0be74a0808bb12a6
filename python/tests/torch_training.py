"""Small models that PyTorch's own ways of training in parallel train, over a backend: the losses of each step. Every
rank of a job of four runs it; ranks.py holds those of c4 to those of gloo."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, STEPS, BATCH = 32, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model(blocks=4):
    torch.manual_seed(11)
    return nn.Sequential(*[Block() for _ in range(blocks)])


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(BATCH, WIDTH, generator=generator)] * STEPS  # one batch, so that every step has to learn


def train(trained, inputs):
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
    losses = []
    for batch in inputs:
        optimizer.zero_grad()
        loss = (trained(batch) - batch.sin()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def data_parallel(group):
    # Buckets of some kilobytes: several all-reduces a step.
    trained = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.02)
    return train(trained, batches(dist.get_rank(group)))


def fully_sharded(group):
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    trained = model()
    for block in trained:
        fully_shard(block, mesh=mesh)
    fully_shard(trained, mesh=mesh)
    return train(trained, batches(dist.get_rank(group)))


def tensor_parallel(group):
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    trained = model()
    for block in trained:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(trained, batches(5))


def pipeline(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    part = model(size)[rank]
    stage = PipelineStage(part, rank, size, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.SGD(part.parameters(), lr=0.05)
    losses = []
    for batch in batches(5):
        optimizer.zero_grad()
        of_parts = []
        if rank == 0:
            schedule.step(batch)
        elif rank == size - 1:
            schedule.step(target=batch.sin(), losses=of_parts)
        else:
            schedule.step()
        optimizer.step()
        losses.append(torch.stack([part.detach() for part in of_parts]).mean() if of_parts else torch.zeros(()))
    losses = torch.stack(losses)
    dist.broadcast(losses, group=group, group_src=size - 1)
    return losses


def run(c4, gloo):
    """Each way, by name; fails where the losses over the groups differ."""
    for way in (data_parallel, fully_sharded, tensor_parallel, pipeline):
        ours, theirs = way(c4), way(gloo)
        # The order in which ranks are summed is the backends' own.
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), f"{way.__name__}: losses {ours}, gloo's {theirs}"
        assert ours[-1] < ours[0], f"{way.__name__} learns nothing: {ours}"
        yield way.__name__


def meshes():
    """Two dimensions of groups, which torch makes itself, of the default backend."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    trained = model()
    for block in trained:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(trained, mesh=mesh["dp"])
    return train(trained, batches(mesh.get_local_rank("dp")))
