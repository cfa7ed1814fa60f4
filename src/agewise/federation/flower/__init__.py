"""Agewise on Flower: Flower carries the messages, Agewise decides and accounts."""

from __future__ import annotations

import importlib.util

from agewise.errors import InvalidInput


def require_flower() -> None:
    """Raise a helpful error where Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise InvalidInput(
            "engine", "'flower'", "an installation with Flower", "pip install 'agewise[flower]'"
        )
