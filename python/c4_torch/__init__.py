"""C4 as a backend of torch.distributed: `init_process_group("c4")`, or "cpu:c4,cuda:nccl" beside GPUs.

Tensors are those of the CPU; the collectives are C4's host engine's, so that C4 watches the job and names who holds
it up. Where the package is installed, torch registers the backend by itself; elsewhere `import c4_torch` does. The
library is the file that the environment variable C4_TORCH_LIBRARY names, else C4's libnccl.so.2 that torch itself has
loaded, that of LD_LIBRARY_PATH (`c4 run` sets it), of the wheel c4-nccl, or of the source tree
beside this file.
"""

import atexit
import datetime
import os
from pathlib import Path

LIBRARY = "libnccl.so.2"
LIBRARY_VARIABLE = "C4_TORCH_LIBRARY"
BACKEND = "c4"
EXIT_PATIENCE = datetime.timedelta(seconds=5)  # for what hooks of the program are doing as it ends

_registered = False
_gated = False


def _candidates():
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [named if "/" in named else f"./{named}"]
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    here = Path(__file__).resolve().parent
    folders += [here / "lib", here.parent / "c4_nccl" / "lib", here.parents[1] / "lib", here.parents[1] / "build" / "lib"]
    return [LIBRARY] + [str(folder / LIBRARY) for folder in folders if (folder / LIBRARY).exists()]


def _release(version):
    return version.split("+")[0].split(".")[:2]


def _extension():
    import torch

    from . import _build

    if _release(_build.TORCH) != _release(torch.__version__):
        raise ImportError(
            f"c4_torch was built for torch {_build.TORCH}, and this is torch {torch.__version__}: build it again "
            "(pip install --no-build-isolation --no-deps python/c4_torch)"
        )
    from . import _C

    global _gated
    if not _gated:
        _gated = True
        atexit.register(_C.close_exit_gate, EXIT_PATIENCE)
    return _C


def library():
    """The file of C4's library that the backend uses; it is opened by the first call."""
    return _extension().open_library(_candidates())


def _new_group(options, _backend_options):
    library()
    return _extension().new_group(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        ranks=options.global_ranks_in_group,
    )


def _offer_stacks():
    """C4_PYTHON_STACKS=1: `c4 stacks` may ask this process where it is."""
    try:
        from c4_train.stacks import offer_if_asked
    except ImportError:  # this package stands alone
        return
    offer_if_asked()


def register():
    """Makes the backend known to torch.distributed; again: nothing."""
    global _registered
    import torch.distributed as dist  # where it loads this package itself, torch comes back here meanwhile

    if _registered or not dist.is_available():
        return
    _registered = True
    dist.Backend.register_backend(BACKEND, _new_group, extended_api=True, devices=["cpu"])


_offer_stacks()
register()
