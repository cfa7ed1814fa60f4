"""Many rounds of many clients: what a year of releases adds up to, by pairwise losses.

Clients of one kind share a chain, a gap and an ε, and so a loss. `python -m benchmarks rounds`.
"""

import resource
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import agewise as aw
from agewise.arrays import Array
from agewise.privacy.account import Event
from agewise.privacy.ageing import ROWS_OFF
from agewise.privacy.pairwise import Rows, aged_losses, release_losses
from agewise.process import stationary_laws
from agewise.process.joint import backward_rows, rounding
from benchmarks.recording import Row, Tables

CLIENTS, KINDS, ROUNDS = 1_000_000, 1_000, 365
STATES = np.array([20.0, 50.0, 100.0, 200.0])
RELEASES = 10_000
CHECKED = 50  # kinds whose account is compared with that of the public functions


def kinds(rng: np.random.Generator) -> tuple[list[aw.MarkovChain], NDArray[np.int64], Array]:
    """Birth-death chains, their gaps in slots and the classical ε of each release."""
    rates = rng.uniform(0.05, 0.45, (KINDS, 2))
    chains = [aw.birth_death(up, down, STATES) for up, down in rates]
    return chains, rng.integers(2, 25, KINDS), rng.uniform(0.02, 0.5, KINDS)


def rows_of(chains: list[aw.MarkovChain], gaps: NDArray[np.int64]) -> Rows:
    """Laws of the old value given the new one, one gap later."""
    transitions = np.array([chain.transition for chain in chains])
    kernels = np.array(
        [np.linalg.matrix_power(p, int(g)) for p, g in zip(transitions, gaps, strict=True)]
    )
    joint = stationary_laws(transitions)[:, :, None] * kernels
    table = np.moveaxis(backward_rows(np.moveaxis(joint, 0, -1)), -1, 0)
    return Rows(table, np.array([ROWS_OFF * rounding(int(g), STATES.size) for g in gaps]))


def ledger_costs() -> Row:
    """Milliseconds to decide about and record one more release, after few and after many."""
    chain = aw.birth_death(0.1, 0.2, STATES)
    spent = aw.per_release_epsilon(chain, 10, 0.1, promise="present")
    metric = tuple(map(tuple, release_losses(1.0, STATES).tolist()))
    policy, seconds = aw.Policy(0.1, promise="present"), []
    with aw.Ledger(None) as ledger:
        for number in range(RELEASES):
            slot = 1 + 10 * number
            event = Event(
                key=str(number),
                client="north",
                collect_at=slot,
                aggregate_at=slot,
                classical_epsilon=spent,
                aged_epsilon=spent,
                sensitivity=1.0,
                scale=1.0,
                private=True,
                mixing="exact",
                fingerprint=chain.fingerprint,
                made_at="2026-01-01",
                payload=b"",
                metric=metric,
            )

            def made(_: Sequence[Event], event: Event = event) -> Event:
                return event

            start = time.perf_counter()
            ledger.release(event.key, made, policy, chain)
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        ledger.check_account(chain)
        anew = time.perf_counter() - start
    few, many = (1000 * float(np.median(part)) for part in (seconds[10:30], seconds[-20:]))
    print("one more release in a ledger in memory, promise present, median of 20")
    print(f"  after 10 events    {few:8.2f} ms")
    print(f"  after {RELEASES:,} events{many:8.2f} ms; the whole account anew takes {anew:.1f} s")
    return {
        "events": RELEASES,
        "one more release, over that after 10 events": many / few,
        "after 10 events (ms)": few,
        "after all (ms)": many,
        "the whole account anew (s)": anew,
    }


def main() -> Tables:
    ledger = ledger_costs()
    rng = np.random.default_rng(1)
    chains, gaps, spent = kinds(rng)
    kind_of = rng.integers(0, KINDS, CLIENTS)
    start, busy = time.perf_counter(), time.process_time()
    rows = rows_of(chains, gaps)
    each = spent[:, None, None] * release_losses(1.0, STATES)
    losses, worst = each, np.zeros((ROUNDS, KINDS))
    for number in range(ROUNDS):
        losses = each if number == 0 else aged_losses(losses, rows) + each
        worst[number] = losses.max(axis=(1, 2))
    totals = worst[-1][kind_of]
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{CLIENTS:,} clients in {KINDS:,} kinds, {ROUNDS} rounds accounted one by one")
    print(f"  account            {seconds:8.2f} s ({busy:.2f} s of processor), {memory:.2f} GiB")
    ratio = (ROUNDS * spent[kind_of]) / totals
    print(f"  ε of a client      {np.median(totals):8.3f} median, {totals.max():.3f} largest")
    print(f"  classical sum over {np.median(ratio):8.0f} x that (median)")
    start = time.perf_counter()
    bounds = np.array(
        [
            aw.continual_epsilon(chains[k], int(gaps[k]), float(spent[k]), promise="present")
            for k in range(CHECKED)
        ]
    )
    single = (time.perf_counter() - start) / CHECKED
    print(f"  for ever           {1000 * single:8.1f} ms for one kind by continual_epsilon")
    above = bounds / worst[-1][:CHECKED] - 1
    print(f"  that bound is above the account by {above.min():.1e} to {above.max():.1e} of it")
    account: Row = {
        "clients": CLIENTS,
        "kinds": KINDS,
        "rounds": ROUNDS,
        "classical sum over the account, median": float(np.median(ratio)),
        "bound for ever over the account, at most": 1 + float(above.max()),
        "all accounts (s)": seconds,
        "one kind, for ever (ms)": 1000 * single,
        "memory (GiB)": memory,
    }
    return {"ledger": [ledger], "account": [account]}


if __name__ == "__main__":
    main()
