"""Which entity belongs to which client."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from agewise.errors import InvalidInput
from agewise.readings.files import blocks, line, scan

COLUMNS = ("entity", "client")


def read_groups(path: Path | str) -> dict[str, list[str]]:
    """Read a CSV or Parquet file with the columns entity and client: each client's entities."""
    file = Path(path)
    names = scan(file).collect_schema().names()
    if not set(COLUMNS) <= set(names):
        raise InvalidInput(
            "groups", f"{path} with the columns {', '.join(names)}", "entity and client"
        )
    groups: dict[str, list[str]] = {}
    for block in blocks(file, COLUMNS):
        for row, entity, client in block.with_columns(pl.col(COLUMNS).cast(pl.String)).rows():
            if entity is None or client is None:
                raise InvalidInput(
                    f"groups: {line(file, row)} of {path}",
                    f"entity {entity or 'missing'}, client {client or 'missing'}",
                    "both",
                    "Complete or remove it.",
                )
            groups.setdefault(client, []).append(entity)
    if not groups:
        raise InvalidInput("groups", f"{path}, empty", "an entity and a client per row")
    return groups
