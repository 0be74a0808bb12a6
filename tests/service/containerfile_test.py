"""deploy/Containerfile without a builder of images: its stages hold together, its images have all that their programs
need and nothing runs as root that need not.

containerfile_test.py SOURCE_DIR BUILD_BIN_DIR
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv[1])
BIN = pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "scripts"))
import containerfile  # noqa: E402

STAGES, ARGUMENTS = containerfile.read()
IMAGES = ("agent", "masters", "tools")
OF_EVERY_SYSTEM = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}  # of debian:12-slim, or needed by what is named


def installed(name):
    packages = set()
    for stage in containerfile.chain(STAGES, name):
        for word, rest in stage.steps:
            for words in re.findall(r"apt-get install ([^&]*)", rest) if word == "RUN" else []:
                packages |= {one for one in words.split() if not one.startswith("-")}
    return packages


def programs_of(name):
    for stage in containerfile.chain(STAGES, name):
        for origin, sources, _ in stage.copies():
            for source in sources if origin else []:
                if source.startswith("/opt/c4/bin/"):
                    yield pathlib.Path(source).name
                elif source == "/opt/c4":
                    yield from ("c4", "c4a", "c4d_master", "c4p_master", "c4-validate-worker")


class Containerfile(unittest.TestCase):
    def test_only_what_is_known(self):
        for stage in STAGES.values():
            for word, rest in stage.steps:
                self.assertIn(word, ("RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT"), stage.name)
                if word == "RUN":
                    self.assertEqual(subprocess.run(["sh", "-n", "-c", rest], check=False).returncode, 0, rest)

    def test_bases_are_debian_12_and_nothing_else(self):
        for stage in STAGES.values():
            if stage.base not in STAGES:
                self.assertRegex(stage.base, r"^docker\.io/library/debian:12(-slim)?$")

    def test_what_is_copied_is_there(self):
        ignored = (SOURCE / ".containerignore").read_text().split()
        self.assertIn(".git", ignored)
        self.assertIn("build/", ignored)
        before = set()
        for stage in STAGES.values():
            for origin, sources, _ in stage.copies():
                if origin is not None:
                    self.assertIn(origin, before)
                    continue
                for source in sources:
                    self.assertTrue((SOURCE / source).exists(), source)
            before.add(stage.name)

    def test_what_is_built_is_handed_out(self):
        shipped = set()
        for path in SOURCE.glob("*/CMakeLists.txt"):
            shipped |= set(re.findall(r"c4_ship\((\S+) ", path.read_text()))
        build = next(rest for word, rest in STAGES["build"].steps if word == "RUN" and "build.sh" in rest)
        targets = re.search(r"build\.sh release ([^&]*)", build)[1].split()
        self.assertEqual(set(targets), shipped)
        for name in IMAGES:
            for program in programs_of(name):
                self.assertIn(program, shipped, name)

    def test_images_are_small_and_start_what_they_are_for(self):
        for name in IMAGES:
            stages = containerfile.chain(STAGES, name)
            self.assertTrue(stages[0].base.endswith("-slim"), name)
            for stage in stages:
                for word, rest in stage.steps:
                    if word == "RUN" and "apt-get" in rest:
                        self.assertIn("--no-install-recommends", rest)
                        self.assertIn("rm -rf /var/lib/apt/lists/*", rest)
            entry = json.loads(STAGES[name].last("ENTRYPOINT"))
            self.assertIn(pathlib.Path(entry[0]).name, set(programs_of(name)))
            self.assertEqual(STAGES[name].last("USER"), "root" if name == "agent" else "c4")

    def test_every_library_of_a_program_is_in_its_image(self):
        needed = {}  # library -> programs
        for name in IMAGES:
            for program in set(programs_of(name)) - {"c4-install"}:  # that needs libc alone
                path = BIN / program
                if not path.exists():
                    self.skipTest(f"{path} is not built")
                listed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
                for library in re.findall(r"\(NEEDED\).*\[(.*)\]", listed):
                    needed.setdefault(library, set()).add((name, program))
        owners = subprocess.run(["dpkg", "-S", *(f"*/x86_64-linux-gnu/{library}" for library in needed)],
                                capture_output=True, text=True, check=False).stdout
        for library, users in needed.items():
            packages = {line.partition(":")[0] for line in owners.splitlines() if line.endswith("/" + library)}
            for name, program in users:
                self.assertTrue(packages & (installed(name) | OF_EVERY_SYSTEM),
                                f"{program} of {name} needs {library} of {packages}")

    def test_the_manifests_take_these_images(self):
        commands = {"agent.yaml": "agent", "job-master.yaml": "masters", "path-master.yaml": "masters"}
        docs = (SOURCE / "docs" / "kubernetes.md").read_text()
        for file, image in commands.items():
            text = (SOURCE / "deploy" / "kubernetes" / file).read_text()
            self.assertEqual(re.findall(r"image: (\S+)", text), [f"c4-{image}"])
            program = re.search(r"command: \[/opt/c4/bin/(\S+)\]", text)[1]
            self.assertIn(program, set(programs_of(image)))
        for name in IMAGES:
            self.assertIn(f"--target {name}", docs)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
