"""How a record changes over time: providers of the joint law of two moments."""

from agewise.process.chain import MarkovChain, birth_death, stationary_laws
from agewise.process.joint import JointLaw, Process
from agewise.process.limits import block_inflation, delta_limit
from agewise.process.measured import MeasuredLaw
from agewise.process.periodic import PeriodicChain

__all__ = [
    "JointLaw",
    "MarkovChain",
    "MeasuredLaw",
    "PeriodicChain",
    "Process",
    "birth_death",
    "block_inflation",
    "delta_limit",
    "stationary_laws",
]
