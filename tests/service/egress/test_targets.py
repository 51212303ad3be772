"""An address that leads inwards, or that programs read differently, is refused before anything is sent."""

from ipaddress import ip_address

import pytest

from penstock.core.errors import OptionError
from penstock.core.ranges import why_not
from penstock.service.egress.policy import EgressPolicy
from penstock.service.egress.target import read_target
from tests.service.egress.corpus import CONFUSING, INWARD, LOOPBACK, OUTWARD

ANYWHERE = EgressPolicy.of(plain=True, ports="1-65535")


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_is_refused_in_every_notation(url: str) -> None:
    with pytest.raises(OptionError):
        read_target("url", url, ANYWHERE)


@pytest.mark.parametrize("url", INWARD)
def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        read_target("url", url, ANYWHERE)


@pytest.mark.parametrize("url", CONFUSING)
def test_what_programs_read_differently_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        read_target("url", url, ANYWHERE)


@pytest.mark.parametrize("url", [None, 7, b"https://example.org/", ["https://example.org/"]])
def test_what_is_no_text_is_refused(url: object) -> None:
    with pytest.raises(OptionError):
        read_target("url", url, ANYWHERE)


@pytest.mark.parametrize(("url", "host", "port", "path"), OUTWARD)
def test_a_plain_public_address_is_read_as_it_stands(url: str, host: str, port: int, path: str) -> None:
    target = read_target("url", url, ANYWHERE)

    assert (target.host, target.port, target.path) == (host, port, path)


def test_without_leave_only_https_and_its_ports_are_allowed() -> None:
    policy = EgressPolicy.of()

    assert read_target("url", "https://example.org:8443/", policy).port == 8443
    for url in ("http://example.org/", "https://example.org:22/", "https://example.org:6379/"):
        with pytest.raises(OptionError):
            read_target("url", url, policy)


def test_a_password_is_not_repeated() -> None:
    for url in ("https://user:geheim@example.org/", "https//user:geheim@example.org", "ftp://a:geheim@b/"):
        with pytest.raises(OptionError) as refused:
            read_target("url", url, ANYWHERE)

        assert "geheim" not in str(refused.value)


def test_a_range_can_be_allowed() -> None:
    policy = EgressPolicy.of(allow="10.1.0.0/16, ::1", plain=True)

    assert read_target("url", "http://10.1.2.3/", policy).host == "10.1.2.3"
    assert read_target("url", "http://[::1]/", policy).authority == "[::1]"
    for url in ("http://10.2.0.1/", "http://127.0.0.1/", "http://localhost/"):
        with pytest.raises(OptionError):
            read_target("url", url, policy)


def test_a_gateway_that_is_allowed_does_not_lead_inwards() -> None:
    policy = EgressPolicy.of(allow="64:ff9b::/96,2002::/16,::ffff:0:0/96")

    assert why_not(ip_address("64:ff9b::101:101"), policy.networks) is None
    for text in ("64:ff9b::7f00:1", "2002:a00:1::", "::ffff:192.168.0.1"):
        assert why_not(ip_address(text), policy.networks) is not None


@pytest.mark.parametrize(
    "said",
    [{"allow": "10.0.0.1/8"}, {"allow": "localhost"}, {"ports": "0"}, {"ports": "9-3"}, {"ports": "x"}],
)
def test_a_policy_that_cannot_be_names_its_setting(said: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"egress\."):
        EgressPolicy.of(**said)  # type: ignore[arg-type]
