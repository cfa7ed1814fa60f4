"""Check a run's record, statement and plan against the clients' ledgers, without using Agewise.

    mkdir exported
    agewise ledger export runs/NAME/ledgers/CLIENT.ledger > exported/CLIENT.json    (each client)
    agewise ledger export runs/NAME/server.draws > exported/server.draws.json    (if it is there)
    python examples/check_statement.py runs/NAME exported

Recomputes, with NumPy alone, what record.json and statement.md say: Δ, sensitivity, noise, ε's and
totals from the scenario's matrices and the exported releases, the model from the uploaded values,
the expected loss in closed form, the realised one of simulated records, every step from the
journal, and the page line by line. plan.json is held to the digest that the clients' own ledgers
name. Where the server adds the noise, the model is the one draw that the server's own ledger holds,
on the sum of the clients' means, and no less noise than any of them was promised. Prints one line
per difference. Exit code 0: all the same; 1: something differs; 2: a case
that it does not cover (plans made anew on the way, rejected uploads, runs on Flower, Gaussian
noise, learners other than the mean, levels with noise by the server, earlier versions).
`agewise check` does the same with the package's own code, for every case.
"""

import functools
import hashlib
import html
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

KNOWN = "records that evolve independently of each other with the process given"
ASSUMES = {
    "own_law": f"{KNOWN}, and an adversary whose prior at collection is the client's stated law.",
    "exact": f"{KNOWN}, and an adversary whose prior is its stationary (periodic) law.",
    "any_prior": f"{KNOWN}; it holds for any law of a record at collection.",
    "spectral": f"{KNOWN}, and an adversary whose prior is its stationary law.",
    "measured": "records that evolve independently of each other, and a Δ that was measured: the "
    "notes say for which adversary, and on what its confidence rests.",
}
TRUST = {
    "client": "Nobody is trusted with the records: each client adds its noise itself. The server "
    "sees the noised means as they are uploaded, at the classical ε; whoever sees the model only, "
    "at the aged ε.",
    "server": "The server is trusted: it sees the clients' means as they are, and adds noise once, "
    "when the model is published. The ε's below are about the model. If that trust is misplaced, "
    "the classical ε is infinite.",
}
SEEN = (
    "Ages count to the aggregation slot. The server, whoever runs it and whoever reads its files "
    "have the clients' means as they are, from the moment of their upload."
)
DRAWS = "server.draws.json"
STATEMENTS = 6
"""The version of statements that is checked here: others rest on other rules."""
LIMITS = [
    "The aged ε is about a record's value in the aggregation slot; the value that was collected is "
    "protected by the classical ε only.",
    "Ages count to the aggregation slot: whoever sees an upload earlier, the server included, has "
    "data that have aged less.",
    "The processes are taken to be true and publicly known, and records of one client to evolve "
    "independently of each other, given whatever they have in common.",
    "Every ε compares what is published with what would have been, had one record been another and "
    "all else the same, what everybody has in common included: what the release tells of that, the "
    "sort of day it is say, is not covered.",
    "Totals count every release in the client's ledger until then, as seen in the aggregation "
    "slot; those made under another process count in full.",
    "What is collected later also tells about earlier values, these included: a total grows with "
    "every later release of the client, and its own policy limits by how much.",
]


class Process:
    """A client's process as its scenario gives it: kernels, laws, fingerprint."""

    def __init__(self, entry, states):
        self.kind, self.states = entry["kind"], np.array(states, float)
        self.markov = self.kind != "measured"
        if self.markov:
            self.day = np.array(
                entry["transitions"] if self.kind == "periodic" else [entry["transition"]]
            )
            parts = [self.day if self.kind == "periodic" else self.day[0], self.states]
        else:
            self.joints, self.limits = np.array(entry["joints"]), np.array(entry["limits"])
            self.length = entry["day"]
            facts = np.array([entry["confidence"], entry["day"]], float)
            words = np.frombuffer(entry["assumes"].encode(), dtype=np.uint8).astype(float)
            parts = [self.joints, self.limits, self.states, facts, words]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(repr(part.shape).encode() + np.ascontiguousarray(part, "<f8").tobytes())
        self.fingerprint = digest.hexdigest()[:16]

    def kernel(self, start, end):
        if not self.markov:
            if start == end:
                return np.eye(len(self.states))
            joint = self.joints[self.index(start, end)]
            rows = np.where(joint.sum(axis=1)[:, None] > 0, joint, joint.sum(axis=0))
            return rows / rows.sum(axis=1, keepdims=True)
        result = np.eye(len(self.states))
        for slot in range(start, end):
            result = result @ self.day[(slot - 1) % len(self.day)]
        return result

    def index(self, start, end):
        shift = end - len(self.joints)
        return start - shift - 1 if shift % self.length == 0 and start - shift >= 1 else None

    def law(self, slot):
        if not self.markov:
            return self.joints[slot - 1].sum(axis=1)
        values, vectors = np.linalg.eig(self.kernel(slot, slot + len(self.day)).T)
        law = np.real(vectors[:, np.argmin(abs(values - 1))])
        return law / law.sum()

    def backward(self, law, start, end):
        joint = (self.law(start) if law is None else np.array(law))[:, None] * self.kernel(
            start, end
        )
        columns = joint[:, joint.sum(axis=0) > 0]
        return (columns / columns.sum(axis=0)).T

    def delta(self, mixing, law, start, end):
        if start == end:
            return 1.0
        if not self.markov:
            index = self.index(start, end)
            return 1.0 if index is None else self.limits[index]
        kernel = self.kernel(start, end)
        if mixing == "any_prior":
            if (kernel == 0).any():
                return 1.0
            logs = np.log(kernel)
            return math.tanh(max(np.ptp(a - b) for a in logs for b in logs) / 4)
        if mixing == "spectral":
            rarest = self.law(start).min()
            second = sorted(abs(np.linalg.eigvals(self.day[0])))[-2]
            return min(1.0, math.sqrt((1 - rarest) / rarest) * second ** (end - start))
        return widest(self.backward(law if mixing == "own_law" else None, start, end))


