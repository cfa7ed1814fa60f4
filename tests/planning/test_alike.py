"""Plans of many clients: what they have alike is worked out once."""

import agewise as aw
from agewise.calibration import Calibration


def test_clients_alike_share_what_their_slot_achieves(monkeypatch):
    asked = []
    real = Calibration.aged_epsilon
    monkeypatch.setattr(
        Calibration,
        "aged_epsilon",
        lambda own, places, *others: asked.extend(places) or real(own, places, *others),
    )
    chain = aw.birth_death(0.3, 0.2, [0, 1, 2])
    for estimator in ("propagated", "best"):
        for count in (10, 300):
            asked.clear()
            clients = [aw.Client(f"c{i}", chain, samples=50) for i in range(count)]
            plan = aw.plan(aw.Problem(clients, 5, 0.1, estimator=estimator))
            assert 1 <= len(asked) <= 5
            assert len({a.aged_epsilon for a in plan.assignments}) <= 5
