"""Guests that have RDMA: QEMU, Debian's own kernel, Soft-RoCE.

A guest runs the host's own files, read-only over 9p, and takes its commands from a folder that it shares with
the host. Its eth0 carries what is not to be disturbed, its eth1 and the RDMA device rxe0 on that carry what a test
disturbs. The two guests of a Pair (10.1.0.N, 10.2.0.N) are joined by datagrams over Unix sockets: no privilege is
needed. The processors are emulated: /dev/kvm may be there and still not work.
"""

import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("qemu-system-x86_64", "busybox", "modprobe", "depmod", "cpio", "xz", "dpkg", "apt-get", "apt-cache", "rdma")


class Unavailable(Exception):
    """Guests cannot run here; says why."""


def missing_programs():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def _run(command, what, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Unavailable(f"{what}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def _kernel_package():
    """The package that linux-image-amd64 stands for today."""
    for line in _run(["apt-cache", "depends", "linux-image-amd64"], "apt knows no kernel").splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    raise Unavailable("apt knows no linux-image-amd64")


def _uncompressed(image):
    """The ELF file inside a bzImage that xz packed: it starts twice as fast under emulation."""
    data = image.read_bytes()
    at = data.find(b"\xfd7zXZ\x00")
    if at < 0:
        return data
    return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data[at:])


class Image:
    """The kernel and the initial RAM disk, made once and kept in `folder`."""

    def __init__(self, folder):
        missing = missing_programs()
        if missing:
            raise Unavailable(f"missing: {', '.join(missing)} (scripts/setup.sh rdma installs them)")
        self.folder = pathlib.Path(folder)
        self.kernel = self.folder / "vmlinux"
        self.initrd = self.folder / "initrd.gz"
        sources = [HERE / "guest_init.sh", HERE / "make_initrd.sh"]
        unpacked = self.folder / "kernel"
        if not self.kernel.exists():
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir(parents=True)
            package = _kernel_package()
            _run(["apt-get", "-q", "download", package], "the kernel cannot be fetched", cwd=unpacked)
            (archive,) = unpacked.glob("*.deb")
            _run(["dpkg", "-x", str(archive), str(unpacked)], "the kernel cannot be unpacked")
            archive.unlink()
            (packed,) = unpacked.glob("boot/vmlinuz-*")
            made = self.folder / "vmlinux.new"
            made.write_bytes(_uncompressed(packed))
            made.rename(self.kernel)
        newest = max(source.stat().st_mtime for source in sources + [self.kernel])
        if not self.initrd.exists() or self.initrd.stat().st_mtime < newest:
            _run([str(HERE / "make_initrd.sh"), str(unpacked), str(self.initrd)], "no initial RAM disk")


class Guest:
    """One guest, numbered from 1. Ends with its QEMU, which the host ends by its id.

    `setup`: the lines of a shell that give eth0 and eth1 their addresses; `around`: what QEMU is started by.
    """

    def __init__(self, image, folder, number, networks, setup, around=(), memory_mb=512):
        self.number = number
        self.share = pathlib.Path(folder)
        self.share.mkdir(parents=True)
        (self.share / "network.sh").write_text(
            f"ip link set lo up\n{setup}\nip link set eth0 up\nip link set eth1 up\nrdma link add rxe0 type rxe netdev eth1\n"
        )
        self.commands = 0
        self.console = self.share / "console.log"
        # QEMU 7.2 leaves a guest's memory barriers out where no second processor can come (tcg_gen_mb). Its own I/O thread is
        # one: a network card's queue then misses a notification now and then, and stands still for ever.
        command = [
            *around, "nice", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-smp", "1,maxcpus=2",
            "-m", str(memory_mb), "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none",
            "-no-reboot", "-serial", f"file:{self.console}", "-kernel", str(image.kernel),
            "-initrd", str(image.initrd),
            "-append", f"console=ttyS0 no_timer_check panic=-1 quiet loglevel=4 mitigations=off tsc=reliable",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-fsdev", f"local,id=share,path={self.share},security_model=none",
            "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
            "-object", "rng-random,filename=/dev/urandom,id=rng", "-device", "virtio-rng-pci,rng=rng",
        ]  # fmt: skip
        for index, network in enumerate(networks):
            mac = f"52:54:00:c4:{index:02x}:{number:02x}"
            command += ["-netdev", f"{network},id=n{index}", "-device", f"virtio-net-pci,netdev=n{index},mac={mac}"]
        with open(self.share / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait_for(self, file, limit_s):
        deadline = time.monotonic() + limit_s
        while not file.exists():
            if self.process.poll() is not None:
                raise Unavailable(f"guest {self.number} has ended: {self.last_words()}")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def wait_until_ready(self, limit_s=120):
        if not self._wait_for(self.share / "ready", limit_s):
            raise Unavailable(f"guest {self.number} was not up after {limit_s} s: {self.last_words()}")

    def last_words(self):
        words = ""
        for file in (self.share / "qemu.log", self.console):
            if file.exists():
                words += file.read_text(errors="replace")[-600:]
        return words.strip() or "it said nothing"

    def start(self, command):
        """Has the guest run a command of bash behind those that it was given before; finish() waits for it."""
        self.commands += 1
        text = f"mkdir -p /tmp/work && cd /tmp/work\n{command}\n"
        new = self.share / "command.new"
        new.write_text(text)
        new.rename(self.share / f"command.{self.commands}")
        return self.commands

    def finish(self, number, limit_s=60):
        """(exit status, output) of a command; the status is None where it had not ended in time."""
        ended = self._wait_for(self.share / f"status.{number}", limit_s)
        output = self.share / f"output.{number}"
        text = output.read_text(errors="replace") if output.exists() else ""
        return (int((self.share / f"status.{number}").read_text()) if ended else None), text

    def run(self, command, limit_s=60):
        return self.finish(self.start(command), limit_s)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def steady_clocks(guests, seconds=3, limit_s=120):
    """Waits until the guests are up, with clocks that run as the host's. A kernel measures the speed of its processor's
    counter once, early, and where the host was busy then, its clock runs several times too fast for ever. Such a guest
    goes by the slower timer of its board instead."""
    for guest in guests:
        guest.wait_until_ready(limit_s)

    def uptimes():
        return [(float(guest.run("cut -d ' ' -f 1 /proc/uptime")[1] or 0), time.monotonic()) for guest in guests]

    def wrong():
        begin = uptimes()
        time.sleep(seconds)
        rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(begin, uptimes())]
        return [(guest, rate) for guest, rate in zip(guests, rates) if not 0.75 < rate < 1.33]

    mended = wrong()
    for guest, rate in mended:
        print(f"guest {guest.number}'s clock runs {rate:.2f} times as fast as the host's: it gets another", flush=True)
        guest.run(f"echo hpet >/sys/devices/system/clocksource/clocksource0/current_clocksource; date -s @{time.time():.3f}")
    for guest, rate in wrong() if mended else []:
        raise Unavailable(f"guest {guest.number}'s clock runs {rate:.2f} times as fast as the host's")


class Pair:
    """Two guests, up and joined; `with Pair(image, folder) as (one, two)`."""

    def __init__(self, image, folder):
        self.folder = pathlib.Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.image = image
        self.guests = []

    def __enter__(self):
        try:
            for number in (1, 2):
                networks = []
                for network in ("orders", "data"):
                    ends = [os.path.relpath(self.folder / f"{network}.{end}") for end in (number, 3 - number)]
                    networks.append(
                        f"dgram,local.type=unix,local.path={ends[0]},remote.type=unix,remote.path={ends[1]}"
                    )
                setup = f"ip address add 10.1.0.{number}/24 dev eth0\nip address add 10.2.0.{number}/24 dev eth1"
                self.guests.append(Guest(self.image, self.folder / f"guest{number}", number, networks, setup))
            steady_clocks(self.guests)
            return self.guests
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for guest in self.guests:
            guest.stop()
