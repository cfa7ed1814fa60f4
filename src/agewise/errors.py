"""One family of exceptions: what is wrong, the value, what is allowed, what to do."""

from __future__ import annotations

from typing import Any

import numpy as np


class AgewiseError(Exception):
    """Base of everything that Agewise raises on purpose."""

    exit_code = 1


class InvalidInput(AgewiseError, ValueError):
    """A value that cannot be used. The message names field, value, allowed range and remedy."""

    exit_code = 2

    def __init__(self, field: str, value: Any, allowed: str, remedy: str = "") -> None:
        self.field, self.value, self.allowed, self.remedy = field, value, allowed, remedy
        message = f"{field} is {_shown(value)}; allowed: {allowed}."
        super().__init__(f"{message} {remedy}".rstrip())


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, np.generic):
        text = repr(value.item())
    return text if len(text) <= 120 else text[:117] + "..."
