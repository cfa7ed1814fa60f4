"""Reading in: one reader of CSV and Parquet files for fits, back-tests and runs."""

from agewise.readings.columns import Columns, infer_columns
from agewise.readings.grid import Quality, Readings, read_readings
from agewise.readings.groups import read_groups
from agewise.readings.slots import read_slots

__all__ = [
    "Columns",
    "Quality",
    "Readings",
    "infer_columns",
    "read_groups",
    "read_readings",
    "read_slots",
]