def widest(rows):
    return max(abs(a - b).sum() / 2 for a in rows for b in rows)


def aged(loss, delta):
    if loss > 700:  # e^loss would overflow
        return loss + math.log(delta) if delta else 0.0
    return math.log1p(delta * math.expm1(loss))


def spent(event):
    """The classical ε of a release; ledgers leave it empty where there was no noise."""
    return math.inf if event["classical_epsilon"] is None else event["classical_epsilon"]


def total(events, process, mixing, law, seen_at):
    """Age what is known, then add what the next slot releases; from both sides of `seen_at`.

    Once as one number, and once as a loss for each pair of states; the smaller one counts, unless a
    release that was made for this slot states more by itself.
    """
    other = math.fsum(spent(e) for e in events if e["fingerprint"] != process.fingerprint)
    own = [(e["collect_at"], spent(e)) for e in events if e["fingerprint"] == process.fingerprint]
    if not process.markov and (
        len({at for at, _ in own}) > 1 or any(at > seen_at for at, _ in own)
    ):
        return other + math.fsum(epsilon for _, epsilon in own)
    if mixing == "own_law" and len(events) > 1:
        mixing = "any_prior"
    past, loss = sorted(one for one in own if one[0] <= seen_at), 0.0
    for (at, epsilon), then in zip(past, [t for t, _ in past[1:]] + [seen_at], strict=False):
        loss = aged(loss + epsilon, process.delta(mixing, law, at, then))
    future, later = sorted((one for one in own if one[0] > seen_at), reverse=True), 0.0
    for (at, epsilon), then in zip(future, [t for t, _ in future[1:]] + [seen_at], strict=False):
        later = aged(later + epsilon, widest(process.kernel(then, at)))
    together = loss + later
    if process.markov and all(math.isfinite(epsilon) for _, epsilon in own):
        together = min(together, pairwise(past, future, process, mixing, law, seen_at))
    for event in events:
        if event["fingerprint"] == process.fingerprint and event["aggregate_at"] == seen_at:
            alone = aged(spent(event), process.delta(mixing, law, event["collect_at"], seen_at))
            stated = event["aged_epsilon"]
            together = max(together, alone if stated is None else min(stated, alone))
    return other + together


def pairwise(past, future, process, mixing, law, seen_at):
    """What tells two values in slot `seen_at` apart: a matrix for all releases on either side."""
    each = 1 - np.eye(len(process.states))
    known, told = 0 * each, 0 * each
    for (at, epsilon), then in zip(past, [t for t, _ in past[1:]] + [seen_at], strict=False):
        known = known + epsilon * each
        if then > at and mixing in ("any_prior", "spectral"):
            delta = process.delta(mixing, law, at, then)
            known = sharp_loss(process, mixing, law, at, then, delta, known.max()) * each
        elif then > at:
            rows = process.backward(law if mixing == "own_law" else None, at, then)
            known = apart(known, rows)
    for (at, epsilon), then in zip(future, [t for t, _ in future[1:]] + [seen_at], strict=False):
        told = apart(told + epsilon * each, process.kernel(then, at))
    if known.shape != told.shape:  # some values cannot occur, and nothing is asked about them
        return known.max() + told.max()
    return (known + told).max()


def apart(losses, rows):
    """max ln(rows[y]·v / rows[y′]·v) over v with v(x) ≤ e^losses[x, x′] v(x′): at extreme rays.

    There as many constraints as make a spanning tree hold with equality: all of them are tried.
    """
    size = len(losses)
    worst = np.zeros((len(rows), len(rows)))
    for tree in itertools.combinations(itertools.permutations(range(size), 2), size - 1):
        logs = {0: 0.0}
        for _ in range(size):
            for x, z in tree:
                if z in logs and x not in logs:
                    logs[x] = logs[z] + losses[x, z]
                elif x in logs and z not in logs:
                    logs[z] = logs[x] - losses[x, z]
        if len(logs) == size:
            u = np.array([logs[x] for x in range(size)])
            if (u[:, None] - u <= losses + 1e-9).all():
                seen = np.log(rows @ np.exp(u - u.max()))
                worst = np.maximum(worst, seen[:, None] - seen)
    return worst


