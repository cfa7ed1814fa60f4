"""Words that are the same wherever they are said."""

import json
import math

import agewise as aw
from agewise.federation import SimulatedRecords
from agewise.federation.flower.transport import some_of
from agewise.planning.notes import warnings
from agewise.privacy import Ledger, Policy
from agewise.wording import in_words, out_of_words
from parties import ClientAgent, Profile, Server, Upload, private_noise

FRESH = aw.Client("a", aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1]), samples=10)
PLAN = aw.evaluate(aw.Problem([FRESH], 3, 0.1, estimator="plain"), [1])
"""Old data say nothing about the present: no noise, and an infinite classical ε."""


def test_only_infinity_has_a_word():
    said = in_words({"some": [1.5, math.inf, "inf of what"], "none": None})
    assert said == {"some": [1.5, "inf", "inf of what"], "none": None}
    assert [out_of_words(one) for one in (*said["some"], None)] == [
        1.5,
        math.inf,
        "inf of what",
        None,
    ]


def test_plan_upload_and_statement_write_an_infinite_epsilon_alike():
    written = json.loads(PLAN.to_json())
    assert written["classical_epsilons"] == ["inf"]
    assert written["assignments"][0]["classical_epsilon"] == "inf"
    assert aw.Plan.from_json(PLAN.to_json()).classical_epsilons == [math.inf]
    server = Server(PLAN, "run")
    profile = Profile(FRESH, 0.1, "exact", Policy())
    with Ledger(None) as ledger:
        agent = ClientAgent(profile, SimulatedRecords(FRESH, 1), ledger, private_noise)
        payload = agent.answer(server.orders(1)[0])
    assert json.loads(payload)["classical_epsilon"] == "inf"
    assert Upload.decode(payload).classical_epsilon == math.inf
    assert server.receive(payload, 1) is None
    for slot in (1, 2, 3):
        server.close(slot)
    statement = server.finish().statement.to_dict()
    assert statement["clients"][0]["classical_epsilon"] == "inf"


def test_long_lists_of_names_end_in_how_many_more():
    assert some_of(set("gfedcba")) == "a, b, c, d, e and 2 more"
    clients = [aw.Client(name, FRESH.process, samples=10) for name in "abcd"]
    problem = aw.Problem(clients, 3, 0.1, estimator="plain")
    said = " ".join(warnings(problem, aw.evaluate(problem, [1] * 4).assignments))
    assert "Records collected by clients a, b, c and 1 more are all but told outright" in said
