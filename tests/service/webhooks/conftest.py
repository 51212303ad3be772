"""Webhooks are the affair of a service, which stands on any store but another service."""

from tests.conformance.having import kind_among
from tests.conformance.stores import STORES

kind = kind_among([each for each in STORES if each.name != "remote"])
