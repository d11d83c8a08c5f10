"""A language model as judge of a run's answers: prompts, judges, verdicts, and scores made of them."""

from kedit.judging.book import judgements
from kedit.judging.calibrate import calibrate
from kedit.judging.judges import open_judge
from kedit.judging.prompt import PROMPTS
from kedit.judging.scoring import Judged, judge_scorer, judge_scoring, score_run

__all__ = ["PROMPTS", "Judged", "calibrate", "judge_scorer", "judge_scoring", "judgements", "open_judge", "score_run"]
