"""The tap under programs that nobody here wrote (run.py): perftest and UCX over Soft-RoCE with libc4_verbs.so preloaded.

Their results are those without it, and what the tap recorded is what they say and what a capture of the packets says:
messages, bytes, source ports.
"""

import os
import pathlib
import shutil
import statistics
import struct
import sys

from checks import check
from peers import gid_index, perftest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "gpu"))
import segment  # noqa: E402

RUN_DIR = "/dev/shm/c4.tap"
CAPTURE = "tcpdump -i eth1 -n -U --immediate-mode -B 8192 -s 96 -w /mnt/share/tap.pcap udp port 4791 2>/dev/null & sleep 1.5"
# What is in tcpdump's buffer when it ends is lost.
SETTLE = "old=; while new=$(stat -c %s /mnt/share/tap.pcap); [ \"$new\" != \"$old\" ]; do old=$new; sleep 1; done; kill %1; wait %1 2>/dev/null"
# Reliable connections: what follows the base header by opcode, and what ends a message.
REMOTE_ADDRESS = {6, 10, 11}
IMMEDIATE = {3, 5, 9, 11}
ENDS = {2, 3, 4, 5, 8, 9, 10, 11}


def sent_by(file, address):
    """{(source port, number of the queue pair sent to): [messages, bytes]} of sends and writes; each packet once."""
    data = file.read_bytes()
    found, seen, at = {}, set(), 24
    while at + 16 <= len(data):
        (kept,) = struct.unpack_from("<I", data, at + 8)
        packet = data[at + 16 : at + 16 + kept]
        at += 16 + kept
        if packet[12:14] != b"\x08\x00" or ".".join(map(str, packet[26:30])) != address:
            continue
        port, _, udp_bytes = struct.unpack_from(">HHH", packet, 34)
        opcode, flags = packet[42], packet[43]
        to, psn = (int.from_bytes(packet[from_ : from_ + 3], "big") for from_ in (47, 51))
        if opcode > 11 or (to, psn) in seen:
            continue
        seen.add((to, psn))
        extra = 16 * (opcode in REMOTE_ADDRESS) + 4 * (opcode in IMMEDIATE)
        counts = found.setdefault((port, to), [0, 0])
        counts[0] += opcode in ENDS
        counts[1] += udp_bytes - 8 - 12 - extra - 4 - (flags >> 4 & 3)
    return found


class Run:
    """A client in guest two and its server in guest one, both under the tap, the server beside a capture."""

    def __init__(self, bench, program, arguments, environment=""):
        tap = bench.programs.parent / "lib" / "libc4_verbs.so"
        for guest in (bench.one, bench.two):
            guest.run(f"rm -rf {RUN_DIR}")
            shutil.rmtree(guest.share / "tap", ignore_errors=True)

        def call(guest):
            set_ = f"LD_PRELOAD={tap} C4_RUN_DIR={RUN_DIR} C4_CONTROL=0 UCX_IB_GID_INDEX={gid_index(guest)} UCX_WARN_UNUSED_ENV_VARS=n {environment}"
            return f"timeout 60 env {set_} {program} {arguments.format(gid=gid_index(guest))}"

        keep = f"status=$?; cp -r {RUN_DIR} /mnt/share/tap; (exit $status)"
        listening = bench.one.start(f"{CAPTURE}; {call(bench.one)}; {keep}; status=$?; {SETTLE}; (exit $status)")
        bench.two.run("sleep 2.5")
        status, self.output = bench.two.run(f"{call(bench.two)} 10.1.0.1; {keep}", 80)
        served, server = bench.one.finish(listening, 80)
        check(status == 0, f"the client ended with {status}:\n{self.output}\n{server}")
        check(served == 0, f"the server ended with {served}:\n{server}")
        self.client, self.server = (self._records(guest) for guest in (bench.two, bench.one))
        self.packets = sent_by(bench.one.share / "tap.pcap", "10.2.0.2")

    def _records(self, guest):
        files = list((guest.share / "tap").glob("*.c4seg"))
        check(len(files) == 1, f"guest {guest.number} has not one segment: {files}")
        return list(segment.read(files[0]).queue_pairs())

    def sends(self, count, size, warms_up=False):
        """The client's one sending queue pair; it, the capture and what was asked for agree. A client that warms up
        sends some more.
        """
        pairs = [pair for pair in self.client if pair["send"] and pair["posted"]]
        check(len(pairs) == 1, f"not one queue pair that sends: {self.client}\n{self.output}")
        (pair,) = pairs
        if warms_up and pair["posted"] > count:
            count = pair["posted"]
        check((pair["posted"], pair["posted_bytes"]) == (count, count * size), f"asked for {count} of {size} bytes: {pair}\n{self.output}")
        check((pair["completed"], pair["completed_bytes"], pair["error"]) == (count, count * size, 0), f"not all completed: {pair}")
        check((pair["local"][0], pair["remote"]) == ("10.2.0.2", ("10.2.0.1", 4791)), f"other addresses: {pair}")
        check(len(self.packets) == 1, f"packets of other queue pairs, or of none: {self.packets}")
        ((port, _), counts) = next(iter(self.packets.items()))
        check(counts == [count, count * size], f"the capture has {counts}, the records {pair}")
        check(port == pair["local"][1], f"packets come from port {port}, not from {pair['local'][1]}")
        return pair


