"""docs/claims.md and scripts/claims.py: the page is whole, and a command's end is judged as the page says."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["C4_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "scripts"))
import claims  # noqa: E402

HEAD = f"| {' | '.join(claims.COLUMNS)} |\n|{'---|' * len(claims.COLUMNS)}\n"


def row(name, command, bound="exit 0", limit="60 s"):
    return f"| {name} | a claim | `ccl/` | {command} | {bound} | {limit} | - | - | machine |\n"


def targets():
    text = "".join(path.read_text() for folder in ("tests", "benchmarks", "cli", "c4d_master", "c4a", "c4p_master")
                   for path in (SOURCE / folder).rglob("CMakeLists.txt"))
    names = set(re.findall(r"(?:c4_test|add_executable)\((\S+)", text))
    for listed in re.findall(r"foreach\(name ([^)]*)\)\s*c4_test\(service_", text):
        names.update(f"service_{name}_test" for name in listed.split())
    return names


class ThePage(unittest.TestCase):
    CLAIMS = claims.read(SOURCE / "docs/claims.md")

    def test_each_paper_has_claims(self):
        papers = {claim.id.split("-")[0] for claim in self.CLAIMS}
        self.assertEqual(papers, {"c4", "falcon", "greyhound", "whatif"})

    def test_where_a_claim_lives_is_there(self):
        for claim in self.CLAIMS:
            for place in claim.places:
                self.assertTrue((SOURCE / place).exists(), f"{claim.id}: {place}")

    def test_commands_are_programs_of_this_tree(self):
        known = targets()
        for claim in self.CLAIMS:
            for word in claim.command.split():
                if word.startswith(("build/bin/", "build/tests/")):
                    self.assertIn(word.rsplit("/", 1)[1], known, claim.id)
                elif word.startswith(("benchmarks/", "tests/")):
                    self.assertTrue((SOURCE / word).is_file(), f"{claim.id}: {word}")

    def test_what_has_no_command_was_not_run(self):
        for claim in self.CLAIMS:
            if not claim.command:
                self.assertEqual(claim.run_on, "not", claim.id)
                self.assertEqual(claim.ours[:1], "-", claim.id)


class TheScript(unittest.TestCase):
    def run_page(self, rows, *words):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(HEAD + rows)
            done = subprocess.run([sys.executable, "-B", SOURCE / "scripts/claims.py", "--page", page, *words],
                                  capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_exit_codes_pass_fail_and_are_not_run(self):
        code, out, _ = self.run_page(row("a-true", "`true`") + row("a-false", "`false`") +
                                     row("a-skip", "`bash -c 'exit 77'`") + row("a-none", "-", "-", "-") +
                                     row("a-long", "`true`", limit="600 s") + row("a-absent", "`build/bin/absent`"))
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"(?m)^pass +[0-9.]+ s +a-true$")
        self.assertRegex(out, r"(?m)^fail +[0-9.]+ s +a-false +exit 1$")
        for name in ("a-skip", "a-none", "a-long", "a-absent"):
            self.assertRegex(out, rf"(?m)^not run +{name} ")
        self.assertIn("claims: 1 pass, 1 fail, 4 not run", out)

    def test_a_number_is_held_against_its_bound(self):
        say = "`echo 'right 98.5 %'`"
        for bound, result in (("`right ([0-9.]+)` >= 98.5", "pass"), ("`right ([0-9.]+)` >= 98.6", "fail"),
                              ("`right ([0-9.]+)` <= 98.5", "pass"), ("`right ([0-9.]+)` <= 98.4", "fail"),
                              ("`wrong ([0-9.]+)` <= 99", "fail")):
            _, out, _ = self.run_page(row("a-number", say, bound))
            self.assertTrue(out.startswith(result), f"{bound}: {out}")

    def test_the_last_words_of_what_failed_are_shown(self):
        _, out, _ = self.run_page(row("a-says", "`bash -c 'seq 9; exit 3'`"))
        self.assertRegex(out, r"(?m)^fail .* exit 3\n +\| 6\n +\| 7\n +\| 8\n +\| 9$")
        self.assertNotIn("| 5", out)

    def test_a_command_that_does_not_end_is_ended_with_its_children(self):
        begin = time.monotonic()
        code, out, _ = self.run_page(row("a-sleep", "`bash -c 'sleep 500 & wait'`", limit="1 s"))
        self.assertEqual(code, 1)
        self.assertIn("not over after 1 s", out)
        self.assertLess(time.monotonic() - begin, 30)

    def test_only_takes_ids_and_their_beginnings_whatever_the_limit(self):
        rows = row("a-one", "`true`", limit="600 s") + row("b-two", "`true`") + row("ab-three", "`true`")
        self.assertIn("claims: 1 pass, 0 fail, 0 not run", self.run_page(rows, "--only", "a")[1])
        self.assertIn("claims: 2 pass", self.run_page(rows, "--only", "a-one,b")[1])
        code, _, error = self.run_page(rows, "--only", "c")
        self.assertEqual(code, 64)
        self.assertIn("no claim is called 'c'", error)

    def test_long_runs_what_takes_long(self):
        self.assertIn("claims: 1 pass", self.run_page(row("a-one", "`true`", limit="600 s"), "--long")[1])

    def test_pages_that_are_wrong_are_told_by_line(self):
        for rows, words in ((row("a", "`true`", limit="soon"), "line 3: 'soon' is no limit"),
                            (row("a", "`true`", "always"), "line 3: 'always' is no bound"),
                            (row("a", "`true`", "`([` >= 1"), "is no pattern"),
                            (row("a", "`true`", "`x` >= 1"), "needs one group"),
                            (row("a", "`true`") * 2, "line 4: a stands on line 3"),
                            ("| a | b |\n", "line 3: 2 columns"), ("", "no table")):
            code, out, error = self.run_page(rows)
            self.assertEqual(code, 64, out)
            self.assertIn(words, error)


if __name__ == "__main__":
    unittest.main()
