"""The tap's steering on the emulated fabric (run.py): queue pairs of perftest take the spine that the path master gave."""

import ipaddress
import time

from checks import check
from fabric import check_spines, settled

QUEUE_PAIRS = 4
PAIRS = ((0, 1), (1, 2), (2, 3), (3, 0))  # (client, server) by guest's index
SECONDS = 20


def gid_index(fabric, index):
    """Of the GID of the guest's address on the fabric."""
    address = fabric.addresses[index]
    gid = ipaddress.IPv6Address(address if ":" in address else f"::ffff:{address}").exploded
    _, output = fabric.guests[index].run(f"grep -l {gid} /sys/class/infiniband/rxe0/ports/1/gids/*")
    check(output.strip(), f"guest {index + 1} has no GID {gid}")
    return int(output.split()[0].rpartition("/")[2])


def start(fabric, index, number, peer=""):
    """ib_write_bw under the tap, in the background; its output in the file tap.NUMBER. Pair NUMBER % len(PAIRS)."""
    tap = fabric.bin.parent / "lib" / "libc4_verbs.so"
    environment = f"LD_PRELOAD={tap} C4_RUN_DIR=/dev/shm/c4 C4_TAP=2 C4_JOB_ID={fabric.job} C4_PATH_WAIT_MS=3000 NCCL_DEBUG=INFO RANK={index} WORLD_SIZE={len(fabric.guests)}"
    test = f"ib_write_bw -d rxe0 -s 16384 -D {SECONDS} -q {QUEUE_PAIRS} -F -x {gid_index(fabric, index)} -p {18600 + number % len(PAIRS)}"
    fabric.guests[index].run(f"(timeout {SECONDS + 60} env {environment} {test} {peer} >/mnt/share/tap.{number} 2>&1; echo $? >/mnt/share/tap.{number}.status) </dev/null >/dev/null 2>&1 & echo")


def finish(fabric, index, number, limit_s):
    status = fabric.guests[index].share / f"tap.{number}.status"
    deadline = time.monotonic() + limit_s
    while not status.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    said = (fabric.guests[index].share / f"tap.{number}").read_text(errors="replace")
    check(status.exists() and status.read_text().strip() == "0", f"ib_write_bw of guest {index + 1}:\n{said[-1500:]}")
    return said


def fabric_tap_steering(fabric):
    """A ring of ib_write_bw that knows nothing of C4: every queue pair's packets take the spine that the path master
    gave it, those of servers, which only acknowledge, as well.
    """
    for number, (_, server) in enumerate(PAIRS):
        start(fabric, server, number)
    time.sleep(5)
    for number, (client, server) in enumerate(PAIRS):
        start(fabric, client, number + len(PAIRS), fabric.managed[server])
    count = 2 * QUEUE_PAIRS * len(PAIRS)
    rows = fabric.wait_for(f"{count} queue pairs have their ports", 60, lambda: settled(fabric, count))
    check_spines(fabric, rows)
    for number, (client, server) in enumerate(PAIRS):
        finish(fabric, client, number + len(PAIRS), SECONDS + 30)
        finish(fabric, server, number, 30)
    shares = [sum(spine == name for _, _, spine in rows) for name in ("spine0", "spine1")]
    check(min(shares) > count // 4, f"queue pairs by spine: {shares}")
    return f"{len(rows)} of {len(rows)} queue pairs on the spine asked for, {shares[0]} and {shares[1]}"
