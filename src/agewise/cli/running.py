"""run: carry a plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource
from rich.markup import escape

from agewise.checks import refuse_unwritable
from agewise.cli.aftermath import aftermath, clients_in
from agewise.cli.console import (
    AtOnceOption,
    CalibrationOption,
    CapacityOption,
    DeltaOption,
    DeploymentOption,
    DropOption,
    EpsilonOption,
    EstimatorOption,
    JsonOption,
    LearnerOption,
    LevelOption,
    MaxAgedOption,
    MaxClassicalOption,
    MaxDeltaOption,
    MaxReleaseOption,
    MechanismOption,
    MixingOption,
    NoiseOption,
    RootCertificatesOption,
    ScenarioArgument,
    ServerNoiseOption,
    SlotTimeoutOption,
    StartsAtOption,
    SuperlinkOption,
    WaitOption,
    WindowOption,
    as_typed,
    client_policy,
    generator,
    people,
    print_json,
    progress_bar,
    read_problem,
    steps_bar,
    wrote,
)
from agewise.cli.results import SPOKEN, print_result, rehearsal_facts
from agewise.errors import Faults, InvalidInput
from agewise.federation import RunIncomplete, RunResult, rehearse, resume, run
from agewise.federation.handover import REPORT
from agewise.federation.happened import OnMissing, Step
from agewise.federation.settings import Clock, Engine, check_choices
from agewise.federation.size import refuse_many_records
from agewise.federation.sources import NOT_REHEARSED
from agewise.loss import Estimate
from agewise.planning import Plan
from agewise.planning import plan as make_plan
from agewise.problem import Problem

TOLD = 500
"""Clients after which the bar of a run of many is moved."""

REHEARSED = 300
"""Clients up to which a run is compared with repetitions unless told otherwise."""

EngineOption = Annotated[Engine, typer.Option(help="What carries the messages.")]
commands = typer.Typer()


@commands.command(
    "run", epilog="Example: agewise run london --clock wall --slot-seconds 2 --on-missing replan"
)
def run_command(
    context: typer.Context,
    scenario: ScenarioArgument = "london",
    engine: EngineOption = "local",
    clock: Annotated[Clock, typer.Option(help="As fast as possible, or in real time.")] = "virtual",
    slot_seconds: Annotated[
        float, typer.Option(help="Length of a slot by the wall clock; its end is the deadline.")
    ] = 60.0,
    on_missing: Annotated[
        OnMissing, typer.Option(help="What to do about a client that misses its slot.")
    ] = "fail",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    level: LevelOption = None,
    calibration: CalibrationOption = None,
    learner: LearnerOption = None,
    mechanism: MechanismOption = None,
    delta: DeltaOption = None,
    noise: NoiseOption = None,
    capacity: CapacityOption = None,
    plan: Annotated[
        Path | None, typer.Option(help="Run this plan.json instead of planning SCENARIO.")
    ] = None,
    readings: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet with client, slot, value; otherwise simulated records."),
    ] = None,
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the clients' ledgers, kept from run to run, or one NAME.ledger for all."
        ),
    ] = None,
    starts_at: StartsAtOption = 0,
    max_aged_epsilon: MaxAgedOption = None,
    max_classical_epsilon: MaxClassicalOption = None,
    max_delta: MaxDeltaOption = None,
    max_release_epsilon: MaxReleaseOption = None,
    window: WindowOption = None,
    allow_server_noise: ServerNoiseOption = True,
    deployment: DeploymentOption = None,
    superlink: SuperlinkOption = None,
    root_certificates: RootCertificatesOption = None,
    wait: WaitOption = 120.0,
    slot_timeout: SlotTimeoutOption = 180.0,
    at_once: AtOnceOption = 100,
    drop: DropOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible records and noise: a rehearsal, NOT private.")
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(help="Seeded repetitions to compare the loss with the plan; 0 for none."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder in which the run gets its own.")] = Path("runs"),
    resume_from: Annotated[
        Path | None, typer.Option("--resume", help="Go on with the interrupted run in this folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Carry a plan out: collect, train, add noise, record, upload, aggregate; then account for it.

    Every client's release is in its ledger before the server sees it. After Ctrl-C go on with
    --resume; by the wall clock, slots that have passed meanwhile are closed.
    """
    if resume_from is not None:
        _refuse_few(repetitions)
        refuse_given(context, "--resume", allowed={"resume_from", "as_json", "repetitions"})
        folder = resume_from
        with _watching(folder, clients_in(folder)) as watch:
            result = resume(folder, watch=watch)
    else:
        faults, asked, rng = Faults(), None, None
        with faults.noted():
            _refuse_few(repetitions)
        with faults.noted():
            rng = None if seed is None else generator(seed)
        with faults.noted():
            if plan is not None:
                refuse_given(context, "--plan", refused=_PLANNING)
        with faults.noted():
            asked = _asked(
                plan,
                scenario,
                epsilon=epsilon,
                mixing=mixing,
                estimator=estimator,
                level=level,
                calibration=calibration,
                capacity=capacity,
                learner=learner,
                mechanism=mechanism,
                delta=delta,
                noise=noise,
            )
        problem = asked.problem if isinstance(asked, Plan) else asked
        choices: dict[str, Any] = {
            "sources": readings,
            "starts_at": starts_at,
            "clock": clock,
            "slot_seconds": slot_seconds,
            "on_missing": on_missing,
            "ledgers": ledgers,
            "drop": drop or [],
            "deployment": deployment,
            "superlink": superlink,
            "root_certificates": root_certificates,
        }
        with faults.noted():
            if problem is not None:
                _refuse_repetitions(problem, repetitions)
        with faults.noted():
            _refuse_records(None if readings is not None or engine != "local" else problem)
        with faults.noted():
            policy = client_policy(
                problem,
                max_aged_epsilon=max_aged_epsilon,
                max_classical_epsilon=max_classical_epsilon,
                window=window,
                max_delta=max_delta,
                allow_server_noise=allow_server_noise,
                max_release_epsilon=max_release_epsilon,
            )
        with faults.noted():
            refuse_unwritable("--out", out)
        with faults.noted():
            names = drop or [] if problem is None else [one.name for one in problem.clients]
            check_choices(names, engine, private=seed is None, policy=None, **choices)
        faults.refuse()
        chosen = _planned(asked)
        folder = fresh_folder(out, chosen.problem.name)
        with _watching(folder, len(chosen.assignments)) as watch:
            result = run(
                chosen,
                engine,
                rng,
                folder=folder,
                policy=policy,
                watch=watch,
                wait=wait,
                slot_timeout=slot_timeout,
                at_once=at_once,
                **choices,
            )
    rehearsal = _rehearsal(result, repetitions)
    from agewise import figures  # noqa: PLC0415  (matplotlib takes half a second to import)

    paths = figures.save(figures.run_figure(result), folder, "timeline")
    if len(result.aggregate) > 1:
        paths += figures.save(figures.model_figure(result), folder, "model")
    if as_json:
        print_json(
            {**result.to_dict(), "folder": str(folder), "rehearsal": rehearsal_facts(rehearsal)}
        )
    else:
        source = None if resume_from is not None or plan is not None else as_typed(context)
        print_result(result, rehearsal, source)
    for name, count in result.clipped.items():
        people.print(
            f"[yellow]{escape(name)}: {count} readings are not as the scenario's model "
            "has them[/] (not part of the record: this number is not noised).",
            soft_wrap=True,
            highlight=False,
        )
    (folder / REPORT).write_text(result.to_html(), encoding="utf-8")
    wrote([folder / "record.json", folder / "statement.md", folder / REPORT, *paths])


