"""Scenario files for editors: their keys, explained, as JSON schema."""

from __future__ import annotations

import json
from typing import Any

from agewise.learning import KINDS, LEARNED
from agewise.scenario import ScenarioEntry

NUMBER: dict[str, Any] = {"type": "number"}
ABOVE_ZERO = {"exclusiveMinimum": 0}
WHOLE = {"minimum": 1}
ONE_LINE = {"pattern": r"^[^\r\n]*$"}


def numbers(depth: int = 1) -> dict[str, Any]:
    """Lists of numbers, nested so deep."""
    return {"type": "array", "items": numbers(depth - 1) if depth > 1 else NUMBER}


NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

EXPLAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "version": ("The version of this format.", {}),
    "name": ("What plans, runs and figures call this scenario.", {}),
    "unit": ("The unit of the records, for labels only: Wh, say.", ONE_LINE),
    "origin": ("Where the laws come from, in one line, for plans and statements.", ONE_LINE),
    "aggregate_at": ("The slot in which the server aggregates; slots are 1, 2, ...", WHOLE),
    "epsilon": ("Privacy target ε of every client about its records in that slot.", ABOVE_ZERO),
    "mixing": (
        "Whose prior knowledge Δ is computed for: exact (the stationary law), own_law (the stated "
        "law), any_prior (anything), spectral (the paper's upper bound).",
        {},
    ),
    "estimator": (
        "best: the server weighs what it hears against what it knows. plain: the weighted mean of "
        "what was collected. propagated: records are moved forward to the aggregation slot first.",
        {},
    ),
    "calibration": (
        "How the noise is set: sharp (exact for the worst mechanism), formula (the paper's, more "
        "noise), tight (exact for the Laplace mechanism, means only).",
        {},
    ),
    "objective": (
        "What a schedule is judged by: exact (closed form), bound (Theorem 1), simulated.",
        {},
    ),
    "capacity": ("How many clients may collect in one slot. Left out: any number.", WHOLE),
    "learner": ("What is learnt. Left out: the mean.", {}),
    "mechanism": ("The noise: laplace, or gaussian, which needs delta too.", {}),
    "delta": (
        "The δ of the target (ε, δ), with gaussian noise only.",
        {**ABOVE_ZERO, "exclusiveMaximum": 1},
    ),
    "noise": (
        "Who adds the noise: each client (nobody is trusted), or once the server, which then sees "
        "the clients' means as they are.",
        {},
    ),
    "level": ("What all records share and nobody knows. Accuracy rests on it, privacy never.", {}),
    "knowledge": ("Means and covariances measured on earlier days, instead of levels.", {}),
    "rounds": ('How often all this is done: a number, or "forever".', {}),
    "every": ("Slots from one round to the next; with rounds only.", WHOLE),
    "promise": (
        "What ε is about over all rounds: the value at each publication (present), at any time "
        "(every_moment), or in the last so many slots (a number).",
        {},
    ),
    "states": ("The values that a record can take, distinct.", {"minItems": 1}),
    "clients": ("One table per client.", {"minItems": 1}),
    "clients.name": ("Its name, distinct from the others'.", {"minLength": 1, "maxLength": 200}),
    "clients.samples": ("How many records it collects.", WHOLE),
    "clients.process": ("How one of its records changes from slot to slot.", {}),
    "clients.law": ("Law of a record at collection. Left out: the process's own law.", {}),
    "clients.states": ("Its own states. Left out: those at the top.", {"minItems": 1}),
    "clients.weight": (
        "Its share of the aggregate: for every client, summing to 1, or for none.",
        ABOVE_ZERO,
    ),
    "clients.epsilon": ("Its own target. Left out: that at the top.", ABOVE_ZERO),
    "clients.turn": ("Of many rounds it takes part in one of so many.", WHOLE),
    "clients.members": ("So many clients alike, behind one gateway.", WHOLE),
    "birth_death.kind": ("A chain that moves by one state at most.", {}),
    "birth_death.up": ("Probability of one state up.", {"minimum": 0, "maximum": 1}),
    "birth_death.down": ("Probability of one state down.", {"minimum": 0, "maximum": 1}),
    "chain.kind": ("Any Markov chain.", {}),
    "chain.transition": ("Row = from, column = to; each row sums to 1.", {}),
    "periodic.kind": ("A chain whose matrix depends on the slot of the day.", {}),
    "periodic.transitions": (
        "One matrix for each slot of the day, the first for the step from slot 1 to 2.",
        {},
    ),
    "measured.kind": ("Joint laws measured lag by lag, as `agewise fit` writes them.", {}),
    "measured.joints": ("Joint law of collection and aggregation, one per slot.", {}),
    "measured.limits": ("Upper limit on Δ, one per slot.", {}),
    "measured.confidence": ("With which all limits hold together.", {}),
    "measured.day": ("Slots of a day.", WHOLE),
    "measured.assumes": ("What the limits take for granted, in one line.", ONE_LINE),
    "measured.basis": ("Whether the limits are proven or hold asymptotically.", {}),
    "measured.weeks": ("Weeks of readings behind the limits.", {"minimum": 0}),
    "measured.targets": ("Values of ε for which `sticks` are given.", {}),
    "measured.sticks": ("Upper limits on the hockey-stick divergence, by target and slot.", {}),
}
"""What each key is for, and limits that an editor can check by itself."""

