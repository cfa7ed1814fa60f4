"""The generators of simulated clients: one each, whatever the order in which they are served."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

Words = NDArray[np.uint32]
Halves = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Numbers of 128 bits: the upper and the lower half of each."""
_STEP = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_POOL = 4
_ORDERS = [1, 0, 3, 2], [0, 1, 2, 3]
"""Lower halves first, or upper ones."""


def client_generator(seed: int, name: str, purpose: str) -> np.random.Generator:
    """Return a client's own generator, whatever the order in which clients are served."""
    return np.random.default_rng([seed, int.from_bytes(_told([name], purpose))])


class Seeds:
    """The generators of many clients for one purpose, each its own.

    Making a generator from a seed takes longer than drawing a hundred numbers from it. So the seeds
    of all are worked out as arrays, as NumPy's `SeedSequence` and PCG64 do it one by one.
    """

    def __init__(self, seed: int, names: Sequence[str], purpose: str) -> None:
        self.seed, self.purpose = seed, purpose
        self._place = {name: place for place, name in enumerate(names)}
        told = np.frombuffer(_told(names, purpose), dtype=">u4")
        words = told.reshape(len(names), 4)[:, ::-1].astype(np.uint32)
        parts = range(max(1, -(-seed.bit_length() // 32)))
        first = np.array([seed >> 32 * i & 0xFFFFFFFF for i in parts], dtype=np.uint32)
        entropy = np.concatenate([np.broadcast_to(first, (len(names), len(first))), words], axis=1)
        high, low, where, along = _states(entropy.T)
        one = np.uint64(1)
        increment = (where << one | along >> np.uint64(63), along << one | one)
        state = _plus(_times(_plus((high, low), increment), _STEP), increment)
        self._rows = np.stack([*state, *increment], axis=1)
        self._short = {names[place] for place in np.flatnonzero(words[:, -1] == 0).tolist()}

    def of(self, names: Sequence[str]) -> Iterator[np.random.Generator]:
        """Yield what `client_generator` returns for each; it is gone when the next one comes."""
        bits = np.random.PCG64(0)
        rng, layout = np.random.Generator(bits), _layout()
        if layout is None or self._short:
            for name, row in zip(names, self._of(names).tolist(), strict=True):
                if name in self._short:  # a number of fewer words
                    yield client_generator(self.seed, name, self.purpose)
                    continue
                bits.state = _state(*row)
                yield rng
            return
        place, states = _held(bits).data.cast("B"), self._of(names)[:, layout].tobytes()
        for start in range(0, len(states), len(place)):
            place[:] = states[start : start + len(place)]
            yield rng

    def firsts(self, names: Sequence[str]) -> Array | None:
        """What `random()` of each generator gives first, all at once; None: ask them."""
        if self._short:
            return None
        high, low, *increment = self._of(names).T
        high, low = _plus(_times((high, low), _STEP), (increment[0], increment[1]))
        turned, by = high ^ low, high >> np.uint64(58)
        bits = turned >> by | turned << (-by & np.uint64(63))
        return np.asarray((bits >> np.uint64(11)) * 2.0**-53)

    def _of(self, names: Sequence[str]) -> NDArray[np.uint64]:
        return self._rows[[self._place[name] for name in names]]


def _state(high: int, low: int, where: int, along: int) -> Any:
    """The state of a generator, as NumPy documents it."""
    numbers = {"state": high << 64 | low, "inc": where << 64 | along}
    return {"bit_generator": "PCG64", "state": numbers, "has_uint32": 0, "uinteger": 0}


def _held(bits: np.random.PCG64) -> NDArray[np.uint64]:
    """The four numbers of a generator's state, where they lie in memory."""
    at = ctypes.c_void_p.from_address(bits.ctypes.state_address).value or 0
    return np.ctypeslib.as_array((ctypes.c_uint64 * 4).from_address(at))


@cache
def _layout() -> list[int] | None:
    """In which order a generator holds the halves of its state; None: in none that is known.

    NumPy says where the state lies in memory but not how. Setting it there takes a tenth of the
    time; where what is found is not the state, that is set the documented way.
    """
    halves = [3**40, 5**27, 7**22, 11**18 | 1]
    bits = np.random.PCG64(0)
    bits.state = _state(*halves)
    found = _held(bits).tolist()
    return next((order for order in _ORDERS if found == [halves[i] for i in order]), None)


def _plus(one: Halves, other: Halves) -> Halves:
    low = one[1] + other[1]
    return one[0] + other[0] + (low < one[1]), low


def _times(one: Halves, factor: tuple[np.uint64, np.uint64]) -> Halves:
    """Products modulo 2¹²⁸, by 32 bits at a time."""
    (high, low), (by_high, by_low) = one, factor
    a, b = low >> _HALF, low & _LOW
    c, d = by_low >> _HALF, by_low & _LOW
    last, middle = b * d, a * d
    carry = (last >> _HALF) + (middle & _LOW)
    other = b * c
    carry += other & _LOW
    upper = a * c + (middle >> _HALF) + (other >> _HALF) + (carry >> _HALF)
    return upper + high * by_low + low * by_high, low * by_low


def _told(names: Sequence[str], purpose: str) -> bytes:
    """Sixteen bytes for each name."""
    hashed, head = hashlib.sha256, f"{purpose}\0".encode()
    return b"".join([hashed(head + name.encode()).digest()[:16] for name in names])


def _states(entropy: Words) -> list[NDArray[np.uint64]]:
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
    return [low | high << _HALF for low, high in zip(parts[::2], parts[1::2], strict=True)]


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
