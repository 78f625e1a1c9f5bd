"""A small pool of child processes that render templates.

A batch goes to one child, which answers job by job. A child that exceeds its limits dies at the job that did so: that
job is tried again in another child and fails if that dies too; the next child continues with the rest. A child that
does not answer within the deadline is killed, which counts as a failure on our side, because a busy machine may be the
reason.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import structlog

from fieldpost.central.rendering.child import CPU_S, MEMORY_BYTES
from fieldpost.central.rendering.composer import RenderJob
from fieldpost.child_process import ChildPool, ChildProcess
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.events.template import Rendered, RenderFailure, Template, check_rendered
from fieldpost.core.text import printable_line

log = structlog.get_logger()

CHILDREN = 2
BATCH_JOBS = 100
ANSWER_S = 10.0
_ERROR_BYTES_MAX = 500
_EXCEEDED = f"needs more than {CPU_S * 1000:g} ms or {MEMORY_BYTES // 1024 // 1024} MiB"


class RenderPool:
    """Renders in child processes, which start when they are first needed."""

    def __init__(self, children: int = CHILDREN) -> None:
        self._children = ChildPool("fieldpost.central.rendering.child", children)

    async def render(self, jobs: Sequence[RenderJob]) -> list[Rendered | RenderFailure]:
        """One result per job, in order; batches run in parallel."""
        batches = [jobs[at : at + BATCH_JOBS] for at in range(0, len(jobs), BATCH_JOBS)]
        results = await asyncio.gather(*(self._render_batch(batch) for batch in batches))
        return [_result(answer) for answers in results for answer in answers]

    async def names(self, template: Template) -> list[str]:
        """The variables that the template uses (`payload.service`). Raises InvalidInput if it cannot be parsed."""
        [answer] = await self._render_batch([RenderJob(template, "")], names_only=True)
        if isinstance(answer, RenderFailure):
            raise Unavailable("template.renderer", answer.error)
        if "names" in answer:
            names = answer["names"]
            return [str(name) for name in names] if isinstance(names, list) else []
        raise InvalidInput("template.invalid", str(answer["error"]), field="body")

    async def close(self) -> None:
        """End all children."""
        await self._children.close()

    async def _render_batch(
        self, batch: Sequence[RenderJob], *, names_only: bool = False
    ) -> "list[dict[str, object] | RenderFailure]":
        answers: list[dict[str, object] | RenderFailure] = []
        suspect = -1
        async with self._children.slot():
            while len(answers) < len(batch):
                is_started = False
                try:
                    async with self._children.child() as child:
                        is_started = True
                        async for answer in _serve(child, batch[len(answers) :], names_only):
                            answers.append(answer)
                except (EOFError, ConnectionError, TimeoutError, OSError) as error:
                    if not is_started:
                        log.error("renderer.not_started", error=repr(error))
                        failure = RenderFailure("the template renderer cannot be started", is_ours=True)
                        return answers + [failure] * (len(batch) - len(answers))
                    if isinstance(error, EOFError | ConnectionError):
                        # Killed by somebody else perhaps: only a job that ends two children is to blame.
                        if len(answers) == suspect:
                            answers.append({"error": _EXCEEDED, "variable": None})
                        else:
                            suspect = len(answers)
                        continue
                    log.warning("renderer.no_answer", error=repr(error))
                    answers.append(RenderFailure("the template renderer did not answer in time", is_ours=True))
        return answers


async def _serve(child: ChildProcess, batch: Sequence[RenderJob], names_only: bool) -> AsyncIterator[dict[str, object]]:
    """The answers, one by one. EOFError if the child died at the next job, TimeoutError if it does not answer."""
    keys = {job.template: str(number) for number, job in enumerate(batch)}
    request = {
        "templates": {key: template.sources for template, key in keys.items()},
        "jobs": [(keys[job.template], None if names_only else job.variables) for job in batch],
    }
    child.begin(json.dumps(request).encode())
    for _ in batch:
        async with asyncio.timeout(ANSWER_S):
            line = await child.line()
        yield json.loads(line)
    child.end()


def _result(answer: dict[str, object] | RenderFailure) -> Rendered | RenderFailure:
    if isinstance(answer, RenderFailure):
        return answer
    if "error" in answer:
        variable = answer.get("variable")
        error = printable_line(str(answer["error"]), _ERROR_BYTES_MAX)
        return RenderFailure(error, None if variable is None else printable_line(str(variable), 200))
    try:
        return check_rendered(**{part: str(text) for part, text in answer.items()})
    except InvalidInput as error:
        return RenderFailure(error.message)
