"""explore: the page in the browser."""

from __future__ import annotations

import threading
import webbrowser
from importlib.util import find_spec
from typing import Annotated

import typer

from agewise.cli.console import ScenarioArgument, people
from agewise.errors import InvalidInput
from agewise.scenario import load_scenario

NEEDED = ("starlette", "uvicorn")

commands = typer.Typer()


@commands.command("explore", epilog="Example: agewise explore london --port 8700")
def explore_command(
    scenario: ScenarioArgument = "common_level",
    port: Annotated[
        int | None,
        typer.Option(help="Port on this machine; 0: any that is free. Default: 8642, or any."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only say where the page is.")
    ] = False,
) -> None:
    """Open a page with sliders: what ageing buys, for a scenario or for your own readings.

    The page is served on the loopback address of this machine and asks nobody else for anything.
    Ctrl-C ends it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(
            "agewise explore",
            f"without {' and '.join(missing)}",
            "the extra explore installed",
            "pip install 'agewise[explore]'",
        )
    load_scenario(scenario)  # before anything is opened
    from agewise.explore.server import listen, serve  # noqa: PLC0415  (an extra)

    listening = listen(port)

    def ready(url: str) -> None:
        people.print(
            f"Explorer at {url} (Ctrl-C ends it). Nothing leaves this machine.",
            soft_wrap=True,
            highlight=False,
        )
        if not no_browser:
            threading.Thread(target=_open, args=(url,), daemon=True).start()

    try:
        serve(scenario, listening, ready)
    except KeyboardInterrupt:
        people.print("Ended.")
    finally:
        listening.close()


def _open(url: str) -> None:
    try:
        found = webbrowser.open(url)
    except (webbrowser.Error, OSError):
        found = False
    if not found:
        people.print(
            f"No browser was found here: open {url} in one yourself, or say --no-browser.",
            soft_wrap=True,
            highlight=False,
        )
