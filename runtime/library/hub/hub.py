"""The hub as the rest of the program asks it: search, pages, files, account."""

import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from huggingface_hub import constants

from runtime.errors import BadRequest, HubFault, HubNotFound, HubOffline
from runtime.library.hub import answers
from runtime.library.hub.faults import fault_of, offline_by_choice
from runtime.library.hub.files import files_of
from runtime.library.hub.names import check_repo, check_revision
from runtime.library.hub.picks import entry_of, find_picks, load_picks, matches
from runtime.library.hub.readme import description_of
from runtime.library.hub.tokens import TokenPlace, TokenStore
from runtime.library.hub.transport import Base, Body, Place, Timeouts, Transport, check_endpoint
from runtime.messages.api import InstalledModel
from runtime.messages.library import HubAccount, HubEntry, HubFile, HubModel, HubModelRequest, HubPage, HubSearch
from runtime.options import ModelsOptions
from runtime.paths import DataFolder

MAX_PAGES_A_SEARCH = 5
"""Pages of the hub read for one of ours, when a filter leaves out most of them."""
MAX_PAGES_A_TREE = 20
KEEP_MODEL_S = 300.0
MAX_KEPT_MODELS = 64
README_BYTES = 32_768
SERVER_TROUBLE = 500

_SORTS = {"trending": "trendingScore", "downloads": "downloads", "likes": "likes", "updated": "lastModified"}
_EXPANDED = ("author", "downloads", "gated", "gguf", "lastModified", "likes", "pipeline_tag", "tags")
_CURSOR = re.compile(r"^[\w=+/.,:|~-]{1,4000}$", re.ASCII)
_VISION = frozenset({"image-text-to-text", "image-to-text", "visual-question-answering", "any-to-any"})
_EMBEDDING = frozenset({"feature-extraction", "sentence-similarity", "text-ranking"})
_GGUF_IN_NAME = re.compile(r"[-_.]?(i1[-_])?gguf$", re.IGNORECASE)
_PLACES: dict[TokenPlace, str] = {
    "file": "This system has no keyring; the token is in a file that only you can read.",
    "environment": "The token comes from the environment (HF_TOKEN, or a sign-in with another tool).",
}


