"""C4's libnccl.so.2 as a wheel, with the program that puts it in front of PyTorch's NCCL: `c4-install --pip`, and
`c4-install --pip --undo` before this package is removed. Installing the package by itself changes no job: nothing is
loaded but by programs that ask for library(), as c4_torch does.
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def library():
    """The file of C4's library."""
    return str(_HERE / "lib" / "libnccl.so.2")


def include():
    """The folder of its headers: nccl.h, c4/stream.h, c4/marks.h."""
    return str(_HERE / "include")


def main():
    """The console script c4-install: --pip is about this Python, unless --python names another."""
    words = sys.argv[1:]
    if "--pip" in words and not any(word.split("=")[0] == "--python" for word in words):
        words += ["--python", sys.executable]
    program = str(_HERE / "bin" / "c4-install")
    os.execv(program, [program, *words])
