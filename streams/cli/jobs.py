"""`reindex` and `jobs`: ask again, watch it, cancel it."""

import contextlib
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from facetline.facets.plurals import counted
from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from facetline.facets.job_replies import JobReply
    from facetline.storage.jobs.model import JobRequest
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.reindex.requests import Estimate
    from facetline.streams.settings import Settings

app = typer.Typer(help="Reindex jobs: list them, look at one, cancel one.", no_args_is_help=True)
POLL_S = 0.2
JobArgument = Annotated[str, typer.Argument(metavar="ID")]


def reindex(
    collection: Annotated[str, typer.Argument(metavar="COLLECTION")],
    outdated: Annotated[bool, typer.Option("--outdated", help="Those answered under another fingerprint.")] = False,
    force: Annotated[bool, typer.Option("--force", help="All of them, whatever is remembered.")] = False,
    scope: options.Scope = None,
    filter_: options.Filter = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many calls it would make.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start the job and leave.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Ask again: documents without facets, the outdated ones, or all."""
    if outdated and force:
        raise typer.BadParameter("give --outdated or --force, not both; --force takes the outdated ones too")
    if scope == "":
        raise typer.BadParameter("--scope is empty; name one, or leave it out to ask about all of the collection")
    mode: Literal["missing", "outdated", "force"] = "force" if force else "outdated" if outdated else "missing"

    async def work() -> int | None:
        from facetline.facets import errors
        from facetline.storage.jobs.model import JobRequest
        from facetline.streams import wiring
        from facetline.streams.reindex import requests

        request = JobRequest(collection, scope or "", mode, filter_)
        settings = options.settings(config, folder)
        if not dry_run:
            await _refuse_beside_another(settings, request)
        async with wiring.open_pipeline(settings, classify=not (dry_run or detach)) as pipeline:
            if dry_run:
                _show_plan(await requests.plan(pipeline, request), json_=json_)
                return None
            job = await requests.start(pipeline, request)
            try:
                if not detach:
                    await watch(pipeline, job.id)
            except (errors.EvaluatorMisconfigured, errors.EvaluatorUnavailable):
                _show(await _result(pipeline, job.id), json_=json_)  # what has been done; the error says why no more
                raise
            result = await _result(pipeline, job.id)
            _show(result, json_=json_)
            if detach and not json_:
                who = "the workers" if settings.runtime == "kafka" else "the next write, import or reindex"
                output.note(f"left to {who}; progress: facetline jobs show {job.id}")
        return running.FAILED if result["state"] == "failed" else None

    running.run(work, again="the job stays; run the same command again to go on, or 'facetline jobs cancel ID'")


async def _refuse_beside_another(settings: "Settings", request: "JobRequest") -> None:
    """Refuse at once: an open pipeline begins to ask, and would have to end what it began."""
    from facetline.facets import errors
    from facetline.storage.jobs import jobs
    from facetline.streams import wiring

    with contextlib.suppress(errors.NotFound):  # no data yet
        async with wiring.open_store(settings, create=False) as store:
            await store.read(jobs.refuse_beside_another, request)


async def run_job(pipeline: "Pipeline", collection: str, mode: Literal["missing", "outdated", "force"]) -> "JobReply":
    """Run a job of a whole collection to its end and return its result."""
    from facetline.storage.jobs.model import JobRequest
    from facetline.streams.reindex import requests

    job = await requests.start(pipeline, JobRequest(collection, "", mode, None))
    await watch(pipeline, job.id)
    return await requests.result(pipeline, job.id)


async def watch(pipeline: "Pipeline", job_id: str) -> None:
    """Show a job's progress until it has ended.

    Raises:
        EvaluatorMisconfigured, EvaluatorUnavailable: its evaluator is not called; the job stays.
    """
    from facetline.storage.jobs import jobs
    from facetline.storage.jobs.model import ACTIVE
    from facetline.streams.cli.imports import give_up_when_stopped

    async def waiting() -> int:
        counts = await pipeline.store.read(jobs.progress, job_id)
        return counts.get("waiting", 0) + counts.get("asked", 0)

    with output.Progress("reindexed", None) as progress:
        while True:
            looked_s = time.monotonic()
            job = await pipeline.store.read(jobs.get, job_id)
            if job.filled_to is None:  # until then the total is unknown
                progress.at(job.total - await waiting(), job.total)
            if job.state not in ACTIVE:
                return
            if open_ := await waiting():
                await give_up_when_stopped(pipeline, job.request.collection, open_)
            await running.rest(POLL_S, looked_s)


@app.command("list")
def list_(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """List jobs, newest first."""

    async def work() -> int | None:
        from facetline.storage.jobs import jobs
        from facetline.streams import wiring
        from facetline.streams.reindex import requests

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            for job in await pipeline.store.read(jobs.list_jobs):
                result = await requests.result(pipeline, job.id, names_max=requests.LISTED_AMONG_JOBS)
                if json_:
                    output.result(result)
                else:
                    done, total = result["progress"]["done"], result["progress"]["total"]
                    output.text(
                        f"{job.id}  {job.request.collection}  {job.request.mode}  {job.state}  {done} of {total}"
                    )
        return None

    running.run(work)


@app.command("show", short_help="Show one job, and what keeps it waiting.")
def show(
    job_id: JobArgument, json_: options.Json = False, config: options.Config = None, folder: options.Folder = None
) -> None:
    """Show one job, and what keeps it from going on, if anything is known to."""

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            result = await _result(pipeline, job_id)
            why = await pipeline.last_unavailability(result["collection"]) if _is_open(result) else None
        _show({**result, "standstill": why} if why else result, json_=json_)
        if why:
            output.note(f"no progress: {why}")
        return None

    running.run(work)


@app.command("cancel")
def cancel(
    job_id: JobArgument, json_: options.Json = False, config: options.Config = None, folder: options.Folder = None
) -> None:
    """Stop the job; running calls finish."""

    async def work() -> int | None:
        from facetline.storage.jobs import jobs
        from facetline.streams import wiring
        from facetline.streams.reindex import requests

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            await pipeline.store.write(jobs.cancel, job_id)
            _show(await requests.result(pipeline, job_id), json_=json_)
        return None

    running.run(work)


async def _result(pipeline: "Pipeline", job_id: str) -> dict[str, Any]:
    """Return a job as it is printed, with how many of its answers cost no call."""
    from facetline.streams.reindex import requests

    found = await requests.result(pipeline, job_id)
    return {**found, "remembered": await requests.remembered(pipeline, job_id)}


def _is_open(result: dict[str, Any]) -> bool:
    return result["state"] in {"queued", "running"}


def _show(result: "Mapping[str, Any]", *, json_: bool) -> None:
    if json_:
        output.result(result)
        return
    progress = result["progress"]
    others = ", ".join(
        f"{progress[state]} {state}" for state in ("superseded", "skipped", "canceled") if progress.get(state)
    )
    output.text(
        f"job {result['id']}: {result['state']}, {progress.get('reindexed', 0)} reindexed,"
        f" {progress.get('failed', 0)} failed"
        + (f", {others}" if others else "")
        + (f"; {result['remembered']} of them reused at no cost" if result.get("remembered") else "")
    )


def _show_plan(plan: "Estimate", *, json_: bool) -> None:
    if json_:
        numbers = {"documents": plan.documents, "calls": plan.calls, "tokens": plan.tokens, "cost_usd": plan.cost_usd}
        output.result({"dry_run": True, **numbers})
        return
    cost = "cost unknown" if plan.cost_usd is None else f"about ${plan.cost_usd:.4f}"
    calls = f"at most {counted(plan.calls, 'call')}, about {plan.tokens} tokens"
    output.text(f"{counted(plan.documents, 'document')}, {calls}, {cost}")
    by = "the collection's calls of the last 30 days" if plan.measured else "the size of the texts"
    output.note(f"tokens and cost are estimated from {by}")
