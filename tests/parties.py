"""The parts of the protocol that tests play by hand, from the modules in which they are.

Clients, servers and runs are not public; what is inside may move, and is then found here.
"""

from agewise.calibration import terms
from agewise.federation.client import (
    ROOM,
    ClientAgent,
    OrderRefused,
    Profile,
    announced_noise,
    asked_noise,
    private_noise,
    refusal_reason,
    stand_in_noise,
)
from agewise.federation.happened import Step, Steps
from agewise.federation.journal import SETTINGS, RunFolder, Settings
from agewise.federation.local import LocalRun, LocalTransport
from agewise.federation.messages import BadMessage, Upload
from agewise.federation.one_draw import DRAWS, OneDraw, sum_up
from agewise.federation.profile import own_policy
from agewise.federation.server import Server
from agewise.federation.sources import (
    RoundRecords,
    Simulated,
    client_generator,
    drawn_of_each,
    load_readings,
    present_mean,
    present_sum,
)
from agewise.federation.uploads import Received, Uploads
from agewise.privacy.accounts import Accounts

__all__ = [
    "DRAWS",
    "ROOM",
    "SETTINGS",
    "Accounts",
    "BadMessage",
    "ClientAgent",
    "LocalRun",
    "LocalTransport",
    "OneDraw",
    "OrderRefused",
    "Profile",
    "Received",
    "RoundRecords",
    "RunFolder",
    "Server",
    "Settings",
    "Simulated",
    "Step",
    "Steps",
    "Upload",
    "Uploads",
    "announced_noise",
    "asked_noise",
    "client_generator",
    "drawn_of_each",
    "load_readings",
    "own_policy",
    "present_mean",
    "present_sum",
    "private_noise",
    "refusal_reason",
    "stand_in_noise",
    "sum_up",
    "terms",
]
