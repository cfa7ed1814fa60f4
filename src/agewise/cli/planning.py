"""plan, schemes and reproduce."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from rich.markup import escape

from agewise.cli.console import (
    CalibrationOption,
    CapacityOption,
    DeltaOption,
    EpsilonOption,
    EstimatorOption,
    EveryOption,
    JsonOption,
    LearnerOption,
    LevelOption,
    MechanismOption,
    MixingOption,
    NoiseOption,
    OutOption,
    PromiseOption,
    RoundsOption,
    ScenarioArgument,
    TurnsOption,
    as_typed,
    assumptions,
    console,
    generator,
    output_folder,
    people,
    print_assumptions,
    print_json,
    progress_bar,
    read_problem,
    wrote,
)
from agewise.cli.layout import Column, print_facts, print_table
from agewise.cli.schedules import slots_of_ages, slots_of_clients
from agewise.errors import InvalidInput
from agewise.planning import Plan, SearchMethod, evaluate
from agewise.planning import plan as make_plan
from agewise.planning import replan as make_replan
from agewise.planning.compare import FRESH, NOTHING
from agewise.planning.promise import coverage_in_words
from agewise.problem import Objective, Problem

if TYPE_CHECKING:
    from agewise.paper.schemes import SchemeRow

commands = typer.Typer()
Figures = Literal["fig1", "fig2", "fig3a", "fig3b", "gains", "level", "worth", "trust", "all"]


@commands.command(epilog="Example: agewise plan london --epsilon 0.3 --mixing exact --json")
def plan(
    context: typer.Context,
    scenario: ScenarioArgument = "london",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    level: LevelOption = None,
    calibration: CalibrationOption = None,
    learner: LearnerOption = None,
    mechanism: MechanismOption = None,
    delta: DeltaOption = None,
    objective: Annotated[Objective | None, typer.Option(help="What to minimise.")] = None,
    noise: NoiseOption = None,
    rounds: RoundsOption = None,
    every: EveryOption = None,
    promise: PromiseOption = None,
    turns: TurnsOption = None,
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
    ages: Annotated[
        str | None,
        typer.Option(
            help="Price this schedule instead of searching: 0,9,9 (an age per client), or one age."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For random and simulated searches.")] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Decide when each client collects and how much noise it adds."""
    problem = read_problem(
        scenario,
        epsilon=epsilon,
        mixing=mixing,
        estimator=estimator,
        level=level,
        calibration=calibration,
        learner=learner,
        mechanism=mechanism,
        delta=delta,
        objective=objective,
        noise=noise,
        rounds=rounds,
        every=every,
        promise=promise,
        turns=turns,
        capacity=capacity,
    )
    if ages is not None and (keep_best or method != "certified" or seed is not None):
        searching = "--method, --seed and --keep-best are about searches"
        raise InvalidInput("--ages", "given with another search", "by itself", f"{searching}.")
    if keep_best and method != "certified":
        raise InvalidInput(
            "--keep-best",
            f"given with --method {method}",
            "with certified search only",
            "The others know nothing about a schedule before they are done.",
        )
    if collected and now is None:
        raise InvalidInput(
            "--collected",
            "given without --now",
            "with --now SLOT only",
            "Say which slot it is now.",
        )
    folder = output_folder(out)
    try:
        with progress_bar("searching") as advance:
            planned = (
                evaluate(problem, slots_of_ages(problem, ages))
                if ages is not None
                else make_plan(
                    problem,
                    method,
                    rng=generator(seed),
                    keep_best=keep_best,
                    progress=advance,
                )
            )
            if now is not None:
                planned = make_replan(planned, now, slots_of_clients(collected), progress=advance)
    except KeyboardInterrupt:
        if keep_best:
            people.print("[yellow]Interrupted[/] before there was a schedule with a proven gap.")
        raise
    paths: list[Path] = []
    if folder is not None:
        from agewise import figures  # noqa: PLC0415  (matplotlib takes half a second to import)

        (folder / "plan.json").write_text(planned.to_json(), encoding="utf-8")
        paths = [folder / "plan.json"]
        paths += figures.save(figures.timeline_figure(planned), folder, "plan")
    if as_json:
        print_json(planned.to_dict())
    else:
        _print_plan(planned, as_typed(context))
    if paths:
        wrote(paths)


