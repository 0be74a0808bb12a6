"""Checks of the backend c4 that every rank of a job runs, each against gloo's answer to the same call: collectives of
every form and type, messages with tags, sub-groups, work handles. ranks.py starts it."""

import datetime

import torch
import torch.distributed as dist

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
]
# The library lacks them, and gloo does not reduce them: what they have to give is computed here.
OTHER_TYPES = [torch.int16, torch.bool, torch.complex64]
SIZES = [0, 1, 7, 1000, 70001]


def values(rank, count, dtype):
    generator = torch.Generator().manual_seed(1000 * rank + count)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    # Small whole numbers: sums and products of four are exact in every type.
    return torch.randint(1, 4, (count,), generator=generator).to(dtype)


def same(ours, theirs, what):
    assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), f"{what}: {ours} is not {theirs}"


class Checks:
    """c4 and gloo: groups of the same ranks."""

    def __init__(self, c4, gloo):
        self.c4, self.gloo = c4, gloo
        self.rank, self.size = dist.get_rank(c4), dist.get_world_size(c4)

    def both(self, call, *tensors):
        """What `call` leaves in the tensors, over either group."""
        results = []
        for group in (self.c4, self.gloo):
            mine = [tensor.clone() for tensor in tensors]
            call(group, *mine)
            results.append(mine)
        for ours, theirs in zip(*results, strict=True):
            same(ours, theirs, call.__name__)

    def check_all_reduce(self):
        ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
        for dtype in TYPES:
            for count in SIZES if dtype == torch.float32 else [9]:
                for op in ops:

                    def all_reduce(group, tensor, op=op):
                        dist.all_reduce(tensor, op, group)

                    self.both(all_reduce, values(self.rank, count, dtype))
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):

            def bitwise(group, tensor, op=op):
                dist.all_reduce(tensor, op, group)

            self.both(bitwise, values(self.rank, 33, torch.int32))

    def check_average_and_scaled_sum(self):
        tensor = torch.full((5,), float(self.rank))
        dist.all_reduce(tensor, dist.ReduceOp.AVG, self.c4)
        same(tensor, torch.full((5,), (self.size - 1) / 2), "average")
        tensor = torch.ones(5)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5), self.c4)
        same(tensor, torch.full((5,), self.size / 2), "scaled sum")

    def check_types_that_the_library_lacks(self):
        for dtype in OTHER_TYPES:
            everybody = torch.stack([values(rank, 11, dtype) for rank in range(self.size)])
            mine = everybody[self.rank].clone()
            total = mine.clone()
            dist.all_reduce(total, group=self.c4)
            same(total, everybody.any(0) if dtype == torch.bool else everybody.sum(0, dtype=dtype), "sum")
            parts = [torch.empty_like(mine) for _ in range(self.size)]
            dist.all_gather(parts, mine, self.c4)
            same(torch.stack(parts), everybody, "all_gather")
            dist.broadcast(mine, group=self.c4, group_src=self.size - 1)
            same(mine, everybody[-1], "broadcast")
        bits = torch.tensor([self.rank % 2 == 0, True])
        dist.all_reduce(bits, dist.ReduceOp.BXOR, self.c4)
        same(bits, torch.tensor([(self.size + 1) // 2 % 2 == 1, self.size % 2 == 1]), "xor of bools")

    def check_rooted(self):
        for root in range(self.size):

            def broadcast(group, tensor, root=root):
                dist.broadcast(tensor, group=group, group_src=root)

            self.both(broadcast, values(self.rank, 1000, torch.float32))

            def reduce(group, tensor, root=root):
                dist.reduce(tensor, group=group, group_dst=root)
                if dist.get_rank(group) != root:
                    tensor.zero_()  # what is left there nobody promises

            self.both(reduce, values(self.rank, 1000, torch.float32))

            def gather(group, mine, *parts, root=root):
                dist.gather(mine, list(parts) if self.rank == root else None, group=group, group_dst=root)

            self.both(gather, values(self.rank, 10, torch.int64), *torch.zeros(self.size, 10, dtype=torch.int64))

            def scatter(group, mine, *parts, root=root):
                dist.scatter(mine, list(parts) if self.rank == root else None, group=group, group_src=root)

            self.both(scatter, torch.zeros(10), *[values(self.rank + other, 10, torch.float32) for other in range(self.size)])

    def check_all_gather(self):
        def lists(group, mine, *parts):
            dist.all_gather(list(parts), mine, group)

        for count in SIZES:
            self.both(lists, values(self.rank, count, torch.float32), *[torch.zeros(count) for _ in range(self.size)])

        def one(group, mine, everybody):
            dist.all_gather_into_tensor(everybody, mine, group)

        self.both(one, values(self.rank, 70001, torch.bfloat16), torch.zeros(70001 * self.size, dtype=torch.bfloat16))
        # Parts of one tensor, which need no copy, and parts of several sizes.
        whole = torch.zeros(self.size, 6)
        dist.all_gather(list(whole), torch.full((6,), float(self.rank)), self.c4)
        same(whole, torch.arange(self.size).float()[:, None].expand(self.size, 6), "parts of one tensor")
        parts = [torch.zeros(rank + 1) for rank in range(self.size)]
        dist.all_gather(parts, torch.full((self.rank + 1,), float(self.rank)), self.c4)
        for rank, part in enumerate(parts):
            same(part, torch.full((rank + 1,), float(rank)), "parts of several sizes")

    def check_reduce_scatter(self):
        def lists(group, mine, *parts):
            dist.reduce_scatter(mine, list(parts), group=group)

        def one(group, mine, everybody):
            dist.reduce_scatter_tensor(mine, everybody, group=group)

        everybody = torch.stack([values(self.rank + other, 77, torch.float32) for other in range(self.size)])
        self.both(lists, torch.zeros(77), *everybody)
        self.both(one, torch.zeros(77), everybody.flatten())
        self.both(lists, torch.zeros(77), *[part.clone() for part in everybody])
        shorts = torch.ones(self.size * 3, dtype=torch.int16)
        mine = torch.zeros(3, dtype=torch.int16)
        dist.reduce_scatter_tensor(mine, shorts, group=self.c4)
        same(mine, torch.full((3,), self.size, dtype=torch.int16), "reduce_scatter of 16-bit integers")

    def check_all_to_all(self):
        def even(group, mine, theirs):
            dist.all_to_all_single(theirs, mine, group=group)

        self.both(even, values(self.rank, 12 * self.size, torch.float32), torch.zeros(12 * self.size))
        sent = [other + 1 for other in range(self.size)]
        received = [self.rank + 1] * self.size

        def uneven(group, mine, theirs):
            dist.all_to_all_single(theirs, mine, received, sent, group)

        self.both(uneven, values(self.rank, 3 * sum(sent), torch.int64).view(-1, 3), torch.zeros(sum(received), 3).long())
        ours = [torch.zeros(received[other]) for other in range(self.size)]
        dist.all_to_all(ours, [torch.full((count,), float(self.rank)) for count in sent], self.c4)
        for other, part in enumerate(ours):
            same(part, torch.full((self.rank + 1,), float(other)), "all_to_all")

    def check_coalesced(self):
        tensors = [torch.full((count,), float(self.rank)) for count in (3, 5, 1)]
        with dist._coalescing_manager(self.c4, device=torch.device("cpu"), async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=self.c4)
        manager.wait()
        for tensor in tensors:
            same(tensor, torch.full_like(tensor, sum(range(self.size))), "coalesced")
        whole = [torch.zeros(self.size * count) for count in (2, 4)]
        with dist._coalescing_manager(self.c4, device=torch.device("cpu")):
            for count, tensor in zip((2, 4), whole, strict=True):
                dist.all_gather_into_tensor(tensor, torch.full((count,), float(self.rank)), self.c4)
        for tensor in whole:
            same(tensor, torch.arange(self.size).float().repeat_interleave(tensor.numel() // self.size), "coalesced")

    def check_messages(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        sent = [torch.full((tag + 1,), float(10 * self.rank + tag)) for tag in range(4)]
        received = [torch.zeros(tag + 1) for tag in range(4)]
        works = [dist.isend(tensor, group=self.c4, group_dst=after, tag=tag) for tag, tensor in enumerate(sent)]
        for tag in (2, 0, 3, 1):  # in another order than they were sent
            dist.recv(received[tag], group=self.c4, group_src=before, tag=tag)
        for work in works:
            work.wait()
        for tag, tensor in enumerate(received):
            same(tensor, torch.full((tag + 1,), float(10 * before + tag)), "message")
        columns = torch.zeros(4, 4)
        work = dist.isend(torch.arange(4.0), group=self.c4, group_dst=after)
        dist.recv(columns[:, 1], group=self.c4, group_src=before)
        work.wait()
        same(columns.sum(0), torch.tensor([0.0, 6, 0, 0]), "message into a column")
        ops = [
            dist.P2POp(dist.isend, torch.full((100000,), float(self.rank)), group=self.c4, group_peer=after),
            dist.P2POp(dist.irecv, torch.zeros(100000), group=self.c4, group_peer=before),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(ops[1].tensor, torch.full((100000,), float(before)), "batch of messages")

    def check_messages_from_anybody(self):
        """Rank 0 takes what comes first, also beside receives from one rank; others have sent before it asks or after."""
        count = 3
        if self.rank == 0:
            got = {}
            for turn in range(count * (self.size - 1)):
                tensor = torch.zeros(2)
                source = dist.get_group_rank(self.c4, dist.recv(tensor, group=self.c4, tag=5))
                assert tensor[0] == source, (tensor, source)
                got.setdefault(source, []).append(int(tensor[1]))
                if turn == 0:
                    dist.recv(tensor, group=self.c4, group_src=self.size - 1, tag=6)
                    assert tensor[1] == 99, tensor
            assert got == {rank: list(range(count)) for rank in range(1, self.size)}, got
        else:
            works = []
            for number in range(count):
                works.append(dist.isend(torch.tensor([float(self.rank), number]), group=self.c4, group_dst=0, tag=5))
            if self.rank == self.size - 1:
                dist.send(torch.tensor([float(self.rank), 99]), group=self.c4, group_dst=0, tag=6)
            for work in works:
                work.wait()
        # What waits for anybody leaves the ways of the others as they were.
        dist.barrier(self.c4)
        self.check_messages()

    def check_sparse(self):
        """Sums, of another number of elements on each rank, none on one; gloo's are the same."""
        for dense in (0, 1):
            places = torch.tensor([[(self.rank + i) % 5 for i in range(self.rank)], list(range(self.rank))]).view(2, -1)
            elements = torch.ones(self.rank, *[3] * dense)

            def all_reduce(group, tensor):
                dist.all_reduce(tensor, group=group)
                return tensor.to_dense()

            results = [
                all_reduce(group, torch.sparse_coo_tensor(places, elements, (5, 8, *[3] * dense)).coalesce())
                for group in (self.c4, self.gloo)
            ]
            same(*results, "sum of sparse tensors")

    def check_tensors_made_for_a_call_live(self):
        """What is put together or copied for a call is not given back to the allocator before the call is over."""
        for _ in range(20):
            inputs = [torch.full((size, size), float(self.rank)) for size in (3, 40)]
            outputs = [[torch.zeros(size, size) for size in (3, 40)] for _ in range(self.size)]
            dist.all_gather_coalesced(outputs, inputs, group=self.c4)
            every_second = torch.full((400, 2), float(self.rank))[:, 0]
            everybody = torch.zeros(400 * self.size)
            work = dist.all_gather_into_tensor(everybody, every_second, group=self.c4, async_op=True)
            others = [torch.full((size,), -1.0) for size in (1609, 400, 400)]  # where the copies were, if they were
            work.wait()
            for rank in range(self.size):
                same(torch.cat([part.flatten() for part in outputs[rank]]), torch.full((1609,), float(rank)), "coalesced")
            same(everybody, torch.arange(self.size).float().repeat_interleave(400), "a copy")
            del others

    def check_monitored_barrier(self):
        dist.monitored_barrier(self.c4, datetime.timedelta(seconds=30), wait_all_ranks=True)
        if self.rank == 0:
            try:
                dist.monitored_barrier(self.c4, datetime.timedelta(milliseconds=50), wait_all_ranks=True)
                raise AssertionError("nobody had come")
            except RuntimeError as error:
                missing = ", ".join(str(rank) for rank in range(1, self.size))
                assert f"{missing} failed to pass monitoredBarrier in 50 ms" in str(error), error
            dist.barrier(self.c4)
        else:
            dist.barrier(self.c4)
            try:
                dist.monitored_barrier(self.c4, datetime.timedelta(seconds=30))
                raise AssertionError("rank 0 let it pass")
            except RuntimeError as error:
                assert f"Rank {self.rank} successfully reached monitoredBarrier, but" in str(error), error

    def check_not_contiguous(self):
        def transposed(group, tensor):
            dist.all_reduce(tensor.t(), group=group)

        self.both(transposed, values(self.rank, 12, torch.float32).view(3, 4))
        columns = torch.ones(4, 6)
        dist.all_reduce(columns[:, ::2], group=self.c4)
        same(columns, torch.tensor([float(self.size), 1] * 3).expand(4, 6), "every second column")

    def check_work(self):
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, group=self.c4, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success()
        doubled = dist.all_reduce(tensor, group=self.c4, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
        same(doubled.wait(), torch.full((1000,), 2.0 * self.size**2), "future")
        kept = [dist.all_reduce(torch.ones(10), group=self.c4, async_op=True) for _ in range(100)]
        for work in reversed(kept):
            work.wait()
        dist.barrier(self.c4)
        if self.rank == 0:
            late = dist.irecv(torch.zeros(1), group=self.c4, group_src=1, tag=77)
            try:
                late.wait(datetime.timedelta(milliseconds=50))
                raise AssertionError("nobody had sent")
            except RuntimeError as error:
                assert "timed out after 50 ms" in str(error), error
            dist.barrier(self.c4)
            late.wait()
        else:
            dist.barrier(self.c4)
            if self.rank == 1:
                dist.send(torch.zeros(1), group=self.c4, group_dst=0, tag=77)

    def check_refusals(self):
        refusals = {
            "SparseCPU": lambda: dist.broadcast(torch.ones(2).to_sparse(), group=self.c4, group_src=0),
            "only summed": lambda: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX, self.c4),
            "one type": lambda: dist.all_gather([torch.zeros(1).int()] * self.size, torch.zeros(1), self.c4),
            "split sizes add up": lambda: dist.all_to_all_single(
                torch.zeros(4), torch.zeros(4), [9] * self.size, [1] * self.size, self.c4
            ),
            "averages no": lambda: dist.all_reduce(torch.ones(1, dtype=torch.int16), dist.ReduceOp.AVG, self.c4),
        }
        for word, call in refusals.items():
            try:
                call()
            except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
                assert word in str(error) or word == "one type", f"{error} does not say {word!r}"
            else:
                raise AssertionError(f"what should be refused ({word}) was not")


def run(c4, gloo):
    checks = Checks(c4, gloo)
    for name in sorted(vars(Checks)):
        if name.startswith("check_"):
            getattr(checks, name)()
            yield name
