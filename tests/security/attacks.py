"""The list of attacks: attacks.py [--write] SOURCE_DIR.

Collects what the tests in tests/security and the unit tests register by Attack("KIND: what exactly") or C4_ATTACK(...),
and compares it with docs/attacks.md, or writes that page. An attack is registered once, in one place.
"""
import pathlib
import re
import sys

FEWEST = 60
# "KIND: what": as an argument of Attack, or in a table whose entries are given to it.
KINDS = ("forged agent", "forged rank", "forged token", "stolen token", "wrong CA", "expired certificate",
         "role confusion", "replay", "flood", "slow loris", "oversize", "garbage", "squatting", "path hijack",
         "alert abuse", "second master", "storage", "DNS rebinding", "cross-site request", "terminal", "memory",
         "other user")
CALL = re.compile(r'\b(?:C4_ATTACK|Attack)\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)')
TABLE = re.compile(r'"((?:' + "|".join(KINDS) + r'): (?:[^"\\]|\\.)*)"')
PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"')

HEAD = """# Attacks that the tests make

Made by `tests/security/attacks.py --write .` from what the tests register; a test compares. Each attack is made on running
programs: it is refused, the refusal is told, and where it is made at a running job a rank that stops meanwhile is named
within 5 s of its stop.

| attack | test |
|---|---|
"""


def registered(source):
    found = {}
    for path in sorted((source / "tests" / "security").glob("*_test.*")):
        text = path.read_text(encoding="utf-8")
        names = ["".join(PIECE.findall(call)) for call in CALL.findall(text)]
        names += [name for name in TABLE.findall(text) if name not in names]
        for name in names:
            if name.split(": ")[0] not in KINDS:
                raise SystemExit(f"{path.name}: \"{name}\" is of no kind that attacks.py knows: {', '.join(KINDS)}")
            if name in found:
                raise SystemExit(f"\"{name}\" is registered twice, in {found[name]} and {path.name}")
            found[name] = path.name
    return found


def main():
    write = sys.argv[1:2] == ["--write"]
    source = pathlib.Path(sys.argv[-1])
    found = registered(source)
    page = HEAD + "".join(
        f"| {name} | {found[name]} |\n"
        for name in sorted(found, key=lambda name: (KINDS.index(name.split(': ')[0]), name)))
    target = source / "docs" / "attacks.md"
    if write:
        target.write_text(page, encoding="utf-8")
    if len(found) < FEWEST:
        raise SystemExit(f"{len(found)} attacks are registered, fewer than {FEWEST}")
    if target.read_text(encoding="utf-8") != page:
        raise SystemExit(f"{target} is not what the tests register: run tests/security/attacks.py --write .")
    print(f"{len(found)} attacks")


main()
