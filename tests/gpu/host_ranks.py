"""What a dry run has in the place of ranks.py: ranks of C4's own engine, on host memory, by NCCL's interface.

both LIBRARY            two ranks in this process, on two threads; prints what its segment says
gpu LIBRARY             the same with one rank's buffers in memory of a GPU; prints what bandwidth its copies leave
loop LIBRARY [slow RANK MS S]   one rank of a job under `c4 run`, until it is ended; as ranks.py has it"""

import ctypes
import json
import os
import sys
import threading
import time

import segment

FLOAT32, SUM, COUNT = 7, 0, 4096


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Rank:
    def __init__(self, nccl, ident, rank, world):
        self.nccl = nccl
        self.stream = ctypes.c_void_p()
        self.call("c4StreamCreate", ctypes.byref(self.stream))
        self.comm = ctypes.c_void_p()
        nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
        self.call("ncclCommInitRank", ctypes.byref(self.comm), world, ident, rank)
        self.data = (ctypes.c_float * COUNT)()

    def call(self, name, *arguments):
        code = getattr(self.nccl, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} fails with code {code}")

    def all_reduce(self):
        """The sum of ones: the number of ranks."""
        ctypes.memset(self.data, 0, ctypes.sizeof(self.data))
        self.data[0] = self.data[COUNT - 1] = 1.0
        size = ctypes.c_size_t(COUNT)
        self.call("ncclAllReduce", self.data, self.data, size, FLOAT32, SUM, self.comm, self.stream)
        self.call("c4StreamSynchronize", self.stream)
        return self.data[COUNT - 1]


def both(nccl):
    ident = Id()
    if nccl.ncclGetUniqueId(ctypes.byref(ident)) != 0:
        raise OSError("ncclGetUniqueId fails")
    done = threading.Barrier(2, timeout=30)

    def run(number):
        rank = Rank(nccl, ident, number, 2)
        for _round in range(8):
            if rank.all_reduce() != 2.0:
                raise OSError("a wrong sum")
        done.wait()
        if number == 0:
            found = segment.of_process(os.environ["C4_RUN_DIR"], os.getpid())
            slots = list(found.communicators())
            sent = sum(pair["completed_bytes"] for pair in found.queue_pairs() if pair["send"])
            print(json.dumps({"communicators": len(slots), "finished": min(slot["finished"] for slot in slots),
                              "records": len(found.operations()), "sent_bytes": sent}), flush=True)
        done.wait()
        rank.call("ncclCommDestroy", rank.comm)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Gpu:
    """As much of CUDA's driver as it takes to have memory of the first GPU."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device = ctypes.c_int()
        self.context = ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} fails with code {code}")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuCtxPushCurrent_v2", self.context)
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def write(self, pointer, data):
        self.call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(ctypes.sizeof(data)))

    def read(self, data, pointer):
        self.call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(ctypes.sizeof(data)))


def gpu(nccl):
    """All-reduces of which rank 0 has its buffer in memory of the GPU, and rank 1 in the host's: both get the sums."""
    ident = Id()
    if nccl.ncclGetUniqueId(ctypes.byref(ident)) != 0:
        raise OSError("ncclGetUniqueId fails")
    device = Gpu()
    count = 4 << 20
    faults = []

    def run(number):
        rank = Rank(nccl, ident, number, 2)
        values = (ctypes.c_float * count)()
        place = device.allocate(ctypes.sizeof(values)) if number == 0 else ctypes.cast(values, ctypes.c_void_p)
        seconds = []
        for turn in range(5):
            for at in (0, 1, count // 2, count - 1):
                values[at] = 1.0 + number + turn + at % 7
            if number == 0:
                device.write(place, values)
            begin = time.monotonic()
            rank.call("ncclAllReduce", place, place, ctypes.c_size_t(count), FLOAT32, SUM, rank.comm, rank.stream)
            rank.call("c4StreamSynchronize", rank.stream)
            seconds.append(time.monotonic() - begin)
            if number == 0:
                device.read(values, place)
            for at in (0, 1, count // 2, count - 1):
                if values[at] != 3.0 + 2 * (turn + at % 7):
                    faults.append(f"rank {number}: {values[at]} at {at} in turn {turn}")
        if number == 0:
            mib = ctypes.sizeof(values) / 2**20
            print(json.dumps({"faults": len(faults), "mib": mib, "mib_a_second": mib / sorted(seconds)[2]}), flush=True)
        rank.call("ncclCommDestroy", rank.comm)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise OSError("; ".join(faults[:4]))


def loop(nccl, arguments):
    number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    slow, late_s, from_s = -1, 0.0, 0.0
    if arguments[:1] == ["slow"]:
        slow, late_s, from_s = int(arguments[1]), float(arguments[2]) / 1000, float(arguments[3])
    begin = time.monotonic()
    ident = Id()  # the same for all, by NCCL_COMM_ID
    if nccl.ncclGetUniqueId(ctypes.byref(ident)) != 0:
        raise OSError("ncclGetUniqueId fails")
    rank = Rank(nccl, ident, number, world)
    print(json.dumps({"pid": os.getpid(), "rank": number}), flush=True)
    while True:
        late = number == slow and time.monotonic() - begin > from_s
        time.sleep(0.005 + (late_s if late else 0))
        rank.all_reduce()


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("both", "gpu", "loop"):
        sys.exit(__doc__)
    nccl = ctypes.CDLL(sys.argv[2])
    if sys.argv[1] == "both":
        both(nccl)
    elif sys.argv[1] == "gpu":
        gpu(nccl)
    else:
        loop(nccl, sys.argv[3:])


if __name__ == "__main__":
    main()
