"""Where the published files of C4 come from: a directory, or a server that is read on where a
connection broke.
"""

import errno
import http.client
import json
import os
import pathlib
import re
import ssl
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass

from ..files import sync_directory, write_whole

FOLDERS = ("", "en/")  # inside the source, in the order tried
CHUNK_BYTES = 1 << 20
TIMEOUT_S = 30  # without a byte
PROBE_ATTEMPTS = 3
DOWNLOAD_ATTEMPTS = 6  # in a row that bring nothing


class SourceError(Exception):
    """What the user is told in one line, and the exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Stopped(Exception):
    pass


DISK_FULL = 3
UNREACHABLE = 4


class DirectorySource:
    """Files that are read where they lie."""

    transient = False  # nothing is downloaded

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        if not self.directory.is_dir():
            raise SourceError(
                f"--source {directory}: no such directory, and not an http:// or https:// URL"
            )

    def path(self, name):
        tried = [self.directory / folder / name for folder in FOLDERS]
        for path in tried:
            if path.is_file():
                return path
        raise SourceError(
            f"{tried[0]}: no such file; tried {', '.join(str(path) for path in tried)}"
        )

    def size(self, name):
        return self.path(name).stat().st_size

    def obtain(self, name, report):
        report(1.0)
        return self.path(name)

    def release(self, name):
        pass

    def renew(self, name):
        """Whether another copy can be had of a file that is damaged."""
        return False

    def partial_bytes(self, name):
        return 0


@dataclass
class Remote:
    url: str
    size: int
    validator: str  # strong ETag or Last-Modified; empty where the server gives neither


def validator_of(headers):
    tag = headers.get("ETag", "")
    return headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag


def total_size(response):
    """Bytes of the whole file and where in it the body begins."""
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not found:
            raise http.client.HTTPException("a partial answer without a usable Content-Range")
        return int(found[2]), int(found[1])
    length = response.headers.get("Content-Length")
    if length is None:
        raise SourceError(f"{response.url}: the server does not report the size of the file")
    return int(length), 0


def reason_of(failure):
    if isinstance(failure, urllib.error.HTTPError):
        return f"{failure.code} {failure.reason}"
    if isinstance(failure, urllib.error.URLError):
        return str(getattr(failure.reason, "strerror", None) or failure.reason)
    return str(failure) or type(failure).__name__


def worth_another_try(failure):
    if isinstance(failure, urllib.error.HTTPError):
        return failure.code in (408, 416, 425, 429) or failure.code >= 500
    return True


class HttpSource:
    """Files of a server, downloaded into a directory; a broken download goes on if the server knows
    how.
    """

    transient = True
    # What a connection can fail with. Writing to the disk is kept apart from it.
    FAILURES = (
        urllib.error.URLError,
        http.client.HTTPException,
        ConnectionError,
        TimeoutError,
        ssl.SSLError,
    )

    def __init__(self, base, directory, keep, stop):
        self.base = base.rstrip("/") + "/"
        self.directory = directory
        self.keep = keep
        self.stop = stop
        self.remotes = {}
        self.lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)

    def size(self, name):
        whole = self.directory / name
        return whole.stat().st_size if whole.exists() else self.remote(name).size

    def obtain(self, name, report):
        whole, part = self.directory / name, self._part(name)
        if not whole.exists():
            self._download(name, part, report)
            os.replace(part, whole)
            self._note(name).unlink(missing_ok=True)
            sync_directory(self.directory)
        report(1.0)
        return whole

    def release(self, name):
        if not self.keep:
            (self.directory / name).unlink(missing_ok=True)

    def renew(self, name):
        (self.directory / name).unlink(missing_ok=True)
        return True

    def partial_bytes(self, name):
        for path in (self.directory / name, self._part(name)):
            if path.exists():
                return path.stat().st_size
        return 0

    def remote(self, name):
        with self.lock:
            known = self.remotes.get(name)
        if known is None:
            known = self._probe(name)
            with self.lock:
                self.remotes[name] = known
        return known

    def _part(self, name):
        return self.directory / (name + ".part")

    def _note(self, name):
        return self.directory / (name + ".part.json")

    def _open(self, url, headers):
        if self.stop.is_set():
            raise Stopped()
        # The bytes as they are: a server must not unpack or pack them on the way.
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)

    def _wait(self, attempt):
        if self.stop.wait(min(2**attempt, 30)):
            raise Stopped()

    def _probe(self, name):
        """Asks for the first byte, which also servers answer that know no HEAD."""
        urls = [self.base + folder + name for folder in FOLDERS]
        for attempt in range(PROBE_ATTEMPTS):
            try:
                return self._first_of(urls)
            except self.FAILURES as failure:
                last = failure
                if not worth_another_try(failure):
                    raise SourceError(
                        f"{urls[0]}: {reason_of(failure)}; tried {', '.join(urls)}"
                    ) from None
            if attempt + 1 < PROBE_ATTEMPTS:
                self._wait(attempt)
        raise SourceError(
            f"{urls[0]}: cannot be reached: {reason_of(last)}; tried {PROBE_ATTEMPTS} times; "
            "finished files are kept",
            UNREACHABLE,
        )

    def _first_of(self, urls):
        for url in urls:
            try:
                with self._open(url, {"Range": "bytes=0-0"}) as response:
                    return Remote(url, total_size(response)[0], validator_of(response.headers))
            except urllib.error.HTTPError as failure:
                if failure.code != 404 or url == urls[-1]:
                    raise

    def _download(self, name, part, report):
        remote = self.remote(name)
        attempt = 0
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                return self._go_on(name, remote, part, report)
            except self.FAILURES as failure:
                if not worth_another_try(failure):
                    raise SourceError(f"{remote.url}: {reason_of(failure)}") from None
                got = part.stat().st_size if part.exists() else 0
                attempt = 0 if got > before else attempt + 1
                if attempt == DOWNLOAD_ATTEMPTS:
                    raise SourceError(
                        f"{remote.url}: read interrupted after {got} of {remote.size} bytes: "
                        f"{reason_of(failure)}; tried {attempt} times; the part received is kept",
                        UNREACHABLE,
                    ) from None
            self._wait(attempt)

    def _usable_part(self, name, remote, part):
        """Bytes of a partial download of the very file that the server has today; others are thrown
        away.
        """
        try:
            note = json.loads(self._note(name).read_text(encoding="utf-8"))
            same = remote.validator and note == {"size": remote.size, "validator": remote.validator}
            have = part.stat().st_size
            if same and 0 < have <= remote.size:
                return have
        except (OSError, ValueError):
            pass
        part.unlink(missing_ok=True)
        return 0

    def _go_on(self, name, remote, part, report):
        have = self._usable_part(name, remote, part)
        if have == remote.size:
            return
        headers = {"Range": f"bytes={have}-", "If-Range": remote.validator} if have else {}
        with self._open(remote.url, headers) as response:
            size, first = total_size(response)
            if first not in (0, have) or (first and size != remote.size):
                raise http.client.HTTPException(
                    f"asked for byte {have} of {remote.size}, got byte {first} of {size}"
                )
            now = Remote(remote.url, size, validator_of(response.headers))
            if first == 0:
                part.unlink(missing_ok=True)
                note = {"size": now.size, "validator": now.validator}
                write_whole(self._note(name), json.dumps(note))
            self.remotes[name] = now
            self._receive(response, part, size, report)

    def _receive(self, response, part, size, report):
        with open(part, "ab") as file:
            while True:
                if self.stop.is_set():
                    raise Stopped()
                chunk = response.read1(CHUNK_BYTES)
                if not chunk:
                    break
                write_chunk(file, chunk)
                report(file.tell() / size)
            if file.tell() != size:
                raise http.client.HTTPException(
                    f"the connection ended at byte {file.tell()} of {size}"
                )
            os.fsync(file.fileno())


def write_chunk(file, chunk):
    try:
        file.write(chunk)
        file.flush()
    except OSError as failure:
        status = DISK_FULL if is_disk_full(failure) else 1
        raise SourceError(f"{file.name}: cannot be written: {failure.strerror}", status) from None


def is_disk_full(failure):
    return failure.errno in (errno.ENOSPC, errno.EDQUOT)
