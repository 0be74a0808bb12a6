"""What there is on this machine: PyTorch, a GPU, and the NCCL that PyTorch loads. As a program: --has-gpu."""

import glob
import importlib.util
import os
import subprocess
import sys


def torch_version():
    """None: no PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    code = "import torch; print(torch.__version__, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 and done.stdout else None


def has_gpu():
    version = torch_version()
    return version is not None and version[1] == "True"


def vendor_library():
    """The wheel's, else the system's; None where there is none. C4_VENDOR_LIBRARY wins."""
    named = os.environ.get("C4_VENDOR_LIBRARY")
    if named:
        return named
    places = []
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec else []:
        places.append(os.path.join(folder, "nccl", "lib", "libnccl.so.2"))
    places += glob.glob("/usr/lib/*/libnccl.so.2") + glob.glob("/usr/local/*/lib*/libnccl.so.2")
    for place in places:
        beside = os.path.join(os.path.dirname(place), "libnccl-vendor.so.2")
        if os.path.isfile(beside):  # C4 is installed there
            return beside
        if os.path.isfile(place):
            return place
    return None


def gpu_name():
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "no GPU"


if __name__ == "__main__":
    sys.exit(0 if sys.argv[1:] == ["--has-gpu"] and has_gpu() else 1)
