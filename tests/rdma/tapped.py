"""perftest under the tap on the emulated fabric (fabric.py): steered as the path master says.

A ring of ib_write_bw: each guest has a client, which writes to the next guest's server for as long as the tests last. All
are processes of one job, ranks 0 to 3 the clients, 4 to 7 the servers. No library of C4's but libc4_verbs.so is in them.
"""

import json
import time

from checks import Failed, check
from fabric import RANKS, check_spines, settled

PAIRS = 2  # queue pairs of a client
BYTES = 16384
LASTS_S = 200
# Of the ring that C4D judges: data and acknowledgements each take one of two spines.
JUDGED_PAIRS = 4
JUDGED_LASTS_S = 900


def _gid_index(guest, address):
    octets = [int(part) for part in address.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
    _, output = guest.run(f"grep -l {gid} /sys/class/infiniband/rxe0/ports/1/gids/*")
    check(output.strip(), f"guest {guest.number} has no GID {gid}")
    return int(output.split()[0].rpartition("/")[2])


class Ring:
    """The programs."""

    def __init__(self, fabric, pairs=PAIRS, lasts_s=LASTS_S, depth=16, timeout=14):
        self.fabric = fabric
        self.pairs, self.lasts_s, self.depth, self.timeout = pairs, lasts_s, depth, timeout
        self.tap = fabric.bin.parent / "lib" / "libc4_verbs.so"

    def _start(self, number, rank, name, server=""):
        guest = self.fabric.guests[number]
        program = (
            f"ib_write_bw -d rxe0 -x {_gid_index(guest, self.fabric.addresses[number])} -F -q {self.pairs} -s {BYTES} -t {self.depth} -Q 1"
            f" -D {self.lasts_s} -u {self.timeout} -p {7100 + rank % RANKS} {server}"
        )
        guest.run(
            f"export LD_PRELOAD={self.tap} C4_TAP=2 C4_RUN_DIR=/dev/shm/c4 C4_JOB_ID={self.fabric.job} RANK={rank} WORLD_SIZE={2 * RANKS}"
            f" NCCL_DEBUG=INFO\n({program} >/mnt/share/{name} 2>&1 & echo $! >/mnt/share/{name}.pid; wait $!; echo $? >/mnt/share/{name}.status)"
            " </dev/null >/dev/null 2>&1 & echo"
        )

    def start(self):
        for number in range(RANKS):
            self._start((number + 1) % RANKS, RANKS + number, "server")
        time.sleep(2)
        for number in range(RANKS):
            self._start(number, number, "client", self.fabric.managed[(number + 1) % RANKS])
        return self

    def stop(self):
        for guest in self.fabric.guests:
            guest.run("kill $(cat /mnt/share/client.pid /mnt/share/server.pid)")

    def said(self):
        return "\n".join((guest.share / name).read_text(errors="replace")[-600:] for guest in self.fabric.guests for name in ("client", "server"))


def _steered(fabric, **ring):
    """A ring all of whose ends have the path master's ports, and where these lead (settled)."""
    fabric.c4("fabric", "heal", "--name", fabric.name)
    rows = None
    deadline = time.monotonic() + LASTS_S / 2
    while not rows:
        # Hosts that never spoke before have no answer in time, and live queue pairs of Soft-RoCE keep their ports.
        begun = Ring(fabric, **ring).start()
        count = 2 * RANKS * begun.pairs  # each has two ends, which both send: one of them acknowledgements alone
        settles = time.monotonic() + 12
        while not (rows := settled(fabric, count)) and time.monotonic() < settles:
            time.sleep(0.5)
        if not rows:
            check(time.monotonic() < deadline, f"not all of {count} queue pairs have their ports: {fabric.ask('paths')}\n{begun.said()}")
            begun.stop()
    return begun, rows


def tapped_steering(fabric):
    """100 % of the steered queue pairs' packets take the spine that the path master gave them."""
    ring, rows = _steered(fabric)
    try:
        check_spines(fabric, rows)
    finally:
        ring.stop()
    shares = [sum(spine == name for _, spine in rows) for name in ("spine0", "spine1")]
    return f"{len(rows)} of {len(rows)} queue pairs of ib_write_bw on the spine asked for, {shares[0]} and {shares[1]}"


def _known(fabric, count):
    """C4D knows of so many queue pairs who writes to whom, and what is usual for them."""
    cells = [cell for cell in fabric.ask("matrix")["cells"] if cell["usual_ns_per_kib"] > 0]
    ways = {(cell["from_rank"], cell["to_rank"]) for cell in cells}
    return len(cells) >= count and ways == {(rank, RANKS + rank) for rank in range(RANKS)}


def _confirmed(fabric, since_s):
    verdicts = fabric.ask("verdicts")["verdicts"]
    return [one for one in verdicts if one["state"] == "confirmed" and one["suspected_unix_s"] >= since_s]


def _judged(fabric, since_s, fault, link, syndrome):
    """Seconds from a fault until C4D has confirmed what it is; nothing else is confirmed meanwhile."""

    def confirmed():
        verdicts = _confirmed(fabric, since_s)
        right = [one for one in verdicts if one["syndrome"] == syndrome and one["culprit"]["kind"] == "link" and link in json.dumps(one["culprit"])]
        check(len(right) == len(verdicts), f"C4D blames others than {link}: {json.dumps(verdicts)[:3000]}")
        return right

    check(not confirmed(), f"{link} is named before anything happened")
    fabric.c4("fabric", *fault, "--name", fabric.name)
    begin_s = time.monotonic()
    try:
        fabric.wait_for(f"{syndrome} of {link}", 120, confirmed)
    except Failed as failed:
        raise Failed(f"{failed}; the matrix: {json.dumps(fabric.ask('matrix')['cells'])[:6000]}") from failed
    return time.monotonic() - begin_s


def tapped_cut(fabric):
    """C4D names a link that is cut from what the tap tells of ib_write_bw: no library of ours is in it.

    A slow link it does not name here: a short message takes 2 to 12 ms in emulated machines, which ends where the histogram of
    latencies does (tapped_program_test has it at the pace of devices).
    """
    ring, _ = _steered(fabric, pairs=JUDGED_PAIRS, lasts_s=JUDGED_LASTS_S, depth=2, timeout=18)
    since_s = time.time()
    try:
        fabric.wait_for("what is usual is known", 180, lambda: _known(fabric, RANKS * JUDGED_PAIRS))
        cut_s = _judged(fabric, since_s, ("cut", "leaf0-spine0"), "leaf0-spine0", "communication hang")
        fabric.c4("fabric", "heal", "--name", fabric.name)
        fabric.wait_for("the verdict is over", 120, lambda: not _confirmed(fabric, since_s))
    finally:
        ring.stop()
    return f"leaf0-spine0, cut, is named after {cut_s:.1f} s"


TESTS = [tapped_steering]
ASKED_FOR = [tapped_cut]  # by name alone (--only): it takes minutes, and a machine that is not busy
