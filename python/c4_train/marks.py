"""Marks of a PyTorch job for `c4 whatif` and SMon, from hooks, with one line:

    from c4_train.marks import mark
    mark(model, optimizer)                # after init_process_group; mesh=... where there is more than data parallel

Marked are the forward and backward computation of each micro-batch, the optimizer, and the steps; communication the
library sees by itself. A forward of `model` that is to be learnt from begins a micro-batch, its backward lasts until all
gradients are there (not until they are reduced), and the step of the last optimizer ends the step; the next begins
there. Where NCCL is not C4's, nothing is done. While nobody asks for marks one costs some microseconds.

On accelerators the program waits at both ends of a mark for what was launched, but only while marks are recorded.
"""

import ctypes
import os
import sys

LIBRARY = "libnccl.so.2"
FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3  # c4Operation of c4/marks.h
NONE = -1

# Names of a mesh's dimensions, by what they are; several of one kind count as one, the first varying slowest.
DIMENSIONS = {
    "dp": ("dp", "data", "dp_replicate", "dp_shard", "replicate", "shard", "fsdp", "hsdp", "ddp"),
    "pp": ("pp", "pipe", "pipeline"),
    "tp": ("tp", "tensor", "model"),
    "cp": ("cp", "sp", "context", "sequence"),
}


class _Worker(ctypes.Structure):
    """c4Worker of c4/marks.h."""

    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_int)
        for name in (
            "dp_rank", "stage", "tp_rank", "cp_rank", "dp_size", "pp_size", "tp_size", "cp_size", "vpp_size", "layers"
        )
    ]  # fmt: skip


def _find():
    """The functions of c4/marks.h in the NCCL that is loaded; None where that is not C4's."""
    c4_torch = sys.modules.get("c4_torch")
    names = [LIBRARY]
    if c4_torch is not None:
        try:
            names.insert(0, c4_torch.library())  # of its own, where torch has NVIDIA's
        except (ImportError, RuntimeError):
            pass
    for name in names:
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        if not hasattr(library, "c4MarkBegin"):
            continue
        library.c4MarkWorker.argtypes = [ctypes.POINTER(_Worker)]
        library.c4MarkBegin.restype = ctypes.c_uint64
        library.c4MarkOperation.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]
        library.c4MarkOperation.restype = None
        library.c4MarkStep.argtypes = [ctypes.c_int64, ctypes.c_uint64]
        library.c4MarkStep.restype = None
        return library
    return None


