"""A clock that only waiting moves on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from agewise.federation.settings import Engine

READ_BY: dict[Engine, tuple[str, ...]] = {
    "local": ("agewise.federation.local", "agewise.federation.local_transport"),
    "flower": ("agewise.federation.flower.transport", "agewise.federation.flower.client_app"),
}
"""The modules that read the time, by engine."""


class Clock:
    """A clock in the place of the `time` module: only sleeping passes time, and at once.

    >>> clock = Clock()
    >>> clock.sleep(60.0)
    >>> clock.time()
    1000060.0
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.shown = start  #: seconds; set it to make the clock jump

    def time(self) -> float:
        """Seconds that the clock shows."""
        return self.shown

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.shown += seconds

    @contextmanager
    def kept_by(self, engine: Engine = "local") -> Iterator[Clock]:
        """While this lasts, runs by an engine in this process go by this clock."""
        with ExitStack() as stack:
            for module in READ_BY[engine]:
                stack.enter_context(mock.patch(f"{module}.time", self))
            yield self
