"""How long computations say how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is to do."""

_LISTENER: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(progress: Progress | None) -> Iterator[None]:
    """Let `progress` hear what computations deep inside have to tell; None: whoever hears now."""
    token = _LISTENER.set(progress or _LISTENER.get())
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(done: int, total: int) -> None:
    """Tell whoever listens how much is done, and how much there is to do."""
    progress = _LISTENER.get()
    if progress is not None:
        progress(done, total)
