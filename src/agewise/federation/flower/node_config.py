"""What apps find in `context.node_config` beside the node's own place."""

from __future__ import annotations

import re

from agewise.errors import InvalidInput

OWN_KEYS = ("agewise-config", "partition-id", "num-partitions")
"""Keys of a node's configuration in Flower that say which node it is."""
PAIR = re.compile(r"""(?<!\S)[A-Za-z0-9_-]+=("[^"]*"|'[^']*'|[^\s"']+)(?!\S)""")


def checked_node_config(text: str) -> str:
    """Return further node configuration as Flower reads it, or say what is wrong with it."""
    from click import ClickException  # noqa: PLC0415
    from flwr.common.config import parse_config_args  # noqa: PLC0415

    form = 'key=value pairs with spaces between, as in: data="/srv/meters" batch-size=32'
    pairs = [pair[0] for pair in PAIR.finditer(text)]
    if PAIR.sub("", text).strip():
        raise InvalidInput("node_config", text, form)
    try:
        values = parse_config_args([" ".join(pairs), ""])  # one alone might be read as a file
    except (ClickException, ValueError):
        raise InvalidInput(
            "node_config",
            text,
            form,
            "A value is a text in quotes, a number, true or false; give each key once.",
        ) from None
    for key, value in values.items():
        if key in OWN_KEYS:
            others = "keys other than " + ", ".join(OWN_KEYS)
            raise InvalidInput("node_config", f"{key}={value}", others, "Each node has its own.")
    return " ".join(pairs)
