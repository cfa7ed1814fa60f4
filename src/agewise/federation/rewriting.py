"""The event of an upload, written again as its client must have written it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agewise.calibration import Terms, terms
from agewise.federation.client import ClientAgent, Profile, announced_epsilon, private_noise
from agewise.federation.messages import Upload
from agewise.federation.server import Server
from agewise.federation.sources import SimulatedRecords
from agewise.mechanism import MECHANISMS, Noised
from agewise.privacy.account import Event, Policy
from agewise.problem import Client, nameless


def rewritten(
    server: Server,
    client: Client,
    upload: Upload,
    starts_at: int,
    scale: float,
    known: Sequence[Event],
) -> tuple[Terms, Event]:
    """The client's own terms and the event, with noise of this scale, after the known events.

    `starts_at` is how many slots of the client's own time lie before the run.
    """
    problem = server.first_plan.problem
    profile = replace(Profile.of(client, problem, Policy(), starts_at), mixing=upload.mixing)
    own = terms(
        nameless(client),
        profile.target(problem.calibration),
        problem.learner,
        problem.estimator,
        upload.collect_at,
        upload.aggregate_at,
    )
    value = np.asarray(upload.value)
    if upload.private:
        failure = upload.classical_delta or 0.0
        if upload.noise == "server":
            claimed = announced_epsilon(own, scale, failure)
        else:
            claimed = MECHANISMS[problem.mechanism].certified(own.sensitivity, scale, failure)
        noised = Noised(value, scale, claimed, True, failure)
    else:
        noised = Noised(value, scale, None, private=False)
    agent = ClientAgent(profile, SimulatedRecords(client, 0), None, private_noise)
    return own, agent.write(server.order_of(upload), own, noised, known)
