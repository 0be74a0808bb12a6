"""Writes flight_recorder-N.pickle, N the protocol: what PyTorch's Flight Recorder keeps, made up, by Python's own pickle.

flight_recorder-2-torch.pickle is written opcode by opcode as PyTorch's C++ writer does (protocol 2, every text in the memo,
tuples as lists of its own makers)."""
import os
import pickle
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def entry(number, state, sizes):
    return {"frames": [{"name": "step", "filename": "train.py", "line": 17}], "record_id": number, "pg_id": 0,
            "process_group": ("0", "default_pg"), "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
            "profiling_name": "nccl:all_reduce", "time_created_ns": 1758580155793872443 + number,
            "duration_ms": 1.5 if state == "completed" else None, "input_sizes": sizes, "input_dtypes": ["Float"],
            "output_sizes": sizes, "output_dtypes": ["Float"], "state": state, "retired": state == "completed",
            "time_discovered_started_ns": None, "timeout_ms": 600000, "is_p2p": False}


DUMP = {"version": "2.10", "nccl_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": 6, "last_started_collective": -1,
                            "last_completed_collective": 5}},
        "entries": [entry(n, "completed" if n < 6 else "scheduled", [[1024, 2], [-1 + 2]]) for n in range(1, 7)]}


class TorchWriter:
    def __init__(self):
        self.out = [b"\x80\x02"]
        self.memo = {}

    def text(self, value):
        if value in self.memo:
            return b"h" + bytes([self.memo[value]])
        self.memo[value] = len(self.memo)
        raw = value.encode()
        return b"X" + struct.pack("<I", len(raw)) + raw + b"q" + bytes([self.memo[value]])

    def value(self, value):
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            if -2**31 <= value < 2**31:
                return b"J" + struct.pack("<i", value)
            return b"\x8a\x08" + struct.pack("<q", value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.value, value)) + b"t"
        if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
            return b"ctorch.jit._pickle\nbuild_intlist\n(](" + b"".join(map(self.value, value)) + b"etR"
        if isinstance(value, list):
            return b"](" + b"".join(map(self.value, value)) + b"e"
        return b"}(" + b"".join(self.value(key) + self.value(one) for key, one in value.items()) + b"u"


for protocol in range(2, 6):
    with open(os.path.join(HERE, f"flight_recorder-{protocol}.pickle"), "wb") as out:
        pickle.dump(DUMP, out, protocol=protocol)
with open(os.path.join(HERE, "flight_recorder-2-torch.pickle"), "wb") as out:
    torch = b"\x80\x02" + TorchWriter().value(DUMP) + b"."
    assert b"build_intlist" in torch
    out.write(torch)
