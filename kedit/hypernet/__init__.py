"""A network that turns gradients into edits: the network, its running statistics, and how it learns."""
