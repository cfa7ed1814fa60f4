"""Run benchmarks and record them: `python -m benchmarks [NAME ...]`, all of them by default.

--list says what there is and how long it took; `docs` writes the tables of the docs anew.
"""

import ast
import importlib
import sys
from pathlib import Path

from benchmarks.recording import ROOT, Recording, read, with_tables


def available() -> dict[str, str]:
    """Every module here with a `main`, and what it says of itself."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def show_list() -> None:
    for name, says in available().items():
        recorded = read(name)
        took = f"{recorded['seconds'] / 60:.1f} min" if recorded else "not recorded"
        print(f"{name:12} {took:>13}  {says}")


def write_docs() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        anew = with_tables(text)
        if anew != text:
            page.write_text(anew, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


def run(names: list[str]) -> None:
    for number, name in enumerate(names, 1):
        print(f"\n== {name} ({number} of {len(names)}) ==", flush=True)
        recording = Recording(name)
        tables = importlib.import_module(f"benchmarks.{name}").main()
        if tables is not None:
            print(f"wrote {recording.write(tables).relative_to(ROOT)}", flush=True)


def main(words: list[str]) -> int:
    names = available()
    unknown = [word for word in words if word not in {*names, "docs", "--list"}]
    if unknown:
        allowed = ", ".join([*names, "docs", "--list"])
        print(f"benchmark is {unknown[0]!r}; allowed: {allowed}", file=sys.stderr)
        return 2
    if "--list" in words:
        show_list()
        return 0
    wanted = [word for word in words if word != "docs"]
    if wanted or not words:
        run(wanted or list(names))
    if "docs" in words:
        write_docs()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
