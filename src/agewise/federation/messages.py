"""What server and clients say to each other: typed, versioned, checked on arrival."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from agewise.errors import AgewiseError
from agewise.learning import Estimator
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.problem import Trust
from agewise.wording import in_words, out_of_words

LARGEST_MESSAGE = 2**20
"""Bytes beyond which a message is not even parsed."""

Slot = Annotated[int, Field(ge=1)]
Scale = Annotated[float, Field(ge=0)]
Epsilon = Annotated[
    float,
    AllowInfNan(True),
    Field(ge=0),
    BeforeValidator(out_of_words),
    PlainSerializer(in_words, when_used="json"),
]
"""A spent ε; JSON has no infinity, so a release without noise says "inf"."""


Failure = Annotated[float, Field(ge=0, lt=1)]
"""A δ of (ε, δ)."""


class BadMessage(AgewiseError):
    """A message that is not what the protocol allows; `reason` is one word for the record."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}")


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    version: Literal[3, 4] = 4
    run: str
    client: str

    def encode(self) -> bytes:
        """Return the message as bytes, the same ones every time."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a message, or raise `BadMessage`."""
        if len(payload) > LARGEST_MESSAGE:
            raise BadMessage("malformed", f"{len(payload)} bytes")
        try:
            return cls.model_validate_json(payload)
        except ValidationError as error:
            first: Any = error.errors()[0]
            reason = {"finite_number": "not finite"}.get(first["type"], "malformed")
            if first["loc"] == ("version",):
                detail = f"{first['input']!r}; allowed: 3 or 4"
                raise BadMessage("version", detail) from None
            where = ".".join(map(str, first["loc"]))
            raise BadMessage(reason, f"{where} {first['msg']}".strip()) from None


class Order(_Message):
    """From the server: collect in this slot, for this aggregation, with at least this noise.

    `noise` says who adds it. Where that is the server, `noise_scale` is what its one draw will be
    on this client's mean, at least. `samples` are those of each of its `members`. Of `rounds` such
    releases (None: for ever), one `every` so many slots, the target is about what `promise` says.
    `level`: records carry one that clients share, and fresh readings are reported as they are.
    `head` is the newest release of this client that the server holds: the SHA-256 of its bytes and
    its run, empty if there is none. A ledger that lacks it is an old copy. Orders of version 3 had
    no head, and those of the first such version no rounds either: what is absent is one round.
    """

    kind: Literal["order"] = "order"
    plan: str
    collect_at: Slot
    aggregate_at: Slot
    samples: Annotated[int, Field(ge=1)]
    members: Annotated[int, Field(ge=1)] = 1
    epsilon: Annotated[float, Field(gt=0)]
    mixing: Method
    estimator: Estimator
    calibration: Rule
    learner: dict[str, Any]
    mechanism: Kind
    delta: Failure
    noise: Trust
    noise_scale: Scale
    rounds: Slot | None = 1
    every: Slot | None = None
    promise: Literal["present", "every_moment"] | Annotated[int, Field(ge=0)] = "present"
    level: bool = False
    fingerprint: str
    head: str = ""


class Upload(_Message):
    """From a client: its noised result, and what that guarantees.

    Where the server adds the `noise`, the result is as it is, and the guarantee that of what will
    be published with the noise scale that the server has announced.
    `delta` is the Δ of the age. The ε's and δ's are None for the seeded stand-in, about which
    nothing may be claimed; the δ's are 0 for Laplace noise. The totals count
    every release in the client's ledger, this one included, as seen in the aggregation slot; of
    many rounds, about what the order's promise says, and never less than this release's own ε.
    """

    kind: Literal["upload"] = "upload"
    plan: str
    collect_at: Slot
    aggregate_at: Slot
    value: list[float]
    samples: Annotated[int, Field(ge=1)]
    members: Annotated[int, Field(ge=1)] = 1
    noise: Trust
    noise_scale: Scale
    sensitivity: Scale
    delta: Annotated[float, Field(ge=0, le=1)]
    mixing: Method
    mechanism: Kind
    private: bool
    classical_epsilon: Epsilon | None
    aged_epsilon: Epsilon | None
    classical_delta: Failure | None
    aged_delta: Failure | None
    releases: int
    total_classical: Epsilon | None
    total_aged: Epsilon | None
    total_classical_delta: Failure | None
    total_aged_delta: Failure | None
    fingerprint: str


RefusalReason = Literal["budget", "order", "records", "ledger", "arrays", "slot"]
"""Why a client will not answer, in one word: all that the server is told.

The last two are for apps of one's own: arrays that are not the model's, data of another slot."""
