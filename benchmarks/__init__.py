"""Measurements against peers, in one run, as ratios: machines differ, ratios travel."""
