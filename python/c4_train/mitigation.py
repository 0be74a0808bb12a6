"""Plans of who computes what, for a training program in Python: c4/mitigation.h by ctypes.

    from c4_train.mitigation import Mitigation
    mitigation = Mitigation()                     # once NCCL is loaded, after c4_train.marks.mark() or declare()
    for step in ...:
        plan = mitigation.poll()
        number = plan.number if plan else 0
        ... the least and the greatest number of all ranks, by a reduction ...
        if they are equal and not 0:
            ... do as the plan says: all ranks have it ...
            mitigation.done(plan, seconds that the job stood still)      # or mitigation.refuse(plan)
        ... the step ...
        mitigation.report(step, micro_batches=32, group_micro_batches=8, micro_batch_s=0.12)

What a plan asks for stands in c4/mitigation.h and docs/mitigation.md. Where NCCL is not C4's there are never plans, and
nothing is done. Nothing here blocks or fails the program; ValueError is for what makes no sense. Any thread.
"""

import ctypes
from collections import namedtuple

from c4_train.marks import DIMENSIONS, _find, _Worker

MICRO_BATCHES, PLACEMENT = 2, 3  # c4PlanStrategy
_DONE, _REFUSED = 2, 3  # c4PlanOutcome

# Of MICRO_BATCHES: first_micro_batch, group_micro_batches, micro_batches, weight. Of PLACEMENT: next_* say which worker
# this process becomes; its state goes to the rank send_to, that of its new place comes from receive_from (-1: nothing).
Plan = namedtuple(
    "Plan",
    "number strategy micro_batches first_micro_batch group_micro_batches weight "
    "next_dp_rank next_stage next_tp_rank next_cp_rank send_to receive_from",
)


class _Plan(ctypes.Structure):
    """c4Plan of c4/mitigation.h."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("number", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in ("strategy", "micro_batches", "first_micro_batch", "group_micro_batches")),
        ("weight", ctypes.c_double),
        *((name, ctypes.c_int) for name in Plan._fields[6:]),
    ]


class _Step(ctypes.Structure):
    """c4Step of c4/mitigation.h."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("step", ctypes.c_int64),
        ("micro_batches", ctypes.c_int),
        ("group_micro_batches", ctypes.c_int),
        ("micro_batch_ns", ctypes.c_uint64),
    ]


class Mitigation:
    """`active`: the NCCL that is loaded is C4's, and new enough."""

    def __init__(self):
        self._library = _find()
        if self._library is not None and not hasattr(self._library, "c4PlanPoll"):
            self._library = None
        self.active = self._library is not None
        if not self.active:
            return
        self._library.c4PlanPoll.argtypes = [ctypes.POINTER(_Plan)]
        self._library.c4PlanAnswer.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64]
        self._library.c4StepReport.argtypes = [ctypes.POINTER(_Step)]

    def declare(self, layers=0, **places):
        """Which worker the process is, dp=(rank, size), pp=..., tp=..., cp=...: before the first poll, and again after it
        has changed places. marks.mark() declares it, too."""
        unknown = sorted(set(places) - set(DIMENSIONS))
        if unknown:
            raise ValueError(f"{unknown[0]} is none of {', '.join(DIMENSIONS)}")
        if not self.active:
            return
        ranks = {kind: places.get(kind, (0, 1)) for kind in DIMENSIONS}
        worker = _Worker(
            size=ctypes.sizeof(_Worker),
            stage=ranks["pp"][0],
            layers=layers,
            **{f"{kind}_rank": ranks[kind][0] for kind in ("dp", "tp", "cp")},
            **{f"{kind}_size": ranks[kind][1] for kind in DIMENSIONS},
        )
        if self._library.c4MarkWorker(ctypes.byref(worker)) != 0:
            raise ValueError(f"C4 takes no worker with the place {places}; its log says why")

    def poll(self):
        """The Plan that is to be carried out, the same again until it is answered; None: there is none."""
        if not self.active:
            return None
        plan = _Plan(size=ctypes.sizeof(_Plan))
        if not self._library.c4PlanPoll(ctypes.byref(plan)):
            return None
        return Plan(*(getattr(plan, name) for name in Plan._fields))

    def done(self, plan, cost_s):
        """It is in force, on all ranks; the job stood still for it for `cost_s`."""
        if cost_s < 0:
            raise ValueError(f"a plan costs no {cost_s} s")
        self._answer(plan, _DONE, round(cost_s * 1e9))

    def refuse(self, plan):
        """It cannot be done; nothing has changed."""
        self._answer(plan, _REFUSED, 0)

    def _answer(self, plan, outcome, cost_ns):
        if self.active and self._library.c4PlanAnswer(plan.number, outcome, cost_ns) != 0:
            raise ValueError(f"plan {plan.number} is not the one that was polled last, or was answered already")

    def report(self, step, micro_batches, group_micro_batches, micro_batch_s):
        """A step is over: of `micro_batches` of the whole batch this process's data-parallel group computed
        `group_micro_batches`, and one takes this process `micro_batch_s`, forward and backward."""
        if not self.active:
            return
        told = _Step(
            size=ctypes.sizeof(_Step),
            step=step,
            micro_batches=micro_batches,
            group_micro_batches=group_micro_batches,
            micro_batch_ns=max(0, round(micro_batch_s * 1e9)),
        )
        if self._library.c4StepReport(ctypes.byref(told)) != 0:
            raise ValueError(
                f"step {step} with {group_micro_batches} of {micro_batches} micro-batches in this group cannot be"
            )