_LEARNER_KEYS: dict[str, dict[str, Any]] = {
    "table": numbers(2),
    "counts": numbers(),
    "features": numbers(2),
    "labels": {"type": "array"},
    "penalty": NUMBER,
    "reference": numbers(),
    "names": NAMES,
    "clip": NUMBER,
    "rate": NUMBER,
    "norm": {"enum": [1, 2]},
    "coefficients": {"type": "array"},
    "progress": {"type": "object"},
}
"""What the keys of learners hold."""

_NUMBER_OR_NUMBERS = {"anyOf": [NUMBER, numbers()]}


def scenario_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files (draft 2020-12).

    An editor that knows it completes keys, explains them and marks what cannot be right. It cannot
    see what only the whole shows (rows that do not sum to 1, say): `agewise check` does.
    """
    made: Any = _plain(ScenarioEntry.model_json_schema())
    definitions = made.pop("$defs")
    _explain(made["properties"], "")
    for name, one in definitions.items():
        _explain(one["properties"], f"{name}.")
    made["properties"]["learner"] |= {"oneOf": [_learner(kind) for kind in KINDS]}
    made["properties"]["level"]["items"] = _table(
        {
            "loading": _NUMBER_OR_NUMBERS
            | {"description": "Standard deviation in the unit of the records, or one per client."},
            "correlation": _NUMBER_OR_NUMBERS
            | {"description": "What remains from slot to slot, 0 to 1; or one number per lag."},
        }
    )
    made["properties"]["knowledge"] |= _table(
        {
            "kind": {"const": "measured"},
            "clients": NAMES,
            "mean": numbers(3),
            "factors": {"type": "array"},
            "own": numbers(4),
            "lagged": numbers(4),
            "days": {"type": "integer", "minimum": 2},
            "assumes": {"type": "string", **ONE_LINE},
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Agewise scenario",
        "description": "A federation to plan for: clients, a privacy target and a deadline.",
        **{key: value for key, value in made.items() if key not in ("title", "description")},
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


def _explain(properties: dict[str, Any], prefix: str) -> None:
    for key, one in properties.items():
        words, limits = EXPLAINED[prefix + key]
        one.pop("discriminator", None)  # of another standard
        one.update({"description": words, **limits})


def _learner(kind: str) -> dict[str, Any]:
    _, needed, others = KINDS[kind]
    keys = {"kind": {"const": kind, "description": LEARNED[kind]}}
    keys |= {name: _LEARNER_KEYS[name] for name in (*needed, *others)}
    return _table(keys, ["kind", *needed])


def _table(keys: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": keys,
        "required": list(keys) if required is None else required,
        "additionalProperties": False,
    }


_NAMES = {
    "_BirthDeath": "birth_death",
    "_Chain": "chain",
    "_Periodic": "periodic",
    "_Measured": "measured",
    "_ClientEntry": "clients",
}


def _plain(value: Any) -> Any:
    """The schema without titles that repeat a key, and without null, which TOML does not have."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return f"#/$defs/{_NAMES[value[8:]]}" if value[:8] == "#/$defs/" else value
    if not isinstance(value, dict):
        return value
    kept = {
        _NAMES.get(key, key): _plain(one)
        for key, one in value.items()
        if not (key == "title" and isinstance(one, str)) and not (key == "default" and one is None)
    }
    some = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(some) == 1:
        return {**{key: one for key, one in kept.items() if key != "anyOf"}, **some[0]}
    return kept
