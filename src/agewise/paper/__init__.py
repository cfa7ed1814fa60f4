"""What belongs to the published paper alone: Theorem 1, simulation, six schemes, figures."""
