"""What stands behind the commands of ``kedit.cli`` where it is more than a call."""
