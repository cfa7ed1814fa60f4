"""Agewise: when each client collects its data, and how much noise it adds.

Data change over time, so what was collected some time ago says less about its owner now: ageing
is itself privacy. Agewise weighs that against the accuracy that ageing costs.

What most work needs is here; the rest is grouped: `scheduling`, `privacy`, `learning`,
`knowledge`, `fitting` and `figures`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agewise import knowledge, learning, privacy, scenarios, scheduling
from agewise.errors import AgewiseError, InvalidInput
from agewise.knowledge import Level
from agewise.learning import Histogram, Logistic, Mean, Ridge, Statistics
from agewise.loss import loss_bound, loss_gap
from agewise.loss.simulation import simulate_gap
from agewise.mixing import delta
from agewise.planning import Plan, compare, plan, price, replan, take_turns
from agewise.privacy import (
    Ageing,
    BudgetExceeded,
    Ledger,
    Policy,
    affordable_epsilon,
    aged_epsilon,
    classical_epsilon,
    composed_epsilon,
    steady_epsilon,
)
from agewise.problem import Client, Problem, Target
from agewise.process import MarkovChain, MeasuredLaw, PeriodicChain, birth_death
from agewise.scheduling import solve_schedule
from agewise.schemes import compare_schemes

if TYPE_CHECKING:
    from agewise import figures, fitting
    from agewise.auditing.auditor import audit
    from agewise.federation import rehearse, resume, resume_rounds, run, run_rounds
    from agewise.fitting.fit import fit
    from agewise.readings import read_readings
    from agewise.scenario import dump_scenario, load_scenario

__version__ = "0.1.0"

__all__ = [
    "Ageing",
    "AgewiseError",
    "BudgetExceeded",
    "Client",
    "Histogram",
    "InvalidInput",
    "Ledger",
    "Level",
    "Logistic",
    "MarkovChain",
    "Mean",
    "MeasuredLaw",
    "PeriodicChain",
    "Plan",
    "Policy",
    "Problem",
    "Ridge",
    "Statistics",
    "Target",
    "affordable_epsilon",
    "aged_epsilon",
    "audit",
    "birth_death",
    "classical_epsilon",
    "compare",
    "compare_schemes",
    "composed_epsilon",
    "delta",
    "dump_scenario",
    "figures",
    "fit",
    "fitting",
    "knowledge",
    "learning",
    "load_scenario",
    "loss_bound",
    "loss_gap",
    "plan",
    "price",
    "privacy",
    "read_readings",
    "rehearse",
    "replan",
    "resume",
    "resume_rounds",
    "run",
    "run_rounds",
    "scenarios",
    "scheduling",
    "simulate_gap",
    "solve_schedule",
    "steady_epsilon",
    "take_turns",
]

_GROUPS = ("auditing", "federation", "figures", "fitting")
"""Packages that take long to import, or need matplotlib or polars, which do."""

_ELSEWHERE = {
    "audit": "auditing.auditor",
    "dump_scenario": "scenario",
    "fit": "fitting.fit",
    "load_scenario": "scenario",
    "read_readings": "readings",
    "rehearse": "federation",
    "resume": "federation",
    "resume_rounds": "federation",
    "run": "federation",
    "run_rounds": "federation",
    # Names of the first version, which are grouped now.
    "Assignment": "planning",
    "Bound": "loss",
    "Certificate": "scheduling",
    "Comparison": "planning",
    "ComparisonRow": "planning",
    "CostTables": "loss",
    "Estimate": "loss.simulation",
    "Event": "privacy",
    "JointLaw": "process",
    "LedgerDamaged": "privacy",
    "Noise": "privacy",
    "Noised": "privacy",
    "Process": "process",
    "Release": "privacy",
    "RunIncomplete": "federation",
    "RunResult": "federation",
    "Schedule": "scheduling",
    "SchemeRow": "schemes",
    "Shares": "learning",
    "SlotTable": "terms",
    "Total": "privacy",
    "aged_approximate": "privacy",
    "aged_loss": "privacy",
    "chain_tables": "loss.batch",
    "check_schedule": "scheduling",
    "cost_tables": "loss",
    "delta_limit": "process",
    "delta_table": "privacy",
    "joint_delta": "privacy",
    "laplace": "privacy",
    "noise_scale": "privacy",
    "seeded_laplace": "privacy",
    "sensitivity": "privacy",
    "slot_table": "terms",
    "solve_stream": "scheduling",
}
"""The module of each name that is looked up when it is asked for."""


def __getattr__(name: str) -> Any:
    if name in _GROUPS:
        return import_module(f"agewise.{name}")
    if name in _ELSEWHERE:
        return getattr(import_module(f"agewise.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