def _asked(path: Path | None, scenario: str, **changes: Any) -> Problem | Plan:
    if path is None:
        return read_problem(scenario, **changes)
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidInput("--plan", f"{path} ({reason})", "a plan.json") from None


def _planned(asked: Problem | Plan) -> Plan:
    if isinstance(asked, Plan):
        return asked
    with progress_bar("planning") as advance:
        return make_plan(asked, progress=advance)


def _refuse_few(repetitions: int | None) -> None:
    if repetitions is not None and (repetitions < 0 or repetitions == 1):
        raise InvalidInput("--repetitions", repetitions, "0, or 2 and more")


def _refuse_repetitions(problem: Problem, repetitions: int | None) -> None:
    if repetitions and not problem.known.drawable:
        raise InvalidInput("--repetitions", repetitions, "0 for this plan", NOT_REHEARSED)


def _refuse_records(simulated: Problem | None) -> None:
    if simulated is not None:
        refuse_many_records(simulated)


_PLANNING = {
    "scenario",
    "epsilon",
    "mixing",
    "estimator",
    "level",
    "calibration",
    "capacity",
    "learner",
    "mechanism",
    "delta",
    "noise",
}


def refuse_given(
    context: typer.Context,
    option: str,
    *,
    allowed: set[str] | None = None,
    refused: set[str] | None = None,
) -> None:
    """Refuse options that would be ignored, rather than ignore them."""
    for name in context.params:
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ours = name in {"plan", "resume_from"}
        if given and not ours and (name not in (allowed or {name})) | (name in (refused or ())):
            word = "SCENARIO" if name == "scenario" else f"--{name.replace('_', '-')}"
            raise InvalidInput(word, f"given with {option}", "one or the other")


