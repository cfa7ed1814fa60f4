"""deploy init, up, app, run, status and down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from agewise.checks import positive
from agewise.cli.console import (
    CalibrationOption,
    DeltaOption,
    EpsilonOption,
    EstimatorOption,
    EveryOption,
    JsonOption,
    LearnerOption,
    MaxAgedOption,
    MaxClassicalOption,
    MaxDeltaOption,
    MaxReleaseOption,
    MechanismOption,
    MixingOption,
    NoiseOption,
    PromiseOption,
    RoundsOption,
    ScenarioArgument,
    ServerNoiseOption,
    StartsAtOption,
    TurnsOption,
    WindowOption,
    client_policy,
    console,
    people,
    print_json,
    progress_bar,
    read_problem,
)
from agewise.cli.layout import Column, print_table
from agewise.errors import InvalidInput
from agewise.federation.flower import require_flower

commands = typer.Typer(
    help="Lay out and run a federation on Flower: certificates, node keys, supervised processes.",
    no_args_is_help=True,
)
FolderArgument = Annotated[Path, typer.Argument(help="Folder of the deployment.")]
NODE_CONFIG = "For apps, in context.node_config of every node: key=value pairs, texts in quotes."


@commands.command("init", epilog="Example: agewise deploy init fed london && agewise deploy up fed")
def init_command(
    folder: FolderArgument,
    scenario: ScenarioArgument = "london",
    tls: Annotated[
        bool, typer.Option("--tls/--insecure", help="TLS and node keys, or neither.")
    ] = True,
    host: Annotated[
        str, typer.Option(help="Address on which the SuperLink listens.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The SuperLink's port, the nodes' follow; 0 takes free ones.")
    ] = 0,
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    calibration: CalibrationOption = None,
    learner: LearnerOption = None,
    mechanism: MechanismOption = None,
    delta: DeltaOption = None,
    noise: NoiseOption = None,
    rounds: RoundsOption = None,
    every: EveryOption = None,
    promise: PromiseOption = None,
    turns: TurnsOption = None,
    readings: Annotated[
        Path | None, typer.Option(help="The nodes' readings; otherwise simulated records.")
    ] = None,
    starts_at: StartsAtOption = 0,
    max_aged_epsilon: MaxAgedOption = None,
    max_classical_epsilon: MaxClassicalOption = None,
    max_delta: MaxDeltaOption = None,
    max_release_epsilon: MaxReleaseOption = None,
    window: WindowOption = None,
    allow_server_noise: ServerNoiseOption = True,
    slot_seconds: Annotated[
        float | None,
        typer.Option(
            help="How long a slot takes: a node then refuses to count more of them between two "
            "releases than have passed by its own clock."
        ),
    ] = None,
    stand_in_seed: Annotated[
        int | None,
        typer.Option(min=0, help="Reproducible records and noise on every node: NOT private."),
    ] = None,
    node_config: Annotated[str, typer.Option(help=NODE_CONFIG)] = "",
) -> None:
    """Make a CA, the server's certificate, node keys, configurations and systemd units.

    Nodes follow only plans with the choices made here. Look at each nodes/*/node.toml, and move
    it with its key to the client's machine if that is another one. The private keys are readable
    by their owner only.
    """
    require_flower()
    from agewise.federation.flower.deployment import init_deployment  # noqa: PLC0415

    problem = read_problem(
        scenario,
        epsilon=epsilon,
        mixing=mixing,
        estimator=estimator,
        calibration=calibration,
        learner=learner,
        mechanism=mechanism,
        delta=delta,
        noise=noise,
        rounds=rounds,
        every=every,
        promise=promise,
        turns=turns,
    )
    deployment = init_deployment(
        folder,
        problem,
        tls=tls,
        host=host,
        port=port,
        readings=readings,
        starts_at=starts_at,
        policy=client_policy(
            problem,
            max_aged_epsilon=max_aged_epsilon,
            max_classical_epsilon=max_classical_epsilon,
            window=window,
            max_delta=max_delta,
            allow_server_noise=allow_server_noise,
            max_release_epsilon=max_release_epsilon,
        ),
        slot_seconds=slot_seconds,
        seed=stand_in_seed,
        stand_in=stand_in_seed is not None,
        node_config=node_config,
    )
    people.print(
        f"Wrote {escape(str(folder))}: a SuperLink at {deployment.address} "
        f"({'TLS and node keys' if tls else '[yellow]no encryption[/]'}), "
        f"{len(deployment.nodes)} nodes. Next: agewise deploy up {escape(str(folder))}",
        soft_wrap=True,
        highlight=False,
    )


@commands.command(epilog="Example: agewise deploy up fed && agewise run --engine flower -d fed")
def up(
    folder: FolderArgument,
    port: Annotated[
        int | None,
        typer.Option(help="Other ports from now on: the SuperLink's, the nodes' follow; 0: free."),
    ] = None,
    node_config: Annotated[str | None, typer.Option(help=f"{NODE_CONFIG} From now on.")] = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for the nodes to join the SuperLink.")
    ] = 180.0,
) -> None:
    """Start SuperLink, SuperExec and nodes on this machine, and restart what ends.

    Returns when all nodes have joined the SuperLink. Exit code 4 if some have not in time.
    """
    require_flower()
    from agewise.federation.flower.deployment import Deployment, change_layout  # noqa: PLC0415
    from agewise.federation.flower.membership import wait_for_nodes  # noqa: PLC0415
    from agewise.federation.flower.supervisor import bring_up, refuse_up  # noqa: PLC0415

    deployment = Deployment.load(folder)
    positive("wait", wait)
    refuse_up(deployment)
    if port is not None or node_config is not None:
        deployment = change_layout(deployment, port=port, node_config=node_config)
    with people.status("starting the federation"):
        bring_up(deployment)
    with progress_bar("nodes joining") as advance:
        state = wait_for_nodes(deployment, wait, advance)
    people.print(
        f"{len(deployment.nodes)} nodes have joined the SuperLink at {deployment.address}, kept "
        f"running by process {state['supervisor']}. Stop them with: agewise deploy down "
        f"{escape(str(folder))}",
        soft_wrap=True,
        highlight=False,
    )


@commands.command("app", epilog="Example: agewise deploy app my_app")
def app_command(
    folder: Annotated[Path, typer.Argument(help="Where to write it: a new or empty folder.")],
) -> None:
    """Write an age-aware Flower app with scikit-learn and its scenario, to begin one's own with."""
    require_flower()
    from agewise.federation.flower.app import write_template  # noqa: PLC0415

    write_template(folder)
    name = escape(str(folder))
    people.print(
        f"Wrote {name}. Next: agewise deploy init fed {name}/plants.toml && agewise deploy up fed "
        f"&& agewise deploy run fed {name}",
        soft_wrap=True,
        highlight=False,
    )


@commands.command("run", epilog="Example: agewise deploy run fed my_app --run-config 'rounds=3'")
def run_command(
    folder: FolderArgument,
    app: Annotated[Path, typer.Argument(help="Folder of a Flower app, with its pyproject.toml.")],
    run_config: Annotated[
        str, typer.Option(help="For the app: key=value pairs, of keys in its pyproject.toml.")
    ] = "",
) -> None:
    """Run a Flower app of one's own on a deployment that is up, and show its log.

    Exit code 2 if Flower does not take the app or its configuration, 4 if the run fails.
    """
    require_flower()
    from agewise.federation.flower.deployment import Deployment  # noqa: PLC0415
    from agewise.federation.flower.submission import run_app  # noqa: PLC0415

    run_app(Deployment.load(folder), app, run_config)


@commands.command(epilog="Example: agewise deploy status fed --json")
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show the processes of a deployment, and which nodes have joined the SuperLink.

    Exit code 4 if it is not up.
    """
    require_flower()
    from agewise.federation.flower.commands import healthy  # noqa: PLC0415
    from agewise.federation.flower.deployment import Deployment  # noqa: PLC0415
    from agewise.federation.flower.membership import joined_nodes  # noqa: PLC0415
    from agewise.federation.flower.supervisor import read_state  # noqa: PLC0415

    deployment = Deployment.load(folder)
    state = read_state(deployment)
    answers = state is not None and healthy(deployment)
    joined = joined_nodes(deployment, state) if state is not None and answers else {}
    facts: dict[str, Any] = {
        "address": deployment.address,
        "tls": deployment.tls,
        "up": state is not None,
        "answers": answers,
        "nodes": len(deployment.nodes),
        "nodes_joined": sum(joined.values()),
        **(state or {"processes": {}}),
    }
    for node in deployment.nodes:
        if node.name in facts["processes"]:
            facts["processes"][node.name]["joined"] = joined.get(node.name, False)
    if as_json:
        print_json(facts)
    elif state is None:
        people.print(f"{escape(str(folder))} is down.", highlight=False)
    else:
        word = "answers" if answers else "does not answer"
        headings = ("process", "pid", "state", "joined", "restarts", "for")
        rows = [
            [
                escape(name),
                str(one["pid"]),
                "running" if one["running"] else "ended",
                {True: "yes", False: "no", None: ""}[one.get("joined")],
                str(one["restarts"]),
                f"{time.time() - one['started']:.0f} s",
            ]
            for name, one in state["processes"].items()
        ]
        print_table(
            console(),
            f"SuperLink at {deployment.address} {word}; {facts['nodes_joined']} of "
            f"{facts['nodes']} nodes have joined",
            [Column(heading, words=heading == "process") for heading in headings],
            rows,
        )
    if not answers:
        raise typer.Exit(4)


@commands.command(epilog="Example: agewise deploy down fed")
def down(folder: FolderArgument) -> None:
    """Stop the processes of a deployment. Ledgers, keys and logs stay."""
    require_flower()
    from agewise.federation.flower.deployment import Deployment  # noqa: PLC0415
    from agewise.federation.flower.supervisor import bring_down  # noqa: PLC0415

    with people.status("stopping the federation"):
        stopped = bring_down(Deployment.load(folder))
    if not stopped:
        raise InvalidInput("deployment", f"{folder}, which is down", "one that is up")
    people.print(f"{escape(str(folder))} is down.", highlight=False)
