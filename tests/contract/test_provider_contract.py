"""The provider contract, for every provider there is. The same file runs as root and as an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"hutch.testing.contract_{part}" for part in ("files", "folders", "input", "machines", "processes", "trees"))
)

from hutch.providers.base import MachineSpec, Provider  # noqa: E402 - the rewrite must come before the import
from hutch.providers.bubblewrap import BubblewrapProvider  # noqa: E402
from hutch.testing.contract_stage import ContractStage, Stage, staged  # noqa: E402
from hutch.testing.fake_provider import FakeProvider  # noqa: E402
from hutch.testing.fake_scripts import teach  # noqa: E402
from hutch.testing.provider_contract import ProviderContract  # noqa: E402


class TestFake(ProviderContract):
    def make_provider(self, folder: Path) -> Provider:
        provider = FakeProvider(as_root=True)
        teach(provider)
        return provider

    def make_second_provider(self, folder: Path, first: Provider) -> Provider:
        assert isinstance(first, FakeProvider)
        return FakeProvider(world=first.world)


class TestFakeThatLacksMuch(ProviderContract):
    """What a provider lacks it refuses: the same contract, with every capability gone."""

    def make_provider(self, folder: Path) -> Provider:
        provider = FakeProvider(pty=False, ports=False, listen=False, watch=False, shared=False)
        teach(provider)
        return provider

    def make_second_provider(self, folder: Path, first: Provider) -> Provider:
        assert isinstance(first, FakeProvider)
        return FakeProvider(world=first.world, shared=False)


class TestBubblewrap(ProviderContract):
    def make_provider(self, folder: Path) -> Provider:
        # What is prepared once for a data folder serves all tests of a run.
        return BubblewrapProvider(folder.parent / "bubblewrap")


class TestTheContractItself:
    def test_it_is_no_small_thing(self) -> None:
        assert len([name for name in dir(ProviderContract) if name.startswith("test_")]) >= 60

    def test_a_contract_test_cannot_be_overridden(self) -> None:
        with pytest.raises(TypeError, match="test_a_command_prints_and_ends"):
            type("Mine", (ProviderContract,), {"test_a_command_prints_and_ends": lambda self: None})

    @pytest.mark.parametrize("gaps", [{"test_no_such_thing": "why"}, {"test_a_command_prints_and_ends": " "}])
    def test_a_gap_names_a_test_and_a_reason(self, gaps: dict[str, str]) -> None:
        with pytest.raises(TypeError, match="gaps"):
            type("Mine", (ProviderContract,), {"gaps": gaps})

    def test_a_gap_is_a_strict_xfail_of_one_provider_only(self) -> None:
        name = "test_a_command_prints_and_ends"
        mine = type("Mine", (ProviderContract,), {"gaps": {name: "it is mute"}})
        (mark,) = getattr(mine, name).pytestmark
        assert (mark.name, mark.kwargs) == ("xfail", {"strict": True, "reason": "it is mute"})
        assert not hasattr(getattr(ProviderContract, name), "pytestmark")

    def test_a_test_of_its_own_can_be_added(self) -> None:
        @staged
        async def test_more(self: ContractStage, stage: Stage) -> None:
            return None

        assert issubclass(type("Mine", (ProviderContract,), {"test_more": test_more}), ProviderContract)

    def test_who_names_no_provider_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(NotImplementedError, match="make_provider"):
            ProviderContract().make_provider(tmp_path)
        assert MachineSpec.__dataclass_params__.frozen  # type: ignore[attr-defined]
