"""Annotations as texts, one naming a type that is defined further down and one a name for checkers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.tasks.context import JobContext


def book(order: Order, ctx: JobContext) -> Order:
    return order


def broken(order: Nowhere) -> None:  # type: ignore[name-defined] # noqa: F821 (that is the point)
    pass


class Order(msgspec.Struct):
    number: int
