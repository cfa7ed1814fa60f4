"""What a run that was begun has left in its folder, as far as that tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from agewise.checks import parse_json
from agewise.cli.results import SPOKEN
from agewise.errors import AgewiseError
from agewise.federation.files import ledger_file
from agewise.federation.journal import JOURNAL, PLAN, RECORD, SETTINGS
from agewise.federation.ledgers import is_one_file, own_ledgers
from agewise.federation.uploads import uploads_of
from agewise.privacy.accounts import Accounts
from agewise.privacy.ledger import Ledger
from agewise.wording import listed


def clients_in(folder: Path) -> int:
    """How many clients a run has, as far as its folder tells."""
    try:
        return len(parse_json((folder / "plan.json").read_text(encoding="utf-8"))["assignments"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def aftermath(folder: Path) -> str:
    """What a run without a model leaves behind, and what to do about it."""
    try:
        settings = parse_json((folder / SETTINGS).read_text(encoding="utf-8"))
        plan = parse_json((folder / PLAN).read_text(encoding="utf-8"))
        names = [one["client"] for one in plan["assignments"]]
        slot = plan["scenario"]["aggregate_at"]
        released = [name for name in names if name in _released(folder, settings, names)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"Its folder {folder} cannot be read ({error}): see the clients' ledgers."
    who = f"{len(released)} of {len(names)} clients: {listed(released, SPOKEN)}"
    who = who if released else "nothing"
    if settings["engine"] == "flower":
        who += " (as far as this folder tells; each node's own ledger has the last word)"
    if (folder / RECORD).exists():
        ledgers = "" if settings["ledgers"] is None else f" --ledgers {settings['ledgers']}"
        then = f"It has ended. Check what was released with: agewise check {folder}{ledgers}"
    else:
        then = f"Go on with: agewise run --resume {folder}"
    return (
        f"It was to be aggregated in slot {slot}. Folder: {folder}\n"
        f"Released already: {who}.\n{then}"
    )


def _released(folder: Path, settings: dict[str, Any], names: list[str]) -> set[str]:
    """The clients whose release has happened: by the server's journal, and by their ledgers."""
    lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines()
    told = [uploads_of(parse_json(line)) for line in lines]
    known = {name for uploads in told if uploads is not None for name in uploads}
    if settings["engine"] == "flower":
        return known
    place = Path(settings["ledgers"] or own_ledgers(folder, len(names)))
    if is_one_file(place):
        with suppress(AgewiseError), Accounts.read(place) as accounts:
            known |= accounts.recorded(settings["run"]).keys()
        return known
    for name in names:
        with suppress(AgewiseError), Ledger.read(ledger_file(place, name)) as ledger:
            if ledger.find(settings["run"]) is not None:
                known.add(name)
    return known
