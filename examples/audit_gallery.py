"""Planted faults, each caught by one command (docs/audit.md).

    agewise audit examples/audit_gallery.py:noise_too_small
    python examples/audit_gallery.py FOLDER        (runs with a fault, one per folder below it)
    agewise audit FOLDER/shared_seed

Every object here makes a false claim, but for `correct` and `correct_plan`. Noise comes from
OpenDP where it is not itself the fault, so that each is caught for what it is.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import agewise as aw
from agewise.auditing import BlackBox
from agewise.federation import client as client_code
from agewise.mechanism import Noised
from agewise.privacy import laplace, noise_scale

STATES = np.array([20.0, 50.0, 100.0, 200.0])  # Wh
CHAIN = aw.birth_death(up=0.1, down=0.2, states=STATES)
SAMPLES, EPSILON = 100, 1.0
RANGE = np.ptp(STATES) / SAMPLES
ON = np.array([0.0, 1.0])


def noised(means, scale):
    """Laplace noise from OpenDP of this scale on every number."""
    flat = laplace(np.ravel(means), sensitivity=1.0, epsilon=1.0 / scale).value
    return np.asarray(flat).reshape(np.shape(means))


def released(scale):
    """A mechanism: the mean of the records with noise of this scale."""
    return lambda records: noised(records.mean(axis=-1), scale)


def tight(chain, age):
    """The least noise at this age, by the stationary law."""
    joint = chain.joint(1, 1 + age)
    return noise_scale(joint, STATES, SAMPLES, EPSILON, calibration="tight").scale


many = {"samples": SAMPLES, "batched": True}

correct = BlackBox(released(RANGE / EPSILON), CHAIN, EPSILON, name="correct", **many)

# 1. Seven tenths of the noise that the claim needs.
noise_too_small = BlackBox(
    released(0.7 * RANGE / EPSILON), CHAIN, EPSILON, name="noise_too_small", **many
)

# 2. Noise for records up to 100 Wh, which nobody enforces.
wrong_clip = BlackBox(
    released((100 - 20) / SAMPLES / EPSILON), CHAIN, EPSILON, name="wrong_clip", **many
)


# 3. Noise for the range of the records at hand.
def by_own_range(records):
    scale = np.maximum(np.ptp(records, axis=-1), 1.0) / SAMPLES / EPSILON
    return records.mean(axis=-1) + scale * noised(np.zeros(len(records)), 1.0)


sensitivity_from_data = BlackBox(by_own_range, CHAIN, EPSILON, name="sensitivity_from_data", **many)


# 4. A retry that draws anew.
def twice(records):
    return np.stack([released(RANGE / EPSILON)(records) for _ in range(2)], axis=-1)


renoised_retry = BlackBox(twice, CHAIN, EPSILON, name="renoised_retry", **many)

# 5. Noise by the stationary law, for a client whose records are mostly high (age 4).
GROWING = aw.birth_death(up=0.2, down=0.1, states=STATES)
HIGH = [0.1, 0.1, 0.1, 0.7]
another_law = BlackBox(
    released(tight(GROWING, 4)), GROWING, EPSILON, about=5, law=HIGH, name="another_law", **many
)

# 6. Two releases of old data, and their aged ε's added up.
RARE = aw.MarkovChain([[0.99, 0.01], [0.6, 0.4]], ON)
AGED = aw.privacy.aged_loss(RARE.joint(1, 3), ON, 1, scale=0.5)


def both(records):
    return np.stack([noised(records[..., 0], 0.5) for _ in range(2)], axis=-1)


summed_aged = BlackBox(both, RARE, 2 * AGED, about=3, batched=True, name="summed_aged")

# 7. Noise for data six slots old, which are four slots old.
wrong_slot = BlackBox(released(tight(CHAIN, 6)), CHAIN, EPSILON, about=5, name="wrong_slot", **many)


# 8. Two clients with one seed: the second one's records are known.
def one_seed(records):
    noise = noised(np.zeros(len(records)), RANGE / EPSILON)
    return np.stack([records.mean(axis=-1) + noise, 50.0 + noise], axis=-1)


shared_seed = BlackBox(one_seed, CHAIN, EPSILON, name="shared_seed", **many)


# 9. Floats as noise: the low bits of the sum tell what was added to.
def float_laplace(records, rng):
    return records.mean(axis=-1) + rng.laplace(0.0, 1.8 / EPSILON, len(records))


float_noise = BlackBox(
    float_laplace, aw.birth_death(0.1, 0.2, STATES / 100), EPSILON, batched=True, name="float_noise"
)


# 10. The Δ of a fitted chain on readings of households with habits: half are mostly out, half in.
def habits(present, runs, rng, slots=1):
    """Readings of earlier slots given today's: each household keeps its habit for good."""
    home = rng.random(runs) < (0.9 if present else 0.1)
    return (rng.random((runs, slots)) < np.where(home, 0.9, 0.1)[:, None]).astype(float)


FITTED = aw.MarkovChain([[0.82, 0.18], [0.18, 0.82]], ON)  # what one slot to the next looks like
SPENT = aw.Ageing(FITTED, age=8).classical_epsilon(0.1)
fitted_chain = BlackBox(
    lambda records: noised(records.mean(axis=-1), 1 / min(SPENT, 5.0)),
    habits,
    0.1,
    present=ON,
    about=9,
    batched=True,
    name="fitted_chain",
)

