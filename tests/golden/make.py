"""Write what the golden tests compare with: `make golden`.

Cells are searched for anew only where `cells.json` is gone, or no longer has the same choices.
"""

import json
import os
import tempfile
from pathlib import Path

import cells
import facts
import refusals


def write(path, lines):
    lines = list(lines)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(lines)} lines, {path.stat().st_size:,} bytes")


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def make_cells():
    kept = cells.stored() if cells.CELLS.exists() else {"cells": []}
    if kept["cells"] and not list(cells.uncovered(kept)):
        return
    found, refused = cells.search(kept["cells"])
    rows = ",\n".join(line(one) for one in found)
    gone = ",\n".join(f"{line(pair)}: {line(field)}" for pair, field in refused.items())
    write(cells.CELLS, [f'{{"cells": [\n{rows}\n],\n"refused": {{\n{gone}\n}}}}'])


def main():
    make_cells()
    with tempfile.TemporaryDirectory() as place:
        os.environ["AGEWISE_STATE"] = str(Path(place, "state"))
        folder = Path(place, "work")
        folder.mkdir()
        write(refusals.REFUSALS, map(line, refusals.table(folder)))
        make_facts()


def make_facts():
    made = [facts.facts_of(cell) for cell in cells.stored()["cells"]]
    write(facts.FACTS, [line({"canary": facts.canary()}), *map(line, made)])


if __name__ == "__main__":
    main()
