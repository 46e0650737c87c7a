"""The mutants: each breaks one promise, and names the test that must notice."""

from __future__ import annotations

from tests.mutants.run import Mutant

MUTANTS = [
    # -- the outbox
    Mutant(
        "outbox_deletes_all", "only rows whose messages nsqd has are deleted",
        "nsqclient/contrib/django/outbox/relay.py",
        "pk__in=[row.pk for row in result.stored]", "pk__in=[row.pk for row in rows]",
        "tests/contrib/outbox/test_outbox.py::test_messages_of_a_key_wait_for_a_failed_one",
    ),
    Mutant(
        "outbox_order_lock", "messages with a key are published by one relay at a time",
        "nsqclient/contrib/django/outbox/relay.py",
        "if not holds_order:", "if False:",
        "tests/contrib/outbox/test_outbox.py::test_rows_that_another_relay_has_are_left_alone",
    ),
    Mutant(
        "outbox_without_transaction", "a message of an outbox needs an open transaction",
        "nsqclient/contrib/django/publishing.py",
        "if not connection.in_atomic_block and connection.get_autocommit():", "if False:",
        "tests/contrib/outbox/test_outbox.py::test_without_a_transaction_it_raises",
    ),
    Mutant(
        "outbox_key_waits", "messages of a key wait for a failed one before them",
        "nsqclient/contrib/django/outbox/models.py",
        '.filter(Q(key="") | ~Exists(same_key))', "",
        "tests/contrib/outbox/test_outbox.py::test_messages_of_a_key_wait_for_a_failed_one",
    ),
    # -- middleware and the worker
    Mutant(
        "middleware_order", "the first middleware is the outermost",
        "nsqclient/consumer/middleware.py",
        "for each in reversed(middleware):", "for each in middleware:",
        "tests/consumer/test_middleware.py::test_the_first_middleware_is_outermost",
    ),
    Mutant(
        "time_limit_cleared", "no exception of a time limit arrives behind the handler's end",
        "nsqclient/worker/middleware.py",
        "except _ClearedError:", "except ZeroDivisionError:",
        "tests/worker/test_middleware.py::"
        "test_the_exception_arrives_within_the_handler_or_not_at_all",
    ),
    Mutant(
        "rate_limit_stops", "a message that waits for its turn goes back when the consumer stops",
        "nsqclient/worker/middleware.py",
        "if handling.is_stopping():", "if False:",
        "tests/worker/test_middleware.py::test_a_wait_ends_with_the_consumer",
    ),
    Mutant(
        "orphans", "a killed supervisor leaves no child",
        "nsqclient/worker/lifeline.py",
        "os.kill(os.getpid(), signal.SIGTERM)", "return",
        "tests/worker/test_processes.py::test_a_killed_supervisor_leaves_no_child",
    ),
    Mutant(
        "broken_roll", "SIGHUP with broken code leaves the old processes",
        "nsqclient/worker/supervisor.py",
        "if successor is not None and successor.can_take_over(now):", "if successor is not None:",
        "tests/worker/test_processes.py::test_sighup_with_broken_code_changes_nothing",
    ),
    Mutant(
        "half_started", "a first process that cannot start ends the worker",
        "nsqclient/worker/supervisor.py",
        "elif not self._has_started and status in (FAILED, USAGE) and not process.is_started:",
        "elif False:",
        "tests/worker/test_supervisor.py::test_a_first_child_that_cannot_start_ends_the_worker",
    ),
    Mutant(
        "worker_pauses", "the pause before a restart doubles with each death at once",
        "nsqclient/worker/supervisor.py",
        "_FIRST_PAUSE * 2.0 ** min(self._pauses - 1, 16)", "_FIRST_PAUSE * 2.0",
        "tests/worker/test_supervisor.py::"
        "test_pauses_between_deaths_at_once_grow_until_the_fifth",
    ),
    Mutant(
        "worker_fifth_death", "the fifth death at once ends the worker",
        "nsqclient/worker/supervisor.py",
        "if self.deaths >= MOST_DEATHS:", "if self.deaths > MOST_DEATHS:",
        "tests/worker/test_supervisor.py::"
        "test_pauses_between_deaths_at_once_grow_until_the_fifth",
    ),
    Mutant(
        "worker_deaths_forgotten", "a child that worked for a while forgets the deaths before it",
        "nsqclient/worker/supervisor.py",
        "            self.deaths = 0\n", "",
        "tests/worker/test_supervisor.py::"
        "test_a_child_that_worked_for_a_minute_starts_again_at_once",
    ),
    Mutant(
        "worker_never_consumed", "a child that never came to consume has died at once",
        "nsqclient/worker/supervisor.py",
        "if has_started and lived >= _AT_ONCE:", "if lived >= _AT_ONCE:",
        "tests/worker/test_supervisor.py::"
        "test_a_child_that_worked_for_a_minute_starts_again_at_once",
    ),
    Mutant(
        "worker_status_3", "children that die at once end the worker with 3",
        "nsqclient/worker/supervisor.py",
        "self._stop(now, CHILDREN_DIE)", "self._stop(now, FAILED)",
        "tests/worker/test_supervisor.py::"
        "test_a_child_that_dies_at_once_five_times_ends_the_worker",
    ),
    Mutant(
        "worker_hangs", "a child that reports nothing any more is killed",
        "nsqclient/worker/supervisor.py",
        "and 0 < self._hang_timeout <= process.silent_for):", "and False):",
        "tests/worker/test_supervisor.py::test_a_child_that_hangs_is_killed_and_started_again",
        hangs=True,
    ),
    Mutant(
        "worker_report_in_time", "a report begins the time of a child anew",
        "nsqclient/worker/supervisor.py",
        "            self.silent_for = 0.0\n            if self.started_at",
        "            if self.started_at",
        "tests/worker/test_supervisor.py::test_a_report_begins_the_time_of_a_child_anew",
    ),
    Mutant(
        "worker_suspended", "a supervisor that was suspended kills no child",
        "nsqclient/worker/supervisor.py",
        "self.silent_for += min(elapsed, _LONGEST_LOOK)", "self.silent_for += elapsed",
        "tests/worker/test_supervisor.py::test_a_supervisor_that_was_suspended_kills_no_child",
    ),
    Mutant(
        "worker_slow_import", "a child that does not consume yet may take its time",
        "nsqclient/worker/supervisor.py",
        "if (process.is_started and not process.is_leaving\n", "if (not process.is_leaving\n",
        "tests/worker/test_supervisor.py::test_a_child_that_does_not_consume_yet_has_no_limit",
    ),
    Mutant(
        "worker_forwards_signals", "a signal to the supervisor is handed on to the children",
        "nsqclient/worker/supervisor.py",
        "            process.signal(signal.SIGTERM)", "            pass",
        "tests/worker/test_supervisor.py::test_all_processes_follow_the_first",
    ),
    Mutant(
        "worker_second_signal", "a second signal kills the children",
        "nsqclient/worker/supervisor.py",
        "        else:\n            logger.warning(\"received a second",
        "        elif False:\n            logger.warning(\"received a second",
        "tests/worker/test_processes.py::test_a_second_signal_kills_the_children",
    ),
    Mutant(
        "worker_kill_in_time", "a child that does not stop is killed",
        "nsqclient/worker/supervisor.py",
        "if process.kill_at is not None and process.kill_at <= now:", "if False:",
        "tests/worker/test_supervisor.py::test_a_child_that_does_not_stop_is_killed_in_time",
        hangs=True,
    ),
    Mutant(
        "worker_failed_stop", "a child that fails while it stops makes the status 1",
        "nsqclient/worker/supervisor.py",
        "self._status = self._status or FAILED", "self._status = self._status",
        "tests/worker/test_supervisor.py::test_a_child_that_does_not_stop_is_killed_in_time",
    ),
    Mutant(
        "worker_one_by_one", "SIGHUP replaces one process at a time",
        "nsqclient/worker/supervisor.py",
        "                return  # one after the other", "                pass",
        "tests/worker/test_supervisor.py::test_sighup_replaces_one_process_at_a_time",
    ),
    Mutant(
        "worker_healthy_successor", "a successor takes over when it is healthy",
        "nsqclient/worker/supervisor.py",
        "return is_healthy or now - self.started_at >= _SETTLE_TIMEOUT", "return True",
        "tests/worker/test_supervisor.py::"
        "test_a_successor_that_is_not_healthy_does_not_take_over",
    ),
    Mutant(
        "worker_child_of_child", "the programs that handlers start are no children of the worker",
        "nsqclient/worker/lifeline.py",
        'os.environ.pop(_VARIABLE, "")', 'os.environ.get(_VARIABLE, "")',
        "tests/worker/test_processes.py::"
        "test_the_programs_of_handlers_are_no_children_of_the_worker",
    ),
    Mutant(
        "worker_reload_usage", "only the first command line that is wrong ends the worker",
        "nsqclient/worker/supervisor.py",
        "(status != USAGE or self._has_changed)", "status != USAGE",
        "tests/worker/test_command.py::"
        "test_with_reload_a_handler_that_is_taken_away_does_not_end_it",
    ),
    Mutant(
        "worker_reload_typo", "a typo in the command line ends the worker at once",
        "nsqclient/worker/supervisor.py",
        " and (status != USAGE or self._has_changed):", ":",
        "tests/worker/test_command.py::test_with_reload_a_wrong_command_line_ends_it_at_once",
        hangs=True,
    ),
    Mutant(
        "worker_two_handlers", "a channel has one handler",
        "nsqclient/worker/registry.py",
        "        if former is not registration:", "        if False:",
        "tests/worker/test_registry.py::test_a_channel_with_two_handlers_is_refused",
    ),
    Mutant(
        "worker_two_consumers", "a channel has one handler, whichever registry it comes from",
        "nsqclient/worker/group.py",
        "if former.place == registration.place:", "if False:",
        "tests/worker/test_group.py::test_a_channel_has_one_handler",
    ),
    Mutant(
        "worker_flag_contradicts", "a flag that contradicts the decorator is an error",
        "nsqclient/cli/worker.py",
        "        if wrong:", "        if False:",
        "tests/worker/test_command.py::test_what_cannot_start_is_one_line_and_a_status",
        hangs=True,
    ),
    Mutant(
        "worker_stale_is_ready", "a process that has not reported is not ready",
        "nsqclient/worker/status_server.py",
        "if state.age > STALE:", "if False:",
        "tests/worker/test_status_server.py::"
        "test_a_worker_is_ready_when_all_its_consumers_are_healthy",
    ),
    Mutant(
        "worker_check_ephemeral", "--check ends no ephemeral channel",
        "nsqclient/worker/checks.py",
        "if consumer.topic.endswith(_EPHEMERAL) or consumer.channel.endswith(_EPHEMERAL):",
        "if False:",
        "tests/integration/test_worker_check.py::test_a_check_creates_and_deletes_nothing",
    ),
    Mutant(
        "worker_check_creates", "--check creates no channel",
        "nsqclient/worker/checks.py",
        "if topic is not None and topic.channel(consumer.channel) is not None:", "if True:",
        "tests/integration/test_worker_check.py::test_a_check_creates_and_deletes_nothing",
    ),
    Mutant(
        "worker_check_other_nsqd", "--check asks no other nsqd for the channels",
        "nsqclient/http/nsqd.py",
        "if found != port:", "if False:",
        "tests/http/test_clients.py::"
        "test_an_http_api_beside_a_port_must_be_of_the_same_nsqd",
    ),
    Mutant(
        "worker_check_tls", "--check sees that nsqd requires TLS",
        "nsqclient/connection/probe.py",
        "        if channel is None:", "        if False:",
        "tests/integration/test_worker_check.py::test_an_nsqd_that_requires_tls_is_found",
    ),
    # -- actions on a cluster
    Mutant(
        "topic_asks", "an action on a cluster asks first",
        "nsqclient/cli/topics.py",
        'if not parsed.values["yes"]:', "if False:",
        "tests/cli/test_topics.py::test_it_asks_on_a_terminal",
    ),
    Mutant(
        "topic_failures", "a server that did not carry out an action is status 1",
        "nsqclient/cli/topics.py",
        "    if failures:", "    if False:",
        "tests/cli/test_topics.py::test_a_server_that_did_not_do_it_is_listed",
    ),
    # -- where the values of flags come from
    Mutant(
        "sources_order", "what the command line gives wins over later places",
        "nsqclient/cli/command.py",
        "if name not in hidden | given.keys():", "if name not in hidden:",
        "tests/cli/test_command.py::test_each_place_wins_over_those_behind_it",
    ),
    Mutant(
        "sources_table", "the table of a command wins over the top of the file",
        "nsqclient/cli/command.py",
        "table = table[word] if isinstance(table.get(word), dict) else {}", "table = {}",
        "tests/cli/test_command.py::test_each_place_wins_over_those_behind_it",
    ),
    Mutant(
        "sources_alternatives", "an address of one kind hides that of the other kind behind it",
        "nsqclient/cli/command.py",
        "if given.keys() & set(names)\n", "if False\n",
        "tests/cli/test_command.py::"
        "test_an_address_of_one_kind_hides_that_of_the_other_kind_behind_it",
    ),
    Mutant(
        "sources_likeness", "the variables of other programs are left alone",
        "nsqclient/cli/sources.py",
        "_LIKENESS = 0.8", "_LIKENESS = 0.6",
        "tests/cli/test_command.py::test_the_variables_of_other_programs_are_left_alone",
    ),
    Mutant(
        "sources_other_commands", "the variables of other commands are no mistakes",
        "nsqclient/cli/sources.py",
        "for flag in others for name in variables(flag)}", "for flag in () for name in ()}",
        "tests/cli/test_command.py::test_the_variables_of_other_programs_are_left_alone",
    ),
    Mutant(
        "sources_setting_last", "a variable wins over the setting of Django and Flask",
        "nsqclient/contrib/framework_flags.py",
        'changed["LOOKUPD_HTTP_ADDRESSES"] = values["lookupd-http-address"]', "pass",
        "tests/contrib/test_framework_flags.py::test_addresses_replace_those_of_the_setting",
    ),
    Mutant(
        "sources_options_stay", "a variable changes single options of the setting",
        "nsqclient/contrib/framework_flags.py",
        'changed["OPTIONS"] = {**options, **texts}', 'changed["OPTIONS"] = texts',
        "tests/contrib/test_framework_flags.py::test_options_are_changed_one_by_one",
    ),
    # -- a consumed message
    Mutant(
        "fin_of_expired", "a message that expired before its handler saw it is not finished",
        "nsqclient/consumer/subscription.py",
        "self._unhandled.add(self.place, message._id)",
        "self.conn.send(lambda core: core.send_fin([message._id]))",
        "tests/consumer/test_subscription.py::test_an_expired_message_is_not_finished",
    ),
    Mutant(
        "fin_of_expired_in_batch", "a message that expired in a batch is not finished",
        "nsqclient/consumer/batch.py",
        "message._responder.drop_expired(message)", "message.finish()",
        "tests/consumer/test_batch.py::test_messages_that_expired_while_they_waited_are_dropped",
    ),
    Mutant(
        "expired_is_handled", "a handler never sees a message whose time is over",
        "nsqclient/consumer/processor.py",
        "if now >= message.deadline:", "if False:",
        "tests/consumer/test_processor.py::test_expired_messages_reach_no_handler",
    ),
    Mutant(
        "lost_fin", "every message that was handled is finished, not 999 of 1,000",
        "nsqclient/consumer/subscription.py",
        "                    ids.append(message._id)",
        "                    if (self.counters.finished + len(ids) + missing) % 1000 == 999:\n"
        "                        missing += 1\n"
        "                    else:\n"
        "                        ids.append(message._id)",
        "tests/integration/test_consumer.py::test_each_of_many_messages_is_finished[embedded]",
    ),
    Mutant(
        "exception_finishes", "a handler that raises does not finish its message",
        "nsqclient/consumer/processor.py",
        "            self._on_exception(message, exc)\n        else:",
        "            self._answer(message.finish)\n        else:",
        "tests/consumer/test_processor.py::test_what_is_raised_requeues",
    ),
    Mutant(
        "async_is_finished", "enable_async() leaves the answer to the user",
        "nsqclient/consumer/processor.py",
        "else:\n            if not (message._responded or message._is_async):",
        "else:\n            if not message._responded:",
        "tests/consumer/test_processor.py"
        "::test_async_messages_are_left_alone_unless_the_handler_raises",
    ),
    Mutant(
        "two_answers", "a message has one answer",
        "nsqclient/consumer/subscription.py",
        'raise AlreadyRespondedError(f"{message!r} was answered before")', "pass",
        "tests/consumer/test_subscription.py::test_a_message_has_one_answer",
    ),
    Mutant(
        "touch_after_answer", "a message that was answered cannot be touched",
        "nsqclient/consumer/subscription.py",
        'nsqd does."""\n        if message.has_responded:', 'nsqd does."""\n        if False:',
        "tests/consumer/test_subscription.py::test_a_message_has_one_answer",
    ),
    Mutant(
        "fin_of_old_delivery", "a late answer does not finish the next delivery of the message",
        "nsqclient/consumer/subscription.py",
        "                if messages.get(message._id) is message:",
        "                if message._id in messages:",
        "tests/consumer/test_in_flight.py::test_a_second_delivery_replaces_the_first",
    ),
    Mutant(
        "requeue_delay_unit", "the delay of a REQ is in milliseconds",
        "nsqclient/consumer/subscription.py",
        "delay_ms = round(delay * 1000)", "delay_ms = round(delay)",
        "tests/consumer/test_subscription.py::test_requeue_sends_req",
    ),
    Mutant(
        "requeue_delay_grows", "the automatic delay grows with the attempts",
        "nsqclient/runtime/delays.py",
        "min(default * attempts, maximum)", "min(default, maximum)",
        "tests/runtime/test_delays.py::test_the_requeue_delay_grows_up_to_its_limit",
    ),
    Mutant(
        "keep_alive_for_ever", "keep_alive() ends at nsqd's max_msg_timeout",
        "nsqclient/consumer/subscription.py",
        "message.deadline >= received + self._max_msg_timeout", "False",
        "tests/consumer/test_subscription.py::test_keep_alive_ends_at_the_longest_time",
    ),
    Mutant(
        "quiet_giving_up", "a message is given up only through on_giving_up",
        "nsqclient/consumer/processor.py",
        "result = self._on_giving_up(message)", "result = None",
        "tests/consumer/test_processor.py::test_a_message_is_given_up_after_max_attempts",
    ),
    Mutant(
        "failed_giving_up_finishes", "a message that on_giving_up could not keep is not finished",
        "nsqclient/consumer/processor.py",
        "self._answer(message.requeue)", "self._answer(message.finish)",
        "tests/consumer/test_processor.py::test_giving_up_that_fails_requeues",
    ),
    Mutant(
        "one_attempt_less", "a message is given up after max_attempts, not before the last one",
        "nsqclient/consumer/processor.py",
        "most < message.attempts and sub.count_handled(message) > most",
        "most <= message.attempts and sub.count_handled(message) >= most",
        "tests/consumer/test_processor.py::test_a_message_is_given_up_after_max_attempts",
    ),
    Mutant(
        "expired_counts_as_failed", "a delivery that no handler had does not lead to giving up",
        "nsqclient/consumer/subscription.py",
        "return message.attempts - self._unhandled.count(self.place, message._id)",
        "return message.attempts",
        "tests/consumer/test_subscription.py"
        "::test_a_delivery_that_expired_does_not_count_as_handled",
    ),
    Mutant(
        "async_handler", "a handler that would do nothing when it is called is refused",
        "nsqclient/runtime/user_functions.py",
        "if flags & _ASYNC:", "if False:",
        "tests/runtime/test_user_functions.py::test_a_function_that_would_do_nothing_is_refused",
    ),
    Mutant(
        "lazy_result", "a handler that returns work which nobody does has failed",
        "nsqclient/runtime/user_functions.py",
        "type(result) in _PLAIN or", "True or",
        "tests/runtime/test_user_functions.py"
        "::test_a_result_that_is_still_to_be_done_is_a_failure",
    ),
    Mutant(
        "dead_letter_not_published", "a dead letter is published before its FIN",
        "nsqclient/consumer/dead_letters.py",
        "self._producer.publish(self._topic, envelope)", "pass",
        "tests/consumer/test_dead_letters.py::test_a_topic_gets_an_envelope",
    ),
    Mutant(
        "replay_removes_first", "a dead letter is removed after its body is stored",
        "nsqclient/cli/dead_letters.py",
        "text = work(name, letter)", "remove(); text = work(name, letter)",
        "tests/integration/test_dead_letters.py::test_a_body_that_nsqd_refuses_stays",
    ),
    Mutant(
        "last_attempt_requeued", "a failure of the last attempt gives the message up with it",
        "nsqclient/consumer/retry.py",
        "is_failure and 0 < max_attempts <= attempts", "False",
        "tests/consumer/test_processor.py::"
        "test_a_failure_on_the_last_attempt_gives_up_at_once",
    ),
    Mutant(
        "dead_letter_not_on_disk", "a dead letter is on the disk before its FIN",
        "nsqclient/consumer/dead_letters.py",
        "os.fsync(file.fileno())", "pass",
        "tests/consumer/test_dead_letters.py::test_a_disk_that_does_not_take_it_raises",
    ),
    Mutant(
        "failed_batch_finishes", "a batch whose handler raises is requeued",
        "nsqclient/consumer/batch.py",
        "consumer.on_failure(message, decision)", "message.finish()",
        "tests/consumer/test_batch.py::test_an_exception_requeues_all",
    ),
    # -- RDY, backoff
    Mutant(
        "handler_time_ignored", "no more is in flight than handlers finish in time",
        "nsqclient/consumer/rdy.py",
        "if in_time < level:", "if False:",
        "tests/consumer/test_rdy_level.py::test_what_is_in_flight_is_handled_within_the_share",
    ),
    Mutant(
        "hanging_handler_ignored", "a handler that hangs lowers the level before it ends",
        "nsqclient/consumer/rdy.py",
        "max(self.handler_time or 0.0, seen.longest_running)", "self.handler_time or 0.0",
        "tests/consumer/test_overload.py"
        "::test_a_handler_that_hangs_gets_one_message_in_each_timeout",
    ),
    Mutant(
        "level_oscillates", "the level rises only where twice as much is handled in time",
        "nsqclient/consumer/rdy.py",
        "elif in_time >= 2 * level and level < most:", "elif level < most:",
        "tests/consumer/test_rdy_level.py::test_the_level_does_not_oscillate",
    ),
    Mutant(
        "level_starves_workers", "each worker has a message, however long handlers take",
        "nsqclient/consumer/rdy.py",
        "level = max(least, int(in_time))", "level = int(in_time)",
        "tests/consumer/test_rdy_level.py"
        "::test_each_worker_has_one_message_however_long_it_takes",
    ),
    Mutant(
        "collecting_counts", "while messages are collected max_in_flight applies",
        "nsqclient/consumer/rdy.py",
        "if self.is_held(now):", "if False:",
        "tests/consumer/test_overload.py"
        "::test_a_consumer_that_asks_whether_it_is_starved_collects",
    ),
    Mutant(
        "quiet_nsqd_unheard", "a connection on which nothing comes keeps RDY 1",
        "nsqclient/consumer/rdy.py",
        "if state.in_flight:", "if True:",
        "tests/consumer/test_overload.py"
        "::test_a_quiet_nsqd_is_heard_while_another_one_keeps_all_workers_busy",
    ),
    Mutant(
        "rdy_plus_one", "RDY is what was decided",
        "nsqclient/consumer/subscription.py",
        "core.send_rdy(wanted)", "core.send_rdy(wanted + 1)",
        "tests/consumer/test_subscription.py::test_rdy_that_is_on_the_wire_is_not_sent_again",
    ),
    Mutant(
        "shares_too_large", "the connections share max_in_flight",
        "nsqclient/consumer/rdy.py",
        "total // (len(rest) - index)", "total",
        "tests/consumer/test_rdy.py::test_connections_get_even_shares",
    ),
    Mutant(
        "lowered_rdy_counts_no_more", "a lowered RDY counts at its old value until it has settled",
        "nsqclient/consumer/rdy.py",
        "now + self._settle_time", "now",
        "tests/consumer/test_rdy.py::test_a_share_is_raised_after_the_lowered_one_has_settled",
    ),
    Mutant(
        "in_flight_not_counted", "messages in flight count towards max_in_flight",
        "nsqclient/consumer/rdy.py",
        "return max(level, self.rdy, self.in_flight)", "return max(level, self.rdy)",
        "tests/consumer/test_rdy.py::test_a_test_waits_for_what_is_out",
    ),
    Mutant(
        "pause_ignored", "a consumer that is paused asks for nothing",
        "nsqclient/consumer/flow_control.py",
        "if self._paused or self._held", "if self._held",
        "tests/integration/test_consumer_more.py::test_a_paused_consumer_gets_nothing[embedded]",
    ),
    Mutant(
        "backoff_for_ever", "a backoff ends",
        "nsqclient/consumer/backoff.py",
        "self.phase = Phase.TESTING", "pass",
        "tests/consumer/test_backoff.py"
        "::test_a_failure_leads_from_flowing_through_waiting_to_testing",
    ),
    Mutant(
        "no_backoff", "a failure slows the consumer down",
        "nsqclient/consumer/subscription.py",
        "Outcome.FAILURE if backoff else Outcome.NEUTRAL", "Outcome.NEUTRAL",
        "tests/consumer/test_subscription.py::test_requeue_sends_req",
    ),
    Mutant(
        "flood_is_borne", "an nsqd that sends without regard to RDY is cut off",
        "nsqclient/consumer/backpressure.py",
        "        if is_flood:", "        if False:",
        "tests/consumer/test_backpressure.py::test_a_peer_that_ignores_rdy_0_is_cut_off",
    ),
    Mutant(
        "queue_without_limit", "what waits for a worker is bounded by max_queued_bytes",
        "nsqclient/consumer/backpressure.py",
        "elif size > self.limit and self.held_since is None:", "elif False:",
        "tests/consumer/test_queue_limit.py"
        "::test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it",
    ),
    Mutant(
        "hold_for_ever", "messages flow again when half of max_queued_bytes is left",
        "nsqclient/consumer/backpressure.py",
        "if count <= 1 or size <= self.limit // 2:", "if count <= 0:",
        "tests/consumer/test_queue_limit.py"
        "::test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it",
    ),
    Mutant(
        "hold_without_effect", "RDY is 0 while too many bytes wait",
        "nsqclient/consumer/flow_control.py",
        "if self._paused or self._held", "if self._paused",
        "tests/integration/test_backpressure.py"
        "::test_a_held_consumer_says_so_and_lets_others_have_the_messages[embedded]",
    ),
    # -- stop
    Mutant(
        "queued_not_requeued", "a stop requeues what no handler has seen",
        "nsqclient/consumer/subscription.py",
        "core.send_req(message._id, 0)", "pass",
        "tests/consumer/test_subscription.py"
        "::test_requeueing_unstarted_messages_sends_req_without_delay",
    ),
    Mutant(
        "late_arrivals_not_requeued", "what arrives during a stop is requeued at once",
        "nsqclient/consumer/backpressure.py",
        "            sub.requeue_unstarted(messages)\n            return", "            return",
        "tests/consumer/test_shutdown.py::test_a_message_that_comes_after_cls_is_requeued",
    ),
    Mutant(
        "workers_not_joined", "a pool that was stopped has no thread left",
        "nsqclient/runtime/workers.py",
        "thread.join(None if deadline is None else deadline.remaining())", "pass",
        "tests/runtime/test_workers.py::test_stop_lets_workers_finish_what_is_queued",
    ),
    Mutant(
        "stop_leaves_readers", "a stop ends with its threads",
        "nsqclient/consumer/shutdown.py",
        "if not sub.conn.join(rest)", "if False",
        "tests/consumer/test_shutdown.py::test_a_reader_that_does_not_end_is_named",
    ),
    Mutant(
        "stop_without_answers", "a stop waits for answers that handlers left to others",
        "nsqclient/consumer/shutdown.py",
        "        deadline.wait_until(lambda: not self._count_open(subs))\n", "",
        "tests/integration/test_consumer_races.py"
        "::test_stop_waits_for_answers_from_elsewhere[embedded]",
    ),
    # -- discovery
    Mutant(
        "last_lookup_only", "the answers of all nsqlookupds count together",
        "nsqclient/producer/discovery.py",
        "**self._answers}", "lookupd: answer or []}",
        "tests/producer/test_discovery.py::test_answers_are_merged",
    ),
    Mutant(
        "last_partitions_only", "the partitions of all nsqlookupds count together",
        "nsqclient/partitioned/lookup_table.py",
        "answers = self._answers()", "answers = self._answers()[:1]",
        "tests/partitioned/test_lookup_table.py::test_partitions_of_all_answers_are_merged",
    ),
    Mutant(
        "filter_ignored", "discovery_filter chooses the nsqds",
        "nsqclient/consumer/connections.py",
        "if self.discovery_filter is None:", "if True:",
        "tests/integration/test_consumer_more.py::"
        "test_a_discovery_filter_chooses_the_nsqds[embedded]",
    ),
    Mutant(
        "rounds_without_jitter", "consumers do not ask all at once",
        "nsqclient/runtime/delays.py",
        "return interval * (1 + jitter * rng.random())", "return interval",
        "tests/runtime/test_delays.py::test_a_jittered_interval_stays_near_its_length",
    ),
    Mutant(
        "dials_without_limit", "no more addresses are dialed at once than there are slots",
        "nsqclient/runtime/dial_queue.py",
        "if len(self._under_way) >= self._limit:", "if False:",
        "tests/runtime/test_dial_queue.py::test_no_more_than_the_limit_are_under_way",
    ),
    Mutant(
        "dials_not_shared", "the addresses of one nsqlookupd do not take all slots",
        "nsqclient/runtime/dial_queue.py",
        "if source.under_way >= self._share:", "if False:",
        "tests/runtime/test_dial_queue.py::test_a_source_never_uses_the_share_of_another",
    ),
    # -- connection
    Mutant(
        "heartbeat_unanswered", "a heartbeat is answered",
        "nsqclient/protocol/client.py",
        "                self._out.append(commands.NOP)", "                pass",
        "tests/protocol/test_client.py::test_a_heartbeat_is_answered_with_nop",
    ),
    Mutant(
        "silence_is_borne", "an nsqd that is silent for two heartbeats counts as lost",
        "nsqclient/connection/reader.py",
        "if time.monotonic() >= until:", "if False:",
        "tests/connection/test_connection.py::test_silence_ends_the_connection",
    ),
    Mutant(
        "any_host", "TLS checks that the certificate is the server's",
        "nsqclient/runtime/tls.py",
        "    if not verify:\n", "    context.check_hostname = False\n    if not verify:\n",
        "tests/runtime/test_tls.py::test_a_client_verifies_by_default",
    ),
    Mutant(
        "any_certificate", "TLS verifies by default",
        "nsqclient/runtime/tls.py",
        "    if not verify:\n", "    if True:\n",
        "tests/runtime/test_tls.py::test_a_client_verifies_by_default",
    ),
    Mutant(
        "not_granted", "what was asked for and not granted is an error, never plain text",
        "nsqclient/connection/handshake.py",
        "if asked and not granted:", "if False:",
        "tests/connection/test_handshake.py::test_what_is_not_granted",
    ),
    Mutant(
        "secret_in_repr", "no repr shows a secret",
        "nsqclient/config.py",
        "repr=not option.secret", "repr=True",
        "tests/test_config.py::test_a_secret_is_never_shown",
    ),
    Mutant(
        "secret_in_log", "no log line shows a secret",
        "nsqclient/connection/handshake.py",
        'str(identity.get("identity"))', "config.auth_secret",
        "tests/integration/test_negotiation_auth.py::test_no_logger_shows_the_secret[embedded]",
    ),
    Mutant(
        "control_characters", "a server's text cannot forge a log line",
        "nsqclient/sanitize.py",
        "each if each.isprintable() else repr(each)[1:-1] for", "each for",
        "tests/test_sanitize.py::test_control_characters_are_escaped",
    ),
    Mutant(
        "json_without_depth", "JSON of a server has a limit of depth",
        "nsqclient/protocol/peer_json.py",
        "if containers > MAX_DEPTH and", "if False and",
        "tests/protocol/test_peer_json.py::test_depth_is_limited",
    ),
    Mutant(
        "frame_without_limit", "a frame has a limit before memory is taken for it",
        "nsqclient/protocol/frames.py",
        "self._max = max_frame_size", "self._max = 2**31",
        "tests/protocol/test_frames.py::test_a_frame_over_the_limit_is_an_error",
    ),
    Mutant(
        "deflate_bomb", "deflated data is read in bounded memory",
        "nsqclient/protocol/layers/deflate.py",
        "inflate.decompress(data, PIECE_SIZE)", "inflate.decompress(data)",
        "tests/protocol/test_deflate.py::test_a_bomb_comes_in_pieces",
    ),
    Mutant(
        "snappy_bomb", "data in snappy is read in bounded memory",
        "nsqclient/protocol/layers/snappy.py",
        "if size > MAX_CHUNK_SIZE", "if False",
        "tests/protocol/test_snappy.py::test_bytes_that_are_not_snappy_are_a_protocol_error",
    ),
    Mutant(
        "deflate_without_flush", "what is sent through deflate can be read at once",
        "nsqclient/protocol/layers/deflate.py",
        "self._deflate.flush(zlib.Z_SYNC_FLUSH)", 'b""',
        "tests/protocol/test_compression.py::test_what_is_encoded_can_be_read_at_once",
    ),
    Mutant(
        "http_without_limit", "an HTTP answer has a limit",
        "nsqclient/http/limits.py",
        "if size > most:", "if False:",
        "tests/http/test_limits.py::test_response_over_the_size_limit_is_refused",
    ),
    # -- publishing
    Mutant(
        "stored_too_soon", "publish() returns when nsqd has the message",
        "nsqclient/connection/blocking.py",
        "        if data == _STORED:", "        if True:",
        "tests/connection/test_blocking.py"
        "::test_a_refusal_is_returned_and_ends_the_connection",
    ),
    Mutant(
        "future_too_soon", "the Future of publish_async() is done when nsqd has the message",
        "nsqclient/producer/async_publisher.py",
        "            self._publisher.publish("
        "command, until, first.seconds, attempts, is_async=True)",
        "            self.on_stored(items)",
        "tests/producer/test_async_publisher.py"
        "::test_without_an_answer_a_message_is_unknown_at_its_deadline",
    ),
    Mutant(
        "unknown_is_rejected", "a publish that may be stored is unknown, not rejected",
        "nsqclient/producer/outcome.py",
        "    if maybe_stored:\n        return PublishUnknownError(text)\n",
        "    if False:\n        return PublishUnknownError(text)\n",
        "tests/producer/test_publish.py::test_the_deadline_ends_the_retries",
    ),
    Mutant(
        "no_answer_is_rejected", "a publish that nsqd does not answer is unknown",
        "nsqclient/producer/publisher.py",
        "return PublishOutcome.UNKNOWN, exc, None", "return PublishOutcome.NOT_READ, exc, None",
        "tests/producer/test_publish.py::test_the_deadline_ends_the_retries",
    ),
    Mutant(
        "deadline_is_not_watched", "a publish ends at its deadline",
        "nsqclient/producer/pool.py",
        "        if now >= until:\n", "        if False:\n",
        "tests/producer/test_pool.py"
        "::test_an_overdue_publish_is_cut_at_its_deadline_and_not_before",
    ),
    Mutant(
        "later_publish_is_cut", "the timer never ends a publish that has its answer",
        "nsqclient/connection/blocking.py",
        'exchange.pop("until", None) is None:\n            return False',
        "False:\n            pass",
        "tests/connection/test_blocking.py"
        "::test_a_cut_that_comes_after_the_answer_does_nothing",
    ),
    Mutant(
        "stall_is_borne", "an nsqd that does not answer is left for another",
        "nsqclient/producer/pool.py",
        'if seen != exchange["seen"] or not has_others:', "if True:",
        "tests/producer/test_pool.py::test_a_stalled_nsqd_is_left_where_there_is_another",
    ),
    Mutant(
        "late_publish_ends_all", "a later publish on a shared connection that is late ends alone",
        "nsqclient/producer/pipelined.py",
        "if exchange is None or mine == waiters[:1] or mine[0].is_sending:", "if True:",
        "tests/producer/test_pipelined.py::test_a_later_publish_that_is_late_ends_alone",
    ),
    Mutant(
        "behind_a_refusal_is_unknown", "what nsqd has surely not read is sent again",
        "nsqclient/producer/pipelined.py",
        "        if isinstance(error, ServerError):\n            error =",
        "        if False:\n            error =",
        "tests/producer/test_pipelined.py"
        "::test_a_refusal_ends_the_connection_and_the_others_are_not_read",
    ),
    Mutant(
        "turns_are_not_kept", "publishes above max_connections get connections in their order",
        "nsqclient/producer/pool.py",
        "            waiter = self._waiting.popleft()", "            waiter = self._waiting.pop()",
        "tests/producer/test_pool.py"
        "::test_publishes_that_wait_get_connections_in_their_order",
    ),
    Mutant(
        "lost_connections_count", "an interrupted publish costs the pool nothing",
        "nsqclient/producer/pool.py",
        "spare = self._limit - len(self.connections())", "spare = self._limit - len(self._live)",
        "tests/producer/test_pool.py"
        "::test_what_an_interrupted_thread_lost_is_not_counted",
    ),
    Mutant(
        "dead_connection_is_used", "no publish is sent where nsqd's FIN has arrived",
        "nsqclient/producer/pool.py",
        "            if now - conn.used_at < _FRESH or conn.look():", "            if True:",
        "tests/producer/test_pool.py::test_a_dead_connection_is_not_taken",
    ),
    Mutant(
        "begun_twice", "a message is published by one thread, or fails, and not both",
        "nsqclient/runtime/futures.py",
        "in futures if future._state == PENDING)", "in futures)",
        "tests/producer/test_futures.py::test_of_several_threads_one_begins_a_message",
    ),
    Mutant(
        "overtaken_batch", "messages of a key are stored in the order of the calls",
        "nsqclient/partitioned/producer_queues.py",
        "if self.partition is not None or len(self._waiting) >= self._width:", "if False:",
        "tests/partitioned/test_producer_queues.py"
        "::test_each_key_stays_in_order_through_refusals_and_lost_connections",
    ),
    Mutant(
        "others_do_not_begin", "partitions that hang leave turns to the others of their nsqd",
        "nsqclient/partitioned/producer_load.py",
        "if one.name in suspects]) < _MAX_SUSPECT", "if one.name in suspects]) < 1000",
        "tests/partitioned/test_producer_load.py::test_partitions_that_hang_have_a_part_of_that",
    ),
    Mutant(
        "refused_headers_stay", "after an error to MPUB_EXT its connection is not used again",
        "nsqclient/producer/publisher.py",
        "conn.is_ended or closes_after_error", "conn.is_ended",
        "tests/partitioned/test_producer_queues.py"
        "::test_a_refused_publish_with_headers_closes_its_connection",
    ),
    Mutant(
        "half_an_mpub_is_rejected", "an MPUB that failed in its middle is unknown",
        "nsqclient/producer/outcome.py",
        "return PublishOutcome.UNKNOWN", "return PublishOutcome.REJECTED",
        "tests/producer/test_outcome.py::test_each_answer_has_an_outcome",
    ),
    Mutant(
        "unknown_is_retried", "retry_unknown=False makes no duplicate",
        "nsqclient/producer/outcome.py",
        "NOT_READ or self.retry_unknown:", "NOT_READ or True:",
        "tests/producer/test_publish.py::test_unknown_where_no_retry_is_allowed",
    ),
    Mutant(
        "unknown_in_partition_is_retried", "retry_unknown=False makes no duplicate in a partition",
        "nsqclient/partitioned/producer_attempts.py",
        "            if not self.retry_unknown:\n", "            if False:\n",
        "tests/partitioned/test_producer_queues.py"
        "::test_a_lost_answer_is_unknown_without_retry_unknown",
    ),
    Mutant(
        "pending_without_limit", "what publish_async() has pending is bounded",
        "nsqclient/producer/async_publisher.py",
        "len(self._unsettled) < window.messages", "True",
        "tests/integration/test_producer_async.py"
        "::test_a_full_window_raises_where_it_was_asked_for",
    ),
    Mutant(
        "pending_bytes_without_limit", "the bytes that publish_async() has pending are bounded",
        "nsqclient/producer/async_publisher.py",
        "and self._bytes + size <= window.size", "",
        "tests/producer/test_async_publisher.py"
        "::test_a_window_that_stays_full_is_an_error_at_the_deadline",
    ),
    Mutant(
        "no_delay", "a deferred publish has its delay",
        "nsqclient/protocol/commands.py",
        "(topic.encode(), delay_ms,", "(topic.encode(), 0,",
        "tests/protocol/test_commands.py::test_each_command_is_these_bytes",
    ),
    Mutant(
        "no_delay_async", "a deferred publish_async() has its delay",
        "nsqclient/producer/async_publisher.py",
        "if first.delay_ms is not None:", "if False:",
        "tests/integration/test_producer_async.py::test_a_deferred_message_is_sent_alone[embedded]",
    ),
    Mutant(
        "mpub_too_large", "an MPUB has nsqd's max-body-size at most",
        "nsqclient/protocol/commands.py",
        "size + 4 + len(body) > max_body_size", "size + 3 + len(body) > max_body_size",
        "tests/protocol/test_commands.py::test_each_part_fits_into_one_mpub",
    ),
    Mutant(
        "async_mpub_too_large", "an MPUB of async publishes has nsqd's max-body-size at most",
        "nsqclient/producer/async_publisher.py",
        "size > self._batch_bytes or", "size > self._batch_bytes + 1 or",
        "tests/producer/test_async_publisher.py::test_an_mpub_stays_under_the_body_limit",
    ),
    Mutant(
        "any_name", "a topic's name is checked before the wire",
        "nsqclient/protocol/names.py",
        "_NAME.fullmatch(name) is not None", "True",
        "tests/protocol/test_names.py::test_an_invalid_name_is_rejected",
    ),
    Mutant(
        "any_body", "the size of a body is checked before the wire",
        "nsqclient/protocol/commands.py",
        "max(map(len, checked)) <= max_msg_size", "True",
        "tests/protocol/test_commands.py::test_bodies_that_nsqd_would_refuse",
    ),
    Mutant(
        "any_partition", "a key decides on the partition",
        "nsqclient/partitioned/producer_attempts.py",
        "partition_of(self.key, routes.partition_num, sharding)", "0",
        "tests/partitioned/test_producer.py::test_a_key_never_uses_another_partition",
    ),
    Mutant(
        "another_hash", "a key has the partition that go-nsq gives it",
        "nsqclient/partitioned/sharding.py",
        "mmh3.hash(key, 0, signed=False)", "mmh3.hash(key, 1, signed=False)",
        "tests/partitioned/test_sharding.py::test_murmur3_agrees_with_go",
    ),
    Mutant(
        "child_shares_producer", "a forked child publishes on connections of its own",
        "nsqclient/producer/producer.py",
        "        self._begin()\n        self._closed = closed", "        self._closed = closed",
        "tests/integration/test_fork.py::"
        "test_close_in_the_child_keeps_the_parents_connection[embedded]",
    ),
    Mutant(
        "child_shares_consumer", "a forked child does not touch the parent's consumer",
        "nsqclient/consumer/consumer.py",
        "self._core.connections.abandon()",
        "[sub.conn.close() for sub in self._core.flow.subscriptions]",
        "tests/integration/test_consumer_more.py"
        "::test_a_forked_child_starts_a_consumer_of_its_own[embedded]",
    ),
    # -- tools
    Mutant(
        "file_without_fsync", "nsq_to_file has a message on the disk before its FIN",
        "nsqclient/cli/archive/files.py",
        "os.fsync(self._fd)", "pass",
        "tests/cli/test_archiver.py::test_messages_are_finished_after_fsync",
    ),
    Mutant(
        "file_fin_after_failure", "nsq_to_file gives back what it could not sync",
        "nsqclient/cli/archive/archive.py",
        "message.requeue(delay=0, backoff=backoff)", "message.finish()",
        "tests/cli/test_archiver.py::test_messages_are_not_finished_after_a_failed_fsync",
    ),
    Mutant(
        "file_fin_before_sync", "nsq_to_file finishes nothing before its sync",
        "nsqclient/cli/archive/archive.py",
        "self._try(self._write_pending) and self._try(self._archive.sync)",
        "self._try(self._write_pending)",
        "tests/cli/test_archiver.py::test_messages_are_finished_after_fsync",
    ),
    Mutant(
        "http_error_finishes", "nsq_to_http does not finish what was refused",
        "nsqclient/cli/http_sender.py",
        "if not 200 <= response.status_code < 300:", "if False:",
        "tests/cli/test_nsq_to_http.py::test_a_status_outside_200_to_299_is_a_failure",
    ),
    Mutant(
        "copy_fin_too_soon", "nsq_to_nsq finishes what its destination has stored",
        "nsqclient/cli/nsq_to_nsq.py",
        "wait()\n            except", "pass\n            except",
        "tests/cli/test_nsq_to_nsq.py::test_a_message_is_finished_when_it_is_stored_and_only_then",
    ),
    # -- Spark
    Mutant(
        "spark_fin_too_soon", "the Spark source finishes what its log has",
        "nsqclient/spark/ingest/writer.py",
        "        fresh = segment\n",
        "        fresh = segment\n"
        "        for sub, messages in segment:\n"
        "            sub.finish_ids([message[2] for message in messages])\n",
        "tests/spark/ingest/test_writer.py::test_messages_that_cannot_be_stored_are_requeued",
    ),
    Mutant(
        "drain_ends_early", "a drain does not end while messages wait",
        "nsqclient/consumer/drain_decision.py",
        "one.seen is Seen.NEVER_ASKED or one.waiting for one in nsqds",
        "one.seen is Seen.NEVER_ASKED for one in nsqds",
        "tests/consumer/test_drain_decision.py"
        "::test_a_drain_ends_when_every_nsqd_that_counts_has_said_that_it_is_empty",
    ),
    Mutant(
        "drain_forgets_others", "a drain waits for messages that another consumer holds",
        "nsqclient/consumer/drain_decision.py",
        "return others <= 0 and not any(", "return not any(",
        "tests/consumer/test_drain_decision.py"
        "::test_a_drain_ends_when_every_nsqd_that_counts_has_said_that_it_is_empty",
    ),
    Mutant(
        "log_without_fsync", "a segment of the log is on the disk",
        "nsqclient/spark/storage/local.py",
        "view = view[os.write(descriptor, view):]\n        os.fsync(descriptor)",
        "view = view[os.write(descriptor, view):]",
        "tests/spark/storage/test_store.py::test_a_file_is_on_the_disk_when_it_was_created",
    ),
    Mutant(
        "full_disk_forgets_spark", "a full disk deletes nothing that Spark has not committed",
        "nsqclient/spark/shards/retention.py",
        "min(committed, expired, clean_to, listed[-1].number - 1)",
        "min(clean_to, listed[-1].number - 1)",
        "tests/spark/shards/test_shard_log.py::test_a_full_disk_frees_what_is_committed_only",
    ),
    Mutant(
        "shard_without_floor", "a segment under the floor, which nobody reads, is not finished",
        "nsqclient/spark/shards/shard_log.py",
        "elif self._floor(number) >= number:", "elif number == 0:",
        "tests/spark/shards/test_shard_log.py"
        "::test_a_writer_that_wakes_up_under_the_floor_stores_again",
    ),
    Mutant(
        "shard_without_winner", "a writer that has lost a create knows what the winner has stored",
        "nsqclient/spark/shards/shard_log.py",
        "self._known.doubt(nsqd, ids, number)", "pass",
        "tests/spark/shards/test_shard_log.py"
        "::test_of_two_writers_at_once_each_knows_what_the_other_has_written",
    ),
    Mutant(
        "shard_leaves_unnoted", "a shard leaves when the storage says where its reading goes on",
        "nsqclient/spark/reader.py",
        "if nsqd not in leaving or not log.is_noted(nsqd, number)}", "if nsqd not in leaving}",
        "tests/spark/test_reader.py"
        "::test_a_shard_that_is_removed_leaves_when_it_was_read",
    ),
    Mutant(
        "log_read_twice", "a log has one reader at a time",
        "nsqclient/spark/shards/reader_claim.py",
        "                self._check_dead(newest)\n", "                pass\n",
        "tests/spark/test_reader.py::test_a_second_query_on_a_log_is_refused[file]",
    ),
    Mutant(
        "log_replaces", "of two writers that want one key, one has it",
        "nsqclient/spark/storage/local.py",
        "os.link(tmp, path)", "os.rename(tmp, path)",
        "tests/spark/storage/test_store.py::test_the_first_of_two_creates_wins",
    ),
    Mutant(
        "log_damage_unseen", "a segment that is not what was written is noticed",
        "nsqclient/spark/segment.py",
        'return "" if wanted == {b"%08x" % found} else', 'return "" if True else',
        "tests/spark/test_segment.py::test_each_byte_of_a_small_segment_counts",
    ),
    Mutant(
        "log_gap_unseen", "a log that lacks segments is not continued",
        "nsqclient/spark/shards/shard_log.py",
        "if first > clean_to + 1 or last < clean_to:", "if False:",
        "tests/spark/shards/test_recovery.py::test_listings_of_different_moments_are_not_believed",
    ),
    Mutant(
        "log_doubt_forgotten", "a copy after a lost connection is recognised after a restart",
        "nsqclient/spark/ingest/known_ids.py",
        "self._by_number.pop(number, ()):\n                batch.number = _SAVED\n",
        "self._by_number.pop(number, ()):\n                continue\n",
        "tests/spark/ingest/test_known_ids.py::test_unproven_ids_of_a_deleted_segment_are_saved",
    ),
    # -- the embedded servers
    Mutant(
        "nsqd_rdy", "nsqd sends no more than RDY permits",
        "nsqclient/devserver/queues.py",
        "            if consumer.in_flight < consumer.ready:\n                return consumer",
        "            if consumer.ready:\n                return consumer",
        "tests/devserver/test_queues.py::test_rdy_limits_the_messages_in_flight",
    ),
    Mutant(
        "nsqd_fin_comes_again", "a finished message does not come again",
        "nsqclient/devserver/queues.py",
        "del self.in_flight[message_id]\n        consumer.in_flight -= 1\n        consumer.finish",
        "consumer.in_flight -= 1\n        consumer.finish",
        "tests/devserver/test_queues.py::test_no_message_is_lost_or_doubled",
    ),
    Mutant(
        "nsqd_timeout_loses", "a message that times out comes again",
        "nsqclient/devserver/queues.py",
        "            self.queue.keep(message)\n            if owner is not None:",
        "            if owner is not None:",
        "tests/devserver/test_queues.py::test_timeout_is_prompt_and_never_early",
    ),
    Mutant(
        "nsqd_touch_without_end", "TOUCH extends a timeout to max_msg_timeout",
        "nsqclient/devserver/queues.py",
        "min(now + consumer.msg_timeout, latest)", "now + consumer.msg_timeout",
        "tests/devserver/test_queues.py::test_touch_restarts_the_timeout_up_to_a_cap",
    ),
    Mutant(
        "nsqd_pause", "a paused channel delivers nothing",
        "nsqclient/devserver/queues.py",
        "None if self.paused else self._next_ready_consumer()", "self._next_ready_consumer()",
        "tests/devserver/test_queues.py::test_paused_channel_delivers_nothing",
    ),
    Mutant(
        "nsqd_full_disk_loses", "a full disk loses no message that was accepted",
        "nsqclient/devserver/queues.py",
        "        except OSError:\n            self.memory.append(message)",
        "        except OSError:\n            pass",
        "tests/devserver/test_broker.py::test_full_disk_loses_no_message_that_comes_back",
    ),
    Mutant(
        "nsqd_permissions", "AUTH permits what the auth server says, and nothing else",
        "nsqclient/devserver/auth.py",
        "if not any(row.allows(topic, channel) for row in state.authorizations):", "if False:",
        "tests/integration/test_negotiation_auth.py"
        "::test_a_consumer_reports_why_it_may_not_subscribe",
    ),
    Mutant(
        "lookupd_tombstone", "a tombstone hides an nsqd from lookups",
        "nsqclient/devserver/registry.py",
        "            and not producer.is_tombstoned(now, self._tombstone_lifetime)\n", "",
        "tests/devserver/test_registry.py"
        "::test_a_tombstone_hides_one_producer_of_one_topic_for_a_while",
    ),
    # -- the admin page
    Mutant(
        "page_host", "a page answers only to names that it knows",
        "nsqclient/admin/access_control.py",
        "    if host not in settings.allowed_hosts:", "    if False:",
        "tests/admin/test_access_control.py"
        "::test_a_page_on_loopback_answers_only_to_known_names",
    ),
    Mutant(
        "page_origin", "a page of another site changes nothing",
        "nsqclient/admin/access_control.py",
        "if origin is not None and _netloc_of(origin) != request.host.lower():", "if False:",
        "tests/admin/test_access_control.py::test_a_foreign_page_cannot_act",
    ),
    Mutant(
        "page_form", "a form of another site changes nothing",
        "nsqclient/admin/access_control.py",
        'and request.mimetype != "application/json":', "and False:",
        "tests/admin/test_access_control.py::test_a_form_cannot_act",
    ),
    Mutant(
        "page_user", "only users that were named change something",
        "nsqclient/admin/access_control.py",
        'return request.headers.get(settings.acl_http_header, "") in settings.admin_users',
        "return True",
        "tests/admin/test_access_control.py::test_only_users_in_the_acl_header_may_act",
    ),
    Mutant(
        "page_replay_target", "without a key no letter says where it goes",
        "nsqclient/admin/replay.py",
        "to = (key and letter.topic) or target", "to = letter.topic or target",
        "tests/admin/test_actions.py::test_without_a_key_no_letter_says_where_it_goes",
    ),
    Mutant(
        "page_replay_loses", "a letter that cannot be published stays",
        "nsqclient/admin/replay.py",
        "                try:\n                    producer.publish(to, letter.body)",
        "                message.finish()\n                try:\n"
        "                    producer.publish(to, letter.body)",
        "tests/admin/test_actions.py::test_a_letter_that_cannot_be_published_stays",
    ),
    Mutant(
        "page_takes_from_consumers", "a peek takes no message from the consumers of a channel",
        "nsqclient/admin/message_peeker.py",
        'if number(each, "client_count"):', "if False:",
        "tests/admin/test_message_peeker.py::test_a_loan_from_a_channel_with_consumers_is_rejected",
    ),
]