# 11. Twenty releases credited with ageing in between, where habits never age.
CREDITED = aw.continual_epsilon(FITTED, every=8, classical_epsilon=0.5, age=8, release="any")
credit_for_habits = BlackBox(
    lambda records: noised(records[..., 0], 2.0),
    lambda present, runs, rng: habits(present, runs, rng, 20),
    CREDITED,
    collect_at=[8 * k + 1 for k in range(20)],
    about=161,
    present=ON,
    batched=True,
    name="credit_for_habits",
)


# 12. A second run, four slots later, of which the total knows nothing.
def two_runs(records):
    return noised(records.mean(axis=-1), RANGE / EPSILON)


later_run = BlackBox(two_runs, CHAIN, EPSILON, collect_at=[1, 3], about=3, name="later_run", **many)

SAMPLED = {
    "noise_too_small": noise_too_small,
    "wrong_clip": wrong_clip,
    "sensitivity_from_data": sensitivity_from_data,
    "renoised_retry": renoised_retry,
    "another_law": another_law,
    "summed_aged": summed_aged,
    "wrong_slot": wrong_slot,
    "shared_seed": shared_seed,
    "float_noise": float_noise,
    "fitted_chain": fitted_chain,
    "credit_for_habits": credit_for_habits,
    "later_run": later_run,
}

# Plans whose numbers are false: what `agewise audit` says exactly.
PROBLEM = aw.scenarios.london().replace(epsilon=EPSILON, mixing="own_law", calibration="tight")
correct_plan = aw.evaluate(PROBLEM, [4, 4, 4])


def changed(plan, **changes):
    """A plan with other numbers for every client."""
    kept = [
        replace(one, **{name: change(one) for name, change in changes.items()})
        for one in plan.assignments
    ]
    return replace(plan, assignments=tuple(kept))


plan_noise_too_small = changed(correct_plan, noise_scale=lambda one: 0.7 * one.noise_scale)
plan_wrong_clip = changed(correct_plan, sensitivity=lambda one: one.sensitivity * 80 / 180)
plan_wrong_slot = changed(correct_plan, collect_at=lambda one: one.collect_at + 2)
OTHER = PROBLEM.replace(clients=[aw.Client("high", GROWING, HIGH, SAMPLES)])
plan_another_law = replace(aw.evaluate(OTHER.replace(mixing="exact"), [6]), problem=OTHER)
ROUNDS = aw.scenarios.for_ever().replace(rounds=2)
plan_rounds_not_counted = replace(
    aw.plan(ROUNDS), problem=ROUNDS.replace(rounds=None)
)  # noise for two rounds, claimed for ever
PLANNED = {
    "plan_noise_too_small": plan_noise_too_small,
    "plan_wrong_clip": plan_wrong_clip,
    "plan_wrong_slot": plan_wrong_slot,
    "plan_another_law": plan_another_law,
    "plan_rounds_not_counted": plan_rounds_not_counted,
}


def crowd(count, **choices):
    """A plan for many clients like the first of the paper's, at ε = 1."""
    clients = [aw.Client(f"client {k}", CHAIN, samples=10) for k in range(count)]
    problem = aw.Problem(clients, aggregate_at=5, epsilon=EPSILON, estimator="plain", **choices)
    return aw.evaluate(problem, [3] * count)


def weak_noise(value, terms, scale):
    """Half the noise that is recorded."""
    drawn = noised(value, scale / 2)
    return Noised(drawn, scale, terms.sensitivity / scale, private=True)


def seeded_noise(value, terms, scale):
    """The same generator in every client."""
    drawn = value + scale * np.random.default_rng(7).laplace(0.0, 1.0, value.shape)
    return Noised(drawn, scale, terms.sensitivity / scale, private=True)


def summed(events, *_):
    """The aged ε's of all releases, added up."""
    total = sum(event.aged_epsilon for event in events)
    return client_code.Total(total, sum(event.classical_epsilon for event in events))


def make_runs(folder):
    """Runs with a fault, each in its folder."""
    noise = "agewise.federation.local.private_noise"
    with mock.patch(noise, weak_noise):
        # 240 numbers, of which noise times 0.5 is missed once in 10^18 times; more than 100
        # clients would draw their noise together, by a function that is not replaced here.
        aw.run(crowd(60, learner=aw.Histogram()), folder=folder / "weak_noise")
    with mock.patch(noise, seeded_noise):
        aw.run(crowd(3), folder=folder / "shared_seed")
    aw.run(crowd(3), folder=folder / "renoised_retry")
    journal = folder / "renoised_retry" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    first = json.loads(next(line for line in lines if '"received"' in line))
    upload = json.loads(first["payload"])
    upload["value"][0] += 0.25
    again = json.dumps({**first, "payload": json.dumps(upload)})
    journal.write_text("\n".join([*lines, again]) + "\n")
    policy = aw.Policy()
    aw.run(crowd(3), folder=folder / "later_run" / "first", ledgers=folder / "later_run" / "old")
    time.sleep(1.1)  # ledgers keep time to the second
    aw.run(
        crowd(3),
        folder=folder / "later_run" / "second",
        ledgers=folder / "later_run" / "new",  # a new ledger knows nothing of the old one
        starts_at=0,
        policy=policy,
    )
    problem = aw.Problem(
        [aw.Client("north", RARE, samples=1)],
        aggregate_at=3,
        epsilon=0.6,
        estimator="plain",
        calibration="tight",
    )
    plan = aw.evaluate(problem, [1])
    with mock.patch("agewise.federation.client.total_of", summed):
        for number in range(2):
            aw.run(
                plan,
                folder=folder / "summed_aged" / str(number),
                ledgers=folder / "summed_aged" / "ledgers",
                policy=policy,
            )


if __name__ == "__main__":
    make_runs(Path(sys.argv[1]))
