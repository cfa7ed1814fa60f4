"""Faults planted in a ledger by somebody who can write to it and knows how rows are hashed."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np

from agewise.privacy import Ledger
from agewise.privacy.rows import GENESIS, INSERT, hash_of, row_of


def rewrite(path, events):
    """Put these events in the place of all rows, with every hash made anew."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM events")
        previous, number = GENESIS, 0
        for number, event in enumerate(events, start=1):
            bare = replace(event, number=number, hash="")
            whole = replace(bare, hash=hash_of(bare, previous))
            database.execute(INSERT, row_of(whole, previous))
            previous = whole.hash
        head = f"{len(events)} {previous}"
        database.execute("UPDATE meta SET value = ? WHERE key = 'head'", (head,))


def held(path):
    with Ledger.read(path) as ledger:
        return ledger.events()


def with_less(event, factor=0.0):
    """The event with an account that says less than it should."""
    account = json.loads(event.account)
    for name in ("losses", "largest"):
        account[name] = (factor * np.array(account[name])).tolist()
    for name in ("classical", "outside"):
        account[name] *= factor
    return replace(event, account=json.dumps(account))
