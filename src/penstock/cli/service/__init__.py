"""Commands about the HTTP service: serve, tokens, tenants, webhooks."""
