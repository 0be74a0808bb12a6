"""Where this process stands, for `c4 stacks`: the Python stacks of all its threads, told on request.

    from c4_train.stacks import offer
    offer()

With the environment variable C4_PYTHON_STACKS=1, `import c4_torch` does it. The process then takes one signal, the one named by
SIGNAL, and answers it by writing its stacks into memory that `c4 stacks` reads (a memfd); nothing is done until it comes. The
answer needs no lock of the interpreter's: a rank that hangs in a collective gives it as well. A stopped process does not.
"""

import faulthandler
import fcntl
import os
import signal

VARIABLE = "C4_PYTHON_STACKS"
NAME = "c4-python-stacks"  # of the memfd; cli/base/thread_stacks.h has it, too
SIGNAL = signal.SIGRTMAX - 3

_memory = None


def offer():
    """From now on `c4 stacks` shows where this process is; True unless it cannot (no memfd, or the signal is taken)."""
    global _memory
    if _memory is not None:
        return True
    if not hasattr(os, "memfd_create") or signal.getsignal(SIGNAL) not in (signal.SIG_DFL, None):
        return False
    try:
        memory = os.memfd_create(NAME)
    except OSError:
        return False
    # Whoever reads it empties it: what is written goes to its end.
    fcntl.fcntl(memory, fcntl.F_SETFL, fcntl.fcntl(memory, fcntl.F_GETFL) | os.O_APPEND)
    faulthandler.register(SIGNAL, file=memory, all_threads=True, chain=False)
    _memory = memory
    return True


def offer_if_asked():
    """Does it where C4_PYTHON_STACKS=1."""
    return os.environ.get(VARIABLE, "0") not in ("", "0") and offer()
