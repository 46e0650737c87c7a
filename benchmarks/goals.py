"""The goals of nsqclient, and how results are compared with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """One comparison of our figure ``ours`` with another contender's, or with a number.

    ``factor`` times the other's figure, or ``factor`` itself where ``against`` is None, is the
    least that is wanted (``at_least``), or the most.
    """

    factor: float
    against: str | None
    at_least: bool = True

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.factor:g}" + (f" x {self.against}" if self.against else "")


@dataclass(frozen=True)
class GoalResult:
    """How a goal was met. ``reached`` is the ratio, or our figure if the goal is a number."""

    goal: Goal
    reached: float | None

    @property
    def is_met(self) -> bool | None:
        """None if the other side was not measured."""
        if self.reached is None:
            return None
        if self.goal.at_least:
            return self.reached >= self.goal.factor
        return self.reached <= self.goal.factor

    def __str__(self) -> str:
        word = {None: "not measured", True: "met", False: "MISSED"}[self.is_met]
        reached = "-" if self.reached is None else f"{self.reached:.3g}"
        return f"{str(self.goal):<20} {reached:>7}  {word}"


def compare(figures: Mapping[str, float], goal: Goal, ours: str = "nsqclient") -> GoalResult:
    """Hold the medians of one work, by contender, against a goal."""
    mine = figures.get(ours)
    if goal.against is None:
        return GoalResult(goal, mine)
    other = figures.get(goal.against)
    if mine is None or not other:
        return GoalResult(goal, None)
    return GoalResult(goal, mine / other)


def at_least(**factors: float) -> tuple[Goal, ...]:
    """Goals that are ratios: ``at_least(go_nsq=1.8)``; the underscore stands for a dash."""
    return tuple(Goal(factor, name.replace("_", "-")) for name, factor in factors.items())


def at_most(number: float | None = None, **factors: float) -> tuple[Goal, ...]:
    """Goals that are upper bounds, as ratios or as a number."""
    alone = () if number is None else (Goal(number, None, at_least=False),)
    return alone + tuple(
        Goal(factor, name.replace("_", "-"), at_least=False) for name, factor in factors.items()
    )
