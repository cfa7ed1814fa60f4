"""rounds: carry a plan out again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from agewise.cli.console import (
    BAR,
    AtOnceOption,
    DeploymentOption,
    DropOption,
    EpsilonOption,
    EstimatorOption,
    EveryOption,
    JsonOption,
    LevelOption,
    NoiseOption,
    PromiseOption,
    RootCertificatesOption,
    RoundsOption,
    ScenarioArgument,
    SlotTimeoutOption,
    StartsAtOption,
    SuperlinkOption,
    TurnsOption,
    WaitOption,
    console,
    generator,
    people,
    print_json,
    progress_bar,
    read_problem,
    wrote,
)
from agewise.cli.layout import Column, print_facts, print_table
from agewise.cli.running import EngineOption, fresh_folder, refuse_given
from agewise.errors import InvalidInput
from agewise.federation.handover import REPORT, rounds_page, rounds_pictures
from agewise.federation.happened import OnMissing
from agewise.federation.journal import RECORD, STATEMENT
from agewise.federation.round_results import Heard, Round, RoundsResult
from agewise.federation.rounds import resume_rounds, run_rounds
from agewise.planning import plan as make_plan
from agewise.report.tables import shorten

SPOKEN = 40
"""Rounds up to which each is told as it comes in; of more, about so many."""

SHOWN = 12
"""Rounds in the table at the end: the first and the last ones."""

FOR_EVER = 30
"""Rounds of a plan without end that are carried out unless told otherwise."""

commands = typer.Typer()


@commands.command(
    "rounds", epilog="Example: agewise rounds for_ever --now 365 --promise every_moment"
)
def rounds_command(
    context: typer.Context,
    scenario: ScenarioArgument = "for_ever",
    engine: EngineOption = "local",
    rounds: RoundsOption = None,
    every: EveryOption = None,
    promise: PromiseOption = None,
    turns: TurnsOption = None,
    now: Annotated[
        int | None,
        typer.Option(
            help="Rounds to carry out now (default: all planned; 30 where there is no end)."
        ),
    ] = None,
    epsilon: EpsilonOption = None,
    estimator: EstimatorOption = None,
    level: LevelOption = None,
    noise: NoiseOption = None,
    on_missing: Annotated[
        OnMissing, typer.Option(help="What to do about a client that misses its slot.")
    ] = "fail",
    readings: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet with client, slot, value; slots go on over rounds."),
    ] = None,
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the clients' ledgers, kept from run to run, or one NAME.ledger for all."
        ),
    ] = None,
    starts_at: StartsAtOption = 0,
    drop: DropOption = None,
    deployment: DeploymentOption = None,
    superlink: SuperlinkOption = None,
    root_certificates: RootCertificatesOption = None,
    wait: WaitOption = 120.0,
    slot_timeout: SlotTimeoutOption = 180.0,
    at_once: AtOnceOption = 100,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible records and noise: a rehearsal, NOT private.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder in which the run gets its own.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; --now: rounds in all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Carry a plan out round after round, and account for all rounds together.

    The noise is set so that ε holds over all planned rounds, also if there is no end of them.
    Every client keeps its account in its ledger and refuses a round that would break it. After
    Ctrl-C, or to add rounds to a plan without an end, go on with --resume.
    """
    if now is not None and now < 1:
        raise InvalidInput("--now", now, "a whole number, 1 or more")
    if resume is not None:
        folder = resume
        refuse_given(context, "--resume", allowed={"resume", "now", "as_json"})
        with live_rounds() as heard:
            result = resume_rounds(folder, rounds=now, heard=heard)
    else:
        problem = read_problem(
            scenario,
            epsilon=epsilon,
            estimator=estimator,
            level=level,
            noise=noise,
            rounds=rounds,
            every=every,
            promise=promise,
            turns=turns,
        )
        if problem.rounds == 1:
            raise InvalidInput(
                "--rounds", 1, "2 or more, or forever", "Use agewise run for one round."
            )
        with progress_bar("planning") as advance:
            made = make_plan(problem, progress=advance)
        count = FOR_EVER if now is None and problem.rounds is None else now
        folder = fresh_folder(out, problem.name)
        with live_rounds() as heard:
            result = run_rounds(
                made,
                None if seed is None else generator(seed),
                engine=engine,
                rounds=count,
                folder=folder,
                sources=readings,
                ledgers=ledgers,
                on_missing=on_missing,
                starts_at=starts_at,
                drop=drop or (),
                deployment=deployment,
                superlink=superlink,
                root_certificates=root_certificates,
                wait=wait,
                slot_timeout=slot_timeout,
                at_once=at_once,
                heard=heard,
            )
    picture = folder / "rounds.png"
    result.plot(picture)
    if as_json:
        print_json({**result.to_dict(), "folder": str(folder)})
    else:
        _print(result)
    statement = (folder / STATEMENT).read_text(encoding="utf-8")
    page = rounds_page(result, statement, rounds_pictures(result))
    (folder / REPORT).write_text(page, encoding="utf-8")
    wrote([folder / RECORD, folder / STATEMENT, folder / REPORT, picture])


