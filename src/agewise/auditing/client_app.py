"""A Flower ClientApp as a black box: messages in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agewise.arrays import Array
from agewise.errors import InvalidInput

Request = Callable[[Array], tuple[Any, Any]]
"""Records → the (Message, Context) with which the app is called for them."""


def is_client_app(subject: Any) -> bool:
    """Whether something is a Flower ClientApp, without importing Flower."""
    return any(
        kind.__name__ == "ClientApp" and kind.__module__.split(".")[0] == "flwr"
        for kind in type(subject).__mro__
    )


def app_mechanism(app: Any, request: Request | None) -> Callable[[Array], Array]:
    """A function of records that calls the app and returns all arrays and metrics of its reply."""
    if request is None:
        raise InvalidInput(
            "request",
            None,
            "a function from records to (Message, Context)",
            "It says how a client of this app comes by its records.",
        )

    _name_task()

    def mechanism(records: Array) -> Array:
        reply = app(*request(records))
        if reply.has_error():
            raise InvalidInput("reply of the ClientApp", str(reply.error), "one with content")
        found = [
            np.ravel(array.numpy())
            for record in reply.content.array_records.values()
            for array in record.values()
        ]
        found += [
            np.ravel(np.asarray(value, float))
            for record in reply.content.metric_records.values()
            for value in record.values()
        ]
        if not found:
            raise InvalidInput("reply of the ClientApp", "without arrays", "arrays, or metrics")
        return np.concatenate(found)

    return mechanism


def _name_task() -> None:
    """Flower lets nobody write a message outside of a task: this one gets a number."""
    try:
        from flwr.supercore.task_identity import TaskIdentity  # noqa: PLC0415
    except ImportError:  # another version, which does not ask
        return
    for name in ("run_id", "node_id", "task_id"):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, 1)
