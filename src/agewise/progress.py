"""How long computations say how far they are."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is to do."""
