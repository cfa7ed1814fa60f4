"""Agewise on Flower: Flower carries the messages, Agewise decides and accounts."""

from __future__ import annotations

import importlib.util

from agewise.errors import InvalidInput


def require_flower() -> None:
    """Raise a helpful error where Flower is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("flwr", "psutil")):
        raise InvalidInput(
            "engine", "'flower'", "an installation with Flower", "pip install 'agewise[flower]'"
        )
