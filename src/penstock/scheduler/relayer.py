"""The duty that carries over what a queue has for others, also when who wrote it died."""

from penstock.client.relay import relay

__all__ = ["relay"]
