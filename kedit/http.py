"""JSON over HTTP to a server that may be busy, slow, broken or gone: retries, limits, counts, and keys that never show."""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

from kedit.errors import EndpointError, KeditError, RequestError, UnansweredError

T = TypeVar("T")
S = TypeVar("S")

BASE_URLS = ("KEDIT_BASE_URL", "OPENAI_BASE_URL")
BASE_URL = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
PATIENCE = 300.0
"""Seconds that a server may ask a client to wait; one that asks for more is left alone."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""What may be over in a moment."""
_OF_THE_REQUEST = frozenset({400, 413, 415, 422})
"""What is wrong with one request and not with others."""
_SHOWN = 300
_LARGEST = 1 << 26
_KEYLIKE = re.compile(r"(?i)\bBearer\s+\S+|\b(?:sk|pk|key)-[\w*.-]{4,}")


@dataclass
class Traffic:
    """What went over the wire since the client was made; ``requests`` counts every attempt, ``retries`` those after a first."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **more: int) -> None:
        """Count, from whichever thread."""
        with self._lock:
            for name, number in more.items():
                setattr(self, name, getattr(self, name) + number)


@dataclass(frozen=True)
class _Again:
    """Why an attempt came to nothing that may succeed later, and how many seconds the server wants to be left alone."""

    why: str
    wait: float | None = None
    busy: bool = False


def reach(base_url: str | None = None, api_key_env: str | None = None) -> tuple[str, str | None]:
    """Address and key of an endpoint: what is given, else what the environment's variables say, else OpenAI's own address.

    A server that wants no key needs none; EndpointError where the variable ``api_key_env`` is named and not set.
    """
    if api_key_env and not re.fullmatch(r"[A-Za-z_]\w*", api_key_env):  # not shown: it may be the key itself
        raise EndpointError(f"expected the name of an environment variable that holds the key, such as {KEY}")
    key = os.environ.get(api_key_env or KEY)
    if api_key_env and not key:
        raise EndpointError(f"the environment variable {api_key_env} is to hold the key, but it is not set")
    return next((url for url in (base_url, *map(os.environ.get, BASE_URLS)) if url), BASE_URL), key


class StatusError(Exception):
    """A status that no repetition changes, with the body as it came."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected request would take the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class JSONClient:
    """A client for ``base_url`` (such as ``http://localhost:8000/v1``), safe to use from several threads.

    At most ``concurrency`` requests are under way at once. One that meets 408, 425, 429, 5xx, a cut connection, no answer
    within ``timeout`` seconds or something that is no JSON is repeated up to ``retries`` times, after ``backoff`` seconds that
    double, or when the server's Retry-After says; then nobody else asks before that either. ``key`` goes into the
    Authorization header (user name and password in the address do where there is no key) and into nothing else: no message,
    repr or file. Redirections are not followed, for they would carry it elsewhere.

    Raises EndpointError for what concerns all requests (address, key, quota, unknown model, a server that is gone), RequestError
    for a request that the server does not take, and UnansweredError for one that it never answered.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 1.0,
    ) -> None:
        self._base_url = base_url
        self._key = key
        self.concurrency = concurrency
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self.traffic = Traffic()
        self._slots = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._random = random.Random()  # not the global one, which decides an editor's results
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @cached_property
    def address(self) -> str:
        """The base address without user name, password and query; raises EndpointError for what is no http address."""
        try:
            parts = urlsplit(self._base_url.strip())
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            parts, port = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EndpointError("the base URL is no http address; expected something like http://localhost:8000/v1")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T | KeditError]:
        """``function`` of every item in ``concurrency`` threads, in order; kedit's own error in place of what has one.

        The first EndpointError stops the rest and is raised.
        """
        stopped: list[EndpointError] = []

        def one(item: S) -> T:
            if stopped:
                raise stopped[0]
            try:
                return function(item)
            except EndpointError as error:
                stopped.append(error)
                raise

        with ThreadPoolExecutor(max(1, min(self.concurrency, len(items)))) as pool:
            futures = [pool.submit(one, item) for item in items]
            try:
                outcomes = list(map(_outcome, futures))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return outcomes

    def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T | None]) -> T:
        """What ``read`` makes of the object that comes back; it gives None for an object that is no valid answer."""
        try:
            return self.request("POST", path, body, read)
        except StatusError as error:
            raise self.refusal(error) from None

    # -- one request, repeated ---------------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T | None], most: int | None = None
    ) -> T:
        """As ``post``, but StatusError for a status that no repetition changes; ``most`` limits the repetitions further."""
        retries = self.retries if most is None else min(most, self.retries)
        last = _Again("it was not asked")
        for attempt in range(retries + 1):
            if attempt:
                self._pause(last, attempt - 1)
            self.traffic.add(requests=1, retries=int(attempt > 0))
            found = self._attempt(method, path, body, read)
            if not isinstance(found, _Again):
                return found
            last = found
        tries = f"{retries + 1} attempts" if retries else "one attempt"
        if last.busy:
            raise EndpointError(
                f"{self.address} limits requests even after {tries} ({last.why}): lower concurrency, or go on later"
            )
        if path == "models" or not self._alive():
            raise EndpointError(
                f"{self.address} gave no answer in {tries} ({last.why}): see whether it runs, and at that address"
            )
        raise UnansweredError(f"{self.address} gave no usable answer in {tries} ({last.why})")

    def _attempt(self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T | None]) -> T | _Again:
        asked = self._made(method, path, body)
        try:
            status, headers, data = self._exchange(asked)
        except (OSError, http.client.HTTPException) as error:
            return self._lost(error)
        text = data.decode("utf-8", "replace")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if status == 200 and isinstance(content, dict) and "error" in content and "choices" not in content:
            status = _code(content["error"])  # some proxies pass on an error under a status that says all is well
        if 200 <= status < 300:
            found = read(content) if isinstance(content, dict) else None
            return found if found is not None else _Again(f"status {status}, but no valid answer: {self.clean(text)!r}")
        if status in _PASSING and "insufficient_quota" not in text:
            return _Again(f"status {status}: {self.clean(text)!r}", _retry_after(headers), status == 429)
        raise StatusError(status, text)

    def _made(self, method: str, path: str, body: Mapping[str, Any] | None) -> urllib.request.Request:
        data = None if body is None else json.dumps(body).encode()
        query = urlsplit(self._base_url.strip()).query
        return urllib.request.Request(
            f"{self.address}/{path}" + (f"?{query}" if query else ""), data, self._headers, method=method
        )

    def _exchange(self, request: urllib.request.Request) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one exchange; raises OSError or HTTPException where the connection gives none."""
        while (wait := self._not_before - time.monotonic()) > 0:
            time.sleep(wait)
        with self._slots:
            deadline = time.monotonic() + self.timeout
            try:
                with self._opener.open(request, timeout=self.timeout) as response:
                    return response.status, dict(response.headers), _read(response, deadline)
            except HTTPError as error:
                with error:
                    return error.code, dict(error.headers), _read(error, deadline)

    @cached_property
    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kedit"}
        parts = urlsplit(self._base_url)
        key = (self._key or "").strip()
        if not (key.isascii() and key.isprintable()):  # the library's own error would show it
            raise EndpointError("the key holds characters that no key has, such as a line break; check where it comes from")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        elif parts.username or parts.password:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return headers

    def _lost(self, error: Exception) -> _Again:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise EndpointError(f"{self.address} has no certificate that this machine trusts: {reason.verify_message}") from None
        if isinstance(reason, TimeoutError):
            return _Again(f"nothing within {self.timeout:g} seconds")
        return _Again(self.clean(f"{type(reason).__name__}: {reason}"))

    def _pause(self, again: _Again, attempt: int) -> None:
        if again.wait is None:
            time.sleep(self.backoff * 2**attempt * self._random.uniform(0.75, 1.25))
            return
        if again.wait > PATIENCE:
            raise EndpointError(
                f"{self.address} wants to be left alone for {again.wait:.0f} seconds ({again.why}): go on after that"
            )
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + again.wait)

    def _alive(self) -> bool:
        """Whether the server answers anything at all."""
        self.traffic.add(requests=1)
        try:
            status, _, _ = self._exchange(self._made("GET", "models", None))
        except (OSError, http.client.HTTPException):
            return False
        return status < 500

    # -- messages ----------------------------------------------------------------------------------------------------

    def refusal(self, error: StatusError) -> KeditError:
        """The error for the user: what the server said, and what to do."""
        said = f"{self.address} answered with status {error.status}: {self.clean(error.body)!r}"
        if (field := _refused_field(error.body)) is not None:
            return EndpointError(
                f"{said}; leave the field {field!r} out of every request: set it to None (on the command line: null)"
            )
        if error.status in _OF_THE_REQUEST:
            return RequestError(said)
        hints = {
            401: "give a valid key: by OPENAI_API_KEY, or name the variable that holds it",
            403: "this key may not use it",
            404: "is the model's name right, and does the base URL end as the server wants it, often in /v1?",
            429: "the quota is used up",
        }
        moved = "it sends elsewhere: give that address as base URL" if 300 <= error.status < 400 else "see its log"
        return EndpointError(f"{said}; {hints.get(error.status, moved)}")

    def clean(self, text: str) -> str:
        """The start of a text from outside, fit for a message: one line, and nothing that is or looks like a key."""
        for secret in (self._key or "").strip(), urlsplit(self._base_url).password or "":
            if len(secret) > 3:
                text = text.replace(secret, "(key)")
        text = _KEYLIKE.sub("(key)", text)
        text = "".join(c if c.isprintable() else " " for c in text)
        return text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")


def _outcome(future: Future[T]) -> T | KeditError:
    try:
        return future.result()
    except EndpointError:
        raise
    except KeditError as error:
        return error


def _read(response: Any, deadline: float) -> bytes:
    """The body, whatever its pieces; TimeoutError at the deadline, which a server that dribbles would never meet otherwise."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
        if size > _LARGEST:
            raise http.client.HTTPException(f"an answer of more than {_LARGEST >> 20} MB")
    return b"".join(parts)


def _code(error: Any) -> int:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if code.isdecimal() and 400 <= int(code) < 600 else 500


def _refused_field(body: str) -> str | None:
    """The setting that a server names as the culprit and that every request has, such as a temperature."""
    try:
        error = json.loads(body)["error"]
        field, code = error.get("param"), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    settings = isinstance(field, str) and field.isidentifier() and field not in ("messages", "model", "max_tokens")
    return field if settings and code in ("unsupported_parameter", "unsupported_value") else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, given as a number or as a date; None where nothing (or nothing sensible) is said."""
    given = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    if not given:
        return None
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(given).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
