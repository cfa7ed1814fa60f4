"""The command line: progress on stderr, tables for people, --json for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from agewise import __version__
from agewise.errors import AgewiseError, InvalidInput
from agewise.learning import Estimator
from agewise.mixing import ASSUMPTIONS, METHODS, Method
from agewise.noise import slot_table
from agewise.plan import Plan, SearchMethod
from agewise.plan import plan as make_plan
from agewise.plan import replan as make_replan
from agewise.privacy.calibration import Rule
from agewise.privacy.ledger import Event, Ledger
from agewise.problem import Objective, Problem
from agewise.scenario import TEMPLATE, load_scenario
from agewise.scenarios import BUILT_IN
from agewise.schemes import SchemeRow, compare_schemes

app = typer.Typer(
    name="agewise",
    help="When each client of a federation collects its data, and how much noise it adds.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 2 bad input, 3 a privacy budget would be overspent, "
    "130 interrupted.",
)
people = Console(stderr=True)


def _console() -> Console:
    """The console for results: wide enough for whole numbers where nobody set a width."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 110))


Figures = Literal["fig1", "fig2", "fig3a", "fig3b", "gains", "all"]

ScenarioArgument = Annotated[
    str, typer.Argument(help="A TOML file, or one of: " + ", ".join(BUILT_IN) + ".")
]
EpsilonOption = Annotated[float | None, typer.Option(help="Privacy target ε of every client.")]
MixingOption = Annotated[
    Method | None, typer.Option(help="Whose prior knowledge Δ holds for (see docs/notation.md).")
]
EstimatorOption = Annotated[
    Estimator | None, typer.Option(help="Average as collected, or moved forward in time.")
]
CalibrationOption = Annotated[Rule | None, typer.Option(help="Noise by the formula, or tight.")]
CapacityOption = Annotated[int | None, typer.Option(help="Clients that may collect in one slot.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for figures and data files.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agewise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: agewise plan london --epsilon 0.3 --mixing exact --json")
def plan(
    scenario: ScenarioArgument = "london",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    calibration: CalibrationOption = None,
    objective: Annotated[Objective | None, typer.Option(help="What to minimise.")] = None,
    capacity: CapacityOption = None,
    method: Annotated[SearchMethod, typer.Option(help="How to search.")] = "certified",
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="On Ctrl-C, show the best schedule so far.")
    ] = False,
    now: Annotated[
        int | None, typer.Option(help="Plan anew from this slot on, the earlier ones being past.")
    ] = None,
    collected: Annotated[
        list[str] | None,
        typer.Option(help="With --now: NAME=SLOT of a client that has collected; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For random and simulated searches.")] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Decide when each client collects and how much noise it adds."""
    problem = _problem(
        scenario, epsilon=epsilon, mixing=mixing, estimator=estimator, calibration=calibration,
        objective=objective, capacity=capacity,
    )  # fmt: skip
    folder = _folder(out)
    with progress_bar("searching") as advance:
        made = make_plan(
            problem, method=method, rng=_generator(seed), keep_best=keep_best, progress=advance
        )
        if now is not None:
            made = make_replan(made, now, _collected(collected), progress=advance)
    if as_json:
        print_json(made.to_dict())
    else:
        _print_plan(made)
    if folder is not None:
        from agewise import figures  # noqa: PLC0415  (matplotlib takes half a second to import)

        (folder / "plan.json").write_text(made.to_json(), encoding="utf-8")
        paths = figures.save(figures.timeline_figure(made), folder, "plan")
        _wrote([folder / "plan.json", *paths])


@app.command(epilog="Example: agewise schemes --epsilon 0.03 --epsilon 0.1 --epsilon 0.3")
def schemes(
    scenario: ScenarioArgument = "london",
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Privacy target; may be given several times.")
    ] = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    calibration: CalibrationOption = None,
    capacity: CapacityOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Compare the paper's six schemes: schedule, achieved ε, gap, bound, mean noise.

    With --out, also draws loss and noise against ε over 0.01 to 1.
    """
    problem = _problem(
        scenario, mixing=mixing, estimator=estimator, calibration=calibration, capacity=capacity
    )
    folder = _folder(out)
    with progress_bar("evaluating Theorem 1") as advance:
        rows = compare_schemes(problem, epsilon or None, progress=advance)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print_schemes(problem, rows)
    if folder is not None:
        from agewise.reproduction import SWEEP  # noqa: PLC0415

        _wrote(_draw_schemes(compare_schemes(problem, SWEEP.tolist()), folder, problem.unit))


