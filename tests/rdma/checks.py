"""What the tests in the guests share."""

import re


class Failed(Exception):
    """A test failed; says why."""


def check(right, what):
    if not right:
        raise Failed(what)


def number(name, output):
    found = re.search(rf"\b{name} ([0-9.]+)", output)
    check(found, f"the program does not say {name}:\n{output[-800:]}")
    return float(found.group(1))
