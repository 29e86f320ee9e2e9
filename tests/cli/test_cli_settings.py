"""The settings of a gateway, before anything is bound."""

from __future__ import annotations

import pytest
from command_line import TOKEN

from envport.client.choosing import gateway_url
from envport.errors import ConfigurationError, InvalidAccess, InvalidOption
from envport.registry import load
from envport.serve_settings import Settings
from envport.serving import Service


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_without_tokens_only_loopback_is_bound_to(host: str):
    with pytest.raises(InvalidAccess, match="--allow-unauthenticated"):
        Settings(host=host).access({})
    assert Settings(host=host).access({"ENVPORT_TOKEN": TOKEN}).required
    assert not Settings(host=host, allow_unauthenticated=True).access({}).required


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_tokens(host: str):
    assert not Settings(host=host).access({}).required


def test_without_tokens_no_public_address_is_served():
    with pytest.raises(InvalidAccess, match="--allow-unauthenticated"):
        Settings(public_url="https://envs.example.org").access({})
    assert not Settings(public_url="http://localhost:9000").access({}).required


@pytest.mark.parametrize("name", ["", "http://example.org", "example.org:80", "example.org/x"])
def test_allowed_hosts_are_names(name: str):
    with pytest.raises(InvalidAccess, match="--allowed-host"):
        Settings(allowed_hosts=(name,)).hosts()


@pytest.mark.parametrize("origin", ["", "example.org", "https://example.org/", "https://example.org/x", "null"])
def test_allowed_origins_are_origins(origin: str):
    with pytest.raises(InvalidAccess, match="--allowed-origin"):
        Settings(allowed_origins=(origin,)).hosts()


def test_every_address_is_bound_to_under_names_only():
    with pytest.raises(InvalidAccess, match="--allowed-host"):
        Settings(host="0.0.0.0").hosts()
    assert Settings(host="0.0.0.0", public_url="https://a.example.org/x").hosts().allows_host("a.example.org")
    assert Settings(host="::", allowed_hosts=("::1",)).hosts().allows_host("[::1]:8000")


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (Settings(), "http://127.0.0.1:80"),
        (Settings(host="::1"), "http://[::1]:80"),
        (Settings(host="0.0.0.0", allowed_hosts=("*", "a.test")), "http://a.test:80"),
        (Settings(host="0.0.0.0", allowed_hosts=("*",)), "http://127.0.0.1:80"),
        (Settings(public_url="https://a.test/b/"), "https://a.test/b"),
    ],
)
def test_the_address_is_one_that_clients_can_use(settings: Settings, address: str):
    assert settings.address(80) == address


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(public_url="ftp://localhost"), "--public-url"),
        (Settings(host="no such host", port=0, allow_unauthenticated=True), "cannot bind to no such host"),
        (Settings(host="192.0.2.1", port=0, allow_unauthenticated=True), "cannot bind to port 0 of 192.0.2.1"),
    ],
)
def test_what_cannot_be_served_is_said(settings: Settings, said: str):
    with pytest.raises(ConfigurationError, match=said):
        Service(settings, [load("counter")], {})


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://localhost", "http://", "http://[", "http://localhost:99999", "http://localhost:0"]
)
def test_an_address_that_is_none(url: str):
    with pytest.raises(InvalidOption, match="is not the address of a gateway"):
        gateway_url(url)
