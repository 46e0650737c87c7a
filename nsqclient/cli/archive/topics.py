"""``TopicWatcher``: polls the nsqlookupds for the topics that exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from nsqclient import Config
from nsqclient.http.cluster import Cluster
from nsqclient.runtime.log_lines import PrefixedLogger

#: Seconds until the next try when no nsqlookupd answered, at most.
_RETRY = 5.0


class TopicWatcher:
    """Calls ``on_topic`` once for each topic that appears, and ``on_gone`` when it is deleted.

    The first poll is at once. A topic is deleted when every nsqlookupd has answered and none knows
    it, and ``on_gone`` agrees; when it appears again ``on_topic`` is called again.

    Args:
        lookupds: HTTP addresses of nsqlookupds; what one of them knows counts.
        config: for the connections.
        timeouts: seconds to connect, and for the rest.
        refresh: seconds between two polls; 0: poll until one is answered.
        on_topic: called on the watcher's thread, and again at the next poll if it raises.
        on_gone: likewise; false or an exception: not yet, called again at the next poll.
        log: for failures.
        on_wrong: called with the reasons where no server that was given is an nsqlookupd.

    Life: ``start()``, ``stop()``. Threads: any.
    """

    def __init__(
        self, lookupds: Sequence[str], config: Config, timeouts: tuple[float, float],
        refresh: float, on_topic: Callable[[str], None], on_gone: Callable[[str], bool],
        log: PrefixedLogger, on_wrong: Callable[[str], None] = lambda reasons: None,
    ) -> None:
        self._cluster = Cluster(
            lookupds, config=config, connect_timeout=timeouts[0], timeout=timeouts[1])
        self._refresh = refresh
        self._on_topic = on_topic
        self._on_gone = on_gone
        self._log = log
        self._on_wrong = on_wrong
        self._known: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-topics", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self) -> None:
        """End; when it returns ``on_topic`` is not called any more. Blocks: while it is."""
        self._end.set()
        self._cluster.end_rounds()
        self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while not self._end.is_set():
            answered = self.poll()
            refresh = self._refresh or _RETRY
            self._end.wait(min(refresh, _RETRY) if not answered else self._refresh or None)

    def poll(self) -> bool:
        """Poll once; return whether any nsqlookupd answered."""
        answers, failures = self._cluster.each_lookupd(lambda lookupd: lookupd.topics())
        for failure in failures:
            self._log.error("could not retrieve topic list: %s", failure.text())
        if not answers and not self._known and all(each.is_lasting for each in failures):
            self._on_wrong("; ".join(each.text() for each in failures))
        found = set().union(*answers.values())
        for topic in sorted(found - self._known):
            if self._end.is_set():
                break
            try:
                self._on_topic(topic)
            except Exception as exc:
                self._log.error("topic %s cannot be archived yet: %s", topic, exc)
            else:
                self._known.add(topic)
        if not failures:
            self._report_deleted(found)
        return bool(answers)

    def _report_deleted(self, found: set[str]) -> None:
        for topic in sorted(self._known - found):
            if self._end.is_set():
                break
            try:
                if self._on_gone(topic):
                    self._known.discard(topic)
            except Exception as exc:
                self._log.error("topic %s was deleted, but its files cannot be closed: %s",
                                topic, exc)
