"""Parts that decide whether an inserted item concerns a request; the home of the routers of trained editors."""
