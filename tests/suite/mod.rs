//! The conformance suite: one set of bodies for every front-end and everything that runs it.
//!
//! A body is a plain function that talks to a [`front::Front`]; `tests/blocking.rs` and `tests/async.rs` mount all of
//! them. Each test has a schema of its own on one shared server; those that stop the server have their own. What is
//! waited for has a signal and a deadline.
//!
//! # The worker model, sentence by sentence
//!
//! What `worker-model.md` says, in a few words, and the tests that show it. Where DESIGN.md reads the model in its own
//! way, the test shows that reading. Names with a `::` in front are tests beside the code they are about (`engine::…` in
//! simulated time); all others are bodies of this suite. A line without a test says "unfinished".
//!
//! ## Claim and dispatch
//!
//! | the model | shown by |
//! |---|---|
//! | one loop, at most N handlers in flight | `a_worker_fills_its_slots_and_claims_no_more`, `claimed_rows_never_exceed_the_slots_and_each_of_them_runs` |
//! | each round recovers, then fills every free slot | `a_job_whose_worker_died_is_run_again_as_a_failure`, `a_worker_fills_its_slots_and_claims_no_more` |
//! | then waits for the first thing that lets it go on | `a_full_worker_looks_as_soon_as_a_handler_ends`, `an_idle_worker_is_woken_by_each_job` |
//! | a row is claimed when there is a slot, so that the lease begins with the work | `claimed_rows_never_exceed_the_slots_and_each_of_them_runs`, `engine::results_and_claims_share_their_exchanges` |
//! | with N = 1 strictly serial | `a_worker_with_one_slot_is_strictly_serial`, `engine::a_worker_with_one_slot_runs_one_job_at_a_time_in_order` |
//! | more workers, more throughput: no loop inside a loop | `two_workers_share_five_hundred_jobs_and_run_each_once`, `engine::workers_share_a_queue_without_running_a_job_twice` |
//!
//! ## Claiming
//!
//! | the model | shown by |
//! |---|---|
//! | only kinds that are registered | `only_registered_kinds_are_claimed` |
//! | marking and returning a row is one atomic statement | `statement::claims_at_the_same_time_take_different_jobs_and_never_wait`, `statement::many_workers_at_once_claim_every_job_exactly_once` |
//! | by priority, then age | `jobs_are_claimed_by_priority_then_age`, `statement::jobs_are_claimed_by_priority_then_age_then_number` |
//! | rows that others hold are skipped, nobody blocks | `a_row_that_somebody_has_locked_keeps_nobody_waiting`, `statement::claims_at_the_same_time_take_different_jobs_and_never_wait` |
//! | invisible before its time: a retry | `a_waiting_retry_shows_when_it_is_due`, `a_kind_may_have_a_backoff_of_its_own` |
//! | … a paused job | `a_paused_job_goes_on_in_its_time_with_what_it_carried` |
//! | … a job for later | `a_delayed_job_starts_when_it_is_due_and_needs_no_poll`, `jobs_for_later_keep_nobody_waiting_and_come_in_their_time` |
//! | workers at once, and slots of one worker, take distinct rows | `two_workers_share_five_hundred_jobs_and_run_each_once`, `run_counts_are_exact_and_the_journal_has_no_gap` |
//! | the kinds asked for are the registered ones below their caps | `a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others` |
//!
//! ## Concurrency
//!
//! | the model | shown by |
//! |---|---|
//! | N is the one knob for it | `a_worker_fills_its_slots_and_claims_no_more`, `no_slots_count_as_one` |
//! | how to choose N for waiting, computing and gated work | advice to users; nothing to show |
//! | by default half the cores, from 1 to 8 | `the_default_concurrency_leaves_half_the_cores_alone`, `config::the_default_concurrency_is_half_the_cores_from_one_to_eight` |
//! | a handler that blocks its thread harms no lease | `a_handler_that_keeps_its_thread_busy_keeps_its_claim` |
//!
//! ## Caps
//!
//! | the model | shown by |
//! |---|---|
//! | a kind may have a cap below N | `a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others` |
//! | it is set when the kind is registered | `a_cap_holds_within_each_worker` |
//! | and counts within one worker: two workers run twice as many | `a_cap_holds_within_each_worker` |
//! | a kind at its cap is not asked for until one of its runs is settled | `a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others`, `engine::a_kind_at_its_cap_stays_pending_and_delays_no_other` |
//! | its jobs stay pending, without slot or lease | `a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others` |
//! | other kinds run beside it as if it were not there | `a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others` |
//! | the cap costs no index and no table | `statement::a_kind_is_claimed_only_up_to_its_room_and_a_claim_up_to_what_it_wants` |
//!
//! ## Wake-up and waiting
//!
//! | the model | shown by |
//! |---|---|
//! | woken by the end of a handler | `a_full_worker_looks_as_soon_as_a_handler_ends` |
//! | … by a notification on a connection of its own | `an_idle_worker_is_woken_by_each_job`, `a_listener_that_was_cut_off_listens_again_and_has_missed_nothing` |
//! | … when the next job is due, or `poll_max` is over | `a_delayed_job_starts_when_it_is_due_and_needs_no_poll`, `a_job_that_nobody_was_told_of_is_found_by_the_next_poll` |
//! | … by the shutdown signal | `an_idle_worker_stops_at_once` |
//! | each write that makes a job claimable notifies | `each_write_that_makes_a_job_claimable_notifies`, `what_one_worker_puts_back_another_takes_at_once` |
//! | for later work when it is written, not when it is due | `each_write_that_makes_a_job_claimable_notifies` |
//! | which makes the others reckon anew when to wake | `jobs_for_later_keep_nobody_waiting_and_come_in_their_time` |
//! | the nearest due job wakes the loop exactly then | `a_delayed_job_starts_when_it_is_due_and_needs_no_poll`, `engine::a_delayed_job_starts_when_it_is_due_without_a_poll`, `engine::a_job_for_later_is_not_forgotten_for_an_answer_that_is_older_than_its_notification` |
//! | looking it up is cheap | `statement::hot_statements_use_their_indexes_on_ten_thousand_rows_analysed_or_not`, `engine::an_idle_worker_asks_at_most_three_times_in_poll_max` |
//! | a lost notification costs at most `poll_max` | `a_job_that_nobody_was_told_of_is_found_by_the_next_poll`, `engine::a_lost_notification_delays_a_job_by_at_most_poll_max` |
//! | (DESIGN) a foreign kind's notification costs nothing | `a_kind_that_nobody_here_runs_wakes_nobody`, `engine::a_notification_starts_a_job_at_once_and_a_foreign_one_costs_nothing` |
//! | … and is not sent, where no worker waits for it | `a_kind_that_no_worker_runs_is_told_to_nobody`, `statement::news_of_a_kind_are_told_if_somebody_is_interested_in_it_and_else_not`, `engine::a_job_that_is_enqueued_while_a_worker_begins_to_listen_starts_at_once` |
//! | (DESIGN) without LISTEN it polls | `a_worker_that_may_not_listen_polls` |
//!
//! ## Settlement
//!
//! | the model | shown by |
//! |---|---|
//! | the loop settles what a handler returned: completed | `a_job_runs_once_and_completes` |
//! | … paused | `a_paused_job_goes_on_in_its_time_with_what_it_carried`, `a_pause_of_no_time_is_claimable_at_once` |
//! | … retried | `a_failing_job_waits_longer_each_time_and_dies_at_the_backstop`, `a_failed_run_hands_its_carry_on_and_a_finished_one_does_not` |
//! | … dead | `a_permanent_error_is_dead_at_once`, `the_default_backstop_is_twenty_failures`, `without_a_backstop_a_job_never_dies_of_its_failures` |
//! | a panic is a failed run | `a_handler_may_panic_with_a_text`, `a_handler_may_panic_with_a_formatted_text`, `a_handler_may_panic_after_it_has_waited` |
//! | it is caught at the task's boundary, whatever panics | `a_handler_may_panic_before_it_has_begun`, `a_handler_may_panic_with_something_that_is_not_text`, `a_handler_may_panic_with_something_that_panics_when_dropped`, `a_task_may_panic_when_it_is_dropped`, `a_carry_may_panic_when_it_is_written`, `a_carry_may_panic_when_it_is_dropped`, `an_error_may_panic_when_it_is_dropped`, `what_a_handler_holds_may_panic_when_it_is_dropped`, `what_a_worker_was_given_may_panic_when_it_is_dropped`, `the_default_of_a_carry_may_panic`, `decoding_a_task_may_panic`, `a_panic_on_top_of_a_panic_does_not_end_the_process`, `a_policy_that_panics_is_found_when_the_worker_is_built`, `a_logger_that_panics_stops_no_worker`, `a_spawner_that_panics_ends_the_worker` |
//! | and disturbs no other run | `one_panic_of_many_runs_at_once_disturbs_none_of_the_others` |
//! | what it changed is discarded, the retry has the carry from before | `a_handler_may_panic_with_a_text` |
//! | it is retried with backoff up to the backstop | `a_panic_is_retried_with_backoff`, `the_default_of_a_carry_may_panic` |
//! | or dead at once, if the worker is set so | `a_panic_is_dead_at_once_if_the_policy_says_so`, `engine::a_panic_is_retried_or_dead_as_the_policy_says` |
//! | where panics abort, the process is gone and the lease brings the job back | `where_a_panic_ends_the_process_the_lease_brings_the_job_back` |
//! | results are stored only while the claim is this worker's | `a_result_is_refused_once_another_has_claimed_the_job`, `without_renewal_a_lease_ends_in_its_time` |
//! | so is a release | `a_job_that_another_has_by_now_is_neither_settled_nor_released`, `statement::a_result_is_refused_unless_the_claim_is_still_this_runs`, `engine::whatever_goes_wrong_every_rule_holds` |
//! | a slow handler cannot settle what another has claimed since | `a_worker_that_slept_past_its_lease_learns_that_its_claim_is_lost`, `a_handler_whose_claim_is_lost_is_told_so` |
//! | (DESIGN) no content keeps a result from being stored | `nul_in_text_attachment_and_carry_keeps_no_result_from_being_stored`, `a_megabyte_of_error_text_is_cut_and_says_so`, `a_carry_that_cannot_be_written_leaves_the_stored_one_and_says_so`, `an_attachment_that_is_too_large_is_refused_and_the_earlier_one_stays`, `a_result_that_the_server_refuses_is_kept_until_it_is_taken` |
//! | (DESIGN) undecodable jobs | `an_undecodable_job_waits_as_long_as_it_may_and_bothers_no_other`, `an_undecodable_job_is_dead_at_once_if_the_policy_says_so`, `an_undecodable_job_dies_at_the_backstop`, `an_undecodable_carry_is_kept_as_it_was` |
//! | (DESIGN) time-outs | `a_run_that_takes_too_long_is_a_failure`, `a_worker_may_limit_all_its_runs`, `engine::a_future_that_ignores_its_time_out_is_not_put_back_while_it_runs` |
//! | (DESIGN) what a context tells, stores and holds | `a_context_tells_what_the_row_says`, `a_checkpoint_outlives_a_panic`, `a_checkpoint_is_refused_once_another_has_claimed_the_job`, `a_checkpoint_that_cannot_be_written_is_an_error_of_its_own`, `a_handler_can_read_what_became_of_earlier_runs`, `a_run_that_is_held_has_not_ended`, `a_long_history_does_not_slow_the_start` |
//! | (DESIGN) a handler completes its job in a transaction of its own | `a_completion_is_there_with_its_effects_or_not_at_all`, `a_completion_is_refused_once_another_has_claimed_the_job`, `a_transaction_that_outlives_its_lease_keeps_its_job` |
//! | … once committed, that stands | `a_job_that_was_completed_stays_completed_whatever_its_handler_does_then`, `a_commit_whose_reply_was_lost_is_not_done_twice`, `a_worker_that_is_killed_after_the_commit_has_done_everything` |
//! | … not committed, it is as if it had not been tried | `a_completion_that_was_not_committed_makes_the_run_a_failure`, `a_worker_that_is_killed_before_the_commit_has_done_nothing` |
//!
//! ## Stale claims
//!
//! | the model | shown by |
//! |---|---|
//! | delivery is at least once: the job of a dead worker runs again | `a_killed_workers_job_is_run_again_when_its_lease_is_over`, `a_job_whose_worker_died_is_run_again_as_a_failure` |
//! | a claim is stamped with its expiry, and recovered when that is past | `a_claim_lasts_as_long_as_its_kind_asks_or_else_the_worker`, `a_claim_that_has_not_run_out_is_left_alone` |
//! | a quarter of an hour, or what the worker or the kind says | `a_claim_lasts_as_long_as_its_kind_asks_or_else_the_worker`, `statement::each_claim_gets_the_lease_of_its_kind` |
//! | only time decides, no look at processes | `a_worker_that_slept_past_its_lease_learns_that_its_claim_is_lost`, `a_claim_that_has_not_run_out_is_left_alone` |
//! | recovery is a failure, with an entry that names lease and worker | `a_job_whose_worker_died_is_run_again_as_a_failure` |
//! | it counts towards the backstop | `a_job_at_its_backstop_dies_of_its_lost_lease` |
//! | and waits, so that a crash does not spread at once | `a_recovered_job_does_not_come_back_at_once` |
//! | the carry is the last one stored | `a_job_whose_worker_died_is_run_again_as_a_failure`, `a_checkpoint_outlives_a_panic` |
//! | recovery comes before every claim, needs no process of its own | `a_claim_of_a_kind_that_nobody_here_runs_is_recovered_too`, `engine::a_job_whose_worker_died_is_run_again_within_its_lease_and_two_seconds` |
//! | it can be done by hand | `expired_claims_can_be_recovered_through_the_queue` |
//! | (DESIGN) leases are renewed while the handler runs | `a_handler_that_outlives_its_lease_runs_once_beside_a_live_peer`, `a_renewal_whose_reply_was_lost_costs_nothing` |
//! | (DESIGN) or not, if the worker is set so | `without_renewal_a_lease_ends_in_its_time` |
//! | (DESIGN) a malformed row stops no other | `a_malformed_row_keeps_no_other_from_running` |
//!
//! ## Shutdown
//!
//! | the model | shown by |
//! |---|---|
//! | a programmatic signal; no signal handlers of its own | `an_idle_worker_stops_at_once`, `no_signal_handler_is_installed` |
//! | no more claims | `a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more`, `a_worker_that_is_told_to_stop_before_it_starts_runs_nothing` |
//! | every handler sees the signal, by asking or by waiting | `a_handler_may_ask_for_the_signal_instead_of_waiting_for_it`, `a_handler_that_heeds_the_signal_pauses_and_loses_nothing` |
//! | and has `shutdown_timeout` to end, 30 s by default | `a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more`, `engine::by_default_a_worker_waits_half_a_minute_for_a_poll_and_for_its_handlers` |
//! | a pause stores its carry the usual way | `a_handler_that_heeds_the_signal_pauses_and_loses_nothing` |
//! | after that time handlers are aborted and their jobs released | `a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped`, `a_future_that_never_yields_is_left_claimed` |
//! | (DESIGN) but never a thread | `a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped` |
//! | a release is no failure | `a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped` |
//! | it has an entry of its own and is claimable at once | `a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped`, `each_write_that_makes_a_job_claimable_notifies` |
//! | which differs from what a crash leaves | `a_job_whose_worker_died_is_run_again_as_a_failure` |
//! | at the end the connections are closed and `run` returns | `a_stopped_worker_leaves_no_connection`, `an_idle_worker_stops_at_once` |
//! | (DESIGN) also without a server, or with cut connections | `a_worker_without_a_server_stops_when_it_is_told_to`, `a_stopping_worker_whose_connections_are_cut_still_stores_its_results` |
//! | (DESIGN) also when the future is dropped | `a_worker_whose_future_is_dropped_gives_its_jobs_back` |
//!
//! ## Priorities
//!
//! | the model | shown by |
//! |---|---|
//! | three tiers, Normal unless said otherwise | `a_job_without_a_priority_is_normal`, `jobs_are_claimed_by_priority_then_age` |
//! | lower tiers do not starve, by default | `by_default_high_priorities_get_three_quarters` |
//! | a counter of claims lowers the floor in a rhythm | `rotation::one_slot_at_a_time_each_priority_gets_its_turn_within_r_squared_claims`, `rotation::at_first_each_priority_starts_within_r_squared_slots_however_many_are_free`, `every_tier_gets_its_share_while_all_have_a_backlog` |
//! | each tier is favoured over the next by about the ratio | `engine::shares_follow_the_ratio_under_saturation`, `sixteen_slots_are_shared_in_the_promised_parts`, `rotation::a_saturated_queue_is_shared_in_the_promised_parts` |
//! | a reserved slot that finds nothing is used for anything | `a_slot_reserved_for_a_tier_without_jobs_is_not_wasted` |
//! | the floor uses the index of the claim | `statement::a_floor_keeps_more_urgent_jobs_out`, `statement::hot_statements_use_their_indexes_on_ten_thousand_rows_analysed_or_not` |
//! | without a ratio priorities are strict | `without_a_ratio_lower_priorities_wait_for_all_higher_ones` |
//!
//! ## Resilience
//!
//! | the model | shown by |
//! |---|---|
//! | no passing database error ends the loop | `a_server_that_is_away_for_twenty_seconds_ends_nobody`, `a_server_that_takes_no_writes_is_refused_and_waited_for`, `connections_that_are_cut_all_the_time_lose_and_double_nothing` |
//! | failed claims are tried again, with growing waits | `a_claim_that_the_server_refuses_is_tried_again`, `engine::failed_statements_are_retried_with_growing_waits_and_nothing_is_lost` |
//! | so are failed settlements | `results_wait_for_a_server_that_takes_none_for_a_while`, `a_connection_that_is_cut_while_it_settles_leaves_one_result` |
//! | the listener connects again, polling covers the gap | `a_listener_that_was_cut_off_listens_again_and_has_missed_nothing`, `a_worker_that_cannot_listen_at_first_listens_when_it_can`, `connections_that_are_cut_while_idle_come_back` |
//! | a settlement that comes too late is dropped, not repeated | `a_result_is_refused_once_another_has_claimed_the_job` |
//! | (DESIGN) lost replies | `a_claim_whose_reply_was_lost_is_no_failure_and_runs_soon`, `a_result_whose_reply_was_lost_is_stored_once`, `a_renewal_whose_reply_was_lost_costs_nothing` |
//! | (DESIGN) cuts under a running handler | `connections_that_are_cut_under_a_running_handler_cost_it_nothing` |
//!
//! ## Dedup and merge
//!
//! | the model | shown by |
//! |---|---|
//! | a key per value, none by default; it can be given with the job | `a_running_job_and_one_that_has_ended_are_nobodys_like`, `offer::a_key_can_be_given_with_the_job` |
//! | one pending job stands for all of a kind with its key: the oldest | `the_oldest_pending_job_is_the_one_that_is_merged_into` |
//! | claimed, completed, dead and cancelled ones never | `a_running_job_and_one_that_has_ended_are_nobodys_like` |
//! | also one that is for later, pauses, or waits after a failure | `an_immediate_job_that_is_merged_into_a_later_one_starts_at_once`, `merging_spares_what_a_job_has_done_and_replacing_forgives_it` |
//! | keep, replace, merge or go beside it; replace by default | `each_way_of_merging_leaves_what_it_says`, `a_task_that_says_nothing_takes_the_place_of_its_like` |
//! | merging keeps number, age, run count and journal, and adds an entry | `each_way_of_merging_leaves_what_it_says`, `merging_spares_what_a_job_has_done_and_replacing_forgives_it` |
//! | replacing starts anew: no failures, the default carry | `merging_spares_what_a_job_has_done_and_replacing_forgives_it` |
//! | the earlier due time wins, and wakes a worker | `an_immediate_job_that_is_merged_into_a_later_one_starts_at_once`, `a_merge_that_wakes_somebody_notifies_and_no_other` |
//! | so does a more urgent priority | `a_merge_that_wakes_somebody_notifies_and_no_other` |
//! | the caller learns which job stands for its task, and how | `each_way_of_merging_leaves_what_it_says` |
//! | atomic: any number of first enqueues at once leave one job | `twenty_first_enqueues_of_a_key_leave_one_job`, `two_hundred_first_enqueues_of_a_key_leave_one_job`, `statement::twenty_sessions_that_enqueue_one_key_for_the_first_time_leave_one_job` |
//! | no deadlock, also in bulk | `many_keys_in_opposite_orders_end_in_one_job_for_each`, `jobs_that_are_stored_together_merge_in_their_order` |
//! | optimistic: a decision about a job that has changed is made anew | `a_merge_while_the_job_runs_and_pauses_loses_nothing`, `sixteen_producers_and_four_workers_count_exactly`, `offer::whatever_the_order_of_events_each_amount_is_counted_once`, `statement::a_round_that_finds_what_it_did_not_expect_writes_nothing_and_shows_it` |
//! | … and given up after many times | `offer::a_job_that_changes_all_the_time_is_given_up` |
//! | a panic is the caller's error | `a_panic_in_merge_is_its_callers_error_and_nobody_elses` |
//! | a job that this code cannot read is left alone, and blocks nobody | `a_pending_job_that_cannot_be_read_is_left_alone_and_blocks_nobody` |
//! | who holds a key holds up nobody who wants another | `a_key_that_another_transaction_has_keeps_only_its_own_callers_waiting`, `producer::a_key_that_another_transaction_has_is_tried_again_and_keeps_nobody_else_waiting` |
//! | keys are checked | `a_key_that_makes_no_sense_is_refused`, `statement::what_makes_no_sense_is_refused_by_name` |
//! | the same from SQL | `what_sql_enqueues_is_merged_like_everything_else`, `statement::a_job_is_enqueued_with_two_words_of_sql` |
//! | (DESIGN) enqueues in callers' transactions | `a_job_in_a_transaction_starts_with_the_commit_and_not_before`, `a_job_with_a_key_merges_inside_the_transaction`, `a_job_with_a_key_needs_read_committed`, `keys_in_opposite_orders_end_in_an_error_and_not_in_a_hang` |
//!
//! ## Identity
//!
//! | the model | shown by |
//! |---|---|
//! | `host:pid` (and a suffix) in every claim | `a_worker_signs_its_claims_with_host_process_and_a_suffix`, `a_worker_may_have_a_name_of_its_own` |
//! | for people and journal entries only | `a_job_whose_worker_died_is_run_again_as_a_failure`, `a_claim_that_has_not_run_out_is_left_alone` |
//!
//! ## Knobs and construction
//!
//! | the model | shown by |
//! |---|---|
//! | all knobs are set when the worker is built | every [`front::WorkerSpec`] of this suite |
//! | `concurrency`, `lease`, `priority_ratio`, `claimed_by`: their defaults | `the_default_concurrency_leaves_half_the_cores_alone`, `a_claim_lasts_as_long_as_its_kind_asks_or_else_the_worker`, `by_default_high_priorities_get_three_quarters`, `a_worker_signs_its_claims_with_host_process_and_a_suffix` |
//! | `poll_max` and `shutdown_timeout`: 30 s | `engine::by_default_a_worker_waits_half_a_minute_for_a_poll_and_for_its_handlers`, `config::what_is_not_set_has_the_documented_default` |
//! | odd values | `no_time_at_all_is_as_little_as_is_possible`, `absurdly_long_times_are_cut_and_work`, `values_without_a_meaning_are_refused_by_name` |
//! | one worker, one state, any number of tasks | `a_context_tells_what_the_row_says`, `only_registered_kinds_are_claimed` |
//! | registering teaches a kind and widens the filter | `only_registered_kinds_are_claimed`, `a_worker_without_kinds_is_refused`, `a_kind_that_is_registered_twice_is_refused_with_both_its_types` |
//! | a cap can be given with it | `a_cap_holds_within_each_worker` |
//! | `run` works until the signal, drains and returns | `a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more` |
//! | the example of the model | the doctests of both front-ends |
//!
//! ## Control and history
//!
//! | what is asked | shown by |
//! |---|---|
//! | cancel: pending at once | `a_pending_job_is_cancelled_at_once`, `a_job_whose_row_is_held_is_cancelled_when_it_is_free` |
//! | … running: within a second, at the latest by the next renewal | `a_running_job_hears_within_a_second_that_it_shall_end`, `engine::a_cancellation_whose_notification_was_lost_is_found_by_the_next_renewal` |
//! | … at no cost to others | `engine::cancellations_of_other_workers_cost_a_worker_nothing` |
//! | … completed if it completes, else cancelled | `a_job_that_completes_although_it_is_cancelled_is_completed` |
//! | … told of as its row says | `a_run_whose_job_was_cancelled_is_told_of_as_its_row_says`, `what_became_of_a_job_whose_lease_ran_out_is_told_as_its_row_says`, `engine::a_run_whose_job_was_cancelled_is_told_of_as_cancelled_whatever_it_has_left` |
//! | requeue: runs go on, failures are forgiven | `a_dead_job_that_is_requeued_runs_at_once_with_a_fresh_budget`, `statement::a_requeued_job_keeps_its_runs_and_forgets_its_failures` |
//! | … a dedup key that is taken | `a_requeued_job_whose_key_is_taken_stays_as_it_is`, `statement::a_key_that_is_being_enqueued_is_busy` |
//! | pause and resume a kind | `a_paused_kind_waits_and_a_resumed_one_starts_at_once`, `a_paused_kind_keeps_an_idle_worker_idle` |
//! | by filter, in batches | `many_jobs_are_cancelled_and_requeued_by_filter`, `running_jobs_are_cancelled_by_filter`, `errand::what_is_done_to_many_is_done_in_batches_and_added_up` |
//! | a job, its journal | `a_job_can_be_looked_at_in_every_state`, `a_long_journal_comes_in_pages` |
//! | pages without gap or repetition | `a_listing_goes_on_where_it_ended_whatever_happens_meanwhile`, `errand::pages_follow_each_other_without_a_gap_and_the_last_one_says_so` |
//! | filters, limits, nonsense | `a_listing_shows_what_fits`, `a_row_that_makes_no_sense_hides_no_other`, `errand::input_that_cannot_be_meant_is_refused_before_anything_is_asked` |
//! | counts of one instant | `counts_tell_what_there_is_of_each_kind`, `statement::counts_are_of_one_instant_and_by_kind` |
//! | cleanup and retention | `old_jobs_are_deleted_by_status_and_age`, `a_worker_may_delete_old_jobs_by_itself`, `a_worker_may_keep_no_completed_jobs`, `engine::sweeping_delays_no_claim` |
//! | bounded beside a million finished jobs | `statement::history_costs_what_it_returns_beside_a_million_finished_jobs` |

