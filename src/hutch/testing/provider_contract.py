"""The provider contract: what every provider promises, as tests. Subclass it for a provider of your own:

    class TestMine(ProviderContract):
        gaps = {"test_a_terminal_can_be_resized": "the service has no such call"}

        def make_provider(self, folder):
            return MyProvider(folder)

A gap is a strict expected failure: it turns red once the provider keeps the promise. A contract test cannot be
overridden. What `Capabilities` says is missing must be refused with `NotSupported`; the tests check that, too.
"""

from __future__ import annotations

from hutch.testing.contract_files import FileContract
from hutch.testing.contract_folders import FolderContract
from hutch.testing.contract_input import InputContract
from hutch.testing.contract_machines import MachineContract
from hutch.testing.contract_processes import ProcessContract
from hutch.testing.contract_trees import TreeContract


class ProviderContract(ProcessContract, TreeContract, InputContract, FileContract, FolderContract, MachineContract):
    """Every test of the contract."""