def tap_perftest(bench):
    count, size = 150, 4096
    said = []
    for program, more in (("ib_write_bw", ""), ("ib_write_bw", "--use_old_post_send"), ("ib_send_bw", "")):
        run = Run(bench, program, f"-d rxe0 -s {size} -n {count} -q 1 -F -x {{gid}} {more}")
        rows = [line.split() for line in run.output.splitlines() if line.split()[:1] == [str(size)]]
        check(len(rows) == 1 and rows[0][1] == str(count), run.output)
        pair = run.sends(count, size)
        if program == "ib_send_bw":
            received = [one for one in run.server if not one["send"] and one["completed"]]
            check([(one["completed"], one["completed_bytes"]) for one in received] == [(count, count * size)], f"received: {run.server}")
        said.append(f"{program} {more.lstrip('-')}: {pair['completed']} messages, {pair['completed_bytes']} bytes, port {pair['local'][1]}")
    return "; ".join(said)


def tap_ucx(bench):
    """UCX posts by ibv_post_send and receives from a shared queue."""
    count, size = 150, 4096
    run = Run(bench, "ucx_perftest", f"-t put_bw -D zcopy -d rxe0:1 -x rc_verbs -s {size} -n {count} -w 5 -f")
    pair = run.sends(count, size, warms_up=True)
    return f"{pair['completed']} messages, {pair['completed_bytes']} bytes, port {pair['local'][1]}"


def tap_bandwidth(bench):
    """ib_write_bw with the tap and without in alternation: each comes first in turn."""
    tap = f"env LD_PRELOAD={bench.programs.parent / 'lib' / 'libc4_verbs.so'} C4_RUN_DIR={RUN_DIR} C4_CONTROL=0"
    lines = []
    for size in (65536, 4096):
        rows = []
        for turn in range(bench.alternations):
            pair = [perftest(bench, size, environment) for environment in (("", tap) if turn % 2 == 0 else (tap, ""))]
            rows.append(pair if turn % 2 == 0 else pair[::-1])
        plain, tapped = (sorted(column) for column in zip(*rows))
        ratios = sorted(with_it / without for without, with_it in rows)
        lines.append(
            f"{size} bytes: {statistics.median(plain):.2f} MiB/s ({plain[0]:.2f} to {plain[-1]:.2f}), tapped {statistics.median(tapped):.2f}"
            f" ({tapped[0]:.2f} to {tapped[-1]:.2f}), median of the ratios {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
    return f"medians of {bench.alternations} in alternation, load {os.getloadavg()[0]:.1f}: {'; '.join(lines)}"


TESTS = [tap_perftest, tap_ucx]
MEASUREMENTS = [tap_bandwidth]