def sharp_loss(process, mixing, law, start, end, delta, spent):
    """The worst loss of any mechanism with this classical ε: sets are prefixes by likelihood."""
    if not process.markov or mixing == "spectral" or start == end:
        return aged(spent, delta)
    if mixing == "any_prior":
        return 4 * math.atanh(delta * math.tanh(spent / 4)) if delta < 1 else spent
    rows, worst = process.backward(law if mixing == "own_law" else None, start, end), 0.0
    base = 1 / math.expm1(spent) if spent < 700 else 0.0
    for q in rows:
        for d in rows:
            order = sorted(range(len(q)), key=lambda x: -q[x] / d[x] if d[x] else -math.inf)
            above, below = np.cumsum(q[order]), np.cumsum(d[order])
            for a, b in zip(above, below, strict=True):
                if a > b:
                    worst = max(worst, math.log1p((a - b) / (base + b)) if base + b else math.inf)
    return min(worst, aged(spent, delta))


def tight_loss(process, law, start, end, f, samples, scale):
    """The loss of the Laplace mechanism itself, at every output where it can be largest."""
    if scale == 0:
        scale = 1e-300
    density = np.exp(-abs(f[:, None] - f) / samples / scale)
    logs = np.log(process.backward(law, start, end) @ density)
    return (logs.max(axis=0) - logs.min(axis=0)).max()


class Check:
    def __init__(self):
        self.wrong = 0

    def same(self, where, stated, true, room=1e-9, least=0.0):
        if (
            isinstance(true, float)
            and isinstance(stated, int | float)
            and not isinstance(stated, bool)
        ):
            equal = stated == true or math.isclose(stated, true, rel_tol=room, abs_tol=least)
        else:
            equal = type(stated) is type(true) and stated == true
        if not equal:
            self.wrong += 1
            print(f"{where}: stated {stated!r}, found {true!r}: DIFFERENT")


def words(value):
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def odds(epsilon):
    return None if epsilon is None else words(math.exp(epsilon) if epsilon < 700 else math.inf)


def noise_of(scenario):
    """Who adds the noise: "client" or "server"."""
    return scenario.get("noise", "client")


def process_of(client, scenario):
    return Process(client["process"], client.get("states", scenario.get("states")))


def row_of(client, scenario, own, events, process, aggregated, settings):
    """One client's row of the statement, from its exported ledger and its matrices."""
    upload, private = json.loads(bytes.fromhex(own["payload"])), not settings["stand_in"]
    start, end, n, mixing = (
        upload["collect_at"],
        upload["aggregate_at"],
        client["samples"],
        scenario["mixing"],
    )
    law, scale, f = client.get("law"), own["scale"], process.states
    if scenario["estimator"] == "propagated":
        f = process.kernel(start, end) @ f
    if mixing == "own_law" and law is None:
        law = process.law(start).tolist()
    reach = float(np.ptp(f) / n)
    delta = float(process.delta(mixing, law, start, end))
    before = [event for event in events[: own["number"]] if event["private"]]
    classical = alone = together = added = None
    digest = hashlib.sha256(bytes.fromhex(own["payload"])).hexdigest()
    if private:
        classical = math.inf if scale == 0 else reach / scale
        alone = aged(classical, delta)
        if scenario["calibration"] == "sharp":
            alone = sharp_loss(process, mixing, law, start, end, delta, classical)
        if scenario["calibration"] == "tight" and start < end:
            prior = law if mixing == "own_law" else None
            alone = min(alone, float(tight_loss(process, prior, start, end, f, n, scale)))
        together = total(before, process, mixing, law, own["aggregate_at"])
        together = min(together, alone) if len(before) == 1 else together
        added = math.fsum(map(spent, before))
    return {
        "client": client["name"],
        "aggregated": aggregated,
        "target_epsilon": client.get("epsilon", scenario["epsilon"]),
        "collect_at": own["collect_at"] - settings["starts_at"],
        "age": own["aggregate_at"] - own["collect_at"],
        "samples": n,
        "members": client.get("members", 1),
        "delta": delta,
        "mixing": mixing,
        "assumptions": ASSUMES[mixing if process.markov else "measured"],
        "sensitivity": reach,
        "noise_scale": scale,
        "classical_epsilon": words(classical),
        "aged_epsilon": words(alone),
        "aged_odds": odds(alone),
        "classical_odds": odds(classical),
        "aged_delta": 0.0 if private else None,
        "classical_delta": 0.0 if private else None,
        "releases": len(before),
        "total_aged_epsilon": words(together),
        "total_classical_epsilon": words(added),
        "total_aged_delta": 0.0 if private else None,
        "total_classical_delta": 0.0 if private else None,
        "upload_sha256": digest if noise_of(scenario) == "client" else None,
    }, upload


