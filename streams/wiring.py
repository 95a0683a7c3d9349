"""The composition root: settings in, an open pipeline out. The one place that knows both runtimes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from facetline.evaluators.embedded import evaluator, minilm
from facetline.facets import errors, native_modules, private_files
from facetline.storage import definitions
from facetline.storage.db import opening, postgres
from facetline.storage.db.engine import Clock, Store, no_shift
from facetline.streams import local_server
from facetline.streams import project as project_
from facetline.streams.background import assignments, classifying
from facetline.streams.local_writer import SOURCE as LOCAL_SOURCE
from facetline.streams.local_writer import LocalWriter
from facetline.streams.pipeline import Pipeline
from facetline.streams.project import Project
from facetline.streams.settings import Settings
from facetline.streams.wire.outgoing import Writer

CLI_SOURCE = "facetline/cli"

log = structlog.get_logger(__name__)


STORE_S = 30.0
"""How long a store that does not answer is tried again."""


@asynccontextmanager
async def open_pipeline(
    settings: Settings,
    *,
    classify: bool = False,
    writes: bool = True,
    serves: bool = False,
    clock_shift: Clock = no_shift,
) -> AsyncIterator[Pipeline]:
    """Open the pipeline of the runtime in force; close everything in order at the end.

    `writes` False: for reading alone, so a missing configuration file is no error, and a missing store is one.
    `classify`: run the side chain in this process and make the file's definitions the active ones; only in the local
    runtime, since with Kafka that is the workers' part.
    `serves`: this process is the server of the data folder. Any other one leaves the side chain and the definitions to
    the server, where there is one.

    Raises:
        InvalidSettings, InvalidDefinition: the file is refused.
        NotFound: there is nothing to read yet.
        StoreUnavailable, StoreMismatch, BrokerUnavailable: what is needed is not there.
    """
    project = _project(settings, needed=writes)
    if classify or serves:
        _load_native_modules(project)
    async with open_store(settings, create=writes, clock_shift=clock_shift) as store:
        writer = await _writer(settings, store)
        source = LOCAL_SOURCE if isinstance(writer, LocalWriter) else CLI_SOURCE
        pipeline = Pipeline(store, writer, settings, project, source)
        if not serves and settings.runtime == "local":
            pipeline.server = _server(settings, store)
            classify = classify and pipeline.server is None
        try:
            if project is not None and writes and pipeline.server is None:
                activate = definitions.activate if classify else definitions.activate_unknown
                await store.write(activate, project.definitions)
            if not (classify and project is not None and isinstance(writer, LocalWriter)):
                yield pipeline
                return
            async with classifying(
                store,
                assignments(project),
                grace_s=settings.grace_s,
                memo_rows_max=settings.memo_rows_max,
                kind="serve" if serves else "command",
            ) as work:
                pipeline.work = work
                writer.wake = work.side_chain.wake
                yield pipeline
        finally:
            await pipeline.close()


@asynccontextmanager
async def open_store(
    settings: Settings, *, create: bool = True, clock_shift: Clock = no_shift, deadline_s: float = STORE_S
) -> AsyncIterator[Store]:
    """Open the store of record that the settings name; `create` False refuses to make a new local one.

    A store that does not answer is tried again for `deadline_s`, now and in every later transaction.

    Raises:
        NotFound: there is no local store yet.
        StoreUnavailable, StoreMismatch: the store cannot be used.
    """
    if settings.store_url is None:
        if not create and not (settings.data_folder / "facetline.db").exists():
            first = "" if settings.config.exists() else "begin with 'facetline init', then "
            raise errors.NotFound(
                f"there is no data in {settings.data_folder} yet; {first}write or import a document first, or try"
                " 'facetline demo'"
            )
        try:
            if private_files.make_folder(settings.data_folder):
                log.warning("data_folder_made_private", folder=str(settings.data_folder))
        except OSError as error:
            raise local_server.folder_unusable(settings.data_folder, error) from error
    patience = postgres.Patience(settings.store_connect_s, settings.store_statement_s)
    store = await opening.open_store(settings.store, clock_shift=clock_shift, deadline_s=deadline_s, patience=patience)
    try:
        yield store
    finally:
        await store.close()


def _load_native_modules(project: Project | None) -> None:
    """Import what views and the embedded model need before any thread of theirs, or of the caller's program, does."""
    kinds: set[str] = set()
    if project is not None:
        kinds = {each.kind for each in project.evaluators.values()} | {each.kind for each in project.embedders.values()}
    native_modules.load(*(minilm.NATIVE if evaluator.KIND in kinds else ()), *native_modules.VIEW)


def _project(settings: Settings, *, needed: bool) -> Project | None:
    if not needed and not settings.config.exists():
        return None
    return project_.load_project(settings)


def _server(settings: Settings, store: Store) -> local_server.Holder | None:
    """Return the server of this data folder, None if it serves another store than ours."""
    found = local_server.holder(settings.data_folder)
    return found if found is not None and found.store_id == store.store_id else None


async def _writer(settings: Settings, store: Store) -> Writer:
    if settings.runtime == "local":
        return LocalWriter(store)
    from facetline.streams.kafka.writer import (
        KafkaWriter,  # aiokafka is slow to import, and the local runtime has no use for it
    )

    return KafkaWriter(settings)
