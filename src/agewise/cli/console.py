"""What all commands share: consoles, options, progress, JSON."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from agewise.errors import Faults, InvalidInput
from agewise.knowledge import Level
from agewise.learning import LEARNED, Estimator, Learner, learner_of
from agewise.mechanism import Kind
from agewise.mixing import Method, assumption
from agewise.privacy.account import Policy
from agewise.privacy.calibration import Rule
from agewise.problem import Problem, Trust
from agewise.records import parts, read_text, refuse
from agewise.scenario import load_scenario
from agewise.scenarios import BUILT_IN

people = Console(stderr=True)


def console() -> Console:
    """The console for results: wide enough for whole numbers where nobody set a width."""
    screen = Console()
    chosen = screen.is_terminal or "COLUMNS" in os.environ
    return screen if chosen else Console(width=max(screen.width, 110))


ScenarioArgument = Annotated[
    str, typer.Argument(help="A TOML file, or one of: " + ", ".join(BUILT_IN) + ".")
]
EpsilonOption = Annotated[float | None, typer.Option(help="Privacy target ε of every client.")]
MixingOption = Annotated[
    Method | None, typer.Option(help="Whose prior knowledge Δ holds for (see docs/notation.md).")
]
EstimatorOption = Annotated[
    Estimator | None,
    typer.Option(
        help="Average as collected (plain) or moved forward in time (propagated), or the best "
        "estimate from what the server knows and hears (best)."
    ),
]
NoiseOption = Annotated[
    Trust | None,
    typer.Option(
        help="Who adds the noise: each client (client; nobody is trusted), or once the server "
        "(server; it sees the clients' means as they are)."
    ),
]
DeploymentOption = Annotated[
    Path | None, typer.Option("--deployment", "-d", help="With flower: a federation that is up.")
]
SuperlinkOption = Annotated[
    str | None, typer.Option(help="With flower: HOST:PORT of a SuperLink elsewhere.")
]
RootCertificatesOption = Annotated[
    Path | None, typer.Option(help="With --superlink: the CA; without it, no encryption.")
]
WaitOption = Annotated[
    float, typer.Option(help="With flower: seconds to wait for the clients' nodes.")
]
SlotTimeoutOption = Annotated[
    float, typer.Option(help="With flower: deadline of a slot by the virtual clock, seconds.")
]
AtOnceOption = Annotated[
    int, typer.Option(help="With flower: messages under way at a time, at most.")
]
DropOption = Annotated[
    list[str] | None, typer.Option(help="A client that never answers; may be repeated.")
]
RoundsOption = Annotated[
    str | None,
    typer.Option(metavar="N|forever", help="How often all this is done (default: 1)."),
]
EveryOption = Annotated[
    int | None, typer.Option(help="Slots from one round to the next, with --rounds.")
]
PromiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="present|every_moment|H",
        help="What ε is about over all rounds: the value at each publication, at any time, or in "
        "the last H slots (default: the scenario's; present if it names none).",
    ),
]
TurnsOption = Annotated[
    int | None,
    typer.Option(
        help="Of many rounds, let a client take part in every j-th only, j up to this, where the "
        "loss is less so: it may then spend more each time."
    ),
]
LevelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LOADING,CORRELATION",
        help="What all records share and nobody knows: its standard deviation, and what remains of "
        "it from slot to slot; may be repeated. In place of the scenario's levels.",
    ),
]
CalibrationOption = Annotated[
    Rule | None,
    typer.Option(help="Noise by the paper's formula, sharp for any mechanism, or tight for means."),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        help="What is learnt: the mean of the records, or their shares by state. Other learners "
        "need a table: give them in the scenario file."
    ),
]
MechanismOption = Annotated[
    Kind | None, typer.Option(help="The noise: laplace, or gaussian, which needs --delta.")
]
ServerNoiseOption = Annotated[
    bool,
    typer.Option(
        "--allow-server-noise/--forbid-server-noise",
        help="Each client's policy about noise that the server is to add.",
    ),
]
DeltaOption = Annotated[
    float | None, typer.Option(help="The δ of the target (ε, δ), with gaussian noise.")
]
CapacityOption = Annotated[int | None, typer.Option(help="Clients that may collect in one slot.")]
MaxAgedOption = Annotated[
    float | None,
    typer.Option(help="Each client's limit on its total aged ε (default: the target)."),
]
MaxDeltaOption = Annotated[
    float | None,
    typer.Option(help="Each client's limit on its total aged δ (default: that of the target)."),
]
MaxClassicalOption = Annotated[
    float | None, typer.Option(help="Each client's limit on its total classical ε (default: none).")
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        help="Limits count what is collected in this number of slots in a row (default: all)."
    ),
]
MaxReleaseOption = Annotated[
    float | None,
    typer.Option(help="Each client's limit on the classical ε of one release (default: none)."),
]
StartsAtOption = Annotated[
    int, typer.Option(help="Slots of the clients' own time before slot 1 of a run.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for figures and data files.")]


BAR = (
    TextColumn("{task.description}"),
    BarColumn(),
    TaskProgressColumn(),
    TimeRemainingColumn(),
)


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while work goes on; yields the function that moves it."""
    with steps_bar(description) as (_, advance):
        yield advance


