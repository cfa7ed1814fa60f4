"""Every way to keep an account keeps to the contract of all."""

from agewise.privacy import Ledger
from agewise.privacy.accounts import Accounts
from agewise.testing import LedgerMode, LedgerStoreContract


class TestSqlite(LedgerStoreContract):
    modes = (LedgerMode("a file", lambda folder: Ledger(folder / "north.ledger")),)


class TestMemory(LedgerStoreContract):
    modes = (LedgerMode("memory", lambda _: Ledger(None), durable=False),)


def among_others(folder):
    file = Accounts(folder / "all.ledger")
    account = file.of("north")
    return account


class TestOneFileForMany(LedgerStoreContract):
    modes = (LedgerMode("one of many", among_others),)
