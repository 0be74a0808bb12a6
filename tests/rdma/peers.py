"""Others over the same guests (run.py --bench): perftest's ib_write_bw, and UCX, beside our queue pairs in alternation.

A guest is bound by its emulated processor, and by what else the host does: ratios count, not rates.
"""

import os
import re
import statistics
import time

from checks import check, number

SIZES = (4096, 65536, 1048576)


def gid_index(guest):
    """Of the GID of eth1's IPv4 address: a table that changed may have it elsewhere."""
    gid = f"0000:0000:0000:0000:0000:ffff:0a02:{guest.number:04x}"
    _, output = guest.run(f"grep -l {gid} /sys/class/infiniband/rxe0/ports/1/gids/*")
    check(output.strip(), f"guest {guest.number} has no GID {gid}")
    return int(output.split()[0].rpartition("/")[2])


def count_of(size):
    """Of messages that a run sends: 12.5 MiB, but not for ever where they are small."""
    return max(20, min(1500, 13107200 // size))


def theirs(bench, call, size, column, address="10.1.0.1"):
    """MiB/s that `call(guest)` gives in that column of the row that begins with the size, or the last row."""
    listening = bench.one.start(call(bench.one))
    time.sleep(1.5)
    status, output = bench.two.run(f"{call(bench.two)} {address}", 90)
    bench.one.finish(listening, 90)
    rows = [line.split() for line in output.splitlines() if re.match(r"^\s*\d+\s", line)]
    check(status == 0 and rows, output)
    return float(rows[-1][column])


def perftest(bench, size, environment=""):
    def call(guest):
        return f"timeout 80 {environment} ib_write_bw -d rxe0 -s {size} -n {count_of(size)} -q 1 -F -x {gid_index(guest)}"

    return theirs(bench, call, size, 3)


def ucx(bench, size):
    """UCX's own benchmark of its RC transport: puts without a copy. Its upper layer begins over datagrams (UD), for whose
    answers it waits in vain on Soft-RoCE.
    """

    def call(guest):
        environment = f"UCX_IB_GID_INDEX={gid_index(guest)} UCX_WARN_UNUSED_ENV_VARS=n"
        test = f"-t put_bw -D zcopy -d rxe0:1 -x rc_verbs -s {size} -n {count_of(size)} -w 5 -f"
        return f"env {environment} timeout 80 ucx_perftest {test}"

    return theirs(bench, call, size, 5)


def ours(bench, size, queue_pairs=1):
    sender, _ = bench.both(
        f"bandwidth --bytes {size} --chunks {count_of(size)} --queue-pairs {queue_pairs}", sender="--spin"
    )
    return number("bandwidth", sender)


def bandwidth(bench):
    rows = [(perftest(bench, 65536), ours(bench, 65536), ours(bench, 65536, 4)) for _ in range(bench.alternations)]
    medians = [statistics.median(column) for column in zip(*rows)]
    ratio = statistics.median(own / other for other, own, _ in rows)
    return (
        f"64 KiB, medians of {len(rows)} in alternation, load {os.getloadavg()[0]:.1f}: ib_write_bw {medians[0]:.2f} MiB/s, "
        f"one queue pair {medians[1]:.2f}, four {medians[2]:.2f}; median of the ratios {ratio:.2f}"
    )


def beside_ucx(bench):
    lines = []
    for size in SIZES:
        rows = [(ucx(bench, size), ours(bench, size)) for _ in range(bench.alternations)]
        medians = [statistics.median(column) for column in zip(*rows)]
        ratio = statistics.median(own / other for other, own in rows)
        lines.append(f"{size} bytes: UCX {medians[0]:.2f} MiB/s, ours {medians[1]:.2f}, median of the ratios {ratio:.2f}")
    return f"medians of {bench.alternations} in alternation, load {os.getloadavg()[0]:.1f}: {'; '.join(lines)}"


MEASUREMENTS = [bandwidth, beside_ucx]