def expected_gap(rows, weights, clients, scenario):
    """Σ p²(2η² + Var[f − z]/n) + (Σ p E[f − z])², of those who took part."""
    spread = bias = 0.0
    end = scenario["aggregate_at"]
    for row, weight in zip(rows, weights, strict=True):
        client = clients[row["client"]]
        process = process_of(client, scenario)
        start = row["collect_at"]
        kernel, z = process.kernel(start, end), process.states
        f = kernel @ z if scenario["estimator"] == "propagated" else z
        law = np.array(client["law"]) if "law" in client else process.law(start)
        joint, gap = law[:, None] * kernel, f[:, None] - z
        mean = (joint * gap).sum()
        variance = (joint * gap**2).sum() - mean**2
        noise = 0.0 if noise_of(scenario) == "server" else 2 * row["noise_scale"] ** 2
        spread += weight**2 * (noise + variance / client["samples"])
        bias += weight * mean
    if noise_of(scenario) == "server":
        pairs = zip(weights, rows, strict=True)
        spread += 2 * max(weight * row["noise_scale"] for weight, row in pairs) ** 2
    return float(spread + bias**2)


def lasting(level, lag):
    rho = level["correlation"]
    return rho[lag] if isinstance(rho, list) else rho**lag


def moments(scenario, slots, heard):
    """What is known of those `heard` (name: noise scale): their covariances, and with the target.

    A record is its own state plus what the levels add. It is reported as it is, within the range
    of the states, where data are fresh, and else as the nearest state. `slots` says when each
    client's law holds. Returns the target's variance and mean, covariances with it, those of
    reports, and their means.
    """
    end, members = scenario["aggregate_at"], scenario["clients"]
    sizes = np.array([c.get("weight", c["samples"]) for c in members], float)
    weights, levels = sizes / sizes.sum(), scenario.get("level", [])
    loads = np.array([np.broadcast_to(one["loading"], len(members)) for one in levels])
    loads = loads.reshape(len(levels), len(members))
    unknown, expected, known = float(np.square(loads @ weights).sum()), 0.0, []
    for i, client in enumerate(members):
        process, start = process_of(client, scenario), slots[client["name"]]
        kernel, z, n = process.kernel(start, end), process.states, client["samples"]
        law = np.array(client["law"]) if "law" in client else process.law(start)
        moved, now = kernel @ z, law @ kernel @ z
        unknown += weights[i] ** 2 * (law @ kernel @ (z - now) ** 2) / n
        expected += weights[i] * now
        if client["name"] in heard:
            noise = 0.0 if noise_of(scenario) == "server" else 2 * heard[client["name"]] ** 2
            report = (tuple(z.tolist()), start == end, float(np.linalg.norm(loads[:, i])))
            shown, slope = mean_and_slope(report)
            mean, same = law @ shown, together(report, report, 1.0)
            own = law @ (shown**2 + same.diagonal()) - mean**2 - law @ same @ law
            with_target = weights[i] * (law @ ((shown - mean) * (moved - now))) / n
            if report[2] > 0:
                left = [lasting(level, end - start) for level in levels]
                common = loads[:, i] * (loads @ weights) * left
                with_target += law @ slope * common.sum() / report[2]
            known.append((i, start, mean, with_target, own / n + noise, report, law))
    told = np.array([one[3] for one in known])
    power = np.diag([one[4] for one in known])
    for (row, (i, start, *_, first, law)), (
        column,
        (j, then, *_, other, after),
    ) in itertools.product(enumerate(known), repeat=2):
        if first[2] > 0 and other[2] > 0:
            left = [lasting(level, abs(start - then)) for level in levels]
            among = float((loads[:, i] * loads[:, j] * left).sum() / (first[2] * other[2]))
            power[row, column] += law @ together(first, other, round(min(among, 1.0), 12)) @ after
    return unknown, expected, told, power, [one[2] for one in known]


def below(beyond):
    """The standard normal distribution function."""
    return np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=[float])(beyond)


def breaks(states, fresh):
    """Where the report of a reading changes its slope or jumps."""
    ordered = np.sort(states)
    return ordered[[0, -1]] if fresh else (ordered[1:] + ordered[:-1]) / 2


def expected_report(states, fresh, middle, width):
    """E of the report of normal readings with these means and this standard deviation."""
    ordered, ends = np.sort(states), breaks(states, fresh)
    if width == 0:
        near = np.searchsorted(ends, middle)
        return np.clip(middle, *ends) if fresh else ordered[near]
    beyond = (np.asarray(middle)[..., None] - ends) / width
    if not fresh:
        return ordered[0] + below(beyond) @ np.diff(ordered)
    above = beyond * below(beyond) + np.exp(-(beyond**2) / 2) / math.sqrt(2 * math.pi)
    return ends[0] + width * (above[..., 0] - above[..., 1])


def mean_and_slope(report):
    """By own state: E of the report, and E of it times the level (of standard deviation 1)."""
    states, fresh, spread = np.array(report[0]), *report[1:]
    shown = expected_report(states, fresh, states, spread)
    if spread == 0:
        return shown, 0 * states
    beyond = (breaks(states, fresh) - states[:, None]) / spread
    if fresh:
        return shown, spread * (below(beyond[:, 1]) - below(beyond[:, 0]))
    density = np.exp(-(beyond**2) / 2) / math.sqrt(2 * math.pi)
    return shown, density @ np.diff(np.sort(states))


