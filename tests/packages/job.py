"""A rank of a job for the tests of the packages: all-reduces on host memory through the libnccl.so.2 that the loader
gives it, for some seconds. job.py SECONDS ID_FILE below `c4 run`.
"""
import ctypes
import os
import pathlib
import sys
import time


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


FLOAT32, SUM = 7, 0
nccl = ctypes.CDLL("libnccl.so.2")
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                               ctypes.c_void_p, ctypes.c_void_p]
nccl.ncclGetErrorString.restype = ctypes.c_char_p


def check(result):
    if result != 0:
        sys.exit(f"rank {rank}: {nccl.ncclGetErrorString(result).decode()}")


rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
until, place = time.monotonic() + float(sys.argv[1]), pathlib.Path(sys.argv[2])
unique = UniqueId()
if rank == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    place.with_suffix(".new").write_bytes(bytes(unique))
    place.with_suffix(".new").rename(place)
else:
    while not place.exists():
        time.sleep(0.05)
    unique = UniqueId.from_buffer_copy(place.read_bytes())
communicator, stream = ctypes.c_void_p(), ctypes.c_void_p()
check(nccl.ncclCommInitRank(ctypes.byref(communicator), ranks, unique, rank))
check(nccl.c4StreamCreate(ctypes.byref(stream)))
values, sums = (ctypes.c_float * 1024)(*[rank + 1.0] * 1024), (ctypes.c_float * 1024)()
going = (ctypes.c_float * 1)(1.0)
rounds = 0
while True:
    check(nccl.ncclAllReduce(values, sums, 1024, FLOAT32, SUM, communicator, stream))
    check(nccl.c4StreamSynchronize(stream))
    if list(sums) != [ranks * (ranks + 1) / 2] * 1024:
        sys.exit(f"rank {rank}: wrong sums")
    # All end in the same round: that which any of them wants to be the last.
    more = (ctypes.c_float * 1)(1.0 if time.monotonic() < until else 0.0)
    check(nccl.ncclAllReduce(more, going, 1, FLOAT32, SUM, communicator, stream))
    check(nccl.c4StreamSynchronize(stream))
    rounds += 1
    if going[0] < ranks:
        break
    time.sleep(0.05)
check(nccl.ncclCommDestroy(communicator))
print(f"rank {rank}: {rounds} rounds", flush=True)
