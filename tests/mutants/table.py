"""The mutants: each breaks one promise, and names the test that must notice."""

from __future__ import annotations

from tests.mutants.run import Mutant

MUTANTS = [
    # -- a consumed message
    Mutant(
        "fin_of_expired", "a message that expired before its handler saw it is not finished",
        "nsqclient/consuming/subscription.py",
        "self._unhandled.add(self.place, message.id)",
        "self.conn.send(lambda core: core.send_fin([message.id]))",
        "tests/consuming/test_subscription.py::test_an_expired_message_is_not_finished",
    ),
    Mutant(
        "fin_of_expired_in_batch", "a message that expired in a batch is not finished",
        "nsqclient/batch.py",
        "message._responder.drop_expired(message)", "message.finish()",
        "tests/test_batch.py::test_messages_that_expired_while_they_waited_are_dropped",
    ),
    Mutant(
        "expired_is_handled", "a handler never sees a message whose time is over",
        "nsqclient/consuming/handling.py",
        "if time.monotonic() >= message.deadline:", "if False:",
        "tests/consuming/test_handling.py::test_expired_messages_reach_no_handler",
    ),
    Mutant(
        "lost_fin", "every message that was handled is finished, not 999 of 1,000",
        "nsqclient/consuming/in_flight.py",
        "                    ids.append(message.id)",
        "                    if (self.counts.finished + len(ids) + missing) % 1000 == 999:\n"
        "                        missing += 1\n"
        "                    else:\n"
        "                        ids.append(message.id)",
        "tests/integration/test_consumer.py::test_each_of_many_messages_is_finished[embedded]",
    ),
    Mutant(
        "exception_finishes", "a handler that raises does not finish its message",
        "nsqclient/consuming/handling.py",
        "            self._on_exception(message, exc)\n        else:",
        "            self._answer(message.finish)\n        else:",
        "tests/consuming/test_handling.py::test_what_is_raised_requeues",
    ),
    Mutant(
        "async_is_finished", "enable_async() leaves the answer to the user",
        "nsqclient/consuming/handling.py",
        "if not (message._responded or message._is_async):", "if not message._responded:",
        "tests/consuming/test_handling.py"
        "::test_async_messages_are_left_alone_unless_the_handler_raises",
    ),
    Mutant(
        "two_answers", "a message has one answer",
        "nsqclient/consuming/in_flight.py",
        'raise AlreadyRespondedError(f"{message!r} was answered before")', "pass",
        "tests/consuming/test_subscription.py::test_a_message_has_one_answer",
    ),
    Mutant(
        "touch_after_answer", "a message that was answered cannot be touched",
        "nsqclient/consuming/subscription.py",
        "if message.has_responded:\n            raise", "if False:\n            raise",
        "tests/consuming/test_subscription.py::test_a_message_has_one_answer",
    ),
    Mutant(
        "fin_of_old_delivery", "a late answer does not finish the next delivery of the message",
        "nsqclient/consuming/in_flight.py",
        "                if messages.get(message.id) is message:",
        "                if message.id in messages:",
        "tests/consuming/test_in_flight.py::test_a_second_delivery_replaces_the_first",
    ),
    Mutant(
        "requeue_delay_unit", "the delay of a REQ is in milliseconds",
        "nsqclient/consuming/subscription.py",
        "delay_ms = round(delay * 1000)", "delay_ms = round(delay)",
        "tests/consuming/test_subscription.py::test_requeue_sends_req",
    ),
    Mutant(
        "requeue_delay_grows", "the automatic delay grows with the attempts",
        "nsqclient/flow/delays.py",
        "min(default * attempts, maximum)", "min(default, maximum)",
        "tests/flow/test_delays.py::test_requeue_delay",
    ),
    Mutant(
        "keep_alive_for_ever", "keep_alive() ends at nsqd's max_msg_timeout",
        "nsqclient/consuming/subscription.py",
        "message.deadline >= received + self._max_msg_timeout", "False",
        "tests/consuming/test_subscription.py::test_keep_alive_ends_at_the_longest_time",
    ),
    Mutant(
        "quiet_giving_up", "a message is given up only through on_giving_up",
        "nsqclient/consuming/handling.py",
        "result = self._on_giving_up(message)", "result = None",
        "tests/consuming/test_handling.py::test_giving_up",
    ),
    Mutant(
        "failed_giving_up_finishes", "a message that on_giving_up could not keep is not finished",
        "nsqclient/consuming/handling.py",
        "self._on_exception(message, Requeue())", "self._answer(message.finish)",
        "tests/consuming/test_handling.py::test_giving_up_that_fails_requeues",
    ),
    Mutant(
        "one_attempt_less", "a message is given up after max_attempts, not before the last one",
        "nsqclient/consuming/handling.py",
        "most < message.attempts and sub.count_handled(message) > most",
        "most <= message.attempts and sub.count_handled(message) >= most",
        "tests/consuming/test_handling.py::test_giving_up",
    ),
    Mutant(
        "expired_counts_as_failed", "a delivery that no handler had does not lead to giving up",
        "nsqclient/consuming/subscription.py",
        "return message.attempts - self._unhandled.count(self.place, message.id)",
        "return message.attempts",
        "tests/consuming/test_subscription.py"
        "::test_a_delivery_that_expired_is_not_one_that_a_handler_had",
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
        "nsqclient/deadletter.py",
        "self._producer.publish(self._topic, self._body(message))", "pass",
        "tests/test_deadletter.py::test_a_topic_gets_the_body",
    ),
    Mutant(
        "dead_letter_not_on_disk", "a dead letter is on the disk before its FIN",
        "nsqclient/deadletter.py",
        "os.fsync(file.fileno())", "pass",
        "tests/test_deadletter.py::test_a_disk_that_does_not_take_it_raises",
    ),
    Mutant(
        "failed_batch_finishes", "a batch whose handler raises is requeued",
        "nsqclient/batch.py",
        "lambda message: message.requeue(requeue.delay, requeue.backoff)",
        "lambda message: message.finish()",
        "tests/test_batch.py::test_an_exception_requeues_all",
    ),
    # -- RDY, backoff
    Mutant(
        "rdy_plus_one", "RDY is what was decided",
        "nsqclient/consuming/subscription.py",
        "core.send_rdy(wanted)", "core.send_rdy(wanted + 1)",
        "tests/consuming/test_subscription.py::test_rdy_that_is_on_the_wire_is_not_sent_again",
    ),
    Mutant(
        "shares_too_large", "the connections share max_in_flight",
        "nsqclient/flow/rdy.py",
        "total // (len(rest) - index + others)", "total",
        "tests/flow/test_rdy.py::test_even_shares",
    ),
    Mutant(
        "lowered_rdy_counts_no_more", "a lowered RDY counts at its old value until it has settled",
        "nsqclient/flow/rdy.py",
        "now + self._settle_time", "now",
        "tests/flow/test_rdy.py::test_shrink_first_raise_after_it_settled",
    ),
    Mutant(
        "in_flight_not_counted", "messages in flight count towards max_in_flight",
        "nsqclient/flow/rdy.py",
        "return max(level, self.rdy, self.in_flight)", "return max(level, self.rdy)",
        "tests/flow/test_rdy.py::test_only_one_waits_for_what_is_out",
    ),
    Mutant(
        "pause_ignored", "a consumer that is paused asks for nothing",
        "nsqclient/consuming/flow_control.py",
        "if self._paused or self._held", "if self._held",
        "tests/integration/test_consumer_more.py::test_a_paused_consumer_gets_nothing[embedded]",
    ),
    Mutant(
        "backoff_for_ever", "a backoff ends",
        "nsqclient/flow/backoff.py",
        "self.phase = Phase.TESTING", "pass",
        "tests/flow/test_backoff.py::test_phases",
    ),
    Mutant(
        "no_backoff", "a failure slows the consumer down",
        "nsqclient/consuming/subscription.py",
        "Outcome.FAILURE if backoff else Outcome.NEUTRAL", "Outcome.NEUTRAL",
        "tests/consuming/test_subscription.py::test_requeue_sends_req",
    ),
    Mutant(
        "flood_is_borne", "an nsqd that sends without regard to RDY is cut off",
        "nsqclient/consuming/backpressure.py",
        "        if is_flood:", "        if False:",
        "tests/consuming/test_backpressure.py::test_a_peer_that_ignores_rdy_0_is_cut_off",
    ),
    Mutant(
        "queue_without_limit", "what waits for a worker is bounded by max_queued_bytes",
        "nsqclient/flow/queue_limit.py",
        "elif size > self.limit and self.held_since is None:", "elif False:",
        "tests/flow/test_queue_limit.py"
        "::test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it",
    ),
    Mutant(
        "hold_for_ever", "messages flow again when half of max_queued_bytes is left",
        "nsqclient/flow/queue_limit.py",
        "if count <= 1 or size <= self.limit // 2:", "if count <= 0:",
        "tests/flow/test_queue_limit.py"
        "::test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it",
    ),
    Mutant(
        "hold_without_effect", "RDY is 0 while too many bytes wait",
        "nsqclient/consuming/flow_control.py",
        "if self._paused or self._held", "if self._paused",
        "tests/integration/test_backpressure.py"
        "::test_a_held_consumer_says_so_and_lets_others_have_the_messages[embedded]",
    ),
    # -- stop
    Mutant(
        "queued_not_handed_back", "a stop gives back what no handler has seen",
        "nsqclient/consuming/subscription.py",
        "core.send_req(message.id, 0)", "pass",
        "tests/consuming/test_subscription.py::test_handing_back_sends_req_without_delay",
    ),
    Mutant(
        "late_arrivals_not_handed_back", "what arrives during a stop goes back at once",
        "nsqclient/consuming/wiring.py",
        "sub.hand_back(messages)", "pass",
        "tests/consuming/test_stopping.py::test_a_message_that_comes_after_cls_goes_back",
    ),
    Mutant(
        "workers_not_joined", "a pool that was stopped has no thread left",
        "nsqclient/runtime/workers.py",
        "thread.join(None if deadline is None else deadline.remaining())", "pass",
        "tests/runtime/test_workers.py::test_stop_drains",
    ),
    Mutant(
        "stop_leaves_readers", "a stop ends with its threads",
        "nsqclient/consuming/stopping.py",
        "if not sub.conn.join(rest)", "if False",
        "tests/consuming/test_stopping.py::test_a_reader_that_does_not_end_is_named",
    ),
    Mutant(
        "stop_without_answers", "a stop waits for answers that handlers left to others",
        "nsqclient/consuming/stopping.py",
        "        self._await_answers(subs, deadline)\n", "",
        "tests/integration/test_consumer_races.py"
        "::test_stop_waits_for_answers_from_elsewhere[embedded]",
    ),
    # -- discovery
    Mutant(
        "last_lookup_only", "the answers of all nsqlookupds count together",
        "nsqclient/publishing/discoverer.py",
        "**self._answers}", "lookupd: addresses}",
        "tests/publishing/test_discoverer.py::test_answers_are_merged",
    ),
    Mutant(
        "last_partitions_only", "the partitions of all nsqlookupds count together",
        "nsqclient/partitions/lookup_table.py",
        "answers = self._answers()", "answers = self._answers()[:1]",
        "tests/partitions/test_lookup_table.py::test_partitions_of_all_answers_count",
    ),
    Mutant(
        "filter_ignored", "discovery_filter chooses the nsqds",
        "nsqclient/consuming/membership.py",
        "if self._filter is None:", "if True:",
        "tests/integration/test_consumer_more.py::test_a_discovery_filter_chooses[embedded]",
    ),
    Mutant(
        "rounds_without_jitter", "consumers do not ask all at once",
        "nsqclient/flow/delays.py",
        "return interval * (1 + jitter * rng.random())", "return interval",
        "tests/flow/test_delays.py::test_jittered",
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
        "tests/protocol/test_client.py::test_heartbeat",
    ),
    Mutant(
        "silence_is_borne", "an nsqd that is silent for two heartbeats counts as lost",
        "nsqclient/receiving.py",
        "if time.monotonic() >= until:", "if False:",
        "tests/test_connection.py::test_silence_ends_the_connection",
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
        "nsqclient/negotiation.py",
        "if asked and not granted:", "if False:",
        "tests/test_negotiation.py::test_what_is_not_granted",
    ),
    Mutant(
        "secret_in_repr", "no repr shows a secret",
        "nsqclient/config.py",
        "repr=not secret", "repr=True",
        "tests/test_config.py::test_secret_is_never_shown",
    ),
    Mutant(
        "secret_in_log", "no log line shows a secret",
        "nsqclient/negotiation.py",
        'str(identity.get("identity"))', "config.auth_secret",
        "tests/integration/test_negotiation_auth.py::test_no_logger_shows_the_secret[embedded]",
    ),
    Mutant(
        "control_characters", "a server's text cannot forge a log line",
        "nsqclient/display.py",
        "each if each.isprintable() else repr(each)[1:-1] for", "each for",
        "tests/test_display.py::test_control_characters_are_escaped",
    ),
    Mutant(
        "json_without_depth", "JSON of a server has a limit of depth",
        "nsqclient/protocol/peer_json.py",
        "if containers > MAX_DEPTH and", "if False and",
        "tests/protocol/test_peer_json.py::test_depth_is_limited",
    ),
    Mutant(
        "frame_without_limit", "a frame has a limit before memory is taken for it",
        "nsqclient/protocol/wire.py",
        "self._max = max_frame_size", "self._max = 2**31",
        "tests/protocol/test_wire.py::test_too_large",
    ),
    Mutant(
        "deflate_bomb", "deflated data is read in bounded memory",
        "nsqclient/protocol/deflate.py",
        "inflate.decompress(data, PIECE_SIZE)", "inflate.decompress(data)",
        "tests/protocol/test_deflate.py::test_a_bomb_comes_in_pieces",
    ),
    Mutant(
        "snappy_bomb", "data in snappy is read in bounded memory",
        "nsqclient/protocol/snappy_layer.py",
        "if size > MAX_CHUNK_SIZE", "if False",
        "tests/protocol/test_snappy_layer.py::test_no_snappy",
    ),
    Mutant(
        "deflate_without_flush", "what is sent through deflate can be read at once",
        "nsqclient/protocol/deflate.py",
        "self._deflate.flush(zlib.Z_SYNC_FLUSH)", 'b""',
        "tests/protocol/test_compression.py::test_what_is_encoded_can_be_read_at_once",
    ),
    Mutant(
        "http_without_limit", "an HTTP answer has a limit",
        "nsqclient/http/limits.py",
        "if size > most:", "if False:",
        "tests/http/test_limits.py::test_an_answer_that_is_too_large",
    ),
    # -- publishing
    Mutant(
        "stored_too_soon", "publish() returns when nsqd has the message",
        "nsqclient/publishing/blocking.py",
        "verdict, reason = self._await(attempt, deadline, patient, maybe_stored)",
        "verdict, reason = Verdict.STORED, None",
        "tests/publishing/test_blocking.py::test_no_answer_in_time",
    ),
    Mutant(
        "future_too_soon", "the Future of publish_async() is done when nsqd has the message",
        "nsqclient/publishing/pipeline.py",
        "link.send(command, batch, Deadline(deadline.at_most(_WRITE)))",
        "link.send(command, batch, Deadline(deadline.at_most(_WRITE)));"
        " self._on_settled(batch, Verdict.STORED, None)",
        "tests/publishing/test_pipeline.py::test_an_answer_that_comes_too_late_changes_nothing",
    ),
    Mutant(
        "unknown_is_rejected", "a publish that may be stored is unknown, not rejected",
        "nsqclient/publishing/blocking.py",
        "    if maybe_stored:\n        return", "    if False:\n        return",
        "tests/publishing/test_blocking.py::test_the_deadline_ends_the_retries",
    ),
    Mutant(
        "no_answer_is_rejected", "a publish that nsqd does not answer is unknown",
        "nsqclient/publishing/blocking.py",
        "raise PublishUnknown(\n                    f\"{attempt",
        "raise PublishNotSent(\n                    f\"{attempt",
        "tests/publishing/test_blocking.py::test_no_answer_in_time",
    ),
    Mutant(
        "lost_is_unread", "a publish whose connection was lost may be stored",
        "nsqclient/publishing/link.py",
        "if isinstance(error, ServerError) else Verdict.UNKNOWN", "if True else Verdict.UNKNOWN",
        "tests/publishing/test_links.py::test_publishes_behind_the_end_of_a_connection",
    ),
    Mutant(
        "half_an_mpub_is_rejected", "an MPUB that failed in its middle is unknown",
        "nsqclient/publishing/verdicts.py",
        "return Verdict.UNKNOWN", "return Verdict.REJECTED",
        "tests/publishing/test_verdicts.py::test_each_answer_has_a_verdict",
    ),
    Mutant(
        "unknown_is_retried", "retry_unknown=False makes no duplicate",
        "nsqclient/publishing/blocking.py",
        "                if not self._retry_unknown:", "                if False:",
        "tests/publishing/test_blocking.py::test_unknown_where_no_retry_is_allowed",
    ),
    Mutant(
        "unknown_batch_is_retried", "retry_unknown=False makes no duplicate of an async publish",
        "nsqclient/publishing/batches.py",
        "return None if retry_unknown else", "return None if True else",
        "tests/publishing/test_pipeline.py"
        "::test_an_unknown_outcome_is_told_where_no_retry_is_allowed",
    ),
    Mutant(
        "pending_without_limit", "what publish_async() has pending is bounded",
        "nsqclient/publishing/pipeline.py",
        "self.pending < self._max_pending", "True",
        "tests/integration/test_producer_async.py"
        "::test_a_full_window_raises_where_it_was_asked_for",
    ),
    Mutant(
        "pending_bytes_without_limit", "the bytes that publish_async() has pending are bounded",
        "nsqclient/publishing/pipeline.py",
        "and self._pending_bytes + size <= self._max_pending_bytes", "",
        "tests/publishing/test_pipeline.py"
        "::test_the_window_that_stays_full_is_told_at_the_deadline",
    ),
    Mutant(
        "no_delay", "a deferred publish has its delay",
        "nsqclient/protocol/commands.py",
        "(topic.encode(), delay_ms,", "(topic.encode(), 0,",
        "tests/protocol/test_commands.py::test_bytes",
    ),
    Mutant(
        "no_delay_async", "a deferred publish_async() has its delay",
        "nsqclient/publishing/batches.py",
        "if first.delay_ms is not None:", "if False:",
        "tests/integration/test_producer_async.py::test_a_deferred_message_travels_alone[embedded]",
    ),
    Mutant(
        "mpub_too_large", "an MPUB has nsqd's max-body-size at most",
        "nsqclient/publishing/parts.py",
        "size + 4 + len(body) > max_body_size", "size + 3 + len(body) > max_body_size",
        "tests/publishing/test_parts.py::test_parts_fit",
    ),
    Mutant(
        "async_mpub_too_large", "an MPUB of async publishes has nsqd's max-body-size at most",
        "nsqclient/publishing/batches.py",
        "size > max_bytes", "size > max_bytes + 1",
        "tests/publishing/test_pipeline.py::test_an_mpub_stays_under_the_body_limit",
    ),
    Mutant(
        "any_name", "a topic's name is checked before the wire",
        "nsqclient/protocol/names.py",
        "_NAME.fullmatch(name) is not None", "True",
        "tests/protocol/test_names.py::test_invalid",
    ),
    Mutant(
        "any_body", "the size of a body is checked before the wire",
        "nsqclient/protocol/commands.py",
        "max(map(len, checked)) <= max_msg_size", "True",
        "tests/protocol/test_commands.py::test_bodies_that_nsqd_would_refuse",
    ),
    Mutant(
        "any_partition", "a key decides on the partition",
        "nsqclient/publishing/partitioned/publisher.py",
        "partition_of(key, routes.partition_num, self._sharding)", "0",
        "tests/partitioned/test_producer.py::test_a_missing_partition_fails_and_never_falls_over",
    ),
    Mutant(
        "another_hash", "a key has the partition that go-nsq gives it",
        "nsqclient/partitions/sharding.py",
        "mmh3.hash(key, 0, signed=False)", "mmh3.hash(key, 1, signed=False)",
        "tests/partitions/test_sharding.py::test_murmur3_agrees_with_go",
    ),
    Mutant(
        "child_shares_producer", "a forked child publishes on connections of its own",
        "nsqclient/producer.py",
        "        self._begin()\n        self._closed = closed", "        self._closed = closed",
        "tests/integration/test_fork.py::test_the_child_closes_first[embedded]",
    ),
    Mutant(
        "child_shares_consumer", "a forked child does not touch the parent's consumer",
        "nsqclient/consumer.py",
        "self._membership.abandon()", "[sub.conn.close() for sub in self._running]",
        "tests/integration/test_consumer_more.py"
        "::test_a_forked_child_starts_a_consumer_of_its_own[embedded]",
    ),
    # -- tools
    Mutant(
        "file_without_fsync", "nsq_to_file has a message on the disk before its FIN",
        "nsqclient/cli/archive/output_file.py",
        "os.fsync(self._fd)", "pass",
        "tests/cli/test_archiver.py::test_messages_are_finished_after_fsync",
    ),
    Mutant(
        "file_fin_after_failure", "nsq_to_file gives back what it could not sync",
        "nsqclient/cli/archive/archiver.py",
        "message.requeue(delay=0, backoff=backoff)", "message.finish()",
        "tests/cli/test_archiver.py::test_messages_that_fsync_failed_for_are_not_finished",
    ),
    Mutant(
        "file_fin_before_sync", "nsq_to_file finishes nothing before its sync",
        "nsqclient/cli/archive/archiver.py",
        "self._try(self._write_pending) and self._try(self._archive.sync)",
        "self._try(self._write_pending)",
        "tests/cli/test_archiver.py::test_messages_are_finished_after_fsync",
    ),
    Mutant(
        "http_error_finishes", "nsq_to_http does not finish what was refused",
        "nsqclient/cli/http_requests.py",
        "if not 200 <= response.status_code < 300:", "if False:",
        "tests/cli/test_nsq_to_http.py::test_what_is_no_success",
    ),
    Mutant(
        "copy_fin_too_soon", "nsq_to_nsq finishes what its destination has stored",
        "nsqclient/cli/nsq_to_nsq.py",
        "attempt.result()", "pass",
        "tests/cli/test_nsq_to_nsq.py::test_a_message_is_finished_when_it_is_stored_and_only_then",
    ),
    # -- Spark
    Mutant(
        "spark_fin_too_soon", "the Spark source finishes what its spool has",
        "nsqclient/spark/ingest/writer.py",
        "        fresh = lot\n",
        "        fresh = lot\n"
        "        for sub, messages in lot:\n"
        "            sub.finish_ids([message[2] for message in messages])\n",
        "tests/spark/ingest/test_writer.py::test_what_cannot_be_stored_goes_back",
    ),
    Mutant(
        "spool_without_fsync", "a segment of the spool is on the disk",
        "nsqclient/spark/spool/folder.py",
        "view = view[os.write(descriptor, view):]\n        os.fsync(descriptor)",
        "view = view[os.write(descriptor, view):]",
        "tests/spark/spool/test_spool.py::test_a_file_is_on_the_disk_when_it_was_written",
    ),
]
