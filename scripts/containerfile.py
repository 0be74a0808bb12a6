"""Reads deploy/Containerfile: its stages, each with its instructions as (word, rest), continued lines joined."""
import pathlib
import re
import shlex

PATH = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "Containerfile"


class Stage:
    def __init__(self, name, base):
        self.name = name
        self.base = base
        self.steps = []  # (word, rest)

    def last(self, word):
        return next((rest for step, rest in reversed(self.steps) if step == word), None)

    def copies(self):
        """(stage that it comes from or None, sources, destination) of each COPY."""
        for word, rest in self.steps:
            if word != "COPY":
                continue
            words = shlex.split(rest)
            origin = words[0].partition("=")[2] if words[0].startswith("--from=") else None
            paths = words[1:] if origin else words
            yield origin, paths[:-1], paths[-1]


def read(path=PATH):
    """Stages by name, in order, and the defaults of the arguments before them. ValueError: a line that is none."""
    arguments, stages, stage = {}, {}, None
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.M)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        match = re.fullmatch(r"([A-Z]+)\s+(\S.*)", line)
        if not match:
            raise ValueError(f"no instruction: {line}")
        word, rest = match.groups()
        if word == "ARG" and stage is None:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            match = re.fullmatch(r"(\S+) AS ([a-z]+)", rest)
            if not match or match[2] in stages:
                raise ValueError(f"a stage wants a base and a name of its own: {line}")
            base = re.sub(r"\$\{(\w+)\}", lambda one: arguments[one[1]], match[1])
            stage = stages[match[2]] = Stage(match[2], base)
        elif stage is None:
            raise ValueError(f"before the first stage: {line}")
        else:
            stage.steps.append((word, rest))
    return stages, arguments


def chain(stages, name):
    """The stage and those that it is made of, the first first."""
    found = [stages[name]]
    while found[0].base in stages:
        found.insert(0, stages[found[0].base])
    return found