def fresh_folder(out: Path, name: str) -> Path:
    """A folder that does not exist yet, named after the scenario and the time."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    stem = f"{plain[:60]}-{datetime.now():%Y%m%d-%H%M%S}"
    places = (out / f"{stem}{extra}" for extra in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(place for place in places if not place.exists())


@contextmanager
def _watching(folder: Path, clients: int = 0) -> Iterator[Callable[[Step, int, int], None]]:
    """Tell what happens while a run goes on, and how to go on with it after Ctrl-C."""
    words = {"uploaded": "green", "refused": "yellow", "missing": "yellow", "rejected": "red"}
    many, heard = clients > SPOKEN, 0
    with steps_bar("clients" if many else "slots", rate=many) as (say, advance):

        def watch(step: Step, closed: int, total: int) -> None:
            nonlocal heard
            heard += step.what in words
            if not many:
                advance(closed, total)
            elif heard % TOLD == 0 or step.what == "closed":
                advance(heard, max(clients, heard))
            if step.what != "closed" and clients <= SPOKEN:
                colour = words.get(step.what, "cyan")
                why = f" ({step.why})" if step.why else ""
                who = f"{step.client} " if step.client else ""
                say(f"slot {step.slot:>3}  {escape(who)}[{colour}]{step.what}[/]{escape(why)}")

        try:
            yield watch
        except KeyboardInterrupt:
            say(f"[yellow]Interrupted.[/] {escape(aftermath(folder))}")
            raise
        except RunIncomplete as failure:
            raise RunIncomplete(f"{failure}\n{aftermath(folder)}") from None


def _rehearsal(result: RunResult, repetitions: int | None) -> Estimate | None:
    """Repetitions of the plan that was carried out, for comparison with what it promised."""
    clients = len(result.plan.assignments)
    if repetitions is None:
        known = result.realised_loss is not None and clients <= REHEARSED
        repetitions = max(100, 3_000 // clients) if known else 0
    if repetitions == 0 or not result.plan.problem.known.drawable:
        return None
    try:
        with progress_bar("rehearsing with the stand-in") as advance:
            return rehearse(result.plan, repetitions, generator(None), advance)
    except KeyboardInterrupt:
        people.print("[yellow]Rehearsal interrupted[/]; the run itself is complete.")
        return None
