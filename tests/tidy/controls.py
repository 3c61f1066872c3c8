"""The sabotage matrix: each harness, each control that it must catch, and the test that shows that it does (P17)."""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One control.

    Arguments:
        harness: its number in the plan of proofs.
        what: what the harness is about.
        control: the name of what is broken, as its test spells it.
        broken: what is wrong with it.
        test: `file::test` that fails when the control passes.
    """

    harness: str
    what: str
    control: str
    broken: str
    test: str


COMING: Final[dict[str, str]] = {}
"""Harnesses that are being built: as soon as a test names one, its controls must stand below."""

_SUITE: Final = "tests/log/machine/test_false_backends.py::test_the_suite_catches_a_false_backend"
_MACHINE: Final = "tests/log/machine/test_false_backends.py::test_the_machine_catches_a_false_backend"
_ANYWHERE: Final = "tests/crash/test_anywhere.py::test_a_control_is_caught"
_POWER: Final = "tests/power/test_power_loss.py::test_commits_that_are_not_synced_are_caught"
_FAULTS: Final = "tests/power/test_faults.py::test_an_error_that_is_passed_over_is_caught"
_MODEL: Final = "tests/model/test_protocol_model.py::test_a_control_gives_a_readable_counterexample"

_WINDOWS: Final = ("P1", "both windows")
_KILLS: Final = ("P2", "kill anywhere")
_LOSS: Final = ("P3", "power loss")
_SYNCS: Final = ("P5", "sync count")
_IO: Final = ("P7", "I/O faults")
_BACKENDS: Final = ("P14", "backends")
_DECISION: Final = ("P18", "decision boundary")

MATRIX: Final = (
    Row(*_WINDOWS, "two_records", "one record before the call, one after it",
        "tests/crash/test_windows.py::test_a_two_record_protocol_is_caught"),
    Row(*_KILLS, "two_records", "one record before the call, one after it", _ANYWHERE),
    Row(*_KILLS, "decided_late", "`decide()` returns before its record is written", _ANYWHERE),
    Row(*_KILLS, "sent_again", "what may have been sent is sent again, whatever its class says", _ANYWHERE),
    Row(*_KILLS, "sent_again", "as above, seen by the table of kills",
        "tests/crash/test_sweep.py::test_a_poimen_that_sends_against_the_class_is_seen"),
    Row(*_LOSS, "normal_sync", "a commit returns before it is durable", _POWER),
    Row(*_LOSS, "lying_sync", "the disk says that a file is synced, and it is not", _POWER),
    Row("P4", "system calls", "no_folder_sync", "large bodies are renamed, and the names are not synced",
        "tests/power/test_traced.py::test_a_folder_whose_names_are_not_synced_is_caught"),
    Row(*_SYNCS, "batched", "Pending and Dispatched in one commit",
        "tests/crash/test_syncs.py::test_batched_records_are_caught_by_both_counts"),
    Row(*_SYNCS, "batched", "as above, with 64 effects at once",
        "tests/crash/test_syncs.py::test_records_that_share_a_sync_are_caught"),
    Row(*_SYNCS, "two_records", "no Dispatched at all",
        "tests/crash/test_syncs.py::test_records_that_share_a_sync_are_caught"),
    Row("P6", "order", "moved_up", "the tool is entered while its Dispatched is on its way to the disk",
        "tests/crash/test_order.py::test_a_call_that_was_moved_up_is_caught"),
    Row(*_IO, "swallowed", "an error of COMMIT is passed over", _FAULTS),
    Row(*_IO, "sync_retried", "a sync that failed is tried a second time", _FAULTS),
    Row("P8", "bit rot", "chain_off", "every record matches its hash",
        "tests/rot/test_bit_rot.py::test_with_the_chain_off_flips_pass_and_are_seen_to"),
    Row("P9", "kernel tables", "lenient", "a table of attempts that refuses nothing",
        "tests/kernel/test_attempt_table.py::test_a_lenient_table_is_caught"),
    Row("P9", "kernel tables", "lenient", "a table of branches that refuses nothing",
        "tests/kernel/test_branch_table.py::test_a_lenient_table_is_caught"),
    Row("P10", "protocol model", "no_fence", "a driver appends under any epoch", _MODEL),
    Row("P10", "protocol model", "two_records", "the call has no Dispatched", _MODEL),
    Row("P11", "schedules", "checked_then_acted", "a guard asks for a cancel and appends Dispatched a turn later",
        "tests/schedules/test_schedules.py::test_a_check_and_an_act_a_turn_later_are_found_in_the_engine"),
    Row("P11", "schedules", "oversold", "a tool looks at the stock, awaits, then sells",
        "tests/schedules/test_schedules.py::test_a_check_and_an_act_a_turn_later_are_found_in_a_tool"),
    Row(*_BACKENDS, "epoch_unchecked", "a driver whose lease was taken from it still appends", _SUITE),
    Row(*_BACKENDS, "expect_unchecked", "two outsiders answer the same question", _SUITE),
    Row(*_BACKENDS, "seen_unchecked", "a driver has not folded what an outsider said", _SUITE),
    Row(*_BACKENDS, "lsn_gap", "one LSN of each run is never given", _SUITE),
    Row(*_BACKENDS, "feed_skips", "a follower misses the first record behind its cursor", _SUITE),
    Row(*_BACKENDS, "appended_twice", "a record id that is in the log is appended again", _SUITE),
    Row(*_BACKENDS, "rebuilt_otherwise", "heads that are derived anew differ", _SUITE),
    Row(*_BACKENDS, "neighbours_refused", "one refused batch takes its neighbours along", _SUITE),
    Row(*_BACKENDS, "lease_given_twice", "a lease that somebody holds is given out", _SUITE),
    Row(*_BACKENDS, "lost_lease_renewed", "a lease that is lost is said to be prolonged", _SUITE),
    Row(*_BACKENDS, "dead_stay_alive", "the workers of a closed store hold their leases", _SUITE),
    Row(*_BACKENDS, "state_forgotten", "the state of a run does not follow its batches", _SUITE),
    Row(*_BACKENDS, "blob_forgotten", "bodies that ride along are dropped", _SUITE),
    Row(*_BACKENDS, "body_cleaned", "bytes that are no text come back as something else", _SUITE),
    Row(*_BACKENDS, "unchained", "a hash does not cover what stands before it", _SUITE),
    Row(*_BACKENDS, "unknown_acknowledged", "a commit that failed is said to have succeeded", _SUITE),
    Row(*_BACKENDS, "backup_differs", "a backup holds a record more", _SUITE),
    Row(*_BACKENDS, "change_unseen", "what another process commits is not told", _SUITE),
    Row(*_BACKENDS, "every one of the above", "each of them again, against the state machine", _MACHINE),
    Row(*_DECISION, "unsafe_path", "the decision is appended after the first await",
        "tests/promises/test_decision_ledger.py::test_control_the_append_after_the_await_is_caught"),
    Row(*_DECISION, "writes after it waited", "the same in a process that is killed",
        "tests/promises/test_decision_ledger_crashes.py::test_control_a_process_that_writes_after_it_waited_loses_its_line"),
    Row("P17", "this table", "without", "a harness has no row, a test is gone",
        "tests/tidy/test_controls.py::test_a_harness_without_a_row_and_a_test_that_is_gone_are_seen"),
)  # fmt: skip
"""Every control that has been built."""


def table() -> str:
    """The matrix as the page shows it."""
    lines = ["| harness | control | what is broken | test |", "|---|---|---|---|"]
    for row in MATRIX:
        lines.append(f"| {row.harness} {row.what} | `{row.control}` | {row.broken} | `{row.test.partition('::')[2]}` |")
    lines += [f"| {number} {what} | comes with it | | |" for number, what in COMING.items()]
    return "\n".join(lines)