class Rate(ProgressColumn):
    """How many per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} per second")


@contextmanager
def steps_bar(
    description: str, *, rate: bool = False
) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show a bar on stderr, with how many per second if `rate`.

    Yields what prints a line above it, and what moves it.
    """
    columns = (*BAR, Rate()) if rate else BAR
    with Progress(*columns, console=people, transient=True, disable=not people.is_terminal) as bar:
        task = bar.add_task(description, total=None)

        def say(line: str) -> None:
            people.print(line, soft_wrap=True, highlight=False)

        yield say, lambda done, total: bar.update(task, completed=done, total=total)


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


def _learner(kind: str) -> Learner:
    """The learner of a bare name."""
    if kind in LEARNED and kind not in ("mean", "histogram"):
        raise InvalidInput(
            "--learner",
            kind,
            "mean or histogram",
            f"Say in the scenario file what each state stands for: "
            f'learner = {{ kind = "{kind}", ... }}.',
        )
    return learner_of({"kind": kind})


def read_problem(scenario: str, **changes: Any) -> Problem:
    """Load a scenario, with the options that were given in place of its own.

    All that is wrong with either is told at once.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    turns = given.pop("turns", None)
    faults, base = Faults(), None
    found: list[Problem] = []
    for name in [one for one in _READ if one in given]:
        text = given.pop(name)
        with faults.noted():
            given[name] = _READ[name](text)
    with faults.noted():
        base = load_scenario(scenario)
    with faults.noted():
        if base is None:  # each option by itself
            refuse([one for one in parts(Problem, given)[1] if one.field in given])
        else:
            found.append(base.replace(**_with_rounds(base, given)))
    faults.refuse()
    (problem,) = found
    if turns is None:
        return problem
    from agewise.planning.turns import take_turns  # noqa: PLC0415  (planning is slow to import)

    return take_turns(problem, turns)


PROBLEM_OPTIONS = (
    "epsilon",
    "mixing",
    "level",
    "calibration",
    "learner",
    "mechanism",
    "delta",
    "noise",
    "rounds",
    "every",
    "promise",
    "turns",
    "capacity",
)
"""Options that change the problem of a scenario; its estimator and its objective besides."""


def as_typed(context: typer.Context) -> str:
    """The scenario and the options that changed its problem, as words of a command to type."""
    words = [str(context.params["scenario"])]
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name in PROBLEM_OPTIONS:
            value = context.params[name]
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [option.opts[0], str(one)]
    return shlex.join(words)


def _with_rounds(base: Problem, given: dict[str, Any]) -> dict[str, Any]:
    """Rounds and how often they are, which go together: one without the other is refused."""
    if "rounds" not in given and "every" not in given:
        return given
    every = None if given.get("rounds", base.rounds) == 1 else base.every
    return {"rounds": base.rounds, "every": every, **given}


def _level(text: str) -> Level:
    try:
        loading, correlation = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(
            "--level",
            repr(text),
            "two numbers, LOADING,CORRELATION",
            "Say 20,0.98; for a loading per client, write [[level]] into a scenario file.",
        ) from None
    return Level(loading, correlation)


_READ: dict[str, Callable[[Any], Any]] = {
    "learner": _learner,
    "level": lambda texts: tuple(_level(text) for text in texts),
    "rounds": partial(read_text, Problem, "rounds"),
    "promise": partial(read_text, Problem, "promise"),
}
"""How the text of an option is read, where it is more than a number or a word."""


def output_folder(out: Path | None, option: str = "--out") -> Path | None:
    """Make the folder for output, if one was asked for."""
    if out is None:
        return None
    from agewise import figures  # noqa: PLC0415

    return figures.prepare_folder(out, option)


def generator(seed: int | None) -> Any:
    """A random generator for simulations."""
    import numpy as np  # noqa: PLC0415

    if seed is not None and seed < 0:
        raise InvalidInput("--seed", seed, "0 or more")
    return np.random.default_rng(seed)


def wrote(paths: list[Path]) -> None:
    """Say which files there are now."""
    names = escape(", ".join(str(p) for p in paths))
    people.print(f"Wrote {names}", soft_wrap=True, highlight=False)


def scale_in(problem: Problem) -> str:
    """The heading of noise scales, which are not noise powers: those are in the unit squared."""
    return (
        f"noise scale ({escape(problem.release_unit)})" if problem.release_unit else "noise scale"
    )


def print_assumptions(screen: Console, problem: Problem) -> None:
    """Say what the ε above rests on."""
    for rests_on in assumptions(problem):
        screen.print(f"ε assumes {rests_on}", highlight=False)


def assumptions(problem: Problem) -> list[str]:
    """What an ε rests on, for the clients of a problem."""
    return sorted({assumption(c.process, problem.mixing) for c in problem.clients})


def client_policy(
    problem: Problem | None, *, allow_server_noise: bool, **limits: Any
) -> Policy | None:
    """The policy of every client, from the options that set limits; None: each client's own.

    Limits that are left out are those of the problem. Of many rounds its promise and the slots
    between two of them belong to the policy, too. All limits that are wrong are told at once.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    faults = Faults()
    for name, value in given.items():
        with faults.noted():
            Policy(**{name: value})
    faults.refuse()
    if problem is None or (not given and allow_server_noise):
        return None
    own: dict[str, Any] = {"max_aged_epsilon": problem.epsilon, "max_delta": problem.delta or 0.0}
    if problem.rounds != 1:
        own |= {"promise": problem.promise, "every": problem.every}
    return Policy(**{**own, **given}, allow_server_noise=allow_server_noise)
