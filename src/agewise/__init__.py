"""Agewise: when each client collects its data, and how much noise it adds.

Data change over time, so what was collected some time ago says less about its owner now: ageing
is itself privacy. Agewise weighs that against the accuracy that ageing costs.

What most work needs is here; the rest is grouped: `scheduling`, `privacy`, `learning`,
`knowledge`, `fitting` and `figures`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agewise import (
        figures,
        fitting,
        knowledge,
        learning,
        privacy,
        scenarios,
        scheduling,
    )
    from agewise.auditing.auditor import audit
    from agewise.errors import AgewiseError, InvalidInput
    from agewise.federation import rehearse, resume, resume_rounds, run, run_rounds
    from agewise.fitting.fit import fit
    from agewise.knowledge import Level
    from agewise.learning import Histogram, Logistic, Mean, Ridge, Statistics
    from agewise.loss import loss_gap
    from agewise.mixing import total_variation
    from agewise.paper.bound import loss_bound
    from agewise.paper.schemes import compare_schemes
    from agewise.paper.simulation import simulate_gap
    from agewise.planning import Plan, compare, evaluate, plan, replan, take_turns
    from agewise.privacy import (
        Ageing,
        BudgetExceeded,
        Ledger,
        Policy,
        aged_epsilon,
        classical_epsilon,
        composed_epsilon,
        continual_epsilon,
        per_release_epsilon,
    )
    from agewise.problem import Client, Problem, Target
    from agewise.process import LiftedChain, MarkovChain, MeasuredLaw, PeriodicChain, birth_death
    from agewise.readings import read_readings
    from agewise.scenario import dump_scenario, load_scenario
    from agewise.scheduling import solve_schedule

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
    "LiftedChain",
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
    "aged_epsilon",
    "audit",
    "birth_death",
    "classical_epsilon",
    "compare",
    "compare_schemes",
    "composed_epsilon",
    "continual_epsilon",
    "dump_scenario",
    "evaluate",
    "figures",
    "fit",
    "fitting",
    "knowledge",
    "learning",
    "load_scenario",
    "loss_bound",
    "loss_gap",
    "per_release_epsilon",
    "plan",
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
    "take_turns",
    "total_variation",
]

_GROUPS = (
    "auditing",
    "federation",
    "figures",
    "fitting",
    "knowledge",
    "learning",
    "privacy",
    "scenarios",
    "scheduling",
    "testing",
)
"""Packages and modules that are loaded when they are asked for."""

_NAMES = {
    "auditing.auditor": "audit",
    "errors": "AgewiseError InvalidInput",
    "federation": "rehearse resume resume_rounds run run_rounds",
    "fitting.fit": "fit",
    "knowledge": "Level",
    "learning": "Histogram Logistic Mean Ridge Statistics",
    "loss": "loss_gap",
    "mixing": "total_variation",
    "paper.bound": "loss_bound",
    "paper.schemes": "compare_schemes",
    "paper.simulation": "simulate_gap",
    "planning": "Plan compare evaluate plan replan take_turns",
    "privacy": "Ageing BudgetExceeded Ledger Policy aged_epsilon classical_epsilon "
    "composed_epsilon continual_epsilon per_release_epsilon",
    "problem": "Client Problem Target",
    "process": "LiftedChain MarkovChain MeasuredLaw PeriodicChain birth_death",
    "readings": "read_readings",
    "scenario": "dump_scenario load_scenario",
    "scheduling": "solve_schedule",
}
"""The names of `__all__`, by the module that each is loaded from when it is asked for.

A node of a federation needs few of them, and starts a process for every message.
"""

_FIRST_VERSION = {
    "calibration": "SlotTable slot_table",
    "federation": "RunIncomplete RunResult",
    "loss": "CostTables Estimate cost_tables",
    "loss.batch": "chain_tables",
    "paper.bound": "Bound",
    "paper.schemes": "SchemeRow",
    "planning": "Assignment Comparison ComparisonRow",
    "privacy": "Event LedgerDamaged Noise Noised Release Total aged_approximate aged_loss "
    "delta_table joint_delta laplace noise_scale seeded_laplace sensitivity",
    "process": "JointLaw Process delta_limit",
    "learning": "Shares",
    "scheduling": "Certificate Schedule check_schedule solve_stream",
}
"""Names of the first version, which are grouped now."""

_RENAMED = {
    "affordable_epsilon": "per_release_epsilon",
    "delta": "total_variation",
    "price": "evaluate",
    "steady_epsilon": "continual_epsilon",
}
"""Old names, and what they are called now."""

_WHERE = {
    name: module
    for listed in (_NAMES, _FIRST_VERSION)
    for module, names in listed.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name in _GROUPS:
        return import_module(f"agewise.{name}")
    if name == "reproduction":
        return import_module("agewise.paper.reproduction")
    if name in _RENAMED:
        import warnings  # noqa: PLC0415

        told = f"agewise.{name} is now agewise.{_RENAMED[name]}"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"agewise.{_WHERE[name]}"), name)
    if name in __all__:
        globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
