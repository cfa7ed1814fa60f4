"""Plots of data that were computed elsewhere. Nothing is computed here."""

from agewise.federation.pictures import model_figure, run_figure
from agewise.figures.ageing import ageing_figure
from agewise.figures.fit import fit_figure
from agewise.figures.paper import figure_2_figure, gains_figure, schemes_figure
from agewise.figures.trust import trust_figure
from agewise.figures.worth import worth_figure
from agewise.planning.timeline import timeline_figure
from agewise.report.drawing import COLOURS, MARKERS, label_ends, prepare_folder, save, save_csv

__all__ = [
    "COLOURS",
    "MARKERS",
    "ageing_figure",
    "figure_2_figure",
    "fit_figure",
    "gains_figure",
    "label_ends",
    "model_figure",
    "prepare_folder",
    "run_figure",
    "save",
    "save_csv",
    "schemes_figure",
    "timeline_figure",
    "trust_figure",
    "worth_figure",
]
