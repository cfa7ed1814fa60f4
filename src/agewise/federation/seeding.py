"""The generators of simulated clients: one each, whatever the order in which they are served."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
_ALL = 2**128 - 1
_STEP = 0x2360ED051FC65DA44385DF649FCCF645
_POOL = 4


def client_generator(seed: int, name: str, purpose: str) -> np.random.Generator:
    """Return a client's own generator, whatever the order in which clients are served."""
    return np.random.default_rng([seed, int.from_bytes(_told(name, purpose))])


def client_generators(
    seed: int, names: Sequence[str], purpose: str
) -> Iterator[np.random.Generator]:
    """Yield what `client_generator` returns for each name; each is gone when the next one comes.

    Making a generator from a seed takes longer than drawing a hundred numbers from it. So the seeds
    of all are worked out as arrays, as NumPy's `SeedSequence` and PCG64 do it one by one.
    """
    told = np.frombuffer(b"".join(_told(name, purpose) for name in names), dtype=">u4")
    words = told.reshape(len(names), 4)[:, ::-1].astype(np.uint32)
    parts = range(max(1, -(-seed.bit_length() // 32)))
    first = np.array([seed >> 32 * i & 0xFFFFFFFF for i in parts], dtype=np.uint32)
    entropy = np.concatenate([np.broadcast_to(first, (len(names), len(first))), words], axis=1)
    shared = np.random.default_rng(0)
    for name, short, seeds in zip(names, words[:, -1] == 0, _states(entropy.T), strict=True):
        if short:  # a number of fewer words
            yield client_generator(seed, name, purpose)
            continue
        high, low, where, along = seeds
        increment = ((where << 64 | along) << 1 | 1) & _ALL
        state = ((increment + (high << 64 | low)) * _STEP + increment) & _ALL
        shared.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        yield shared


def _told(name: str, purpose: str) -> bytes:
    return hashlib.sha256(f"{purpose}\0{name}".encode()).digest()[:16]


def _states(entropy: Words) -> list[list[int]]:
    """`SeedSequence(words).generate_state(4, uint64)` for each column of words `[w, m]`."""
    constants = _constants(0x43B0D7E5, 0x931E8875)
    empty = np.zeros_like(entropy[0])
    pool = [
        _mixed_in(entropy[i] if i < len(entropy) else empty, *next(constants)) for i in range(_POOL)
    ]
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                pool[i] = _mixed(pool[i], _mixed_in(pool[source], *next(constants)))
    for more in entropy[_POOL:]:
        for i in range(_POOL):
            pool[i] = _mixed(pool[i], _mixed_in(more, *next(constants)))
    constants = _constants(0x8B51F9DD, 0x58F38DED)
    parts = [_mixed_in(pool[i % _POOL], *next(constants)).astype(np.uint64) for i in range(8)]
    joined = [
        low | high << np.uint64(32) for low, high in zip(parts[::2], parts[1::2], strict=True)
    ]
    return np.stack(joined, axis=1).tolist()  # type: ignore[no-any-return]


def _constants(start: int, factor: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    """A constant to begin with and the one to go on with, again and again."""
    while True:
        following = start * factor & 0xFFFFFFFF
        yield np.uint32(start), np.uint32(following)
        start = following


def _mixed_in(value: Words, constant: np.uint32, following: np.uint32) -> Words:
    result = (value ^ constant) * following
    return np.asarray(result ^ result >> np.uint32(16))


def _mixed(one: Words, other: Words) -> Words:
    result = one * np.uint32(0xCA01F9DD) - other * np.uint32(0x4973F715)
    return np.asarray(result ^ result >> np.uint32(16))
