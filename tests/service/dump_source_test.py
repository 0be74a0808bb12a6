"""A real c4d_master that hears of a job from Flight Recorder dumps alone: those that PyTorch wrote of four ranks, of which rank 2
held up the others, appear in a folder one after the other.

dump_source_test.py SOURCE_DIR BUILD_BIN_DIR
"""
import os
import pathlib
import pickle
import shutil
import sys
import time
import unittest

from source_master import SourceMaster

SOURCE, BIN = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
DUMPS = SOURCE / "tests/data/flight-recorder-pytorch/absent"


class DumpSource(SourceMaster):
    BIN = BIN

    def put(self, rank):
        """The rank's dump, as if its last call had been ten minutes ago."""
        with open(DUMPS / f"nccl_trace_rank_{rank}", "rb") as file:
            dump = pickle.load(file)
        entries = dump["entries"]
        shift = time.time_ns() - 600_000_000_000 - max([entry["time_created_ns"] for entry in entries], default=0)
        for entry in entries:
            entry["time_created_ns"] += shift
        with open(self.dumps / f"nccl_trace_rank_{rank}", "wb") as file:
            pickle.dump(dump, file, protocol=2)

    def test_whom_dumps_show_behind_is_named(self):
        self.dumps = self.path / "dumps"
        self.dumps.mkdir()
        os.mkfifo(self.dumps / "nccl_trace_rank_0.pipe")  # as PyTorch makes them
        shutil.copy(__file__, self.dumps / "notes")
        self.start(f"dumps={self.dumps}")
        self.wait_for("master", 30, lambda: "no agent has reported" in self.c4("verdicts").stdout)
        for rank in (0, 1, 3):
            self.put(rank)
        # These dumps (gloo's) do not say who is in the group: all that is known are in an operation that does not end.
        found = self.wait_for("verdict", 30, self.verdicts)
        self.assertEqual([(one["state"], one["culprit"]["candidates"]) for one in found], [("suspected", [0, 1, 3])], found)
        time.sleep(4)
        self.assertEqual([one["state"] for one in self.verdicts()], ["suspected"])
        self.put(2)
        found = self.wait_for("certainty", 30, lambda: [one for one in self.verdicts() if one["state"] == "confirmed"])
        self.assertEqual([(one["syndrome"], one["culprit"]["rank"]) for one in found], [("non-communication hang", 2)], found)
        kinds = [one["kind"] for one in found[0]["evidence"]]
        self.assertEqual((kinds[0], kinds[-1]), ("flight recorder", "source"), found)
        said = self.c4("verdicts").stdout
        self.assertIn("rank 2", said)
        self.assertIn("ranks 0, 1, 3 wait", said)
        self.assertNotIn("cannot be read", self.log.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
