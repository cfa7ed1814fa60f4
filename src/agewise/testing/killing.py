"""A run cut off before or after a named step, as if its process had been killed there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal, NoReturn
from unittest import mock

from agewise.checks import one_of

Moment = Literal["before", "after"]

STEPS: dict[str, tuple[str, ...]] = {
    "ledger created": ("privacy.ledger:Ledger._begin",),
    "records trained on": ("federation.client:ClientAgent.train",),
    "noise drawn": ("federation.client:ClientAgent._release",),
    "event inserted": ("privacy.ledger:Ledger._append",),
    "release committed": ("privacy.ledger:Ledger.release",),
    "batch inserted": ("privacy.accounts:Accounts._write", "privacy.accounts:Accounts.go_on_with"),
    "upload received": (
        "federation.server:Server.receive",
        "federation.server:Server.receive_alike",
    ),
    "journal written": ("federation.journal:RunFolder.keep",),
    "slot closed": ("federation.server:Server.close",),
    "settings written": ("federation.journal:RunFolder.write_settings",),
    "document written": ("federation.journal:RunFolder.write",),
    "server's ledger created": ("federation.one_draw:ServerLedger._begin",),
    "run opened": ("federation.one_draw:OneDraw.open",),
    "journal confirmed": ("federation.journal:RunFolder.sync",),
    "server's noise drawn": ("federation.one_draw:OneDraw._noised",),
    "draw inserted": ("federation.one_draw:ServerLedger._append",),
    "draw committed": ("federation.one_draw:OneDraw.__call__",),
    "result awaited": ("federation.flower.submission:Submission.wait",),
}
"""The steps of a run, and the methods that take them; the last one is of Flower only."""


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it, and what was in memory is gone."""


@dataclass
class Kill:
    """A kill that is to come."""

    left: int  #: how many more times the step is to be met
    done: bool = False  #: whether it has come


@contextmanager
def at_steps(reached: Callable[[str, Moment], None], steps: Iterable[str]) -> Iterator[None]:
    """While this lasts, call `reached` with the step and the moment, before and after each."""

    def hooked(step: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def method(owner: Any, *arguments: Any, **named: Any) -> Any:
            reached(step, "before")
            result = plain(owner, *arguments, **named)
            reached(step, "after")
            return result

        return method

    with ExitStack() as stack:
        for step in steps:
            for path in STEPS[step]:
                where, _, name = f"agewise.{path}".rpartition(".")
                owner = resolve_name(where)
                method = hooked(step, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, method))
        yield


def _die() -> NoReturn:
    raise Killed


@contextmanager
def killed_at(
    step: str, moment: Moment = "before", times: int = 1, end: Callable[[], None] = _die
) -> Iterator[Kill]:
    """Cut off what runs in this context, the given time that it comes by a step of `STEPS`.

    `end` is what ends it: raise `Killed`, or kill the process for real. What is yielded says
    whether it came to that.

    >>> import agewise as aw
    >>> plan = aw.plan(aw.scenarios.london())
    >>> with killed_at("upload received", "after", times=2) as kill:
    ...     try:
    ...         aw.run(plan)
    ...     except Killed:
    ...         print("cut off:", kill.done)
    cut off: True
    """
    one_of("step", step, tuple(STEPS))
    one_of("moment", moment, ("before", "after"))
    kill = Kill(times)

    def reached(_: str, here: Moment) -> None:
        if here == moment and not kill.done:
            kill.left -= 1
            if kill.left == 0:
                kill.done = True
                end()

    with at_steps(reached, [step]):
        yield kill
