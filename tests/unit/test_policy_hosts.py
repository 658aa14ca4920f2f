"""Hosts: one reading of each name, and a wall around addresses of our own."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hutch.model.egress import HostRule
from hutch.model.errors import InvalidRequest
from hutch.policy.addresses import kind_of
from hutch.policy.hosts import (
    Host,
    NoHost,
    Pass,
    judge_request,
    judge_tunnel,
    matches,
    parse_authority,
    parse_host,
    parse_rules,
    why_refused,
)

pytestmark = pytest.mark.once
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)


@given(st.text(alphabet=st.sampled_from("aA.0x[]:%@/\\*-_ \0\n#?1é。"), max_size=20))
@example("a.b..")
@example("[::1]")
def test_a_host_that_can_be_read_reads_the_same_again(text: str) -> None:
    try:
        host = parse_host(text)
    except NoHost:
        return
    assert parse_host(str(host)) == host
    assert set(host.text) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-_:")
    assert (host.address is not None) == (host.text.replace(".", "").isdigit() or ":" in host.text)


@given(NAMES)
def test_spelling_makes_no_difference(name: str) -> None:
    assert parse_host(name) == parse_host(name.upper()) == parse_host(name + ".") == Host(name)


@given(NAMES, NAMES, st.booleans())
def test_a_wildcard_is_for_what_is_below_it_and_nothing_else(name: str, base: str, dotted: bool) -> None:
    (rule,) = parse_rules([{"host": f"*.{base}"}])
    asked = f"{name}.{base}" if dotted else name + base
    assert matches(rule, parse_host(asked)) == asked.endswith("." + base)
    assert not matches(rule, parse_host(base))


@given(NAMES, NAMES)
def test_a_name_is_for_itself(name: str, other: str) -> None:
    (rule,) = parse_rules([{"host": name}])
    assert matches(rule, parse_host(other)) == (name == other)


@given(st.integers(0, 2**32 - 1))
@example(int(IPv4Address("127.0.0.1")))
@example(int(IPv4Address("169.254.169.254")))
@example(int(IPv4Address("8.8.8.8")))
def test_an_address_is_judged_alike_however_it_is_wrapped(number: int) -> None:
    four = IPv4Address(number)
    kind = kind_of(four)
    wrapped = [
        IPv6Address(f"::ffff:{four}"),
        IPv6Address(f"64:ff9b::{four}"),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]
    assert {kind_of(six) for six in wrapped} == {kind}
    if kind == "public":
        assert four.is_global
        assert not four.is_multicast


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
@example(IPv6Address("::1"))
@example(IPv6Address("fd00:ec2::254"))
@example(IPv6Address("2606:4700::1111"))
@example(IPv6Address("ff0e::1"))
def test_what_is_public_is_in_the_part_of_the_world(six: IPv6Address) -> None:
    if kind_of(six) == "public" and six.sixtofour is None and six.ipv4_mapped is None:
        assert six.is_global or int(six) >> 96 in (0, 0xFFFF0000, 0x64FF9B << 72)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"), ("10.0.0.1", "private"), ("100.64.0.1", "private"), ("100.127.255.255", "private"),
        ("172.15.0.1", "public"), ("172.16.0.1", "private"), ("172.32.0.1", "public"), ("127.255.0.1", "private"),
        ("169.254.1.1", "link-local"), ("100.100.100.200", "link-local"), ("168.63.129.16", "link-local"),
        ("0.0.0.0", "never"), ("224.0.0.1", "never"), ("255.255.255.255", "never"), ("192.0.2.1", "never"),
        ("::1", "private"), ("::", "never"), ("fe80::1", "link-local"), ("fd00::1", "private"), ("ff02::1", "never"),
        ("fd00:ec2::254", "link-local"), ("2606:4700::1111", "public"), ("2001::1", "never"), ("2001:db8::1", "never"),
        ("fec0::1", "never"), ("64:ff9b:1::1", "never"), ("::10.0.0.1", "private"), ("2002:a00:1::", "private"),
        ("4000::1", "never"),
    ],
)  # fmt: skip
def test_kinds_of_addresses(address: str, kind: str) -> None:
    assert kind_of(ip_address(address)) == kind


def test_which_rule_opens_which_address() -> None:
    metadata, loopback, nowhere = map(ip_address, ("169.254.169.254", "127.0.0.1", "0.0.0.0"))
    name, private = HostRule("a.test"), HostRule("a.test", private=True)
    literal = HostRule("169.254.169.254", private=True)
    assert [why_refused(loopback, rule) is None for rule in (name, private, literal)] == [False, True, True]
    assert [why_refused(metadata, rule) is None for rule in (name, private, literal)] == [False, False, True]
    assert [why_refused(nowhere, rule) is None for rule in (name, private, HostRule("0.0.0.0", private=True))] == [
        False
    ] * 3


def test_the_rule_that_says_most_decides() -> None:
    rules = parse_rules(
        [
            {"host": "*"},
            {"host": "*.b.test", "ports": [443]},
            {"host": "a.b.test", "headers": {"X-Key": "1"}},
            {"host": "plain.test", "headers": {"x": "1"}, "tls": False, "ports": [80]},
        ]
    )

    def by(judged: Pass | str) -> tuple[str, int] | None:
        return (judged.rule.host, judged.port) if isinstance(judged, Pass) else None

    assert by(judge_request(rules, Host("a.b.test"), 80)) == ("a.b.test", 443), "TLS from the proxy on"
    assert by(judge_request(rules, Host("plain.test"), 80)) == ("plain.test", 80)
    assert by(judge_request(rules, Host("c.b.test"), 443)) == ("*.b.test", 443)
    assert by(judge_request(rules, Host("c.b.test"), 80)) == ("*", 80)
    assert by(judge_request(rules, Host("c.b.test"), 81)) is None
    assert by(judge_tunnel(rules, Host("a.b.test"), 443)) is None, "no tunnel past a rule with secrets"
    assert by(judge_tunnel(rules, Host("c.b.test"), 443)) == ("*.b.test", 443)
    assert by(judge_tunnel(rules, Host("1.1.1.1", IPv4Address("1.1.1.1")), 443)) is None, "* is for names"


@pytest.mark.parametrize(
    "text",
    ["a", "a:", ":80", "a:0", "a:65536", "a:080808", "a:+1", "a:1 ", "u@a:80", "[::1]", "::1:80", "[::1]x:80", "a:٣"],
)
def test_authorities_that_are_none(text: str) -> None:
    with pytest.raises(NoHost):
        parse_authority(text)


def test_authorities() -> None:
    assert parse_authority("A.test.:8080") == (Host("a.test"), 8080)
    assert parse_authority("[::1]:443") == (Host("::1", IPv6Address("::1")), 443)
    assert parse_authority("[::1]", 80)[1] == parse_authority("a.test", 80)[1] == 80


def test_rules_are_kept_in_their_one_spelling() -> None:
    written: list[Any] = [
        {"host": "Example.org."},
        {"host": "*.Bücher.example", "ports": [443, 443]},
        HostRule("[FD00::0001]", private=True),
        {"host": "a", "headers": {"X-Key": "é"}},
    ]
    rules = parse_rules(written)
    assert [rule.host for rule in rules] == ["example.org", "*.xn--bcher-kva.example", "[fd00::1]", "a"]
    assert rules[1].ports == (443,)
    assert rules[3].headers == {"x-key": "é"}
    assert parse_rules(rules) == rules


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5))
def test_what_is_no_list_of_rules_is_refused(given_rules: object) -> None:
    if given_rules == []:
        return
    with pytest.raises(InvalidRequest):
        parse_rules(given_rules)  # type: ignore[arg-type]