@app.command(epilog="Example: agewise reproduce all --out out")
def reproduce(
    which: Annotated[Figures, typer.Argument(help="Which figure.")] = "all",
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Compute the paper's figures anew (PNG, SVG, CSV) and check its claims against them."""
    from agewise import figures, reproduction  # noqa: PLC0415

    folder = figures.prepare_folder(out)
    every = ("fig1", "fig2", "fig3a", "fig3b", "gains")
    wanted = every if which == "all" else (which,)
    claims: list[reproduction.Claim] = []
    paths: list[Path] = []
    if "fig1" in wanted:
        made = reproduction.timeline()
        paths += figures.save(figures.timeline_figure(made), folder, "fig1")
        paths.append(figures.save_csv([asdict(a) for a in made.assignments], folder, "fig1"))
    if "fig2" in wanted:
        with people.status("figure 2: searching for targets at which its claims hold"):
            rows, found, targets = reproduction.figure_2()
        claims += found
        paths += figures.save(figures.figure_2_figure(rows, targets), folder, "fig2")
        paths.append(figures.save_csv(rows, folder, "fig2"))
    if "fig3a" in wanted or "fig3b" in wanted:
        with progress_bar("figure 3: evaluating Theorem 1") as advance:
            sweep, found = reproduction.figure_3(advance)
        claims += [c for c in found if c.figure in wanted]
        paths += [p for p in _draw_schemes(sweep, folder, "Wh", wanted) if p.stem in wanted]
    if "gains" in wanted:
        with people.status("gains: every way of setting the noise"):
            gains = reproduction.calibration_gains()
        paths += figures.save(figures.gains_figure(gains, "Wh"), folder, "gains")
        paths.append(figures.save_csv(gains, folder, "gains"))
    if claims:
        paths.append(figures.save_csv([asdict(c) for c in claims], folder, "claims"))
    if as_json:
        print_json({"claims": [asdict(c) for c in claims], "files": [str(p) for p in paths]})
        return
    if claims:
        shown = Table(
            title="The paper's claims, checked",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 1, 1),
        )
        for heading in ("figure", "claim", "holds", "evidence"):
            shown.add_column(heading, no_wrap=heading in ("figure", "holds"))
        for one in claims:
            shown.add_row(
                one.figure, one.claim, "[green]yes[/]" if one.holds else "[red]no[/]", one.evidence
            )
        _console().print(shown)
    _wrote(paths)


