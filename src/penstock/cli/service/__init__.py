"""Commands about the HTTP service: serve, tokens, tenants, webhooks.

Begin reading in `serve_command.py`.
"""
