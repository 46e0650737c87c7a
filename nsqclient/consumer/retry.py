"""Decides whether a failed message is given up, or requeued, and after which delay.

``decide`` applies the user's policy. Does no I/O.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Union

from nsqclient.display import LONGEST_TEXT, counted, printable
from nsqclient.errors import ConfigError
from nsqclient.message import Failure, GiveUp, Message, Requeue
from nsqclient.runtime.arguments import check_function, check_result
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.delays import growing_delay

#: (message, exception of the handler) -> decision; None: the default applies.
RetryPolicy = Callable[[Message, BaseException], Union[Requeue, GiveUp, None]]

#: The highest number of attempts that nsqd counts.
_MOST_ATTEMPTS = 65535


class Retry:
    """A retry policy: requeue with a delay that grows with the message's attempts.

    The delay is ``base`` after the first delivery. Each further delivery multiplies it by
    ``factor``, up to ``maximum``.

    Args:
        base: seconds (float or timedelta).
        factor: 1 or more; 1 means a constant delay.
        maximum: seconds; nsqd limits a delay to its ``--max-req-timeout``.
        jitter: 0 to 1; up to this fraction of the delay is randomly subtracted.
        max_attempts: deliveries after which the message is given up; 0: no limit of this policy.
            The consumer's option ``max_attempts`` always applies.
        backoff: whether the consumer slows down.

    Raises:
        ConfigError: an argument is out of range.

    Threads: any, for any number of consumers.
    """

    def __init__(
        self,
        base: Duration = 1.0,
        factor: float = 2.0,
        maximum: Duration = 900.0,
        jitter: float = 0.1,
        *,
        max_attempts: int = 0,
        backoff: bool = True,
    ) -> None:
        self._base = to_seconds(base, "base")
        self._maximum = to_seconds(maximum, "maximum")
        if self._maximum < self._base:
            raise ConfigError(f"maximum must be {self._base:g} s, the base, or more")
        self._factor = _number(factor, "factor", 1.0, 1e6)
        self._jitter = _number(jitter, "jitter", 0.0, 1.0)
        if (not isinstance(max_attempts, int) or isinstance(max_attempts, bool)
                or not 0 <= max_attempts <= _MOST_ATTEMPTS):
            raise ConfigError(
                f"max_attempts must be a whole number from 0 to {_MOST_ATTEMPTS}, not"
                f" {max_attempts!r}")
        if not isinstance(backoff, bool):
            raise ConfigError(f"backoff must be True or False, not {backoff!r}")
        self.max_attempts = max_attempts
        self._backoff = backoff
        # Not Random, whose state forked processes would share.
        self._rng = random.SystemRandom()

    def delay(self, attempts: int) -> float:
        """Return the delay, in seconds, after this number of attempts."""
        return growing_delay(
            attempts, self._base, self._factor, self._maximum, self._jitter, self._rng)

    def __call__(self, message: Message, exception: BaseException) -> Requeue | GiveUp:
        if 0 < self.max_attempts <= message.attempts:
            reason = f"{show_exception(exception)}, after {counted(message.attempts, 'attempt')}"
            return GiveUp(reason)
        return Requeue(self.delay(message.attempts), self._backoff)


#: An entry of a RetryTable.
Rule = Union[Requeue, GiveUp, type[Requeue], type[GiveUp], RetryPolicy]


class RetryTable:
    """A retry policy: a table of exception types.

    The entry of the exception's type applies, otherwise that of its nearest base class.

    Args:
        rules: exception type -> ``Requeue(...)``, ``GiveUp(...)``, their classes, a :class:`Retry`,
            or another policy.
        default: the rule for other exceptions; None: the default of the consumer.

    Raises:
        ConfigError: a key or an entry has another type.

    Threads: any, for any number of consumers.
    """

    def __init__(
        self, rules: Mapping[type[BaseException], Rule], default: Rule | None = None
    ) -> None:
        if not isinstance(rules, Mapping):
            raise ConfigError(f"rules must map types of exceptions to rules, not {rules!r:.80}")
        self._rules: dict[type[BaseException], RetryPolicy] = {}
        for kind, rule in rules.items():
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise ConfigError(f"retry: {kind!r:.80} is not an exception type")
            if issubclass(kind, (Requeue, GiveUp)):
                raise ConfigError(
                    f"retry: a rule for {kind.__name__} is never used: a handler that raises it has"
                    " decided itself")
            self._rules[kind] = _policy_of(rule, kind.__name__)
        self._default = None if default is None else _policy_of(default, "default")
        policies = [*self._rules.values(), self._default]
        #: The highest ``max_attempts`` of its rules.
        self.max_attempts: int = max(
            (policy.max_attempts for policy in policies if isinstance(policy, Retry)), default=0)

    def __call__(self, message: Message, exception: BaseException) -> Requeue | GiveUp | None:
        for kind in type(exception).__mro__:
            policy = self._rules.get(kind)
            if policy is not None:
                return policy(message, exception)
        return None if self._default is None else self._default(message, exception)


def check_retry(
    retry: RetryPolicy | None, max_attempts: int, *, has_handler: bool
) -> None:
    if retry is None:
        return
    if isinstance(retry, int):
        raise ConfigError(
            f"retry is a function, not a number: for {retry} attempts write"
            f" config=Config(max_attempts={retry})")
    check_function(retry, "retry", "message", "exception")
    if not has_handler:
        raise ConfigError("retry needs a handler: in a loop over messages() call requeue()")
    wanted = getattr(retry, "max_attempts", 0)
    if isinstance(wanted, int) and 0 < max_attempts < wanted:
        raise ConfigError(
            f"retry allows {wanted} attempts, but the option max_attempts is {max_attempts}: set"
            f" max_attempts to {wanted} or more, or to 0 for no limit")


class Decision(NamedTuple):
    """What to do with a message whose handler failed. Either ``requeue`` or ``failure`` is None."""

    requeue: Requeue | None
    failure: Failure | None
    #: Whether the consumer slows down although the message is given up.
    backoff: bool = False
    #: True if the policy decided on the requeue: the user expects this failure.
    is_planned: bool = False


def decide(
    policy: RetryPolicy | None, message: Message, exception: BaseException, attempts: int,
    max_attempts: int,
) -> Decision:
    """Decide about a message whose handler raised.

    Args:
        attempts: number of deliveries that a handler has seen, including this one.

    Raises:
        TypeError: the policy returned an invalid result.
        Exception: the policy raised it.
    """
    result: object = exception
    is_planned = False
    if not isinstance(exception, (Requeue, GiveUp)):
        result = None if policy is None else policy(message, exception)
        check_result(result)
        is_planned = result is not None
        if result is None:
            result = Requeue()
    if isinstance(result, GiveUp):
        return Decision(None, Failure(_line(result.reason) or show_exception(exception), exception))
    if not isinstance(result, Requeue):
        raise TypeError(f"retry returns Requeue(...), GiveUp(...) or None, not {result!r:.200}")
    is_failure = result is not exception or result.backoff
    if is_failure and 0 < max_attempts <= attempts:
        # Given up now: the next delivery may go to a process that does not know the exception.
        reason = f"{show_exception(exception)}, after {counted(attempts, 'attempt')}"
        return Decision(None, Failure(reason, exception), result.backoff)
    return Decision(result, None, is_planned=is_planned)


def show_delays(decisions: Collection[Decision]) -> str:
    """Return the delay of planned retries as text, or the shortest and longest one."""
    delays = [decision.requeue.delay for decision in decisions if decision.requeue is not None]
    known = [delay for delay in delays if delay is not None]
    if len(known) < len(delays):
        return "the default delay"
    shortest, longest = f"{min(known):.3g}", f"{max(known):.3g}"
    return f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"


def show_exception(exception: BaseException) -> str:
    """Return the type and text of an exception, or of the cause of a Requeue or GiveUp."""
    if isinstance(exception, (Requeue, GiveUp)):
        cause = exception.__cause__ or exception.__context__
        if cause is None:
            return f"the handler raised {type(exception).__name__}"
        exception = cause
    try:
        text = _line(str(exception))
    except Exception:  # raised by the user's class
        text = ""
    name = type(exception).__name__
    return f"{name}: {text}" if text else name


def _policy_of(rule: Any, name: str) -> RetryPolicy:
    if isinstance(rule, type) and issubclass(rule, (Requeue, GiveUp)):
        rule = rule()
    if isinstance(rule, (Requeue, GiveUp)):
        return lambda message, exception: rule
    check_function(rule, f"retry: the rule for {name}", "message", "exception")
    policy: RetryPolicy = rule
    return policy


def _number(value: object, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
            least <= value <= most):
        raise ConfigError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


def _line(text: object) -> str:
    return printable(str(text), LONGEST_TEXT)
