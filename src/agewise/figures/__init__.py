"""Plots of data that were computed elsewhere. Nothing is computed here."""

from agewise.figures.ageing import ageing_figure
from agewise.figures.fit import fit_figure
from agewise.figures.paper import figure_2_figure, gains_figure, schemes_figure
from agewise.figures.style import COLOURS, MARKERS, label_ends, prepare_folder, save, save_csv
from agewise.figures.timeline import run_figure, timeline_figure

__all__ = [
    "COLOURS",
    "MARKERS",
    "ageing_figure",
    "figure_2_figure",
    "fit_figure",
    "gains_figure",
    "label_ends",
    "prepare_folder",
    "run_figure",
    "save",
    "save_csv",
    "schemes_figure",
    "timeline_figure",
]
