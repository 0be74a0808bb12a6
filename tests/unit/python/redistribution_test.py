"""c4_train.redistribution with the built library, and without it."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ["C4_SOURCE_DIR"])
LIBRARY = Path(os.environ["C4_BUILD_DIR"]) / "lib" / "libc4_whatif.so"
sys.path.insert(0, str(SOURCE / "python"))
os.environ["C4_WHATIF_LIBRARY"] = str(LIBRARY)

from c4_train.redistribution import redistribute  # noqa: E402


class Redistribute(unittest.TestCase):
    def test_deals_the_longest_out_first(self):
        dealt = redistribute([9, 1, 1, 1], 2, 1)
        self.assertEqual(dealt.dp_rank, [0, 1, 1, 1])
        self.assertEqual(dealt.micro_batch, [0, 0, 0, 0])
        self.assertEqual((dealt.step_before, dealt.step_after), (10, 9))
        self.assertAlmostEqual(dealt.speedup, 10 / 9)
        self.assertEqual(dealt.fullest_tokens, 9)

    def test_hands_every_option_on(self):
        options = {"pp_size": 3, "per_token": 1, "per_token_squared": 0.5, "most_tokens": 4}
        dealt = redistribute([2, 4], 1, 2, placed=([0, 0], [1, 1]), **options)
        self.assertEqual(dealt.step_before, (4 + 12) * 3)
        self.assertEqual(dealt.step_after, 4 + 12 + 2 * 12)
        self.assertEqual(redistribute([4, 4, 4], 1, 2, **options).fullest_tokens, 8)

    def test_takes_any_sequence_of_numbers(self):
        self.assertEqual(redistribute(iter((1, 2)), 1, 1).dp_rank, [0, 0])
        self.assertEqual(redistribute([], 4, 2), ([], [], 0, 0, 1, 0))

    def test_gives_every_rank_the_same_answer(self):
        lengths = [(i * 7919) % 4096 + 1 for i in range(2000)]
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from c4_train.redistribution import redistribute\n"
            "print(redistribute([(i * 7919) % 4096 + 1 for i in range(2000)], 8, 4, per_token_squared=1e-3))"
        )
        other = subprocess.run(
            [sys.executable, "-c", script, str(SOURCE / "python")], capture_output=True, text=True, check=True
        )
        mine = redistribute(lengths, 8, 4, per_token_squared=1e-3)
        self.assertEqual(other.stdout.strip(), str(mine))
        self.assertGreater(mine.speedup, 1)

    def test_refuses_what_cannot_be(self):
        for arguments in (
            ([-1], 1, 1),
            ([2**32], 1, 1),
            ([1], 0, 1),
            ([1], 1, 2**31),
            ([1], 2**20, 2**20),
        ):
            with self.assertRaises(ValueError):
                redistribute(*arguments)
        for options in (
            {"per_token": 0},
            {"per_token": float("nan")},
            {"most_tokens": -1},
            {"pp_size": 0},
            {"placed": ([0], [0, 0])},
            {"placed": ([1], [0])},
        ):
            with self.assertRaises(ValueError, msg=options):
                redistribute([1], 1, 1, **options)

    def test_says_what_to_do_without_the_library(self):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from c4_train.redistribution import redistribute\n"
            "redistribute([1], 1, 1)"
        )
        for named in ("/no/such/library.so", "libc.so.6"):
            environment = dict(os.environ, C4_WHATIF_LIBRARY=named)
            failed = subprocess.run(
                [sys.executable, "-c", script, str(SOURCE / "python")],
                capture_output=True,
                text=True,
                env=environment,
                check=False,
            )
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn("ImportError: libc4_whatif.so cannot be loaded", failed.stderr)
            self.assertIn("C4_WHATIF_LIBRARY", failed.stderr)


if __name__ == "__main__":
    unittest.main()