class Hub:
    """Asks the hub (or a mirror of it). Home thread: any (locked); every call blocks on the network.

    `options.offline` and an unreachable hub answer from the built-in catalogue where that is possible, and say so.
    """

    def __init__(
        self,
        folder: DataFolder,
        options: ModelsOptions,
        *,
        tokens: TokenStore | None = None,
        installed: Callable[[], Sequence[InstalledModel]] = tuple,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            folder: where a token is kept when the system has no keyring.
            options: `hub_endpoint` and `offline` are read; `configure` changes them.
            tokens: where the access token is kept.
            installed: what is on disk, to mark what is listed.
            timeouts: of connecting and of waiting for the next byte.

        Raises:
            BadRequest: if `hub_endpoint` is no address.
        """
        self._tokens = tokens if tokens is not None else TokenStore(folder)
        self._installed = installed
        self._transport = Transport(timeouts or Timeouts())
        self._lock = threading.Lock()
        self._models: OrderedDict[tuple[str, str, str], tuple[float, HubModel]] = OrderedDict()
        self._offline = False
        self._endpoint = ""
        self.configure(options)

    @property
    def endpoint(self) -> str:
        """Base address that is asked, without a slash at the end."""
        with self._lock:
            return self._endpoint

    def configure(self, options: ModelsOptions) -> None:
        """Take over a changed address or offline switch, from the next call on.

        Raises:
            BadRequest: if `hub_endpoint` is no address.
        """
        endpoint = check_endpoint(options.hub_endpoint or constants.ENDPOINT)
        with self._lock:
            self._endpoint = endpoint
            self._offline = options.offline

    def close(self) -> None:
        """Close connections; later calls end with HubOffline."""
        self._transport.close()

    # --- lists --------------------------------------------------------------------------------------------

    def search(self, request: HubSearch) -> HubPage:
        """One page of GGUF repositories. Offline: matching picks, with `offline` saying why.

        Raises:
            HubRefused, HubFault: if the hub answered, but not with a list.
            BadRequest: if `cursor` is not one of ours.
        """
        if request.cursor and not _CURSOR.fullmatch(request.cursor):
            raise BadRequest("The next page cannot be asked for like that.", hint="Search again.", param="cursor")
        request = msgspec.structs.replace(request, text=_plain(request.text))
        try:
            return self._search(request)
        except HubFault as fault:
            if not _is_away(fault):
                raise
            return HubPage(self._marked(find_picks(request)), offline=fault.message)

    def picks(self) -> HubPage:
        """The built-in catalogue; asks nothing."""
        return HubPage(self._marked(map(entry_of, load_picks())))

    def _search(self, request: HubSearch) -> HubPage:
        base = self._base()
        found: list[HubEntry] = []
        cursor = request.cursor
        notes = {pick.repo: pick.note for pick in load_picks()}
        for _ in range(MAX_PAGES_A_SEARCH):
            params: dict[str, str | Sequence[str]] = {
                "filter": "gguf",
                "sort": _SORTS[request.sort],
                "limit": str(request.limit),
                "expand": _EXPANDED,
            }
            params |= {
                name: value
                for name, value in (("search", request.text), ("author", request.author), ("cursor", cursor))
                if value
            }
            answer = self._transport.get(base, "/api/models", params)
            with _understood(base):
                records = answers.decode_list(answer.body, answers.ModelRecord)
            entries = (_entry(record, notes.get(record.id, "")) for record in records if _is_repo(record.id))
            found += [entry for entry in entries if matches(entry, request)]
            cursor = _next_cursor(answer.headers.get("link", ""))
            # A page is given whole, so that the cursor says exactly where the next one begins.
            if not cursor or len(found) >= request.limit:
                break
        return HubPage(self._marked(found), cursor)

    # --- pages --------------------------------------------------------------------------------------------

    def model(self, request: HubModelRequest, *, fresh: bool = False) -> HubModel:
        """A repository with its files, remembered for `KEEP_MODEL_S`.

        When the hub cannot be asked, what was seen before or what the built-in catalogue knows (without files), with
        `offline` saying why. With `fresh` neither: the hub answers, or its error is raised.

        Raises:
            BadRequest: if the repository's name cannot be one.
            HubNotFound, HubRefused, HubOffline, HubFault: as the hub answered.
        """
        repo, revision = check_repo(request.repo), check_revision(request.revision)
        try:
            return self._marked_model(self._model(repo, revision, fresh=fresh))
        except HubFault as fault:
            if fresh or not _is_away(fault):
                raise
            with self._lock:
                kept = self._models.get((self._endpoint, repo, revision))
            pick = next((pick for pick in load_picks() if pick.repo == repo), None)
            if kept is not None:
                known = kept[1]
            elif pick is not None:
                known = HubModel(entry_of(pick), "", ())
            else:
                raise
            return self._marked_model(msgspec.structs.replace(known, offline=fault.message))

    def _model(self, repo: str, revision: str, *, fresh: bool) -> HubModel:
        base = self._base()
        key = (base.endpoint, repo, revision)
        with self._lock:
            kept = self._models.get(key)
        if kept is None or fresh or time.monotonic() - kept[0] > KEEP_MODEL_S:
            kept = (time.monotonic(), self._fetch_model(base, repo, revision))
            with self._lock:
                self._models[key] = kept
                self._models.move_to_end(key)
                while len(self._models) > MAX_KEPT_MODELS:
                    self._models.popitem(last=False)
        return kept[1]

    def find_file(
        self, repo: str, file: str, revision: str = "main", *, fresh: bool = False
    ) -> tuple[HubModel, HubFile]:
        """The page and one file: by `HubFile.name`, by one of its paths, or by a quantization only it has.

        Raises:
            HubNotFound: if the repository has no such file; else as `model`.
        """
        model = self.model(HubModelRequest(repo, revision), fresh=fresh)
        if model.offline and not model.files:
            raise HubOffline(model.offline, hint="Its files are listed by the hub alone.", endpoint=self.endpoint)
        everything = (*model.files, *model.projectors)
        for found in everything:
            if file == found.name or file in found.paths:
                return model, found
        named = [found for found in model.files if found.quantization.lower() == file.lower()]
        if len(named) == 1:
            return model, named[0]
        how_often = Counter(found.quantization for found in model.files)
        listed = ", ".join(
            found.quantization if found.quantization and how_often[found.quantization] == 1 else found.name
            for found in model.files[:12]
        )
        raise HubNotFound(
            f"{repo} has no model file {file[:200]!r}.",
            hint=f"It has {listed}." if listed else "It has no GGUF files at all.",
            repo=repo,
        )

    @contextmanager
    def open_file(
        self, place: Place, *, start: int = 0, n_bytes: int | None = None, if_range: str = ""
    ) -> Iterator[Body]:
        """A file's bytes from `start` on, see `Transport.open_file`.

        Raises:
            HubOffline, HubRefused, HubNotFound, HubFault: as the hub answered.
        """
        check_repo(place.repo)
        check_revision(place.commit)
        with self._transport.open_file(self._base(), place, start=start, n_bytes=n_bytes, if_range=if_range) as body:
            yield body

    def _fetch_model(self, base: Base, repo: str, revision: str) -> HubModel:
        path = f"/api/models/{repo}/revision/{quote(revision, safe='')}"
        answer = self._transport.get(base, path, {"expand": (*_EXPANDED, "sha")}, repo=repo)
        with _understood(base):
            record = answers.decode(answer.body, answers.ModelRecord)
        commit = record.sha or answer.headers.get("x-repo-commit", "")
        if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
            raise HubFault(f"The hub at {base.endpoint} does not say which version of {repo} it shows.", repo=repo)
        note = next((pick.note for pick in load_picks() if pick.repo == repo), "")
        entry = _entry(msgspec.structs.replace(record, id=repo), note)
        files = files_of(self._tree(base, repo, commit), entry.n_params)
        return HubModel(
            entry=entry,
            commit=commit,
            files=files.models,
            projectors=files.projectors,
            description=self._description(base, Place(repo, commit, "README.md")),
        )

    def _tree(self, base: Base, repo: str, commit: str) -> list[answers.TreeRecord]:
        found: list[answers.TreeRecord] = []
        params: dict[str, str | Sequence[str]] = {"recursive": "true", "expand": "false"}
        for _ in range(MAX_PAGES_A_TREE):
            answer = self._transport.get(base, f"/api/models/{repo}/tree/{commit}", params, repo=repo)
            with _understood(base):
                found += answers.decode_list(answer.body, answers.TreeRecord)
            cursor = _next_cursor(answer.headers.get("link", ""))
            if not cursor or len(found) >= answers.MAX_ENTRIES:
                break
            params["cursor"] = cursor
        return found

    def _description(self, base: Base, place: Place) -> str:
        """What its page says; "" when that cannot be had, which is no reason to refuse the page."""
        try:
            with self._transport.open_file(base, place, n_bytes=README_BYTES) as body:
                if body.status not in (200, 206):
                    return ""
                raw = b""
                for chunk in body.chunks():
                    raw += chunk
                    if len(raw) >= README_BYTES:
                        break
        except HubFault:
            return ""
        return description_of(raw[:README_BYTES].decode("utf-8", "replace"))

    # --- account ------------------------------------------------------------------------------------------

    def account(self) -> HubAccount:
        """Who is signed in; `problem` says why nobody is, or why that cannot be told."""
        base = self._base(check_offline=False)
        kept = self._tokens.get(base.endpoint)
        if not kept.token:
            return HubAccount(base.endpoint)
        try:
            name = self._who(self._base())
        except HubOffline as fault:
            return HubAccount(base.endpoint, signed_in=True, problem=fault.message)
        except HubFault as fault:
            return HubAccount(base.endpoint, problem=f"{fault.message} {fault.hint}".strip())
        return HubAccount(base.endpoint, signed_in=True, name=name, problem=_PLACES.get(kept.place, ""))

    def sign_in(self, token: str) -> HubAccount:
        """Check and keep a token; an empty one signs out.

        Raises:
            BadRequest: if it cannot be a token.
            HubRefused: if the hub does not know it (nothing is kept then).
            HubOffline, HubFault: if it could not be checked.
            StorageFault: if it could not be kept.
        """
        endpoint = self.endpoint
        token = token.strip()
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            raise BadRequest("That is no access token.", hint="Copy it from the hub's settings page.", param="token")
        if not token:
            self._tokens.forget(endpoint)
        else:
            self._base()
            self._who(Base(endpoint, lambda: token))
            self._tokens.keep(endpoint, token)
        with self._lock:
            self._models.clear()  # another account sees other repositories
        return self.account()

    def _who(self, base: Base) -> str:
        answer = self._transport.get(base, "/api/whoami-v2")
        with _understood(base):
            return answers.decode(answer.body, answers.Who).name

    # --- parts --------------------------------------------------------------------------------------------

    def _base(self, *, check_offline: bool = True) -> Base:
        with self._lock:
            endpoint, offline = self._endpoint, self._offline
        if offline and check_offline:
            raise offline_by_choice(endpoint)
        return Base(endpoint, lambda: self._tokens.get(endpoint).token)

    def _marked(self, entries: Iterator[HubEntry] | Sequence[HubEntry]) -> tuple[HubEntry, ...]:
        paths = [_slashed(model.path) for model in self._installed()]
        return tuple(
            msgspec.structs.replace(entry, is_installed=any(_is_from(path, entry.repo) for path in paths))
            for entry in entries
        )

    def _marked_model(self, model: HubModel) -> HubModel:
        ids = {_slashed(installed.path): installed.id for installed in self._installed()}
        files = tuple(
            msgspec.structs.replace(file, installed_id=_installed_id(model.entry.repo, file, ids))
            for file in model.files
        )
        is_installed = any(file.installed_id for file in files)
        return msgspec.structs.replace(
            model, files=files, entry=msgspec.structs.replace(model.entry, is_installed=is_installed)
        )


@contextmanager
def _understood(base: Base) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise fault_of(error, endpoint=base.endpoint) from error


def _is_away(fault: HubFault) -> bool:
    """Whether the hub said nothing, or only that it is in trouble."""
    return isinstance(fault, HubOffline) or int(fault.details.get("status", 0)) >= SERVER_TROUBLE


def _plain(text: str) -> str:
    """What to search for: of an address that was pasted from the hub's page, the repository."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https"):
        return text.strip()
    return "/".join(parts.path.strip("/").split("/")[:2])


def _is_repo(repo: str) -> bool:
    try:
        check_repo(repo)
    except BadRequest:
        return False
    return True


def _entry(record: answers.ModelRecord, note: str) -> HubEntry:
    tags = record.tags or []
    gguf = record.gguf or answers.Gguf()
    publisher, name = record.id.split("/", 1)
    return HubEntry(
        repo=record.id,
        name=_GGUF_IN_NAME.sub("", name) or name,
        publisher=publisher,
        downloads=record.downloads or 0,
        likes=record.likes or 0,
        updated_s=answers.seconds(record.last_modified),
        n_params=gguf.total,
        architecture=gguf.architecture or "",
        n_ctx_train=gguf.context_length,
        kind=_kind(record.pipeline_tag or "", gguf.architecture or ""),
        licence=next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), ""),
        is_gated=bool(record.gated),
        note=note,
    )


