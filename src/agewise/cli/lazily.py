"""The commands, each imported when it is asked for: most of a short command's time is imports."""

from __future__ import annotations

from importlib import import_module

import click
import typer
from typer.core import TyperGroup
from typer.main import get_group

COMMANDS = {
    "plan": ("planning", "Decide when each client collects and how much noise it adds."),
    "schemes": (
        "planning",
        "Compare the paper's six schemes: schedule, achieved ε, gap, bound, mean noise power.",
    ),
    "reproduce": (
        "planning",
        "Compute the paper's figures anew (PNG, SVG, CSV) and check its claims against them.",
    ),
    "init": (
        "scenario_files",
        "Write a commented scenario file to start from, and beside it the schema for editors.",
    ),
    "schema": (
        "scenario_files",
        "Print the JSON schema of scenario files, by which editors complete and explain their "
        "keys.",
    ),
    "compare": (
        "comparing",
        "Plan a scenario for every combination of choices and show what each one costs.",
    ),
    "ages": (
        "ages",
        "Show what ageing buys: Δ, the classical ε and the noise scale of each client at each age.",
    ),
    "run": (
        "running",
        "Carry a plan out: collect, train, add noise, record, upload, aggregate; then account for "
        "it.",
    ),
    "rounds": (
        "rounds",
        "Carry a plan out round after round, and account for all rounds together.",
    ),
    "check": (
        "checking",
        "Recompute all that a run says of itself from its ledgers; or look through a scenario "
        "file.",
    ),
    "audit": (
        "auditing",
        "Try to refute what is claimed: exactly, by replaying a run, or by running a mechanism.",
    ),
    "fit": (
        "fitting",
        "Turn readings into a scenario, and say how far its privacy claim can be trusted.",
    ),
    "backtest": (
        "backtesting",
        "Replay recorded days: what plans would have cost, and whether an adversary beats the "
        "claim.",
    ),
    "explore": (
        "exploring",
        "Open a page with sliders: what ageing buys, for a scenario or for your own readings.",
    ),
    "ledger": (
        "ledgers",
        "Look into a client's ledger: what was released, and what it adds up to.",
    ),
    "deploy": (
        "deploying",
        "Lay out and run a federation on Flower: certificates, node keys, supervised processes.",
    ),
}
"""By name: the module that has it, and the first words of its help."""


def load(name: str) -> click.Command:
    """Import a command."""
    module = import_module(f"agewise.cli.{COMMANDS[name][0]}")
    holder = typer.Typer(rich_markup_mode="markdown")
    holder.callback()(lambda: None)
    if name in ("ledger", "deploy"):  # which have commands of their own
        holder.add_typer(module.commands, name=name)
    else:
        holder.add_typer(module.commands)
    return _without_variables(get_group(holder).commands[name])


def _without_variables(command: click.Command) -> click.Command:
    """The command, whose errors name no environment variable for options that have none."""
    for one in command.params:
        if isinstance(one, click.Option) and one.envvar is None:
            one.show_envvar = False
    for inner in getattr(command, "commands", {}).values():
        _without_variables(inner)
    return command


class Lazily(TyperGroup):
    """All commands: those that were asked for, and the names of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; a word that is none is compared with all names."""
        if args and args[0] not in COMMANDS:
            self.commands = self._named()
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the commands by their first words: nothing is imported for that."""
        shown = TyperGroup(
            name=self.name,
            commands=self._named(),
            params=self.params,
            help=self.help,
            epilog=self.epilog,
            rich_markup_mode=self.rich_markup_mode,
        )
        shown.format_help(ctx, formatter)

    def _named(self) -> dict[str, click.Command]:
        return {name: click.Command(name, help=words) for name, (_, words) in COMMANDS.items()}
