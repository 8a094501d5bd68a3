"""Each known way to get recovery wrong (reference notes on petals' faults, by number) must fail a scenario.

This shows that the scenarios and the fake swarm can fail; the same scenarios hold for the real code in test_flow.py.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.inference import (  # noqa: E402
    chain,
    flow,
    history,
    rebuild,
    repairs,
    router,
    standby,
    stream,
    views,
    watch,
)
from swarmlab.recovery import bans, blame, dialing, failure, latency, plan  # noqa: E402
from tests.bridge.mutants import broken  # noqa: E402
from tests.bridge.scenarios import SCENARIOS  # noqa: E402


class Mutant(NamedTuple):
    name: str
    module: ModuleType
    edits: list[tuple[str, str]]
    scenario: str


MUTANTS = [
    Mutant(
        "2: all outputs of a replay go on to spans that have seen them",
        flow,
        [
            ("hidden = outputs[:, -entry.n_tokens :]", "hidden = outputs"),
        ],
        "killed_while_it_works",
    ),
    Mutant(
        "3: only the first of several replacements has a history",
        rebuild,
        [
            ("SpanHistory(outputs, n_steps)", "SpanHistory(outputs[:, :1], 0)"),
        ],
        "one_server_is_replaced_by_three",
    ),
    Mutant(
        "4: rows that moved are replayed in their old order",
        history,
        [
            ("if group.rows is not None:", "if False:"),
        ],
        "beams_move_between_rows",
    ),
    Mutant(
        "4: a step's own reordering is not sent",
        chain,
        [
            (
                "torch.from_numpy(step.hypo_ids) if first and step.hypo_ids is not None else NO_HYPO_IDS",
                "NO_HYPO_IDS",
            ),
        ],
        "beams_move_between_rows",
    ),
    Mutant(
        "4: a history in an order that was not kept is used after all",
        history,
        [
            ("            return False\n", "            pass\n"),
        ],
        "split_in_a_step_that_moved_rows_and_was_taken_back",
    ),
    Mutant(
        "5: deep prompts are not replayed",
        chain,
        [("prompts = self.prompts_for(piece, link.span, n_steps)", "prompts = NO_PROMPTS")],
        "prompts_move_with_their_rows",
    ),
    Mutant(
        "5: deep prompts stay behind when their rows move",
        chain,
        [
            (
                "return prompts if rows is None or prompts.shape[1] == 1 else prompts[:, torch.from_numpy(rows)]",
                "return prompts",
            ),
        ],
        "prompts_move_with_their_rows",
    ),
    Mutant(
        "5: only the first step of a request has its prompts replayed",
        plan,
        [
            ("while index < n_steps and not log[index].prompt_tokens:", "while index < n_steps:"),
        ],
        "prompts_move_with_their_rows",
    ),
    Mutant(
        "6: a replay is one request, however long",
        plan,
        [
            ("limit = max(1, max_tokens // batch_size)", "limit = 10**9"),
        ],
        "history_is_longer_than_a_request_may_be",
    ),
    Mutant(
        "7: after an interrupted step streams go on as they are",
        flow,
        [
            (
                "Link(span, self._links[source].history, self._links[source].latency)",
                "Link(span, self._links[source].history, self._links[source].latency, self._links[source].stream)",
            ),
            ("        close_streams(session, self._links)\n        usable", "        usable"),
        ],
        "step_is_interrupted_half_way",
    ),
    Mutant(
        "7: an interrupted step stays in the history",
        history,
        [
            ("self._length = min(self._length, end)", "pass"),
        ],
        "step_is_interrupted_half_way",
    ),
    Mutant(
        "7: an interrupted step stays in the log",
        flow,
        [
            ("session.log.truncate(n_steps)", "pass"),
        ],
        "step_is_interrupted_half_way",
    ),
    Mutant(
        "9: streams opened when a step is interrupted stay open",
        rebuild,
        [
            (
                "        close_streams(session, _opened(session, hops, opening, lost))\n        raise",
                "        raise",
            ),
        ],
        "interrupted_while_dialling",
    ),
    Mutant(
        "11: pieces of a step are pushed and overtake one another",
        chain,
        [
            ("next_servers = ()  # pushed requests may overtake one another", "pass"),
        ],
        "pushed_pieces_overtake_one_another",
    ),
    Mutant(
        "11: outputs are pushed in a beam search",
        flow,
        [
            (
                "if not session.push_outputs or session.prompts or session.log.reorders_between(0, len(session.log)):",
                "if not session.push_outputs or session.prompts:",
            ),
        ],
        "pushes_in_a_beam_search",
    ),
    Mutant(
        "11: outputs are pushed after deep prompts",
        flow,
        [
            (
                "if not session.push_outputs or session.prompts or session.log.reorders_between(0, len(session.log)):",
                "if not session.push_outputs:",
            ),
        ],
        "pushes_after_deep_prompts",
    ),
    Mutant(
        "12: a request that no server accepts is tried on and on",
        failure,
        [
            ("return any(a[1] == b[1] and a[0] != b[0] for a in refused for b in refused)", "return False"),
        ],
        "servers_refuse_the_request_itself",
    ),
    Mutant(
        "12: those who rightly refused a request are avoided",
        rebuild,
        [
            ("session.router.pardon({attempt.peer_id for attempt in refusals})", "pass"),
        ],
        "servers_refuse_the_request_itself",
    ),
    Mutant(
        "14: nobody is blamed for a dial that fails",
        rebuild,
        [
            ("            _blame(session, error, budget, recovery, 0.0)\n", "            pass\n"),
        ],
        "replacement_cannot_be_reached",
    ),
    Mutant(
        "15: a server that failed often is avoided though it is back and nobody else is there",
        bans,
        [
            ("(ban.streak > 1 and not forgive_series)", "ban.streak > 1"),
        ],
        "the_only_holder_returns_late",
    ),
    Mutant(
        "18: only the hard limit finds a hung server",
        watch,
        [
            ("if not reply.done() and not alive.result():", "if False:"),
        ],
        "hung_while_it_works",
    ),
    Mutant(
        "18: a slow server is given up without asking it",
        watch,
        [
            ("if not reply.done() and not alive.result():", "if not reply.done():"),
        ],
        "slow_is_not_dead",
    ),
    Mutant(
        "20: servers' time limits are taken for failures",
        repairs,
        [
            ("expired = self._session.expired(stream) is not None", "expired = False"),
        ],
        "nobody_steps_for_long",
    ),
    Mutant(
        "29: streams are used until the server's session timeout",
        chain,
        [
            (
                "if idle < self.settings.idle_s and old < self.settings.lifetime_s:",
                "if idle < self.settings.idle_s:",
            ),
        ],
        "session_outlives_the_servers_limit",
    ),
    Mutant(
        "23: a step waits for ever for a server to appear",
        router,
        [
            ("too_late = time.monotonic() + retry_s > deadline_s", "too_late = False"),
        ],
        "all_holders_are_gone_for_good",
    ),
    Mutant(
        "24: the end of a stream goes unnoticed while a request is in flight",
        stream,
        [
            ('self._break(Cause.BROKEN, f"the stream ended: {error!r}")', "pass"),
        ],
        "killed_while_it_works",
    ),
    Mutant(
        "31: a server that answers probes but no request is waited for",
        watch,
        [
            ("if time.monotonic() >= give_up_at_s:", "if False:"),
        ],
        "stuck_but_answering_probes",
    ),
    Mutant(
        "23: a repair begun between steps is waited for on top of a step's own time",
        repairs,
        [("self.step_budget()  # a repair", "pass  # a repair")],
        "all_holders_are_gone_for_good",
    ),
    Mutant(
        "what breaks late in a step is left until the next",
        flow,
        [("self._repairs.begin(range(len(self._links)))  # those", "pass  # those")],
        "broken_after_its_part_of_a_step",
    ),
    Mutant(
        "19: one read of the DHT that is never answered stops all later ones",
        views,
        [("asyncio.wait_for(question, longest_s)", "question")],
        "dht_is_silent_for_a_while",
    ),
    Mutant(
        "7: an interrupt that comes with a view of the swarm is lost",
        views,
        [
            (
                "async with asyncio.timeout(patience_s):\n                return await ",
                "if True:\n                return await asyncio.wait_for(timeout=5.0, fut=",
            ),
            ("asyncio.shield(reading)\n", "asyncio.shield(reading))\n"),
        ],
        "interrupted_at_the_moment_a_view_arrives",
    ),
    Mutant(
        "a standby's rows stay in the order of then",
        chain,
        [
            (
                "torch.from_numpy(moved) if moved is not None and piece.start == start else NO_HYPO_IDS",
                "NO_HYPO_IDS",
            )
        ],
        "standby_takes_over_in_a_beam_search",
    ),
    Mutant(
        "a standby is fed the same steps again",
        standby,
        [("standby.fed_steps = n_steps", "pass")],
        "standby_takes_over_in_a_beam_search",
    ),
    Mutant(
        "standbys outlive steps that are taken back",
        flow,
        [
            (
                "self._standbys.drop(self._links)\n        close_streams(session, self._links)\n        usable",
                "close_streams(session, self._links)\n        usable",
            )
        ],
        "standby_of_steps_that_are_taken_back",
    ),
    Mutant(
        "lost spans are rebuilt one after the other",
        flow,
        [
            ("self._repairs.begin(range(1, len(self._links)))", "pass"),
            ("self._repairs.begin(range(index + 1, len(self._links)))", "pass"),
        ],
        "all_spans_are_replayed_at_once",
    ),
    Mutant(
        "a spare that hangs while it is fed is waited for",
        standby,
        [
            (
                "await asyncio.wait({standby.task}, timeout=lost.latency.late_step_s)",
                "await asyncio.wait({standby.task})",
            )
        ],
        "standby_hangs_while_it_is_fed",
    ),
    Mutant(
        "a spare that is stuck while it is fed is the next replacement",
        standby,
        [
            (
                "raise stream.abandon(Cause.HUNG if hangs else Cause.RESET",
                "stream.abandon(Cause.HUNG if hangs else Cause.RESET",
            )
        ],
        "standby_is_stuck_while_it_is_fed",
    ),
    Mutant(
        "a dial is waited for though others serve the blocks",
        dialing,
        [
            (
                "return min(settings.connect_s, hedge_s * 2",
                "return max(settings.connect_s, hedge_s * 2",
            )
        ],
        "replacement_hangs_while_another_could_serve",
    ),
    Mutant(
        "a dial is given up though nobody else serves the blocks",
        dialing,
        [("if not all(any(block in record.span for record in others) for block in hop.span):", "if False:")],
        "the_only_replacement_is_slow_to_be_reached",
    ),
    Mutant(
        "each session of a client has to find out for itself who is dead",
        blame,
        [("if attempt.cause in OF_THE_SERVER:", "if False:")],
        "another_session_knows_who_is_dead",
    ),
    Mutant(
        "what others told is waited for where nobody else serves",
        blame,
        [("return own if last_resort else own |", "return own |")],
        "the_only_holder_is_back_before_the_client_hears_of_it",
    ),
    Mutant(
        "what a session has learnt about itself is held against the server",
        blame,
        [("if attempt.cause in OF_THE_SERVER:", "if True:")],
        "a_session_keeps_to_what_it_has_learnt_itself",
    ),
    Mutant(
        "a pause in a short request is taken for the price of its tokens",
        latency,
        [("return min(self._token_s, self._step_s)", "return self._token_s")],
        "a_pause_teaches_no_patience_with_a_hung_server",
    ),
    Mutant(
        "what other sessions know of a server's replies is not used",
        latency,
        [
            (
                "_, known = self._of_peer.get(peer_id, (now_s, None))\n        if known is None:",
                "known = before\n        if False:",
            )
        ],
        "a_new_session_meets_a_hung_server",
    ),
    Mutant(
        "a prefill teaches nothing about the step after it",
        latency,
        [("if self._first_s is None:", "if True:")],
        "hung_before_the_first_single_step",
    ),
    Mutant(
        "an opening is waited for as long as its tokens may take",
        watch,
        [("latency.suspect_after_s(0) if opening else patience_s", "patience_s")],
        "a_long_prefill_begins_at_a_hung_server",
    ),
    Mutant(
        "an opening that is late is given up without asking",
        watch,
        [("if not reply.done() and not alive.result():", "if not reply.done():")],
        "a_long_prefill_begins_at_a_slow_server",
    ),
    Mutant(
        "each silent server uses up an attempt",
        failure,
        [("return len(failed) - len(silent)", "return len(failed)")],
        "all_but_one_of_many_hang_at_once",
    ),
    Mutant(
        "who is waited for is asked when it is looked at, not when its ban is over",
        router,
        [("await asyncio.sleep(wait_s)", "await asyncio.sleep(retry_s)")],
        "the_connection_to_the_only_holder_breaks",
    ),
    Mutant(
        "nobody looks for others while a dial hangs",
        chain,
        [("self.router.look_for_others()", "pass")],
        "another_is_back_while_a_dial_hangs",
    ),
    Mutant(
        "one death counts once for each session that meets it",
        bans,
        [("if known is not None and known.streak and began_s <= known.failed_at_s:", "if False:")],
        "one_death_that_two_sessions_meet_is_one_failure",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant):
    scenario = SCENARIOS[mutant.scenario]
    with broken(mutant.module, mutant.edits), pytest.raises(Exception) as caught:  # noqa: PT011
        scenario.run()
    # caught for what it does, not for being nonsense
    assert not isinstance(caught.value, (NameError, AttributeError, ImportError, SyntaxError))
