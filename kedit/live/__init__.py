"""Live use: one backbone and one editor in a session, at a prompt, from a script or on a page."""
