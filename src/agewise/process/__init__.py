"""How a record changes over time: providers of the joint law of two moments."""

from agewise.process.chain import MarkovChain, birth_death, stationary_laws
from agewise.process.joint import JointLaw, Process
from agewise.process.periodic import PeriodicChain

__all__ = ["JointLaw", "MarkovChain", "PeriodicChain", "Process", "birth_death", "stationary_laws"]