@commands.command(epilog="Example: agewise schemes --epsilon 0.03 --epsilon 0.1 --epsilon 0.3")
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
    """Compare the paper's six schemes: schedule, achieved ε, gap, bound, mean noise power.

    Below them stand what a server loses that collects nothing and publishes the mean it knows, and
    fresh data with classical noise, of which the server makes the best estimate.

    With --out, also draws loss gap and noise power against ε over 0.01 to 1. The noise power is
    2η² for noise of scale η, averaged over the clients; JSON calls it mean_noise.
    """
    from agewise.paper.schemes import compare_schemes  # noqa: PLC0415  (no other command wants it)

    problem = read_problem(
        scenario, mixing=mixing, estimator=estimator, calibration=calibration, capacity=capacity
    )
    folder = output_folder(out)
    with progress_bar("evaluating Theorem 1") as advance:
        rows = compare_schemes(problem, epsilon or None, progress=advance)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print_schemes(problem, rows)
    if folder is not None:
        from agewise.paper.reproduction import SWEEP  # noqa: PLC0415

        wrote(_draw_schemes(compare_schemes(problem, SWEEP.tolist()), folder, problem.unit))


@commands.command(epilog="Example: agewise reproduce all --out out")
def reproduce(
    which: Annotated[
        Figures, typer.Argument(metavar="FIGURE", help=f"One of: {', '.join(get_args(Figures))}.")
    ] = "all",
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Compute the paper's figures anew (PNG, SVG, CSV) and check its claims against them.

    Figure 3 in both readings of the paper: any number of uploads per slot, and one.

    Four figures are ours: gains (ways of setting the noise), level (clients that share a level,
    with what simpler choices lose), worth (when to collect nothing, fresh or aged data) and trust
    (who adds the noise: a drawing).
    """
    from agewise import figures  # noqa: PLC0415
    from agewise.paper import reproduction  # noqa: PLC0415

    folder = figures.prepare_folder(out)
    wanted = get_args(Figures)[:-1] if which == "all" else (which,)
    claims: list[reproduction.Claim] = []
    paths: list[Path] = []
    if "fig1" in wanted:
        planned = reproduction.timeline()
        paths += figures.save(figures.timeline_figure(planned), folder, "fig1")
        paths.append(figures.save_csv([asdict(a) for a in planned.assignments], folder, "fig1"))
    if "fig2" in wanted:
        with people.status("figure 2: searching for targets at which its claims hold"):
            rows, checked, targets = reproduction.figure_2()
        claims += checked
        paths += figures.save(figures.figure_2_figure(rows, targets), folder, "fig2")
        paths.append(figures.save_csv(rows, folder, "fig2"))
    if "fig3a" in wanted or "fig3b" in wanted:
        with progress_bar("figure 3: evaluating Theorem 1") as advance:
            sweep, checked = reproduction.figure_3(advance)
        claims += [c for c in checked if c.figure in wanted]
        paths += [p for p in _draw_schemes(sweep, folder, "Wh", wanted) if p.stem in wanted]
    if "gains" in wanted:
        with people.status("gains: every way of setting the noise"):
            gains = reproduction.calibration_gains()
        title = "Ways of setting the noise, beside a server that knows the laws"
        paths += figures.save(figures.gains_figure(gains, "Wh", title), folder, "gains")
        paths.append(figures.save_csv(gains, folder, "gains"))
    if "level" in wanted:
        with people.status("level: clients that share a level"):
            losses = reproduction.level_gains()
        title = "The paper's clients, with an unknown level of 20 Wh in common"
        paths += figures.save(figures.gains_figure(losses, "Wh", title), folder, "level")
        paths.append(figures.save_csv(losses, folder, "level"))
    if "trust" in wanted:
        paths += figures.save(figures.trust_figure(), folder, "trust")
    if "worth" in wanted:
        with progress_bar("worth: planning") as advance:
            map_rows = reproduction.worth_map(advance)
        paths += figures.save(figures.worth_figure(map_rows, "Wh"), folder, "worth")
        paths.append(figures.save_csv(map_rows, folder, "worth"))
    if claims:
        paths.append(figures.save_csv([asdict(c) for c in claims], folder, "claims"))
    if as_json:
        print_json({"claims": [asdict(c) for c in claims], "files": [str(p) for p in paths]})
        return
    if claims:
        columns = [
            Column("figure"),
            Column("claim", words=True),
            Column("holds"),
            Column("evidence", words=True),
        ]
        rows_of = [
            (one.figure, one.claim, "[green]yes[/]" if one.holds else "[red]no[/]", one.evidence)
            for one in claims
        ]
        print_table(console(), "The paper's claims, checked", columns, rows_of, range(len(rows_of)))
    wrote(paths)


def _print_plan(planned: Plan, source: str) -> None:
    headings, rows = planned.table()
    columns = [Column(escape(one), words=one == "client") for one in headings]
    screen = console()
    if planned.verdict is not None:
        screen.print(f"[bold]{escape(planned.verdict)}[/]", highlight=False)
        step = (planned.next_step or "").replace("SCENARIO", source)
        screen.print(f"Next: {escape(step)}", highlight=False, soft_wrap=True)
    print_table(screen, escape(planned.title), columns, [[escape(x) for x in row] for row in rows])
    minimised = (
        "closed form" if planned.method == "certified" else f"{planned.problem.objective} objective"
    )
    how = (
        "drawn at random"
        if planned.method == "random"
        else f"{planned.method} search, minimising the {minimised}"
    )
    facts = [fact for fact in planned.facts() if fact[0] != "verdict"]  # it stands first
    facts.append(("schedule by", how))
    facts += [("ε assumes", rests_on) for rests_on in assumptions(planned.problem)]
    facts += [("note", note) for note in planned.notes]
    print_facts(screen, [(name, escape(value)) for name, value in facts])


def _print_schemes(problem: Problem, rows: list[SchemeRow]) -> None:
    square = f" ({escape(problem.unit)}²)" if problem.unit else ""
    columns = [
        Column("scheme", words=True),
        Column("ε"),
        Column("reached ε"),
        Column("ages", words=True),
        Column(f"gap{square}"),
        Column(f"bound{square}", spare=True),
        Column(f"mean noise power{square}"),
    ]
    cells: list[tuple[str, ...]] = []
    ends = []
    crowded = problem.capacity is not None and problem.capacity < len(problem.clients)
    fresh_name = FRESH + ", whatever the capacity" * crowded
    for epsilon in dict.fromkeys(row.epsilon for row in rows):
        section = [row for row in rows if row.epsilon == epsilon]
        cells += [
            (
                f"{row.scheme}) {row.name}",
                f"{row.epsilon:g}",
                f"{row.achieved_epsilon:.4g}",
                "(mean)" if row.ages is None else ", ".join(map(str, row.ages)),
                f"{row.gap:.6g}",
                f"{row.bound:.6g}",
                f"{row.mean_noise:.4g}",
            )
            for row in section
        ]
        fresh = ", ".join("0" * len(problem.clients))
        nothing = f"{section[0].nothing_collected:.6g}"
        cells.append((NOTHING, "0", "0", "", nothing, "", "0"))
        known = f"{section[0].classical_fresh:.6g}"
        cells.append((fresh_name, f"{epsilon:g}", f"{epsilon:g}", fresh, known, "", ""))
        ends.append(len(cells) - 1)
    screen = console()
    print_table(screen, f"{escape(problem.name)}: the six schemes", columns, cells, ends)
    print_facts(screen, coverage_in_words(problem))
    print_assumptions(screen, problem)


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
