"""From ageing to noise: what a mechanism guarantees, what several add up to, how much to add."""
