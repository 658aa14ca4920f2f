"""The client contract: what the client promises on every transport, as tests. Subclass it for one:

    class TestMine(ClientContract):
        @contextmanager
        def clients(self, folder):
            yield lambda kind, **options: kind(mode="remote", server_url=…, **options)

A test talks to `AsyncSandboxClient` and its like; `over_sync` makes the sync classes look the same, so that one set of
tests holds for both. Commands are those that the fake provider knows, too.
"""

from __future__ import annotations

from hutch.testing.client_contract_commands import CommandContract
from hutch.testing.client_contract_drive import DriveContract
from hutch.testing.client_contract_egress import EgressContract
from hutch.testing.client_contract_errors import ErrorContract
from hutch.testing.client_contract_files import ClientFileContract
from hutch.testing.client_contract_open import OpenContract
from hutch.testing.client_contract_placing import PlacingContract
from hutch.testing.client_contract_sessions import SessionContract


class ClientContract(
    SessionContract,
    CommandContract,
    OpenContract,
    ClientFileContract,
    DriveContract,
    PlacingContract,
    EgressContract,
    ErrorContract,
):
    """Every test of the contract."""
