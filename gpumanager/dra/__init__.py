"""Claims: a DRA driver over the same grants and isolation as the device plugins."""
