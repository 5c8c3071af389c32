"""Exported initializations in repositories of Hugging Face's hub.

Everything goes through huggingface_hub: its cache, its proxies, its token (HF_TOKEN or `hf auth
login`), which is neither kept here nor shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from leap_rl.core.regular_file import LARGEST, LARGEST_TEXT
from leap_rl.core.urls import redacted
from leap_rl.core.version import __version__
from leap_rl.sharing.card import FILES, ONNX
from leap_rl.storage.run_folder import INITIALIZATION

PREFIX: Final = "hf://"
"""Of the names of repositories, wherever an initialization may be named."""

_REPOSITORY = r"[\w-][\w.-]*/[\w-][\w.-]*"
_NAME = re.compile(rf"{PREFIX}({_REPOSITORY})(?:@((?!.*\.\.)\w[\w./-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CALLER: Final[Any] = {"library_name": "leap-rl", "library_version": __version__}
_LOG_IN = "log in by `hf auth login`, or set HF_TOKEN"


def download(given: str) -> tuple[Path, str, str]:
    """Download `FILES` of a repository, and no others, unless huggingface_hub's cache has them.

    Without a network the newest commit in the cache counts.

    Returns:
        Their folder; hf://USER/REPO@COMMIT, which names these very bytes; a name for tables.

    Raises:
        ValueError: The name is none, huggingface_hub is missing, there is no such repository or
            revision, the hub cannot be reached, or a file is missing there.
    """
    match = _NAME.fullmatch(given)
    if match is None:
        raise ValueError(
            f"{redacted(given)}: must be {PREFIX}USER/REPO or {PREFIX}USER/REPO@REVISION"
        )
    repository, revision = match.groups()
    library = _library()
    with _errors_as_value_errors(repository, revision):
        _check_sizes(library, repository, revision)
        path = library.snapshot_download(
            repository, revision=revision, allow_patterns=list(FILES), **_CALLER
        )
    folder = Path(path)
    commit = folder.name  # as its cache is laid out
    assert _COMMIT.fullmatch(commit), folder
    if missing := [name for name in FILES if not (folder / name).is_file()]:
        raise ValueError(
            f"the repository {repository} lacks {', '.join(missing)}, so it is none that `leap-rl "
            "push` made"
        )
    name = repository.partition("/")[2]
    if revision is not None:
        name += f"@{revision[:7] if revision == commit else revision}"
    return folder, f"{PREFIX}{repository}@{commit}", name


def _check_sizes(library: Any, repository: str, revision: str | None) -> None:
    """Raise ValueError for a file that is too large to be read, before it is downloaded."""
    try:
        files = library.HfApi(**_CALLER).get_paths_info(repository, list(FILES), revision=revision)
    except Exception:  # the download says why, or needs none
        return
    for file in files:
        largest = LARGEST if file.path == INITIALIZATION else LARGEST_TEXT
        if (size := getattr(file, "size", 0)) > largest:
            raise ValueError(
                f"{file.path} of the repository {repository} has {size:,} bytes, and may have "
                f"{largest:,}"
            )


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Commit an exported folder's files, and no others, to USER/REPO; return the commit's hash.

    The repository is made if there is none. One with an ONNX file, of which the folder has none,
    loses it: it would be the encoder of other weights.

    Raises:
        ValueError: The name is none, huggingface_hub or a token is missing, the hub cannot be
            reached or refuses, or the repository is to be private and is there already for all.
    """
    check_repository(repository)
    library = _library()
    with _errors_as_value_errors(repository):
        if library.get_token() is None:
            raise ValueError(f"no token for the hub was found; {_LOG_IN}")
        api = library.HfApi(**_CALLER)
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise ValueError(
                f"--private: the repository {repository} is there already and public; make it "
                "private in its settings, or name another"
            )
        files = [
            library.CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name)
            for name in (*FILES, ONNX)
            if (folder / name).exists()
        ]
        if not (folder / ONNX).exists() and ONNX in api.list_repo_files(repository):
            files.append(library.CommitOperationDelete(ONNX))
        message = f"Upload by leap_rl {__version__}"
        return str(api.create_commit(repository, files, commit_message=message).oid)


def check_repository(repository: str) -> None:
    """Raise ValueError for what cannot name a repository."""
    if not re.fullmatch(_REPOSITORY, repository, re.ASCII):
        raise ValueError(f"{repository}: must be USER/REPO, the name of a repository on the hub")


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(
            "huggingface_hub is not installed, which repositories on the hub need; "
            "`pip install 'leap-rl[hub]'` installs it"
        ) from None
    return huggingface_hub


@contextmanager
def _errors_as_value_errors(repository: str, revision: str | None = None) -> Iterator[None]:
    """Raise errors of the hub and of the libraries below as ValueError; show no progress bars."""
    from huggingface_hub import errors, utils

    bars = not utils.are_progress_bars_disabled()
    try:
        utils.disable_progress_bars()
        yield
    except errors.GatedRepoError:
        raise ValueError(
            f"{_endpoint()}/{repository} asks for consent first, in a browser; {_LOG_IN}"
        ) from None
    except errors.RevisionNotFoundError:
        raise ValueError(f"the repository {repository} has no revision {revision}") from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"{_endpoint()} has no repository {repository}, or a private one that you may not "
            f"read; {_LOG_IN}"
        ) from None
    except Exception as error:
        raise ValueError(_reason(error)) from None
    finally:
        if bars:
            utils.enable_progress_bars()


def _reason(error: BaseException) -> str:
    """Return an error's text without the token, which a refused header would show."""
    from huggingface_hub import errors

    chain = [error]
    while chain[-1].__cause__ is not None and not isinstance(chain[-1], errors.HfHubHTTPError):
        chain.append(chain[-1].__cause__)
    last = chain[-1]
    text = str(last) or type(last).__name__
    if isinstance(last, errors.HfHubHTTPError):
        status = last.response.status_code
        text = f"{_endpoint()} answers {status}: {last.server_message or text}"
        text += f"; {_LOG_IN}" if status == 401 else ""
    elif any(isinstance(one, OSError | errors.HTTPError) for one in chain):
        text = f"{_endpoint()} cannot be reached: {text}"
    elif not isinstance(last, ValueError):
        text = f"{type(last).__name__}: {text}"
    return redacted(" ".join(re.sub(r"Bearer .*", "Bearer ...", text).split()))


def _endpoint() -> str:
    return str(_library().constants.ENDPOINT)