#![allow(dead_code, unused_imports, reason = "each mount uses a part of this module")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests: real servers are waited for by the real clock, and what goes wrong shall be loud"
)]

use std::path::Path;
use std::time::Duration;

#[path = "../cluster/mod.rs"]
mod cluster;

pub(crate) mod front;
pub(crate) mod lab;
pub(crate) mod probe;

mod aborting;
mod child;
pub(crate) mod effects;
mod interest;
mod place;
mod proxy;
mod purse;
mod stage;

pub(crate) mod bad_input;
pub(crate) mod claiming;
pub(crate) mod context;
pub(crate) mod contract;
pub(crate) mod control;
pub(crate) mod diagnosis;
#[cfg(feature = "tls")]
pub(crate) mod encryption;
pub(crate) mod enqueueing;
#[cfg(feature = "async")]
pub(crate) mod futures;
pub(crate) mod history;
pub(crate) mod hostile;
pub(crate) mod leases;
pub(crate) mod lost_replies;
pub(crate) mod merging;
pub(crate) mod migrating;
pub(crate) mod observing;
pub(crate) mod panics;
pub(crate) mod pooling;
pub(crate) mod priorities;
pub(crate) mod resilience;
pub(crate) mod settling;
pub(crate) mod shutdown;
pub(crate) mod surrounding;
pub(crate) mod transactions;
pub(crate) mod waiting;