@functools.cache
def together(one, other, among):
    """Covariances of two reports by own states; their levels have the correlation `among`."""
    first, then = np.array(one[0]), np.array(other[0])
    result = np.zeros((len(first), len(then)))
    if one[2] == 0 or other[2] == 0 or among == 0:
        return result
    nodes, sizes = np.polynomial.legendre.leggauss(20)
    left, moved = math.sqrt(1 - among**2), other[2] * among
    for x, z in enumerate(first):
        for y, w in enumerate(then):
            turning = (breaks(first, one[1]) - z) / one[2], (breaks(then, other[1]) - w) / moved
            edges = np.concatenate([np.arange(-9, 9.1, 0.25), *turning])
            edges = np.unique(edges[abs(edges) <= 9])
            half = np.diff(edges)[:, None] / 2
            level = edges[:-1, None] + half * (1 + nodes)
            chance = np.exp(-(level**2) / 2) / math.sqrt(2 * math.pi) * half * sizes
            here = expected_report(first, one[1], z + one[2] * level, 0.0)
            there = expected_report(then, other[1], w + moved * level, other[2] * left)
            apart = (chance * here).sum() * (chance * there).sum()
            result[x, y] = (chance * here * there).sum() - apart
    return result


def estimate(scenario, slots, heard):
    """The best linear estimate: gains and offset for those `heard`, its loss."""
    members = scenario["clients"]
    unknown, expected, told, law, means = moments(scenario, slots, heard)
    names = [one["name"] for one in members if one["name"] in heard]
    gains, drawn = np.linalg.solve(law, told) if names else np.zeros(0), 0.0
    if noise_of(scenario) == "server" and names:
        needs = np.array([heard[name] for name in names])
        gains, drawn = of_one_draw(told, np.diag(law), needs)
    offset = expected - sum(k * mean for k, mean in zip(gains, means, strict=True))
    loss = unknown - 2 * told @ gains + gains @ law @ gains + 2 * drawn**2
    return gains, float(offset), float(loss)


def gap_with_levels(scenario, slots, heard):
    """The loss of the weighted mean of those `heard`, who are all the clients of the scenario."""
    unknown, expected, told, law, means = moments(scenario, slots, heard)
    sizes = np.array([one["weight"] for one in scenario["clients"]])
    weights = sizes / sizes.sum()
    bias = float(weights @ means) - expected
    return float(unknown - 2 * weights @ told + weights @ law @ weights + bias**2)


def of_one_draw(told, power, needs):
    """The best gains under one draw of noise, whose scale B is at least each |gain|·need; and B.

    Clients share nothing: for a B each gain is its own best or as large as B allows, and the loss
    is convex in B.
    """

    def gains(scale):
        limit = np.where(needs > 0, scale / np.where(needs > 0, needs, 1.0), np.inf)
        return np.clip(told / power, -limit, limit)

    def rises(scale):
        short = np.abs(told) - np.abs(gains(scale)) * power
        held = (needs > 0) & (short > 0)
        return 2 * scale > (short[held] / needs[held]).sum()

    low, high = 0.0, float(np.max(np.abs(told / power) * needs))
    if rises(high):
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if rises(middle) else (middle, high)
    best = gains(high)
    return best, float(np.max(np.abs(best) * needs))


def present_mean(client, scenario, start, seed):
    """The mean at aggregation of the simulated records of a client."""
    process = process_of(client, scenario)
    digest = hashlib.sha256(f"records\0{client['name']}".encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:16])])

    def draw(rows):
        below = np.cumsum(rows, axis=1)[:, :-1]
        drawn = (below <= rng.random(len(rows))[:, None]).sum(axis=1)
        return np.minimum(drawn, rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1))

    law = np.array(client["law"]) if "law" in client else process.law(start)
    first = draw(np.broadcast_to(law, (client["samples"], law.size)))
    return process.states[draw(process.kernel(start, scenario["aggregate_at"])[first])].mean()


def common_level(scenario, aim, shares, seed):
    """By how much simulated levels move the weighted mean of all records at aggregation."""
    names, total = [one["name"] for one in scenario["clients"]], 0.0
    for number, level in enumerate(scenario.get("level", [])):
        loads = np.broadcast_to(level["loading"], len(names))
        digest = hashlib.sha256(f"levels\0{number}".encode()).digest()
        rng = np.random.default_rng([seed, int.from_bytes(digest[:16])])
        if isinstance(level["correlation"], list):
            lags = np.array(level["correlation"])
            slots = np.arange(len(lags))
            values, vectors = np.linalg.eigh(lags[abs(np.subtract.outer(slots, slots))])
            kept = values > 1e-15 * len(lags)
            root = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
            now = (root @ rng.standard_normal(root.shape[1]))[scenario["aggregate_at"] - 1]
        else:
            left, now = level["correlation"], rng.standard_normal()
            for _ in range(scenario["aggregate_at"]):
                now = left * now + math.sqrt(1 - left**2) * rng.standard_normal()
        total += now * sum(p * loads[names.index(n)] for n, p in zip(aim, shares, strict=True))
    return total


def told(name):
    """A name as messages have it."""
    return json.dumps(name, ensure_ascii=False)


