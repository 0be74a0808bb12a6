"""perftest under the tap on the emulated fabric (fabric.py): steered as the path master says.

A ring of ib_write_bw: each guest has a client, which writes to the next guest's server for as long as the tests last. All
are processes of one job, ranks 0 to 3 the clients, 4 to 7 the servers. No library of C4's but libc4_verbs.so is in them.
"""

import time

from checks import check
from fabric import RANKS, check_spines, settled

PAIRS = 2  # queue pairs of a client
BYTES = 16384
LASTS_S = 200


def _gid_index(guest, address):
    octets = [int(part) for part in address.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
    _, output = guest.run(f"grep -l {gid} /sys/class/infiniband/rxe0/ports/1/gids/*")
    check(output.strip(), f"guest {guest.number} has no GID {gid}")
    return int(output.split()[0].rpartition("/")[2])


class Ring:
    """The programs."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.tap = fabric.bin.parent / "lib" / "libc4_verbs.so"

    def _start(self, number, rank, name, server=""):
        guest = self.fabric.guests[number]
        program = (
            f"ib_write_bw -d rxe0 -x {_gid_index(guest, self.fabric.addresses[number])} -F -q {PAIRS} -s {BYTES} -t 16 -Q 1"
            f" -D {LASTS_S} -p {7100 + rank % RANKS} {server}"
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


def tapped_steering(fabric):
    """100 % of the steered queue pairs' packets take the spine that the path master gave them."""
    fabric.c4("fabric", "heal", "--name", fabric.name)
    count = 2 * RANKS * PAIRS  # each has two ends, which both send: one of them acknowledgements alone
    deadline = time.monotonic() + LASTS_S / 2
    rows = None
    while not rows:
        # Hosts that never spoke before have no answer in time, and live queue pairs of Soft-RoCE keep their ports.
        ring = Ring(fabric).start()
        settles = time.monotonic() + 12
        while not (rows := settled(fabric, count)) and time.monotonic() < settles:
            time.sleep(0.5)
        if not rows:
            check(time.monotonic() < deadline, f"not all of {count} queue pairs have their ports: {fabric.ask('paths')}\n{ring.said()}")
            ring.stop()
    try:
        check_spines(fabric, rows)
    finally:
        ring.stop()
    shares = [sum(spine == name for _, _, spine in rows) for name in ("spine0", "spine1")]
    return f"{len(rows)} of {len(rows)} queue pairs of ib_write_bw on the spine asked for, {shares[0]} and {shares[1]}"


TESTS = [tapped_steering]
