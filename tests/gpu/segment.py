"""Reads C4's shared-memory segments (docs/formats/segment.md): the counters of communicators and queue pairs, and the
records of operations. Every offset is checked against the file. Read while the process lives, or copied before."""

import glob
import ipaddress
import os
import struct

MAGIC = b"C4SEGMNT"
TRANSPORTS = {1: "tcp", 2: "verbs", 3: "shm", 4: "vendor", 5: "plugin"}
FUNCTIONS = {1: "AllReduce", 3: "Broadcast", 4: "AllGather", 5: "ReduceScatter", 9: "Send", 10: "Recv"}
FREE = 0
SEES_KERNELS = 2
OPERATION = 1


class Segment:
    def __init__(self, data):
        self.data = data
        if data[:8] != MAGIC:
            raise ValueError("no segment of C4")
        major, minor, endian, header_bytes = struct.unpack_from("<HHII", data, 8)
        if endian != 0x01020304 or major != 1 or header_bytes < 512:
            raise ValueError(f"a segment of version {major}.{minor}, or none")
        self.version = (major, minor)
        self.pid = struct.unpack_from("<I", data, 56)[0]
        self.ticks_per_second = struct.unpack_from("<Q", data, 72)[0]
        self._tables = [struct.unpack_from("<QII", data, 128 + 16 * i) for i in range(3)]
        self._capacity, self._communicators, self._queue_pairs, self._rings = struct.unpack_from("<4I", data, 176)
        self.rank = struct.unpack_from("<i", data, 216)[0]

    def _rows(self, table, used):
        offset, count, stride = self._tables[table]
        for i in range(min(used, count)):
            at = offset + i * stride
            if at + stride > len(self.data):
                raise ValueError("a table that goes beyond the file")
            yield at

    def communicators(self):
        for at in self._rows(0, self._communicators):
            phase, _, ident = struct.unpack_from("<IIQ", self.data, at)
            if phase == FREE:
                continue
            count = lambda offset: struct.unpack_from("<Q", self.data, at + offset)[0]
            seen, error = struct.unpack_from("<II", self.data, at + 224)
            yield {"id": ident, "phase": phase, "rank": struct.unpack_from("<i", self.data, at + 24)[0],
                   "called": count(64), "enqueued": count(88), "started": count(128), "finished": count(152),
                   "sees_kernels": bool(seen & SEES_KERNELS), "kernel_error_ns": error}

    def queue_pairs(self):
        for at in self._rows(1, self._queue_pairs):
            if struct.unpack_from("<I", self.data, at)[0] == FREE:
                continue
            direction, peer = struct.unpack_from("<Ii", self.data, at + 12)
            transport = struct.unpack_from("<H", self.data, at + 32)[0]
            posted, posted_bytes, messages, completed = struct.unpack_from("<4Q", self.data, at + 128)
            yield {"send": direction == 1, "peer": peer, "transport": TRANSPORTS.get(transport, "?"),
                   "posted": posted, "posted_bytes": posted_bytes, "completed": messages, "completed_bytes": completed,
                   "number": struct.unpack_from("<Q", self.data, at + 24)[0],
                   "error": struct.unpack_from("<Q", self.data, at + 48)[0],
                   "local": self._endpoint(at + 64), "remote": self._endpoint(at + 88)}

    def _endpoint(self, at):
        """(address, port)."""
        address = ipaddress.IPv6Address(self.data[at:at + 16])
        return str(address.ipv4_mapped or address), struct.unpack_from("<H", self.data, at + 16)[0]

    def operations(self):
        """Of finished operations, in the order of their ends; times in microseconds."""
        found = []
        to_us = 1e6 / self.ticks_per_second
        for at in self._rows(2, self._rings):
            head = struct.unpack_from("<Q", self.data, at)[0]
            for i in range(max(0, head - self._capacity), head):
                record = at + 64 + (i % self._capacity) * 64
                if struct.unpack_from("<H", self.data, record)[0] != OPERATION:
                    continue
                sequence, called, started, finished, count = struct.unpack_from("<5Q", self.data, record + 16)
                function = self.data[record + 16 + 44]
                found.append({"sequence": sequence, "called_us": called * to_us, "started_us": started * to_us,
                              "finished_us": finished * to_us, "count": count,
                              "function": FUNCTIONS.get(function, str(function))})
        return sorted(found, key=lambda one: one["finished_us"])


def read(path):
    with open(path, "rb") as file:
        return Segment(file.read())


def of_process(folder, pid):
    """None: that process has none."""
    for path in glob.glob(os.path.join(folder, "**", f"{pid}-*"), recursive=True):
        try:
            segment = read(path)
        except (OSError, ValueError, struct.error):
            continue
        if segment.pid == pid:
            return segment
    return None