@contextmanager
def live_rounds() -> Iterator[Heard]:
    """Tell of rounds as they come in: a table of the last ones, or lines where that cannot be."""
    if not people.is_terminal:
        yield _lines
        return
    done: deque[Round] = deque(maxlen=SHOWN)
    bar = Progress(*BAR, console=people)
    task = bar.add_task("rounds", total=None)
    with Live(bar, console=people, transient=True) as live:

        def heard(one: Round, total: int) -> None:
            done.append(one)
            bar.update(task, completed=one.number, total=total)
            live.update(Group(_live_table(done), bar))

        yield heard


def _live_table(done: Iterable[Round]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("round", "estimate", "±", "truth", "ε so far", "classical sum", "missing"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in done:
        missing = escape(shorten(", ".join(one.missing), 24))
        table.add_row(*_cells(one, 5), f"[yellow]{missing}[/]")
    return table


def _cells(one: Round, digits: int) -> list[str]:
    """A round's number, estimate, error, truth and what was spent so far."""
    return [
        f"{one.number}",
        f"{one.estimate[0]:.{digits}g}",
        f"{one.estimate_gap**0.5:.4g}",
        "" if one.truth is None else f"{one.truth[0]:.{digits}g}",
        "none" if one.epsilon is None else f"{one.epsilon:.{digits}g}",
        "none" if one.classical is None else f"{one.classical:.{digits}g}",
    ]


def _lines(one: Round, total: int) -> None:
    if total <= SPOKEN or one.number % (total // SPOKEN) == 0 or one.missing:
        spent = "" if one.epsilon is None else f"  ε {one.epsilon:.4g}"
        lost = f"  [yellow]missing: {escape(', '.join(one.missing))}[/]" if one.missing else ""
        line = f"round {one.number:>5}  {one.estimate[0]:.6g}{spent}{lost}"
        people.print(line, soft_wrap=True, highlight=False)


def _print(result: RoundsResult) -> None:
    problem = result.plan.problem
    unit = escape(f" ({problem.release_unit})") if problem.release_unit else ""
    columns = [
        Column("round"),
        Column("slot"),
        Column(f"estimate{unit}"),
        Column("± expected"),
        Column("truth"),
        Column("ε so far"),
        Column("classical sum"),
    ]
    shown = list(result.rounds)
    if len(shown) > SHOWN:
        shown = shown[: SHOWN // 2] + shown[-SHOWN // 2 :]
    rows = [
        [number, f"{one.published_at}", *rest]
        for one in shown
        for number, *rest in [_cells(one, 6)]
    ]
    screen = console()
    print_table(screen, escape(result.plan.title), columns, rows)
    facts = result.facts()
    if result.plan.verdict is not None:
        step = result.plan.next_step or ""
        facts = [("verdict on the plan", result.plan.verdict), ("instead", step), *facts]
    print_facts(screen, [(name, escape(text)) for name, text in facts])
