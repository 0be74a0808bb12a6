"""The bill of materials of what is built: sbom.py BUILD_DIR [--lock]. CycloneDX 1.5 as JSON on standard output.

Components are Debian's packages: those whose shared libraries the programs load, as ldd finds them ("required"), and
those of the group `build` in scripts/packages.txt, whose headers and static libraries are compiled in ("optional" where
the programs load nothing of them). With --lock: scripts/packages.lock anew, PACKAGE VERSION a line. Without, each
package that differs from the lock is named on standard error: what is built here is not what was tested.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("bin/c4", "bin/c4a", "bin/c4d_master", "bin/c4p_master", "lib/libnccl.so.2", "lib/libc4_verbs.so")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def package_of(library):
    # Debian has moved /lib into /usr/lib, its lists of files have not followed everywhere.
    for path in (os.path.realpath(library), library, library.removeprefix("/usr"), "/usr" + library):
        if found := output("dpkg-query", "-S", path).split(":")[0].strip():
            return found
    raise SystemExit(f"no package holds {library}: install it from one, or it is missing here")


def facts(package):
    text = output("dpkg-query", "-W", "-f", "${Version}\t${Architecture}\t${source:Package}\n", package)
    if not text.strip():
        raise SystemExit(f"{package} is not installed: run scripts/setup.sh build")
    return text.splitlines()[0].split("\t")


def component(package, scope):
    version, architecture, source = facts(package)
    purl = f"pkg:deb/debian/{package}@{version}?arch={architecture}&distro=debian-12"
    return {"type": "library", "bom-ref": purl, "name": package, "version": version, "scope": scope, "purl": purl,
            "properties": [{"name": "debian:source", "value": source}]}


def main():
    build = pathlib.Path(sys.argv[1])
    programs = [build / name for name in PROGRAMS]
    for program in programs:
        if not program.exists():
            raise SystemExit(f"{program} is not there: run make first")
    listed = [line.split()[1] for line in (ROOT / "scripts/packages.txt").read_text().splitlines()
              if line.startswith("build ")]
    lock = ROOT / "scripts/packages.lock"
    loaded = {}
    for program in programs:
        libraries = re.findall(r"(?:=> )?(/\S+) \(0x", output("ldd", str(program)))
        loaded[program] = sorted({package_of(path) for path in libraries if str(build.resolve()) not in path})
    required = set().union(*loaded.values())
    packages = sorted(required | set(listed))
    if "--lock" in sys.argv[2:]:
        lock.write_text("# What the tests were run with; made by scripts/sbom.py build --lock.\n" +
                        "".join(f"{package} {facts(package)[0]}\n" for package in packages))
    locked = dict(line.split() for line in lock.read_text().splitlines() if not line.startswith("#"))
    for package in packages:
        if locked.get(package) != facts(package)[0]:
            print(f"sbom: {package} is {facts(package)[0]}, scripts/packages.lock has {locked.get(package)}",
                  file=sys.stderr)
    version = re.search(r"project\(c4 VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    components = {package: component(package, "required" if package in required else "optional")
                  for package in packages}
    own = [{"type": "library" if ".so" in program.name else "application", "bom-ref": f"c4:{program.name}",
            "name": program.name, "version": version,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(program.read_bytes()).hexdigest()}]}
           for program in programs]
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
           "metadata": {"component": {"type": "application", "bom-ref": "c4", "name": "c4", "version": version}},
           "components": own + list(components.values()),
           "dependencies": [{"ref": "c4", "dependsOn": [part["bom-ref"] for part in own]}] +
                           [{"ref": f"c4:{program.name}",
                             "dependsOn": [components[package]["bom-ref"] for package in packages_of]}
                            for program, packages_of in loaded.items()]}
    print(json.dumps(bom, indent=1))


main()
