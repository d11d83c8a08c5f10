"""The training loop of everything that learns: routers, hypernetworks, replacement models."""

from kedit.training.contract import Group, Learner, Team, Training
from kedit.training.loop import train
from kedit.training.team import gather_team

__all__ = ["Group", "Learner", "Team", "Training", "gather_team", "train"]
