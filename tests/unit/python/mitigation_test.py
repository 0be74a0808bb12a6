"""c4_train.mitigation with the built library, against an agent that is played here, and without C4's library."""

import ctypes
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(os.environ["C4_SOURCE_DIR"])
LIBRARY = str(Path(os.environ["C4_BUILD_DIR"]) / "lib" / "libnccl.so.2")
sys.path.insert(0, str(SOURCE / "python"))

from c4_train.mitigation import MICRO_BATCHES, PLACEMENT, Mitigation  # noqa: E402

# wire/control.h; the common header: 64 bytes, with the sizes of frame, body and packet.
FRAME_BYTES = 72
HELLO, WELCOME, PLAN, ANSWER, STEP = 1, 2, 10, 11, 12
HEARD, DONE, REFUSED, LAYOUT = 1, 2, 3, 2
LIMIT_S = 20


def place(dp_rank, stage):
    """WorkerPlace: of two groups of two stages."""
    return struct.pack("<12H", 0, dp_rank, stage, 0, 0, 2, 2, 1, 1, 0, 0, 0)


class Agent:
    """Of one process, on its socket."""

    def __init__(self, folder):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"{folder}/agent.sock")
        self.listener.listen(1)
        self.listener.settimeout(LIMIT_S)
        self.client = None
        self.header = None

    def accept(self):
        self.client, _ = self.listener.accept()
        self.client.settimeout(LIMIT_S)
        kind, body = self.receive()
        assert kind == HELLO, kind
        self.send(WELCOME, struct.pack("<II", 1, 1))

    def receive(self):
        packet = self.client.recv(4096)
        self.header = self.header or packet[:64]
        return struct.unpack_from("<I", packet, 64)[0], packet[FRAME_BYTES:]

    def send(self, kind, body):
        """Behind the header that the library wrote, with the sizes of this packet (docs/formats/header.md)."""
        header = bytearray(self.header)
        struct.pack_into("<IQ", header, 20, len(body), FRAME_BYTES + len(body))
        self.client.send(bytes(header) + struct.pack("<II", kind, 0) + body)

    def wait_for(self, kind, holds=lambda body: True):
        until = time.time() + LIMIT_S
        while time.time() < until:
            got, body = self.receive()
            if got == kind and holds(body):
                return body
        raise TimeoutError(f"no frame of type {kind}")

    def plan(self, number, strategy, first, count, now, following, send_to=-1, receive_from=-1):
        numbers = struct.pack("<Q4I", number, strategy, 16, first, count)
        self.send(PLAN, numbers + now + following + struct.pack("<ii", send_to, receive_from))


def load():
    """C4's library with a communicator of this process alone: with it the library finds its agent."""
    library = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
    unique_id = (ctypes.c_char * 128)()
    library.ncclGetUniqueId(ctypes.byref(unique_id))

    class UniqueId(ctypes.Structure):
        _fields_ = [("internal", ctypes.c_char * 128)]

    communicator = ctypes.c_void_p()
    given = UniqueId.from_buffer_copy(unique_id)
    library.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    assert library.ncclCommInitRank(ctypes.byref(communicator), 1, given, 0) == 0


def poll(mitigation):
    until = time.time() + LIMIT_S
    while time.time() < until:
        plan = mitigation.poll()
        if plan is not None:
            return plan
        time.sleep(0.01)
    return None


class WithTheLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.environ.update(C4_RUN_DIR=cls.folder.name, C4_ENGINE="host")
        cls.agent = Agent(cls.folder.name)
        load()
        cls.agent.accept()
        cls.mitigation = Mitigation()
        cls.mitigation.declare(dp=(1, 2), pp=(0, 2))

    def answer(self, number, state):
        return self.agent.wait_for(ANSWER, lambda body: struct.unpack_from("<QI", body) == (number, state))

    def test_a_plan_is_polled_and_answered(self):
        self.assertTrue(self.mitigation.active)
        self.assertIsNone(self.mitigation.poll())
        self.agent.plan(7, MICRO_BATCHES, 10, 6, place(1, 0), place(1, 0))
        plan = poll(self.mitigation)
        self.assertEqual((plan.number, plan.strategy), (7, MICRO_BATCHES))
        self.assertEqual((plan.first_micro_batch, plan.group_micro_batches, plan.micro_batches), (10, 6, 16))
        self.assertAlmostEqual(plan.weight, 6 / 16)
        self.assertEqual(self.mitigation.poll(), plan)  # until it is answered
        self.answer(7, HEARD)
        self.mitigation.done(plan, 0.25)
        self.assertEqual(struct.unpack_from("<Q", self.answer(7, DONE), 16)[0], 250_000_000)
        self.assertIsNone(self.mitigation.poll())
        with self.assertRaisesRegex(ValueError, "plan 7 is not the one"):
            self.mitigation.done(plan, 0)

    def test_b_places(self):
        self.agent.plan(8, PLACEMENT, 0, 8, place(1, 0), place(0, 1), 1, 3)
        plan = poll(self.mitigation)
        self.assertEqual((plan.next_dp_rank, plan.next_stage, plan.send_to, plan.receive_from), (0, 1, 1, 3))
        self.mitigation.refuse(plan)
        self.answer(8, REFUSED)

    def test_c_a_plan_for_another_layout_is_refused_before_the_program_sees_it(self):
        self.agent.plan(9, MICRO_BATCHES, 0, 8, place(0, 0), place(0, 0))
        self.assertEqual(struct.unpack_from("<I", self.answer(9, REFUSED), 12)[0], LAYOUT)
        self.assertIsNone(self.mitigation.poll())

    def test_d_steps_are_told(self):
        self.mitigation.report(41, 16, 6, 0.125)
        step = self.agent.wait_for(STEP)
        self.assertEqual(struct.unpack_from("<qQII", step), (41, 125_000_000, 16, 6))
        self.assertEqual(struct.unpack_from("<5H", step, 24)[1:3], (1, 0))

    def test_e_what_makes_no_sense_is_said(self):
        with self.assertRaisesRegex(ValueError, "17 of 16 micro-batches"):
            self.mitigation.report(1, 16, 17, 0.1)
        with self.assertRaisesRegex(ValueError, "ep is none of dp, pp, tp, cp"):
            self.mitigation.declare(ep=(0, 1))
        with self.assertRaisesRegex(ValueError, "takes no worker"):
            self.mitigation.declare(dp=(2, 2))
        with self.assertRaisesRegex(ValueError, "costs no -1"):
            self.mitigation.done(None, -1)


class WithoutTheLibrary(unittest.TestCase):
    def test_there_are_never_plans(self):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from c4_train.mitigation import Mitigation\n"
            "m = Mitigation(); m.declare(dp=(0, 2)); m.report(1, 2, 1, 0.1)\n"
            "print(m.active, m.poll())\n"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", script, str(SOURCE / "python")], capture_output=True, text=True, check=True
        )
        self.assertEqual(done.stdout, "False None\n")


if __name__ == "__main__":
    unittest.main()
