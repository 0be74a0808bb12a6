"""Sequences dealt out so that all data-parallel ranks, and in them all micro-batches, have the same work.

For a data loader that has a global batch before it:

    from c4_train.redistribution import redistribute
    dealt = redistribute(lengths, dp_size=8, micro_batches=4, per_token_squared=1e-4)
    mine = [i for i, rank in enumerate(dealt.dp_rank) if rank == my_rank]

Every rank that asks with the same lengths and options gets the same answer. Needs libc4_whatif.so: the file that
the environment variable C4_WHATIF_LIBRARY names, else the one in ../../lib or ../../build/lib of this file, else one
that the loader finds. Nothing else but Python's own library. Any thread.
"""

import ctypes
import os
from collections import namedtuple
from pathlib import Path

LIBRARY = "libc4_whatif.so"
LIBRARY_VARIABLE = "C4_WHATIF_LIBRARY"

# dp_rank and micro_batch: lists, one element a sequence. step_before, step_after: the cost of a step. speedup: their
# ratio, without what communication costs. fullest_tokens: in a micro-batch; above most_tokens where not all could be
# kept to it.
Redistribution = namedtuple(
    "Redistribution", ["dp_rank", "micro_batch", "step_before", "step_after", "speedup", "fullest_tokens"]
)


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("dp_size", ctypes.c_int32),
        ("micro_batches", ctypes.c_int32),
        ("pp_size", ctypes.c_int32),
        ("per_token", ctypes.c_double),
        ("per_token_squared", ctypes.c_double),
        ("most_tokens", ctypes.c_uint64),
    ]


class _Gain(ctypes.Structure):
    _fields_ = [
        ("step_before", ctypes.c_double),
        ("step_after", ctypes.c_double),
        ("speedup", ctypes.c_double),
        ("fullest_tokens", ctypes.c_uint64),
    ]


_library = None


def _candidates():
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [named]
    home = Path(__file__).resolve().parents[2]
    built = [home / folder / LIBRARY for folder in ("lib", "build/lib")]
    return [str(path) for path in built if path.exists()] + [LIBRARY]


def _load():
    global _library
    if _library is not None:
        return _library
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            deal = library.c4_redistribute
            error = library.c4_redistribution_error
        except (OSError, AttributeError) as failed:
            reasons.append(str(failed))
            continue
        numbers = ctypes.POINTER(ctypes.c_int32)
        deal.argtypes = [
            ctypes.POINTER(_Options),
            ctypes.POINTER(ctypes.c_uint32),
            ctypes.c_size_t,
            ctypes.c_int,
            numbers,
            numbers,
            ctypes.POINTER(_Gain),
        ]
        deal.restype = ctypes.c_int
        error.argtypes = []
        error.restype = ctypes.c_char_p
        _library = library
        return library
    raise ImportError(
        f"{LIBRARY} cannot be loaded: build C4, or name the file in {LIBRARY_VARIABLE} ({'; '.join(reasons)})"
    )


def _array(kind, values, low, high, what):
    # Checked here: ctypes cuts numbers off without a word.
    numbers = [int(value) for value in values]
    for number in numbers:
        if not low <= number <= high:
            raise ValueError(f"{what} has {number}, which is not between {low} and {high}")
    return (kind * len(numbers))(*numbers)


def redistribute(
    tokens,
    dp_size,
    micro_batches,
    *,
    per_token=1.0,
    per_token_squared=0.0,
    most_tokens=0,
    pp_size=1,
    placed=None,
):
    """Where each of the sequences of these lengths goes, longest first, and what that gains.

    A sequence of n tokens costs n * (per_token + n * per_token_squared), in any unit. most_tokens: that a micro-batch
    can hold; 0: any number. placed: (dp_rank, micro_batch), where the sequences stand now, which the gain is counted
    from; without it, from sequences dealt out as they come. pp_size counts for the gain alone.

    ValueError: a length or an option cannot be. ImportError: the library is not to be found.
    """
    library = _load()
    lengths = _array(ctypes.c_uint32, tokens, 0, 2**32 - 1, "tokens")
    count = len(lengths)
    for name, value in (("dp_size", dp_size), ("micro_batches", micro_batches), ("pp_size", pp_size)):
        if not 1 <= value < 2**31:
            raise ValueError(f"{name} is {value}; it has to be 1 or more")
    if not 0 <= most_tokens < 2**64:
        raise ValueError(f"most_tokens is {most_tokens}; it has to be 0 or more")
    ranks = (ctypes.c_int32 * count)()
    micro = (ctypes.c_int32 * count)()
    if placed is not None:
        ranks = _array(ctypes.c_int32, placed[0], 0, 2**31 - 1, "placed")
        micro = _array(ctypes.c_int32, placed[1], 0, 2**31 - 1, "placed")
        if len(ranks) != count or len(micro) != count:
            raise ValueError(f"placed has {len(ranks)} and {len(micro)} elements for {count} sequences")
    options = _Options(
        ctypes.sizeof(_Options), dp_size, micro_batches, pp_size, per_token, per_token_squared, most_tokens
    )
    gain = _Gain()
    result = library.c4_redistribute(
        ctypes.byref(options), lengths, count, 0 if placed is None else 1, ranks, micro, ctypes.byref(gain)
    )
    if result != 0:
        message = library.c4_redistribution_error().decode()
        raise MemoryError(message) if result == 2 else ValueError(message)
    return Redistribution(
        list(ranks), list(micro), gain.step_before, gain.step_after, gain.speedup, gain.fullest_tokens
    )