def follow(journal, plan, settings):
    """What happened, from the journal: steps, who was received, who is missing, why it failed."""
    due = {}
    for one in plan["assignments"]:
        due.setdefault(one["collect_at"], []).append(one["client"])
    steps, received, refused, missing, failure, closed = [], {}, {}, {}, None, 0
    for line in journal.splitlines():
        entry = json.loads(line)
        slot, what = entry["slot"], entry["input"]
        if what == "heads":  # what earlier rounds have heard, which orders repeat
            continue
        if what == "received":
            name = json.loads(entry["payload"])["client"]
            received[name] = entry["payload"].encode()
            steps.append({"slot": slot, "client": name, "what": "uploaded", "why": ""})
        elif what == "received alike":  # the same bytes but for the name and the value
            names, values = entry["clients"], entry["values"]
            for name, value in zip(names, values, strict=True):
                text = entry["first"]
                for key, old, new in (
                    ("client", told(names[0]), told(name)),
                    ("value", values[0], value),
                ):
                    text = text.replace(f'"{key}":{old}', f'"{key}":{new}', 1)
                received[name] = text.encode()
                steps.append({"slot": slot, "client": name, "what": "uploaded", "why": ""})
        elif what == "refused":
            refused[entry["client"]] = entry["reason"]
            steps.append(
                {"slot": slot, "client": entry["client"], "what": "refused", "why": entry["reason"]}
            )
        else:
            closed = slot
            late = [name for name in due.get(slot, []) if name not in received]
            why = {name: refused.get(name, "no upload by the deadline") for name in late}
            steps += [{"slot": slot, "client": n, "what": "missing", "why": why[n]} for n in late]
            if late and settings["on_missing"] == "fail":
                more = f" and {len(late) - 1} more" if len(late) > 1 else ""
                failure = f"client {late[0]!r}{more} missing in slot {slot} ({why[late[0]]})"
            else:
                missing |= why
    if failure is None and not received:
        failure = "no client uploaded anything"
    return steps, received, missing, failure, closed