def _tensors(value):
    """All tensors in lists, tuples, dictionaries and data classes."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def place(mesh=None):
    """{"dp": (rank, size), ...} of this process: of a DeviceMesh by the names of its dimensions, else all data parallel."""
    import torch.distributed as dist

    if not dist.is_initialized():
        raise RuntimeError("mark() comes after torch.distributed.init_process_group")
    if mesh is None:
        return {"dp": (dist.get_rank(), dist.get_world_size())}
    if not mesh.mesh_dim_names:
        raise ValueError('the mesh has no names: init_device_mesh(..., mesh_dim_names=("pp", "dp", "tp"))')
    found = {}
    for name in mesh.mesh_dim_names:
        kind = next((kind for kind, names in DIMENSIONS.items() if name in names), None)
        if kind is None:
            known = ", ".join(each for names in DIMENSIONS.values() for each in names)
            raise ValueError(f"the mesh has a dimension {name}, which is none of {known}")
        rank, size = found.get(kind, (0, 1))
        found[kind] = (rank * mesh[name].size() + mesh[name].get_local_rank(), size * mesh[name].size())
    return found


class Marks:
    """What mark() made. `active`: the NCCL that is loaded is C4's."""

    def __init__(self, library, synchronize):
        self.active = library is not None
        self._library = library
        self._synchronize = synchronize
        self._hooks = []
        self._step = 0
        self._step_began = None  # None: no step has begun
        self._micro_batch = 0
        self._forward_began = 0
        self._optimizer_began = 0

    def remove(self):
        """Marks no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _begin(self):
        began = self._library.c4MarkBegin()
        if began == 0 or self._synchronize is None:
            return began
        self._synchronize()
        return self._library.c4MarkBegin()

    def _end(self, operation, micro_batch, began):
        if began == 0:
            return
        if self._synchronize is not None:
            self._synchronize()
        self._library.c4MarkOperation(operation, micro_batch, 0 if micro_batch >= 0 else NONE, began)

    def _learns(self, module):
        import torch

        return module.training and torch.is_grad_enabled()

    def _before_forward(self, module, _arguments):
        if not self._learns(module):
            return
        if self._step_began is None:
            self._step_began = self._library.c4MarkBegin()
        self._forward_began = self._begin()

    def _after_forward(self, module, _arguments, outputs):
        if not self._learns(module):
            return
        micro_batch = self._micro_batch
        self._micro_batch += 1
        self._end(FORWARD, micro_batch, self._forward_began)
        started = []

        def before_backward(gradient):
            if not started:
                started.append(self._begin())
                self._after_backward(lambda: self._end(BACKWARD, micro_batch, started[0]))
            return gradient

        for tensor in _tensors(outputs):
            if tensor.requires_grad:
                tensor.register_hook(before_backward)

    def _after_backward(self, done):
        """When the engine is through, before what DistributedDataParallel waits for then: its call comes later."""
        from torch.autograd import Variable

        Variable._execution_engine.queue_callback(done)

    def _before_optimizer(self, *_arguments):
        self._optimizer_began = self._begin()

    def _after_optimizer(self, is_last):
        self._end(OPTIMIZER, NONE, self._optimizer_began)
        if not is_last or self._step_began is None:
            return
        # Always: a job that is held counts its steps by these calls.
        self._library.c4MarkStep(self._step, self._step_began)
        self._step += 1
        self._micro_batch = 0
        self._step_began = self._library.c4MarkBegin()


def mark(model, *optimizers, mesh=None, layers=0, synchronize=None):
    """Marks what `model` (wrapped, as it is called) and the optimizers do from now on; a Marks.

    layers: of the whole model; 0: not said. synchronize: what waits for all that was launched; by default
    torch.accelerator.synchronize where the model's parameters are on an accelerator, nothing on the CPU.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"mark() takes a torch.nn.Module, and this is a {type(model).__name__}")
    if not optimizers:
        raise TypeError("mark() takes at least one optimizer: mark(model, optimizer)")
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"mark() takes torch.optim.Optimizer, and this is a {type(optimizer).__name__}")
    where = place(mesh)
    if synchronize is None and any(parameter.device.type != "cpu" for parameter in model.parameters()):
        synchronize = torch.accelerator.synchronize
    library = _find()
    marks = Marks(library, synchronize)
    if library is None:
        return marks
    ranks = {kind: where.get(kind, (0, 1)) for kind in DIMENSIONS}
    worker = _Worker(
        size=ctypes.sizeof(_Worker),
        stage=ranks["pp"][0],
        layers=layers,
        **{f"{kind}_rank": ranks[kind][0] for kind in ("dp", "tp", "cp")},
        **{f"{kind}_size": ranks[kind][1] for kind in DIMENSIONS},
    )
    if library.c4MarkWorker(ctypes.byref(worker)) != 0:
        raise ValueError(f"C4 takes no worker with the place {where} and {layers} layers; its log says why")
    hooks = [
        model.register_forward_pre_hook(marks._before_forward),
        model.register_forward_hook(marks._after_forward),
    ]
    for number, optimizer in enumerate(optimizers):
        is_last = number == len(optimizers) - 1
        hooks.append(optimizer.register_step_pre_hook(marks._before_optimizer))
        hooks.append(optimizer.register_step_post_hook(lambda *_, last=is_last: marks._after_optimizer(last)))
    marks._hooks = hooks
    return marks
