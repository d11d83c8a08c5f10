"""The embedded backbones: what there is, and how each is made."""