def page(s):
    """The statement as a page, from its data."""

    def shown(epsilon, factor=None):
        if epsilon is None:
            return "none claimed"
        return f"{float(epsilon):.6g}" + ("" if factor is None else f" ({float(factor):.4g})")

    def plain(text):
        return html.escape(text, quote=False)

    unit = f" {plain(s['unit'])}" if s["unit"] else ""
    of = f" ({unit.strip()})".replace("|", "\\|") if unit else ""
    by = "by each client"
    if s["noise"] == "server":
        by = "by the server, which has drawn none: nothing was published"
        if s["draw_scale"] is not None:
            by = f"drawn once by the server, scale {s['draw_scale']:.6g}{unit}"
    lines = [f"# Privacy statement of run {s['run']}", "", f"**{s['trust']}**", ""]
    if not s["private"]:
        lines += [
            "**This run used a seeded stand-in for noise. Nothing is private, and no ε is "
            "claimed.**",
            "",
        ]
    outcome = "**The run did not complete.** It was to be aggregated"
    if s["model"] is not None:
        outcome = f"Model: {s['model']!r}{unit}. Aggregated"
    own = {c["client"]: c["target_epsilon"] for c in s["clients"]}
    target = f"ε = {s['target_epsilon']:g} for every client"
    if not set(own.values()) <= {s["target_epsilon"]}:
        target = "ε by client: " + ", ".join(f"{plain(n)} {e:g}" for n, e in own.items())
    lines += [
        f"Made {s['made_at']}. {outcome} in slot {s['aggregate_at']}, target {target}.",
        "",
        "Released: the mean of the records. Mechanism: "
        f"{s['mechanism'] if s['private'] else 'a seeded stand-in'}, {by}; estimator "
        f"{s['estimator']}, calibration {s['calibration']}.",
        "",
        f"| client | collected in | age | records | Δ | sensitivity{of} | noise scale{of} "
        "| aged ε (odds) | classical ε (odds) | total aged ε | total classical ε | releases |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in s["clients"]:
        name = plain(one["client"]).replace("|", "\\|")
        name += "" if one["aggregated"] else " (released, not aggregated)"
        cells = (
            name,
            one["collect_at"],
            one["age"],
            one["samples"],
            f"{one['delta']:.6g}",
            f"{one['sensitivity']:.6g}",
            f"{one['noise_scale']:.6g}",
            shown(one["aged_epsilon"], one["aged_odds"]),
            shown(one["classical_epsilon"], one["classical_odds"]),
            shown(one["total_aged_epsilon"]),
            shown(one["total_classical_epsilon"]),
            one["releases"],
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if s["missing"]:
        who = ", ".join(map(plain, s["missing"]))
        lines += ["", f"Missing: {who}. If one of them released, its own ledger says so."]
    if s["not_due"]:
        who = ", ".join(map(plain, s["not_due"]))
        lines += ["", f"Not yet due when the run ended, and never asked: {who}."]
    lines += ["", "What these numbers rest on:", ""]
    lines += [
        f"- Δ by `{m}`: {a}"
        for m, a in sorted({(c["mixing"], c["assumptions"]) for c in s["clients"]})
    ]
    lines += [f"- {plain(note)}" for note in s["notes"]] + [f"- {limit}" for limit in s["limits"]]
    return [*lines, "", f"Plan {s['plan']}", f"Statement {s['digest']}"]


def uncovered(scenario, settings, record):
    """What of a run is not covered here, if anything is."""
    version, local = record["statement"]["version"], settings["engine"] == "local"
    usual = local and settings["on_missing"] != "replan" and not record["rejected"]
    mean = "learner" not in scenario and "mechanism" not in scenario
    cases = {
        f"statements of version {version}, only of {STATEMENTS}": version in range(1, STATEMENTS),
        "runs on Flower, plans made anew on the way, rejected uploads": not usual,
        "gateways of several members": any("members" in one for one in scenario["clients"]),
        "other learners than the mean, other noise than Laplace noise": not mean,
        "measured knowledge": "knowledge" in scenario,
        "levels with noise by the server": noise_of(scenario) == "server" and "level" in scenario,
    }
    return next((what for what, found in cases.items() if found), None)


def rows_of(check, run, names, plan, settings, ledgers, received, complete):
    """The rows of the statement, and the uploads, of those who were received."""
    scenario, found = plan["scenario"], []
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    for name in names:
        client = next(one for one in scenario["clients"] if one["name"] == name)
        process = process_of(client, scenario)
        events = ledgers.get(name, [])
        own = next((event for event in events if event["key"] == run), None)
        if own is None:
            check.same(f"{name}: ledger", "an upload", "does not hold this run")
            continue
        row, upload = row_of(client, scenario, own, events, process, complete, settings)
        check.same(f"{name}: upload", received[name].hex(), own["payload"])
        check.same(f"{name}: plan", upload["plan"], digest)
        check.same(f"{name}: fingerprint", own["fingerprint"], process.fingerprint)
        check.same(f"{name}: slot", own["collect_at"], upload["collect_at"] + settings["starts_at"])
        if not settings["stand_in"]:
            kept = float(row["aged_epsilon"]) <= row["target_epsilon"] * (1 + 1e-6)
            check.same(f"{name}: target kept", kept, True)
        found.append((row, upload))
    return digest, [row for row, _ in found], [upload for _, upload in found]


def drawn(check, settings, rows, gains, total, events):
    """The model that the server's ledger holds: one draw on the sum, which keeps every promise."""
    run, made = settings["run"], {event["key"]: event for event in events}
    if run not in made or f"{run} opened" not in made:
        check.same("server's ledger", "a model", "no draw of this run")
        return math.nan
    record = json.loads(bytes.fromhex(made[run]["payload"]))
    scale = record["drawn_scale"]
    names = [row["client"] for row in rows]
    check.same("server's ledger: clients", sorted(record["gains"]), sorted(names))
    check.same("server's ledger: sum", record["value"][0], total, room=1e-6)
    for row, gain in zip(rows, gains, strict=True):
        name = row["client"]
        check.same(f"gain of {name}", record["gains"].get(name), float(gain), room=1e-6)
        check.same(f"promise to {name}", record["promised"].get(name), row["noise_scale"])
        kept = scale >= abs(record["gains"].get(name, math.inf)) * row["noise_scale"]
        check.same(f"promise to {name} kept", kept, True)
    return record["aggregate"][0]


def outcome(check, scenario, settings, rows, uploads, names, due, draws):
    """Model, its noise, expected and realised loss, and what its rivals would lose."""
    clients = {one["name"]: one for one in scenario["clients"]}
    slots = due | {row["client"]: row["collect_at"] for row in rows}
    aim, best = names, scenario["estimator"] == "best"
    if best:
        aim = list(clients)  # gains still estimate the mean of all
    weights = [clients[n].get("weight", clients[n]["samples"]) for n in aim]
    shares = [one / math.fsum(weights) for one in weights]
    if best:
        heard = {row["client"]: row["noise_scale"] for row in rows}
        gains, offset, gap = estimate(scenario, slots, heard)
        model = offset + math.fsum(k * u["value"][0] for k, u in zip(gains, uploads, strict=True))
        whole = scenario
    else:
        pairs = list(zip(shares, uploads, strict=False))
        model = math.fsum(p * upload["value"][0] for p, upload in pairs)
        kept = [{**clients[n], "weight": p} for n, p in zip(aim, shares, strict=True)]
        whole = {**scenario, "clients": kept}
        gap = expected_gap(rows, shares[: len(rows)], clients, scenario)
        if "level" in scenario:
            gap = gap_with_levels(whole, slots, {r["client"]: r["noise_scale"] for r in rows})
    draw_scale = None
    if noise_of(scenario) == "server":
        gains = gains if best else shares[: len(rows)]
        pairs = zip(gains, rows, strict=True)
        draw_scale = float(max(abs(gain) * row["noise_scale"] for gain, row in pairs))
        model = drawn(check, settings, rows, gains, model, draws)
    realised = None
    simulated = settings["readings"] is None and not settings["own_sources"]
    if simulated:
        truth = common_level(scenario, aim, shares, settings["seed"]) + sum(
            share * present_mean(clients[name], scenario, slots[name], settings["seed"])
            for share, name in zip(shares, aim, strict=True)
        )
        realised = float((model - truth) ** 2)
    fresh_slots = dict.fromkeys(slots, scenario["aggregate_at"])
    nothing = estimate(whole, fresh_slots, {})[2]  # one value for one problem: that of ages 0
    noise = {
        c["name"]: float(np.ptp(process_of(c, scenario).states))
        / c["samples"]
        / c.get("epsilon", scenario["epsilon"])
        for c in whole["clients"]
    }
    fresh = estimate(whole, fresh_slots, noise)[2]
    return model, draw_scale, gap, realised, nothing, fresh


def main(run, exported):
    run, check = Path(run), Check()
    plan, record, settings = (
        json.loads((run / name).read_text()) for name in ("plan.json", "record.json", "run.json")
    )
    scenario, stated = plan["scenario"], record["statement"]
    if what := uncovered(scenario, settings, record):
        print(f"not covered: {what}")
        return 2
    paths = {path.name: path for path in Path(exported).glob("*.json")}
    draws = json.loads(paths.pop(DRAWS).read_text()) if DRAWS in paths else []
    exports = (json.loads(path.read_text()) for path in paths.values())
    ledgers = {events[0]["client"]: events for events in exports if events}
    journal = (run / "journal.jsonl").read_text()
    steps, received, missing, failure, closed = follow(journal, plan, settings)
    clients = [one["name"] for one in scenario["clients"]]
    here = [name for name in clients if name in received]
    digest, rows, uploads = rows_of(
        check,
        settings["run"],
        list(received) if failure else here,
        plan,
        settings,
        ledgers,
        received,
        failure is None,
    )
    due = {one["client"]: one["collect_at"] for one in plan["assignments"]}
    model, draw_scale, gap, realised, nothing, fresh = (None,) * 6
    if failure is None:
        model, draw_scale, gap, realised, nothing, fresh = outcome(
            check, scenario, settings, rows, uploads, here, due, draws
        )
    once = noise_of(scenario) == "server"
    silent = sorted(set(clients) - set(received))
    body = {k: v for k, v in stated.items() if k not in ("version", "digest")}
    true = {
        "version": 1,
        "run": settings["run"],
        "complete": failure is None,
        "rejected": {},
        "steps": steps,
        "statement": {
            "version": STATEMENTS,
            "noise": noise_of(scenario),
            "trust": TRUST[noise_of(scenario)],
            "draw_scale": draw_scale,
            "run": settings["run"],
            "plan": digest,
            "made_at": stated["made_at"],
            "model": model,
            "aggregate_at": scenario["aggregate_at"],
            "target_epsilon": scenario["epsilon"],
            "target_delta": 0.0,
            "learner": "mean",
            "estimator": scenario["estimator"],
            "calibration": scenario["calibration"],
            "private": not settings["stand_in"],
            "clients": rows,
            "missing": [n for n in silent if due[n] <= closed],
            "not_due": [n for n in silent if due[n] > closed],
            "notes": plan["notes"],
            "unit": scenario["unit"],
            "mechanism": "Laplace noise, drawn by OpenDP",
            "limits": [SEEN if once and one.startswith("Ages") else one for one in LIMITS],
            "digest": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(),
        },
    }
    if failure is not None:
        true["failure"] = f"run {settings['run']} did not complete: {failure}."
    else:
        true |= {
            "scenario": scenario["name"],
            "model": model,
            "expected_gap": rounded(record.get("expected_gap"), gap, nothing),
            "nothing_collected": nothing,
            "classical_fresh": rounded(record.get("classical_fresh"), fresh, nothing),
            "collect_at": {row["client"]: row["collect_at"] for row in rows},
            "realised_loss": realised,
            "private": not settings["stand_in"],
            "participants": here,
            "missing": missing,
        }
    compare(check, "record", record, true)
    compare(
        check, "statement.md", (run / "statement.md").read_text().split("\n"), [*page(stated), ""]
    )
    made = [
        e["made_at"] for events in ledgers.values() for e in events if e["key"] == record["run"]
    ]
    check.same("made at", stated["made_at"] >= max(made, default=""), True)
    for row in rows:
        totals = row["total_aged_epsilon"], row["total_classical_epsilon"]
        print(f"{row['client']}: total aged ε {totals[0]}, classical {totals[1]}")
    print(f"model {model!r}: " + (f"{check.wrong} DIFFERENT" if check.wrong else "all the same"))
    return int(check.wrong > 0)


def rounded(stated, true, unknown):
    """A loss as stated, where it differs by no more than rounding of what it is left of."""
    near = isinstance(stated, float) and abs(stated - true) <= 1e-13 * unknown
    return stated if near else true


def compare(check, where, stated, true):
    if isinstance(true, dict) and isinstance(stated, dict):
        for key in {**stated, **true}:
            compare(
                check, f"{where}.{key}", stated.get(key, "missing"), true.get(key, "no such entry")
            )
    elif isinstance(true, list) and isinstance(stated, list) and len(true) == len(stated):
        for index, (one, other) in enumerate(zip(stated, true, strict=True)):
            compare(check, f"{where}[{index}]", one, other)
    else:
        # Agewise adds to Δ what rounding may have taken from it.
        least = 1e-12 if where.endswith((".delta", "aged_epsilon")) else 0.0
        check.same(where, stated, true, room=1e-6, least=least)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
