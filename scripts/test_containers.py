#!/usr/bin/env python3
"""test_containers.py PREFIX: carries out the last stages of deploy/Containerfile without a builder of images.

Makes a minimal Debian 12 by debootstrap below a temporary folder, runs in it what each image's stages say, with what
`cmake --install` put into PREFIX (bin, lib) in the place of what the build stages leave, and starts each program as
the image's user. What a builder adds (layers, the base images of a registry) is not tried, nor are the build stages,
which are scripts/setup.sh and scripts/build.sh as `make test-bare` runs them. Run by test_containers.sh, as root, in
mount and pid namespaces of its own. C4_BARE_MIRROR=URL names a mirror.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import containerfile

NEEDS_NOTHING = {"c4-validate-worker"}  # it waits for its agent's words and has no --version


def run(*words, **more):
    return subprocess.run(words, check=True, **more)


def make_system(root):
    mirror = os.environ.get("C4_BARE_MIRROR")
    if not mirror:
        said = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)",
                   "Created-By: Packages", capture_output=True, text=True).stdout
        found = [line.split()[0] for line in said.splitlines() if line.split()[1:] == ["bookworm", "main", "Debian"]]
        if not found:
            sys.exit("apt has no source for Debian's bookworm here: set C4_BARE_MIRROR to a mirror's URL")
        mirror = found[0]
    print(f"debootstrap from {mirror}", flush=True)
    run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root, mirror,
        stdout=subprocess.DEVNULL)
    # Reached as this machine reaches it.
    (root / "etc/apt/sources.list").unlink()
    for part in ("sources.list", "sources.list.d", "apt.conf.d", "trusted.gpg.d", "keyrings"):
        here, there = pathlib.Path("/etc/apt") / part, root / "etc/apt" / part
        if here.is_dir():
            shutil.copytree(here, there, dirs_exist_ok=True)
        elif here.exists():
            shutil.copy(here, there)
    for path in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(path, root / path[1:])
    authorities = pathlib.Path("/usr/local/share/ca-certificates")
    if authorities.is_dir():
        shutil.copytree(authorities, root / str(authorities)[1:], dirs_exist_ok=True)
    run("chroot", root, "update-ca-certificates", stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def with_proc(root):
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        yield
    finally:
        run("umount", root / "proc")


def copy(origin, source, target, prefix):
    """A COPY --from of a build stage: /opt/c4 is PREFIX there."""
    path = prefix / pathlib.Path(source).relative_to("/opt/c4")
    if not path.exists():
        sys.exit(f"{path} is not there, which stage {origin} leaves at {source}")
    target.mkdir(parents=True, exist_ok=True)
    run("cp", "-a", f"{path}/." if path.is_dir() else path, target)


def play(stage, root, prefix, environment):
    for word, rest in stage.steps:
        if word == "RUN":
            run("chroot", root, "/bin/sh", "-c", rest, env=environment, stdout=subprocess.DEVNULL)
        elif word == "ENV":
            name, _, value = rest.partition("=")
            environment[name] = value
    for origin, sources, destination in stage.copies():
        for source in sources:
            copy(origin, source, root / destination[1:], prefix)


def try_image(name, root, environment, stage):
    user = stage.last("USER")
    entry = json.loads(stage.last("ENTRYPOINT"))[0]
    said = run("chroot", f"--userspec={user}", root, entry, "--version", env=environment, capture_output=True,
               text=True).stdout.strip()
    if not re.search(r"\d+\.\d+\.\d+", said):
        sys.exit(f"{name}: {entry} --version says {said!r}")
    for program in sorted((root / "opt/c4/bin").iterdir()):
        if program.name not in NEEDS_NOTHING:
            run("chroot", f"--userspec={user}", root, f"/opt/c4/bin/{program.name}", "--version", env=environment,
                stdout=subprocess.DEVNULL)
    writable = subprocess.run(["chroot", f"--userspec={user}", str(root), "test", "-w", "/opt/c4/bin"],
                              check=False).returncode == 0
    if writable != (user == "root"):
        sys.exit(f"{name}: {user} {'may' if writable else 'may not'} write to /opt/c4/bin")
    size = int(run("du", "-sxk", "--exclude=./proc", ".", cwd=root, capture_output=True, text=True).stdout.split()[0])
    print(f"{name}: {said}, as {user}, {size / 1024:.0f} MiB with Debian", flush=True)


def main():
    prefix = pathlib.Path(sys.argv[1])
    stages, _ = containerfile.read()
    with tempfile.TemporaryDirectory(prefix="c4-containers.") as work:
        base = pathlib.Path(work) / "runtime"
        make_system(base)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        for scheme in ("http_proxy", "https_proxy"):
            if scheme in os.environ:
                environment[scheme] = os.environ[scheme]
        with with_proc(base):
            play(stages["runtime"], base, prefix, environment)
        for name in ("agent", "masters", "tools"):
            root = pathlib.Path(work) / name
            run("cp", "-a", base, root)
            own = dict(environment)
            with with_proc(root):
                play(stages[name], root, prefix, own)
                try_image(name, root, own, stages[name])
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
