#!/usr/bin/env python3
"""Makes the profiles in this folder: two stages by two data-parallel ranks on CPUs, rank 2 does everything three times.

    python3 -m venv v && v/bin/pip install torch && v/bin/python make.py
"""
import gzip
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.profiler import ProfilerActivity, profile, record_function, schedule

DP = 2
STAGES = 2
MICRO_BATCHES = 3
STEPS = 3
WIDTH = 512
SLOW_RANK = 2


class Rank:
    def __init__(self, rank):
        self.rank = rank
        self.stage = rank // DP
        groups = [dist.new_group([stage * DP + dp for dp in range(DP)], group_desc="DATA_PARALLEL_GROUP")
                  for stage in range(STAGES)]
        self.group = groups[self.stage]
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=1e-3)
        self.times = 3 if rank == SLOW_RANK else 1

    def forward(self, micro_batch):
        x = torch.randn(64, WIDTH)
        if self.stage > 0:
            with record_function("forward-recv"):
                dist.recv(x, self.rank - DP)
            x.requires_grad_()
        with record_function(f"forward-compute mb={micro_batch}"):
            for _ in range(self.times):
                y = self.layers(x)
        if self.stage + 1 < STAGES:
            with record_function("forward-send"):
                dist.send(y.detach(), self.rank + DP)
        return x, y

    def backward(self, micro_batch, x, y):
        gradient = torch.ones(64, WIDTH)
        if self.stage + 1 < STAGES:
            with record_function("backward-recv"):
                dist.recv(gradient, self.rank + DP)
        with record_function(f"backward-compute mb={micro_batch}"):
            for _ in range(self.times):
                y.backward(gradient, retain_graph=True)
        if self.stage > 0:
            with record_function("backward-send"):
                dist.send(x.grad, self.rank - DP)

    def step(self):
        passed = [self.forward(i) for i in range(MICRO_BATCHES)]
        for i, (x, y) in enumerate(passed):
            self.backward(i, x, y)
        gradients = torch.cat([p.grad.flatten() for p in self.layers.parameters()])
        with record_function("grads-reduce-scatter"):
            dist.all_reduce(gradients, group=self.group)
        with record_function("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def run(number):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=number, world_size=DP * STAGES)
    rank = Rank(number)
    rank.step()
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=STEPS)) as profiler:
        for i in range(STEPS + 1):
            rank.step()
            if i < STEPS:  # the last call would begin another cycle
                profiler.step()
    name = f"rank_{number}.json"
    profiler.export_chrome_trace(name)
    with open(name, "rb") as plain, gzip.GzipFile(name + ".gz", "wb", 9, mtime=0) as packed:
        packed.write(plain.read())
    os.remove(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(run, nprocs=DP * STAGES)
