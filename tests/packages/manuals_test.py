"""Manual pages and completion of the programs that were built: every verb and option is in them.

manuals_test.py SOURCE_DIR BIN_DIR
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()


def said_by(*words):
    return subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True, check=True, timeout=60).stdout


class ManualsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, SOURCE / "scripts/manuals.py", BIN, cls.out, "2026-01-02"], check=True, timeout=240)
        cls.verbs = re.findall(r"^  ([a-z]+) +\S", said_by("c4", "--help"), re.MULTILINE)

    def test_every_verb_has_a_page_with_all_its_options(self):
        self.assertGreater(len(self.verbs), 25)
        overview = (self.out / "man1/c4.1").read_text(encoding="utf-8")
        for verb in self.verbs:
            with self.subTest(verb=verb):
                self.assertIn(f".BR c4\\-{verb} (1)\n", overview)
                page = (self.out / f"man1/c4-{verb}.1").read_text(encoding="utf-8")
                self.assertIn(f'.TH C4\\-{verb.upper()} 1 "2026-01-02"', page)
                for option in re.findall(r"^  (?:-\w, )?(--[a-z][\w-]*)", said_by("c4", verb, "--help"), re.MULTILINE):
                    self.assertRegex(page, r"\.B .*" + re.escape(option.replace("-", "\\-")))

    def test_daemons_have_pages(self):
        for daemon in ("c4a", "c4d_master", "c4p_master"):
            page = (self.out / f"man8/{daemon}.8").read_text(encoding="utf-8")
            for option in re.findall(r"^  (--[a-z][\w-]*)", said_by(daemon, "--help"), re.MULTILINE):
                with self.subTest(daemon=daemon, option=option):
                    self.assertRegex(page, r"\.B " + re.escape(option.replace("-", "\\-")) + r"\b")

    def test_pages_are_roff(self):
        if shutil.which("groff") is None:
            self.skipTest("no groff here")
        for page in sorted(self.out.glob("man?/*")):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", page)

    def complete(self, *words):
        """What bash offers for the last of `words`."""
        script = (f". {self.out}/completions/{words[0]}; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
                  f"_{words[0].replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("c4", ""), [*self.verbs, "--help", "--version"])
        self.assertEqual(self.complete("c4", "inj"), ["inject"])
        self.assertEqual(self.complete("c4", "run", "--elastic-"), ["--elastic-wait"])
        self.assertEqual(self.complete("c4", "smon", "sh"), ["show"])
        self.assertIn("--heatmap", self.complete("c4", "smon", "show", "--"))
        self.assertIn("--fix", self.complete("c4", "whatif", "FILE", "--f"))
        self.assertEqual(self.complete("c4", "run", "-n", "2", "--", "--el"), [])
        self.assertIn("doctor", self.complete("c4-install", ""))
        self.assertIn("--pip", self.complete("c4-install", "--p"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
