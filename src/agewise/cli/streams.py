"""Standard output and error: missing letters are spelt out, and a closed pipe is quiet."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PIPE_CLOSED = 141
"""Exit code once nobody reads the output any more, as shells have it: 128 + SIGPIPE."""

WORDS: dict[str, str | int | None] = {
    "ε": "eps",
    "Δ": "Delta",
    "δ": "delta",
    "η": "eta",
    "π": "pi",
    "λ": "lambda",
    "μ": "mu",
    "²": "^2",
    "±": "+/-",
    "×": "x",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "…": "...",
    "–": "-",
    "−": "-",
    "ℓ": "l",
    "\u0304": "",
    "•": "*",
}
"""What letters are called where they cannot be shown."""


def spell(text: str) -> str:
    """Replace letters that plain terminals lack by words."""
    return text.translate(str.maketrans(WORDS))


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(str(WORDS.get(one, _drawn(one))) for one in letters), error.end


def _drawn(letter: str) -> str:
    """A stand-in of the same width: for frames, bars and spinners, or for any other letter."""
    if "─" <= letter <= "╿":
        return {"─": "-", "━": "-", "│": "|", "┃": "|"}.get(letter, "+")
    return "." if "\u2800" <= letter <= "\u28ff" else "?"


class _Pipe(io.FileIO):
    """A stream that ends the command quietly once its reader has seen enough."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for what is still to come
            sys.exit(PIPE_CLOSED)


def prepare() -> None:
    """Set standard output and error up for whatever terminal or pipe they lead to."""
    codecs.register_error("spell", _spell_out)
    chosen = os.environ.get("LC_ALL") or os.environ.get("LANG")
    set_by_user = os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8")
    plain = chosen in ("C", "POSIX") and not set_by_user  # which Python itself takes for UTF-8
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding = "ascii" if plain else stream.encoding
        if stream.isatty():
            stream.reconfigure(encoding=encoding, errors="spell")
        else:
            pipe = io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(pipe, encoding, "spell"))