@app.command(epilog="Example: agewise init my_federation && agewise plan my_federation.toml")
def init(
    name: Annotated[str, typer.Argument(help="Name of the scenario; writes NAME.toml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented scenario file to start from."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not re.fullmatch(r"\w[\w. -]*", path.name) or path.stem in BUILT_IN:
        raise InvalidInput(
            "NAME", repr(name), "letters, digits, _ and -, and not the name of a built-in scenario"
        )
    if path.exists() and not force:
        raise InvalidInput("NAME", str(path), "a file that does not exist", "Or give --force.")
    text = TEMPLATE.replace("my_federation", path.stem)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            "NAME", str(path), "a file that can be written", f"{error.strerror}."
        ) from None
    people.print(f"Wrote {path}. Next: agewise plan {path}", soft_wrap=True, highlight=False)


@app.command(epilog="Example: agewise ages london --epsilon 0.3 --mixing any_prior --out out")
def ages(
    scenario: ScenarioArgument = "london",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Show what ageing buys: Δ, the classical ε and the noise scale of each client at each age."""
    problem = _problem(
        scenario, epsilon=epsilon, mixing=mixing, estimator=estimator, calibration=calibration
    )
    folder = _folder(out)
    rows = []
    for client in problem.clients:
        table = slot_table(client, problem)
        rows += [
            {
                "client": client.name,
                "age": int(age),
                "delta": float(table.delta[slot]),
                "classical_epsilon": float(table.classical_epsilon[slot]),
                "sensitivity": float(table.sensitivity[slot]),
                "noise_scale": float(table.scale[slot]),
            }
            for slot, age in reversed(list(enumerate(table.ages)))
        ]
    if as_json:
        print_json(rows)
    else:
        _print_ages(problem, rows)
    if folder is not None:
        _draw_ages(problem, rows, folder)


books = typer.Typer(
    help="Look into a client's ledger: what was released, and what it adds up to.",
    no_args_is_help=True,
)
app.add_typer(books, name="ledger")
LedgerArgument = Annotated[Path, typer.Argument(help="The ledger file of a client.")]


@books.command(epilog="Example: agewise ledger show north.ledger --json")
def show(path: LedgerArgument, as_json: JsonOption = False) -> None:
    """List the events of a ledger, checked on the way. Never changes it."""
    with Ledger.read(path) as ledger:
        events = ledger.events()
    if as_json:
        print_json([_facts(event) for event in events])
        return
    shown = Table(title=escape(str(path)), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("#", "client", "collected", "aggregated", "classical ε", "scale", "made at"):
        shown.add_column(heading, justify="left" if heading == "client" else "right")
    for event in events:
        spent = f"{event.epsilon:.4g}" if event.private else "stand-in"
        shown.add_row(
            str(event.number), escape(event.client), str(event.collect_at),
            str(event.aggregate_at), spent, f"{event.scale:.4g}", event.made_at,
        )  # fmt: skip
    console = _console()
    console.print(shown)
    classical = math.fsum(event.epsilon for event in events if event.private)
    console.print(f"classical ε in all: {classical:.6g}", highlight=False)


@books.command(epilog="Example: agewise ledger verify north.ledger")
def verify(path: LedgerArgument) -> None:
    """Check the file and its hash chain. Damage is reported, never repaired."""
    with Ledger.read(path) as ledger:
        count = ledger.verify()
    typer.echo(f"{path}: {count} events, every one as it was written.")


@books.command(epilog="Example: agewise ledger export north.ledger --csv > events.csv")
def export(
    path: LedgerArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of JSON.")] = False,
) -> None:
    """Print all events for other programs, payloads in hexadecimal."""
    with Ledger.read(path) as ledger:
        rows = [{**_facts(event), "payload": event.payload.hex()} for event in ledger.events()]
    if not as_csv:
        print_json(rows)
        return
    names = [field.name for field in fields(Event)]
    writer = csv.DictWriter(sys.stdout, fieldnames=names)
    writer.writeheader()
    writer.writerows(rows)


def _facts(event: Event) -> dict[str, Any]:
    facts = event.facts()
    if not event.private:
        facts["epsilon"] = None  # a seed can be replayed: nothing is claimed for it
    return facts


def _print_plan(made: Plan) -> None:
    problem, unit = made.problem, escape(made.problem.unit)
    shown = Table(
        title=f"{escape(problem.name)}: aggregate in slot {problem.aggregate_at}, "
        f"ε = {problem.epsilon:g}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    shown.add_column("client")
    scale = f"noise scale{f' ({unit})' if unit else ''}"
    for heading in ("collect in slot", "age", "Δ", "classical ε", "aged ε", scale):
        shown.add_column(heading, justify="right")
    for one in made.assignments:
        shown.add_row(
            escape(one.client), str(one.collect_at), str(one.age), f"{one.delta:.4f}",
            f"{one.classical_epsilon:.4g}", f"{one.aged_epsilon:.4g}", f"{one.noise_scale:.4g}",
        )  # fmt: skip
    console = _console()
    console.print(shown)
    square = f" {unit}²" if unit else ""
    facts = [("loss gap", f"{made.gap:.6g}{square}")]
    if made.bound is not None:
        facts.append(("Theorem 1 bound", f"{made.bound:.6g}{square} ({made.bound_evaluation})"))
    if made.lower_bound is None:
        facts.append(("optimality", "nothing proven for this search"))
    else:
        facts.append(
            ("optimality", f"no schedule has an objective below {made.lower_bound:.6g}{square} "
             f"(relative gap {made.relative_gap:.2g})")
        )  # fmt: skip
    how = (
        "drawn at random"
        if made.method == "random"
        else (
            f"{made.method} search, minimising the "
            + ("closed form" if made.method == "certified" else f"{problem.objective} objective")
        )
    )
    facts.append(("schedule by", how))
    facts.append(("ε assumes", ASSUMPTIONS[problem.mixing]))
    facts += [("note", note) for note in made.notes]
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(f"[bold]{name}[/]", value if name != "note" else escape(value))
    console.print(grid)


def _print_schemes(problem: Problem, rows: list[SchemeRow]) -> None:
    unit = f" ({escape(problem.unit)}²)" if problem.unit else ""
    shown = Table(
        title=f"{escape(problem.name)}: the six schemes",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    shown.add_column("scheme", no_wrap=True)
    for heading in ("ε", "reached ε", "ages", f"gap{unit}", "bound", "mean noise"):
        shown.add_column(heading, justify="right")
    for index, row in enumerate(rows):
        shown.add_row(
            f"{row.scheme}) {row.name}",
            f"{row.epsilon:g}",
            f"{row.achieved_epsilon:.4g}",
            "(mean)" if row.ages is None else ", ".join(map(str, row.ages)),
            f"{row.gap:.6g}", f"{row.bound:.6g}", f"{row.mean_noise:.4g}",
            end_section=index + 1 == len(rows) or rows[index + 1].epsilon != row.epsilon,
        )  # fmt: skip
    console = _console()
    console.print(shown)
    _print_assumptions(console, problem)


def _print_assumptions(console: Console, problem: Problem) -> None:
    console.print(f"ε assumes {ASSUMPTIONS[problem.mixing]}", highlight=False)


def _draw_schemes(
    rows: list[SchemeRow], folder: Path, unit: str, wanted: tuple[str, ...] = ("fig3a", "fig3b")
) -> list[Path]:
    from agewise import figures  # noqa: PLC0415

    square = f" ({unit}²)" if unit else ""
    paths: list[Path] = []
    for name, quantity, label in (
        ("fig3a", "gap", f"Loss gap{square}"),
        ("fig3b", "mean_noise", f"Noise power{square}"),
    ):
        if name in wanted:
            paths += figures.save(figures.schemes_figure(rows, quantity, label), folder, name)
            paths.append(figures.save_csv([asdict(row) for row in rows], folder, name))
    return paths


def _print_ages(problem: Problem, rows: list[dict[str, Any]]) -> None:
    shown = Table(
        title=f"{escape(problem.name)}: noise for an aged ε of {problem.epsilon:g}, "
        f"mixing {problem.mixing}, estimator {problem.estimator}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("client", "age", "Δ", "classical ε", "noise scale"):
        shown.add_column(heading, justify="left" if heading == "client" else "right")
    for index, row in enumerate(rows):
        shown.add_row(
            escape(row["client"]) if row["age"] == 0 else "",
            str(row["age"]),
            f"{row['delta']:.4g}",
            f"{row['classical_epsilon']:.4g}",
            f"{row['noise_scale']:.4g}",
            end_section=index + 1 == len(rows) or rows[index + 1]["age"] == 0,
        )
    console = _console()
    console.print(shown)
    _print_assumptions(console, problem)


def _draw_ages(problem: Problem, rows: list[dict[str, Any]], folder: Path) -> None:
    from agewise import figures  # noqa: PLC0415

    curves: dict[str, list[tuple[Any, Any]]] = {}
    for method in METHODS:
        try:
            tables = [
                slot_table(c, problem.replace(mixing=method, calibration="formula"))
                for c in problem.clients
            ]
        except InvalidInput:  # a method that this process does not admit has no curve
            continue
        curves[method] = [(t.delta[::-1], t.scale[::-1]) for t in tables]
    names = [c.name for c in problem.clients]
    figure = figures.ageing_figure(names, curves, problem.epsilon, problem.unit)
    _wrote([*figures.save(figure, folder, "ages"), figures.save_csv(rows, folder, "ages")])


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while work goes on; yields the function that moves it."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=people, transient=True, disable=not people.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(document: Any) -> None:
    """Print strict JSON: numbers that JSON has no word for become null."""
    typer.echo(json.dumps(_strict(document), indent=2, allow_nan=False))


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _problem(scenario: str, **changes: Any) -> Problem:
    given = {name: value for name, value in changes.items() if value is not None}
    return load_scenario(scenario).replace(**given)


def _collected(pairs: list[str] | None) -> dict[str, int]:
    held = {}
    for pair in pairs or []:
        name, _, slot = pair.rpartition("=")
        if not name or not slot.strip().isdigit():
            raise InvalidInput("--collected", repr(pair), "NAME=SLOT")
        held[name] = int(slot)
    return held


def _folder(out: Path | None) -> Path | None:
    if out is None:
        return None
    from agewise import figures  # noqa: PLC0415

    return figures.prepare_folder(out)


def _generator(seed: int | None) -> Any:
    import numpy as np  # noqa: PLC0415

    if seed is not None and seed < 0:
        raise InvalidInput("--seed", seed, "0 or more")
    return np.random.default_rng(seed)


def _wrote(paths: list[Path]) -> None:
    names = escape(", ".join(str(p) for p in paths))
    people.print(f"Wrote {names}", soft_wrap=True, highlight=False)


def main() -> None:
    """Run the command line; anything wrong with the input ends in one message and a code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows a stand-in
            stream.reconfigure(errors="replace")
    try:
        app()
    except AgewiseError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}. Give a place that can be written to.", 2)
    except KeyboardInterrupt:
        _fail("interrupted; files written so far are complete, others are missing.", 130)


def _fail(message: str, code: int) -> None:
    people.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(code)
