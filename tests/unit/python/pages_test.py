"""The pages for people: every link to a file or a heading of ours leads somewhere, and every file that a table of
docs/tour.md names is there."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["C4_SOURCE_DIR"])
PAGES = sorted([*SOURCE.glob("*.md"), *(SOURCE / "docs").rglob("*.md")])


def prose(path):
    """The page without its code blocks: between fences, or indented."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def anchors(path):
    """Of the headings, as GitHub makes them: lower case, without punctuation, spaces as dashes."""
    found = {}
    for heading in re.findall(r"(?m)^#+ (.*)$", prose(path)):
        name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", name).strip().replace(" ", "-")
        found[name if name not in found else f"{name}-{found[name]}"] = found.get(name, 0) + 1
    return set(found)


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        self.assertGreater(len(PAGES), 40)
        for page in PAGES:
            text = re.sub(r"`[^`\n]*`", "", prose(page))
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                path = (page.parent / name).resolve() if name else page
                self.assertTrue(path.exists(), f"{page.relative_to(SOURCE)} links to {target}")
                if anchor and path.suffix == ".md":
                    self.assertIn(anchor, anchors(path), f"{page.relative_to(SOURCE)} links to {target}")

    def test_the_files_of_the_tour_are_there(self):
        rows = [line for line in (SOURCE / "docs/tour.md").read_text().splitlines() if line.startswith("| ")]
        files = [name for row in rows for name in re.findall(r"`([\w/.]+/[\w.]*)`", row.rsplit("|", 2)[1])]
        self.assertGreater(len(files), 20)
        for name in files:
            self.assertTrue((SOURCE / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
