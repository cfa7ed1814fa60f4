"""How a record changes over time: providers of the joint law of two moments."""

from agewise.process.chains import stationary_laws
from agewise.process.joint import JointLaw, Process
from agewise.process.lifted import LiftedChain
from agewise.process.limits import block_inflation, delta_limit
from agewise.process.markov import MarkovChain, PeriodicChain, birth_death
from agewise.process.measured import MeasuredLaw

__all__ = [
    "JointLaw",
    "LiftedChain",
    "MarkovChain",
    "MeasuredLaw",
    "PeriodicChain",
    "Process",
    "birth_death",
    "block_inflation",
    "delta_limit",
    "stationary_laws",
]
