"""The planner: from a generation request to its plan."""

import time
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote

from batchrun.mock.answers import Answer, Author
from batchrun.mock.asks import Ask, Refusal, Route, read_ask, refuse
from batchrun.mock.bodies import Stamp, Usage, render_completion, render_embeddings, render_response
from batchrun.mock.config import MockConfig
from batchrun.mock.dice import Dice
from batchrun.mock.faults import REFUSALS, Fault, FaultTable
from batchrun.mock.plan import Arrival, Plan, Stream, Work
from batchrun.mock.prefix_cache import BYTES_PER_TOKEN, PrefixCache, count_prompt
from batchrun.mock.response import HTML_BODY, HTML_TYPE, SSE_TYPE, render_chunks, render_error
from batchrun.mock.stats import Stats
from batchrun.mock.streams import count_steps, render_steps
from batchrun.mock.timing import Clockwork, Pace


class Planner:
    """Decide what happens to generation requests."""

    def __init__(self, config: MockConfig, stats: Stats, *, keeps_answers: bool = False) -> None:
        self._config = config
        self._keeps_answers = keeps_answers
        self._stats = stats
        self._dice = Dice(config.seed)
        self._author = Author(config, self._dice)
        self._faults = FaultTable(config)
        self._clockwork = Clockwork(config)
        self._is_fair = self._faults.is_empty and self._clockwork.is_even  # True: nothing is left to chance
        self._prompt_token_s = config.prompt_token_ms / 1000.0
        blocks = config.prefix_cache_blocks
        self._prefix_cache = None if blocks is None else PrefixCache(blocks)
        self._id_prefix = b"mock-%x-" % time.time_ns()  # so that two runs never give one id

    def plan(self, route: Route, arrival: Arrival) -> Plan:
        """Decide about one arrival; it is counted, since the chances of a body depend on how often it came."""
        try:
            ask = read_ask(route, arrival.request.body, self._config.models[0])
            self._check_model(ask.model)
        except Refusal as refusal:
            return Plan(refusal.status, refusal.body)
        fault, pace = self._draw(arrival)
        if fault in REFUSALS:
            return self.plan_refusal(fault)
        return self._plan_work(ask, arrival, fault, pace)

    def _check_model(self, model: str) -> None:
        if self._config.strict_models and model not in self._config.models:
            raise refuse(f"The model '{model}' does not exist.", "model", "model_not_found", status=404)

    def _draw(self, arrival: Arrival) -> tuple[Fault | None, Pace]:
        arrival_no = self._stats.count_arrival(arrival.digest)
        if self._is_fair:
            return None, self._clockwork.draw(())
        throw = self._dice.throw(arrival.digest, arrival_no)
        return self._faults.choose(throw[0], arrival_no), self._clockwork.draw(throw)

    def plan_refusal(self, fault: Fault | None) -> Plan:
        """Return the words and the status with which a request is refused."""
        if fault is Fault.RATE_LIMIT:
            body = render_error("Rate limit reached for requests.", "requests", code="rate_limit_exceeded")
            extra = f"Retry-After: {self._config.retry_after_s:.15g}\r\n".encode()
            return Plan(429, body, extra_head=extra, fault=fault)
        if fault is Fault.UNAVAILABLE:
            body = render_error("The engine is currently overloaded, please try again later.", "server_error")
            return Plan(503, body, fault=fault)
        body = render_error("The server had an error while processing your request.", "server_error")
        return Plan(500, body, fault=fault)

    def _plan_work(self, ask: Ask, arrival: Arrival, fault: Fault | None, pace: Pace) -> Plan:
        answers = [] if ask.route is Route.EMBEDDINGS else self._write_answers(ask, arrival)
        prompt_tokens = self._count_prompt(arrival.request.body)
        cached_tokens = self._read_prompt(arrival.request.body, prompt_tokens)
        usage = Usage(prompt_tokens, sum(answer.token_count for answer in answers), cached_tokens)
        pace = pace.after(self._prompt_token_s * (prompt_tokens - (cached_tokens or 0)))
        steps = count_steps(answers) if answers else 1
        is_cut = any(answer.is_cut for answer in answers)
        work = Work(pace, usage.prompt_tokens, usage.completion_tokens, steps, "length" if is_cut else "stop")
        stamp = Stamp(self._id_prefix + b"%d" % arrival.no, int(time.time()))
        kept = self._render_body(ask, answers, usage, stamp) if self._keeps_answers else b""
        if fault is Fault.BAD_JSON:
            return Plan(200, HTML_BODY, HTML_TYPE, work=work, fault=fault, kept=kept)
        if ask.stream:
            stream = Stream(render_chunks(render_steps(ask, answers, usage, stamp), steps), steps)
            return Plan(200, content_type=SSE_TYPE, work=work, stream=stream, fault=fault, kept=kept)
        body = kept or self._render_body(ask, answers, usage, stamp)
        return Plan(200, body, work=work, fault=fault, kept=kept)

    def _count_prompt(self, body: bytes) -> int:
        """Count a valid request's prompt: by the prompt alone where it can be asked for, else by the whole body."""
        return count_prompt(body) if self._config.tokenizes else max(len(body) // BYTES_PER_TOKEN, 1)

    def _read_prompt(self, body: bytes, tokens: int) -> int | None:
        """Look a prompt up in the prefix cache; return how many of its tokens were there, None where there is none."""
        if self._prefix_cache is None:
            return None
        found = min(self._prefix_cache.read(body), tokens - 1)  # the last one is read in any case
        self._stats.prefix_queries += tokens
        self._stats.prefix_hits += found
        return found

    def _write_answers(self, ask: Ask, arrival: Arrival) -> list[Answer]:
        if arrival.item is None:
            mark = arrival.digest[:8].hex().encode()
        else:
            mark = quote(f"[[{arrival.item}]]")[1:-1].encode()
        return [
            self._author.write(arrival.digest, mark, choice_no=no, max_tokens=ask.max_tokens, ignore_eos=ask.ignore_eos)
            for no in range(ask.choice_count)
        ]

    def _render_body(self, ask: Ask, answers: Sequence[Answer], usage: Usage, stamp: Stamp) -> bytes:
        if ask.route is Route.EMBEDDINGS:
            return render_embeddings(ask, ask.dimensions or self._config.embedding_size, self._config.seed, usage)
        if ask.route is Route.RESPONSES:
            return render_response(ask, answers[0], usage, stamp)
        return render_completion(ask, answers, usage, stamp)