def _kind(pipeline_tag: str, architecture: str) -> str:
    if pipeline_tag in _VISION:
        return "vision"
    if pipeline_tag in _EMBEDDING or "bert" in architecture or "embedding" in architecture:
        return "embedding"
    return "chat"


def _next_cursor(link: str) -> str:
    """The cursor in `<https://…?cursor=…>; rel="next"`; "" on the last page, or when it is nothing we would send."""
    match = re.search(r'<([^>]*)>\s*;\s*rel="?next"?', link)
    cursor = parse_qs(urlsplit(match[1]).query).get("cursor", [""])[0] if match else ""
    return cursor if _CURSOR.fullmatch(cursor) else ""


def _slashed(path: str) -> str:
    return PurePath(path).as_posix()


def _is_from(path: str, repo: str) -> bool:
    """Whether a file came from a repository: by our layout (LM Studio's too), or by that of the hub's cache."""
    return f"/{repo}/" in path or f"/models--{repo.replace('/', '--')}/" in path


def _installed_id(repo: str, file: HubFile, ids: dict[str, str]) -> str:
    """Ours and LM Studio's layout, the hub's cache, or an Ollama blob of the same hash."""
    blob = f"sha256-{file.sha256[0]}" if file.sha256 and file.sha256[0] else ""
    for path, model_id in ids.items():
        if path.endswith(f"/{file.paths[0]}") and _is_from(path, repo):
            return model_id
        if blob and path.endswith(f"/{blob}"):
            return model_id
    return ""
