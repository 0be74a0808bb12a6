#!/usr/bin/env python3
"""The wheel c4-nccl: C4's library, its headers, c4-install, and the package python/c4_nccl around them.

wheel.py PACKAGE OUT: PACKAGE is a folder as `make package` lays it out (bin, lib; PACKAGE-dev beside it); the wheel goes
into the folder OUT. Its name says the oldest glibc that its files ask for, which pip holds every system to: those of
`make portable` give manylinux_2_17. Two runs over the same files give the same wheel.
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = "c4_nccl"


def needed_glibc(files):
    """(2, 17): the newest version of glibc's symbols that these files ask for."""
    newest = (2, 0)
    for file in files:
        said = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
        for major, minor in re.findall(r"\*UND\*.*GLIBC_(\d+)\.(\d+)", said):
            newest = max(newest, (int(major), int(minor)))
        foreign = set(re.findall(r"NEEDED\s+(\S+)", subprocess.run(
            ["objdump", "-p", file], capture_output=True, text=True, check=True).stdout))
        foreign = {name for name in foreign if not re.match(r"(lib(c|m|dl|rt|pthread)|ld-linux-x86-64)\.so", name)}
        if foreign:
            sys.exit(f"wheel.py: {file} needs {', '.join(sorted(foreign))}, which no system is bound to have")
    return newest


def tag(glibc):
    tags = [f"manylinux_{glibc[0]}_{glibc[1]}_x86_64"]
    if glibc <= (2, 17):
        tags = ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    return "py3-none-" + ".".join(tags)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    package, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    version = re.search(r"project\(c4 VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
    libraries = [package / "lib" / "libnccl.so.2", package / "lib" / "libc4_verbs.so"]
    programs = [package / "bin" / "c4-install"]
    for file in libraries + programs:
        if not file.exists():
            sys.exit(f"wheel.py: there is no {file}: make package")
    glibc = needed_glibc(libraries + programs)
    info = f"{NAME}-{version}.dist-info"
    content = {f"{NAME}/__init__.py": (ROOT / "python" / NAME / "__init__.py").read_bytes()}
    for file in libraries:
        content[f"{NAME}/lib/{file.name}"] = file.read_bytes()
    for file in programs:
        content[f"{NAME}/bin/{file.name}"] = file.read_bytes()
    headers = pathlib.Path(f"{package}-dev") / "include" / "c4-nccl"
    for file in sorted(headers.rglob("*.h")):
        content[f"{NAME}/include/{file.relative_to(headers)}"] = file.read_bytes()
    if f"{NAME}/include/nccl.h" not in content:
        sys.exit(f"wheel.py: there is no nccl.h in {headers}: make package")
    content[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: c4-nccl\nVersion: {version}\n"
        "Summary: C4's library with NCCL's interface, which says who holds a training job up\n"
        "License: Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/plain\n\n"
        "c4-install --pip puts it in front of the NCCL of this Python's PyTorch, and --undo takes it away again.\n"
    ).encode()
    content[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: c4\nRoot-Is-Purelib: false\n"
        + "".join(f"Tag: py3-none-{part}\n" for part in tag(glibc).split("-", 2)[2].split("."))
    ).encode()
    content[f"{info}/entry_points.txt"] = f"[console_scripts]\nc4-install = {NAME}:main\n".encode()

    record = ""
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{NAME}-{version}-{tag(glibc)}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if "/bin/" in name or ".so" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(f"the wheel: {wheel}")


if __name__ == "__main__":
    main()