pub(crate) use child::serve;

/// How long anything is waited for that has to come. Long, because the machine may be busy; nothing passes by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Mounts bodies as tests of the module it is used in, which has a function `front`: `all` of them, or the `brief`
/// selection for another arrangement of the same executor; and once for each front-end the `slow` ones, which take long
/// or much and have nothing to do with executors.
macro_rules! bodies {
    (all) => {
        $crate::suite::bodies!(brief);
        $crate::suite::bodies! { tests:
            claiming: [
                a_job_without_a_priority_is_normal,
                claimed_rows_never_exceed_the_slots_and_each_of_them_runs,
                a_cap_holds_within_each_worker,
                two_workers_share_five_hundred_jobs_and_run_each_once,
                a_row_that_somebody_has_locked_keeps_nobody_waiting,
                a_claim_lasts_as_long_as_its_kind_asks_or_else_the_worker,
                a_worker_signs_its_claims_with_host_process_and_a_suffix,
                a_worker_may_have_a_name_of_its_own,
                the_default_concurrency_leaves_half_the_cores_alone,
                a_large_payload_comes_back_whole,
            ]
            waiting: [
                jobs_for_later_keep_nobody_waiting_and_come_in_their_time,
                a_job_that_nobody_was_told_of_is_found_by_the_next_poll,
                a_listener_that_was_cut_off_listens_again_and_has_missed_nothing,
                a_worker_that_may_not_listen_polls,
                what_one_worker_puts_back_another_takes_at_once,
                a_kind_that_nobody_here_runs_wakes_nobody,
                a_kind_that_no_worker_runs_is_told_to_nobody,
            ]
            priorities: [
                without_a_ratio_lower_priorities_wait_for_all_higher_ones,
                every_tier_gets_its_share_while_all_have_a_backlog,
                a_slot_reserved_for_a_tier_without_jobs_is_not_wasted,
            ]
            settling: [
                a_waiting_retry_shows_when_it_is_due,
                a_kind_may_have_a_backoff_of_its_own,
                without_a_backstop_a_job_never_dies_of_its_failures,
                the_default_backstop_is_twenty_failures,
                a_pause_of_no_time_is_claimable_at_once,
                a_failed_run_hands_its_carry_on_and_a_finished_one_does_not,
                a_megabyte_of_error_text_is_cut_and_says_so,
                an_attachment_that_is_too_large_is_refused_and_the_earlier_one_stays,
                an_undecodable_job_waits_as_long_as_it_may_and_bothers_no_other,
                an_undecodable_job_is_dead_at_once_if_the_policy_says_so,
                an_undecodable_job_dies_at_the_backstop,
                an_undecodable_carry_is_kept_as_it_was,
                a_worker_may_limit_all_its_runs,
            ]
            panics: [
                a_handler_may_panic_with_a_formatted_text,
                a_handler_may_panic_with_something_that_is_not_text,
                a_panic_is_dead_at_once_if_the_policy_says_so,
                a_panic_is_retried_with_backoff,
                a_policy_that_panics_is_found_when_the_worker_is_built,
            ]
            observing: [
                an_observer_hears_what_became_of_each_run,
            ]
            surrounding: [
                layers_surround_each_run_in_their_order_and_see_its_result,
                a_layer_may_replace_the_result,
                a_panic_in_a_layer_is_the_runs_and_outer_layers_see_it,
                layers_of_a_run_that_is_dropped_are_dropped_with_it,
            ]
            context: [
                a_checkpoint_is_refused_once_another_has_claimed_the_job,
                a_checkpoint_that_cannot_be_written_is_an_error_of_its_own,
            ]
            leases: [
                a_recovered_job_does_not_come_back_at_once,
                expired_claims_can_be_recovered_through_the_queue,
                what_became_of_a_job_whose_lease_ran_out_is_told_as_its_row_says,
                a_job_at_its_backstop_dies_of_its_lost_lease,
                a_claim_of_a_kind_that_nobody_here_runs_is_recovered_too,
                a_malformed_row_keeps_no_other_from_running,
                a_claim_that_has_not_run_out_is_left_alone,
                a_killed_workers_job_is_run_again_when_its_lease_is_over,
                a_worker_that_slept_past_its_lease_learns_that_its_claim_is_lost,
                where_a_panic_ends_the_process_the_lease_brings_the_job_back,
                a_logger_that_panics_stops_no_worker,
            ]
            resilience: [
                a_second_connection_settles_and_losing_it_costs_no_job,
                connections_that_are_cut_while_idle_come_back,
                connections_that_are_cut_all_the_time_lose_and_double_nothing,
                a_connection_that_is_cut_while_it_settles_leaves_one_result,
                a_claim_that_the_server_refuses_is_tried_again,
                a_result_that_the_server_refuses_is_kept_until_it_is_taken,
                results_wait_for_a_server_that_takes_none_for_a_while,
                a_worker_that_cannot_listen_at_first_listens_when_it_can,
            ]
            lost_replies: [
                a_claim_whose_reply_was_lost_is_no_failure_and_runs_soon,
                a_result_whose_reply_was_lost_is_stored_once,
                a_renewal_whose_reply_was_lost_costs_nothing,
            ]
            transactions: [
                a_completion_is_refused_once_another_has_claimed_the_job,
                many_jobs_in_a_transaction_are_all_there_or_none,
                a_client_that_is_in_no_transaction_enqueues_all_the_same,
                a_job_with_a_key_merges_inside_the_transaction,
                keys_in_opposite_orders_end_in_an_error_and_not_in_a_hang,
                a_key_that_stays_taken_is_given_up,
                many_keys_in_opposite_orders_wait_for_each_other_in_one_order,
                an_enqueue_that_fails_leaves_the_transaction_usable,
                a_commit_whose_reply_was_lost_is_not_done_twice,
                a_checkpoint_after_a_completion_is_refused,
                a_handler_that_hangs_after_its_commit_is_stopped_and_its_job_stays_completed,
                a_transaction_that_outlives_its_lease_keeps_its_job,
                a_worker_that_is_killed_after_the_commit_has_done_everything,
                a_worker_that_is_killed_before_the_commit_has_done_nothing,
            ]
            shutdown: [
                a_handler_may_ask_for_the_signal_instead_of_waiting_for_it,
                a_stopped_worker_leaves_no_connection,
                no_signal_handler_is_installed,
                a_worker_without_a_server_stops_when_it_is_told_to,
                a_stopping_worker_whose_connections_are_cut_still_stores_its_results,
            ]
            migrating: [
                callers_who_migrate_at_once_take_turns,
                a_migration_that_is_cut_half_way_leaves_nothing_behind,
                a_newer_schema_that_allows_it_is_worked_with,
                a_newer_schema_that_does_not_is_refused,
                a_schema_may_have_any_name_that_postgresql_takes,
                a_role_that_may_not_create_is_told_so,
                a_role_that_may_not_use_the_tables_is_told_so,
                a_role_with_strange_defaults_is_served_all_the_same,
            ]
            enqueueing: [
                many_callers_share_one_queue,
                jobs_that_are_stored_together_keep_their_order,
                a_queue_whose_connection_was_cut_connects_again,
                any_number_of_jobs_is_stored_while_it_is_pulled,
                what_is_stored_of_many_is_said_so_that_a_caller_can_go_on,
                a_batch_whose_answer_was_lost_is_in_doubt_and_no_later_one_is_stored,
                a_call_that_the_server_takes_too_late_is_not_stored,
                calls_beyond_what_may_wait_are_refused_at_once,
                a_job_is_due_at_the_instant_it_was_given,
                a_job_without_a_type_is_stored_and_run_like_any_other,
                a_quiet_queue_tells_nobody,
            ]
            merging: [
                a_task_that_says_nothing_takes_the_place_of_its_like,
                jobs_that_are_stored_together_merge_in_their_order,
                a_running_job_and_one_that_has_ended_are_nobodys_like,
                the_oldest_pending_job_is_the_one_that_is_merged_into,
                a_payload_that_merging_makes_large_comes_back_whole,
                a_merge_that_wakes_somebody_notifies_and_no_other,
                a_key_that_makes_no_sense_is_refused,
                a_key_that_another_transaction_has_keeps_only_its_own_callers_waiting,
                what_sql_enqueues_is_merged_like_everything_else,
            ]
            control: [
                a_job_whose_row_is_held_is_cancelled_when_it_is_free,
                a_requeued_job_whose_key_is_taken_stays_as_it_is,
                a_paused_kind_keeps_an_idle_worker_idle,
                many_jobs_are_cancelled_and_requeued_by_filter,
                running_jobs_are_cancelled_by_filter,
                a_run_whose_job_was_cancelled_is_told_of_as_its_row_says,
            ]
            history: [
                a_listing_shows_what_fits,
                a_row_that_makes_no_sense_hides_no_other,
                a_long_journal_comes_in_pages,
                old_jobs_are_deleted_by_status_and_age,
                a_worker_may_delete_old_jobs_by_itself,
            ]
            bad_input: [
                without_a_server_a_call_says_so_and_a_worker_waits,
                a_wrong_password_is_an_error_that_names_no_password,
                an_unknown_user_is_an_error,
                an_unknown_database_is_an_error_that_names_it,
                a_malformed_dsn_is_an_error_that_repeats_no_secret,
                a_worker_without_kinds_is_refused,
                a_kind_that_is_registered_twice_is_refused_with_both_its_types,
                no_slots_count_as_one,
                values_without_a_meaning_are_refused_by_name,
                a_payload_that_is_too_large_is_refused_and_the_queue_goes_on,
                a_queue_takes_payloads_as_large_as_it_was_told,
                instants_that_nobody_means_are_brought_into_range,
            ]
        }
    };
    (brief) => {
        $crate::suite::bodies! { tests:
            claiming: [
                a_job_runs_once_and_completes,
                a_context_tells_what_the_row_says,
                only_registered_kinds_are_claimed,
                jobs_are_claimed_by_priority_then_age,
                a_worker_with_one_slot_is_strictly_serial,
                a_worker_fills_its_slots_and_claims_no_more,
                a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others,
                run_counts_are_exact_and_the_journal_has_no_gap,
            ]
            waiting: [
                an_idle_worker_is_woken_by_each_job,
                a_delayed_job_starts_when_it_is_due_and_needs_no_poll,
                each_write_that_makes_a_job_claimable_notifies,
                a_full_worker_looks_as_soon_as_a_handler_ends,
            ]
            settling: [
                a_failing_job_waits_longer_each_time_and_dies_at_the_backstop,
                a_permanent_error_is_dead_at_once,
                a_paused_job_goes_on_in_its_time_with_what_it_carried,
                nul_in_text_attachment_and_carry_keeps_no_result_from_being_stored,
                a_carry_that_cannot_be_written_leaves_the_stored_one_and_says_so,
                a_result_is_refused_once_another_has_claimed_the_job,
                a_run_that_takes_too_long_is_a_failure,
            ]
            panics: [
                a_handler_may_panic_with_a_text,
                a_handler_may_panic_with_something_that_panics_when_dropped,
                a_handler_may_panic_before_it_has_begun,
                a_handler_may_panic_after_it_has_waited,
                a_task_may_panic_when_it_is_dropped,
                a_carry_may_panic_when_it_is_written,
                a_carry_may_panic_when_it_is_dropped,
                an_error_may_panic_when_it_is_dropped,
                what_a_handler_holds_may_panic_when_it_is_dropped,
                what_a_worker_was_given_may_panic_when_it_is_dropped,
                the_default_of_a_carry_may_panic,
                decoding_a_task_may_panic,
                one_panic_of_many_runs_at_once_disturbs_none_of_the_others,
            ]
            context: [
                a_checkpoint_outlives_a_panic,
                a_handler_can_read_what_became_of_earlier_runs,
                a_run_that_is_held_has_not_ended,
                each_run_gets_the_trace_context_that_its_job_was_given,
                a_job_in_a_transaction_has_its_own_trace_context_or_the_transactions,
            ]
            leases: [
                a_job_whose_worker_died_is_run_again_as_a_failure,
                a_handler_that_outlives_its_lease_runs_once_beside_a_live_peer,
                a_handler_that_keeps_its_thread_busy_keeps_its_claim,
                without_renewal_a_lease_ends_in_its_time,
                a_worker_whose_interest_is_refused_again_and_again_keeps_its_claims,
                a_handler_whose_claim_is_lost_is_told_so,
                a_panic_on_top_of_a_panic_does_not_end_the_process,
            ]
            resilience: [
                connections_that_are_cut_under_a_running_handler_cost_it_nothing,
            ]
            transactions: [
                a_job_in_a_transaction_starts_with_the_commit_and_not_before,
                a_job_with_a_key_needs_read_committed,
                a_completion_is_there_with_its_effects_or_not_at_all,
                a_job_that_was_completed_stays_completed_whatever_its_handler_does_then,
                a_handler_that_goes_on_after_its_commit_is_left_alone,
                a_completion_that_was_not_committed_makes_the_run_a_failure,
            ]
            shutdown: [
                an_idle_worker_stops_at_once,
                a_worker_that_is_told_to_stop_before_it_starts_runs_nothing,
                a_handler_that_heeds_the_signal_pauses_and_loses_nothing,
                a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more,
                a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped,
            ]
            migrating: [
                what_a_migration_would_do_is_told_before_it_is_done,
                migrating_again_changes_nothing,
                a_schema_that_was_never_migrated_is_refused,
                a_schema_that_lacks_what_is_recorded_is_not_said_to_be_well,
                a_table_migration_of_somebody_else_is_told_of_at_once,
            ]
            merging: [
                twenty_first_enqueues_of_a_key_leave_one_job,
                each_way_of_merging_leaves_what_it_says,
                merging_spares_what_a_job_has_done_and_replacing_forgives_it,
                a_panic_in_merge_is_its_callers_error_and_nobody_elses,
                a_pending_job_that_cannot_be_read_is_left_alone_and_blocks_nobody,
                an_immediate_job_that_is_merged_into_a_later_one_starts_at_once,
                many_keys_in_opposite_orders_end_in_one_job_for_each,
                a_merge_while_the_job_runs_and_pauses_loses_nothing,
                sixteen_producers_and_four_workers_count_exactly,
            ]
            control: [
                a_pending_job_is_cancelled_at_once,
                a_running_job_hears_within_a_second_that_it_shall_end,
                a_job_that_completes_although_it_is_cancelled_is_completed,
                a_dead_job_that_is_requeued_runs_at_once_with_a_fresh_budget,
                a_paused_kind_waits_and_a_resumed_one_starts_at_once,
            ]
            diagnosis: [
                those_who_hold_claims_are_listed,
                the_doctor_finds_indexes_that_are_missing_or_invalid,
                the_doctor_finds_a_schema_that_is_not_as_it_was_made,
                the_doctor_finds_what_others_have_put_on_our_tables,
                the_doctor_finds_tables_whose_rows_are_taken_for_ours,
                the_doctor_finds_that_ids_will_be_given_again,
                the_doctor_tells_of_tables_that_are_missing_although_it_needs_them,
                the_doctor_tells_of_what_has_the_names_of_ours_and_is_something_else,
                the_doctor_finds_that_autovacuum_is_off_for_live,
                the_doctor_finds_leases_that_ran_out,
                the_doctor_finds_kinds_that_nobody_serves,
                the_doctor_tells_which_kinds_are_paused_with_jobs_that_are_due,
                the_doctor_finds_that_live_has_lost_its_own_settings,
                the_doctor_tells_of_a_schema_that_is_newer_than_the_code,
                the_doctor_finds_what_is_wrong_with_a_role,
                the_doctor_tries_whether_a_notification_is_heard,
            ]
            history: [
                a_job_can_be_looked_at_in_every_state,
                a_listing_goes_on_where_it_ended_whatever_happens_meanwhile,
                counts_tell_what_there_is_of_each_kind,
                a_worker_may_keep_no_completed_jobs,
            ]
            hostile: [
                rows_edited_into_nonsense_stall_no_worker,
                an_id_in_both_tables_is_one_job_and_its_run_can_end,
                names_full_of_metacharacters_are_only_names,
                workers_and_queues_need_no_more_than_the_documented_rights,
            ]
            bad_input: [
                no_time_at_all_is_as_little_as_is_possible,
                absurdly_long_times_are_cut_and_work,
            ]
        }

        /// Not a test: what a child process of the tests beside it runs.
        #[test]
        fn child_process() {
            $crate::suite::serve(&front());
        }
    };
    (slow) => {
        $crate::suite::bodies! { tests:
            merging: [
                two_hundred_first_enqueues_of_a_key_leave_one_job,
            ]
            resilience: [
                a_server_that_is_away_for_twenty_seconds_ends_nobody,
                a_claim_that_need_not_be_durable_is_forgotten_in_a_crash_and_made_again,
            ]
            priorities: [
                by_default_high_priorities_get_three_quarters,
                sixteen_slots_are_shared_in_the_promised_parts,
            ]
            context: [
                a_long_history_does_not_slow_the_start,
            ]
            migrating: [
                a_server_that_takes_no_writes_is_refused_and_waited_for,
            ]
        }
    };
    (tests: $($group:ident: [$($body:ident,)*])*) => {
        $($(
            #[test]
            fn $body() {
                $crate::suite::$group::$body(&front());
            }
        )*)*
    };
}
pub(crate) use bodies;

/// The path of the module it is used in, as the test program names its tests.
macro_rules! mount {
    () => {
        module_path!().split_once("::").map_or("", |(_, path)| path)
    };
}
pub(crate) use mount;

/// Names in the table above, and in that of `docs/reliability.md`, that no test has.
pub(crate) fn missing_tests() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["src", "tests"].map(|folder| text_of(&root.join(folder))).concat();
    let table = include_str!("mod.rs").lines().filter(|line| line.starts_with("//! |"));
    let promises = include_str!("../../docs/reliability.md").lines().filter(|line| line.starts_with('|'));
    let names = table.chain(promises).flat_map(|line| line.split('`').skip(1).step_by(2));
    let tests = names.map(|name| name.rsplit("::").next().unwrap_or(name)).filter(|name| name.matches('_').count() > 2);
    tests.filter(|name| !sources.contains(&format!("fn {name}("))).map(str::to_owned).collect()
}

fn text_of(folder: &Path) -> String {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| if path.is_dir() { text_of(&path) } else { std::fs::read_to_string(&path).unwrap() }).collect()
}
