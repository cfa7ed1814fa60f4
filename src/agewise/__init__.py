"""Agewise: when each client collects its data, and how much noise it adds.

Data change over time, so what was collected some time ago says less about its owner now: ageing
is itself privacy. Agewise weighs that against the accuracy that ageing costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agewise import knowledge, scenarios
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation import RunIncomplete, RunResult, rehearse, resume, run
from agewise.knowledge import Level
from agewise.learning import Histogram, Mean, Shares, Statistics
from agewise.loss.batch import chain_tables
from agewise.loss.bound import Bound, loss_bound
from agewise.loss.gap import CostTables, cost_tables, loss_gap
from agewise.loss.simulation import Estimate, simulate_gap
from agewise.mechanism import Noised, laplace, seeded_laplace
from agewise.mixing import delta, delta_table, joint_delta
from agewise.planning import (
    Assignment,
    Comparison,
    ComparisonRow,
    Plan,
    compare,
    plan,
    price,
    replan,
)
from agewise.privacy.account import BudgetExceeded, Event, Policy
from agewise.privacy.ageing import aged_approximate, aged_epsilon, classical_epsilon
from agewise.privacy.calibration import Noise, aged_loss, noise_scale, sensitivity
from agewise.privacy.composition import Release, Total, composed_epsilon
from agewise.privacy.ledger import Ledger, LedgerDamaged
from agewise.privacy.sharp import Ageing
from agewise.problem import Client, Problem, Target
from agewise.process import (
    JointLaw,
    MarkovChain,
    MeasuredLaw,
    PeriodicChain,
    Process,
    birth_death,
    delta_limit,
)
from agewise.scenario import dump_scenario, load_scenario
from agewise.scheduling import (
    Certificate,
    Schedule,
    check_schedule,
    solve_schedule,
    solve_stream,
)
from agewise.schemes import SchemeRow, compare_schemes
from agewise.terms import SlotTable, slot_table

if TYPE_CHECKING:
    from agewise import figures, fitting
    from agewise.fitting.fit import fit
    from agewise.readings import read_readings

__version__ = "0.1.0"

__all__ = [
    "Ageing",
    "AgewiseError",
    "Assignment",
    "Bound",
    "BudgetExceeded",
    "Certificate",
    "Client",
    "Comparison",
    "ComparisonRow",
    "CostTables",
    "Estimate",
    "Event",
    "Histogram",
    "InvalidInput",
    "JointLaw",
    "Ledger",
    "LedgerDamaged",
    "Level",
    "MarkovChain",
    "Mean",
    "MeasuredLaw",
    "Noise",
    "Noised",
    "PeriodicChain",
    "Plan",
    "Policy",
    "Problem",
    "Process",
    "Release",
    "RunIncomplete",
    "RunResult",
    "Schedule",
    "SchemeRow",
    "Shares",
    "SlotTable",
    "Statistics",
    "Target",
    "Total",
    "aged_approximate",
    "aged_epsilon",
    "aged_loss",
    "birth_death",
    "chain_tables",
    "check_schedule",
    "classical_epsilon",
    "compare",
    "compare_schemes",
    "composed_epsilon",
    "cost_tables",
    "delta",
    "delta_limit",
    "delta_table",
    "dump_scenario",
    "figures",
    "fit",
    "fitting",
    "joint_delta",
    "knowledge",
    "laplace",
    "load_scenario",
    "loss_bound",
    "loss_gap",
    "noise_scale",
    "plan",
    "price",
    "read_readings",
    "rehearse",
    "replan",
    "resume",
    "run",
    "scenarios",
    "seeded_laplace",
    "sensitivity",
    "simulate_gap",
    "slot_table",
    "solve_schedule",
    "solve_stream",
]

_ON_DEMAND = {
    "figures": ("agewise.figures", None),
    "fit": ("agewise.fitting.fit", "fit"),
    "fitting": ("agewise.fitting", None),
    "read_readings": ("agewise.readings", "read_readings"),
}
"""What needs polars or matplotlib, which take long to import: module, and the name in it."""


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, part = _ON_DEMAND[name]
    found = import_module(module)
    globals()[name] = found if part is None else getattr(found, part)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
