"""The text of a study: a hash of its token shards, which the study's file may pin."""

import functools
import hashlib
import pathlib

from ..sweeps.configuration import BadConfig

CHUNK = 1 << 22


@functools.cache
def hash_of(tokens):
    """SHA-256 of the bytes of all shards, train_*.bin before val_*.bin, each in order of names."""
    directory = pathlib.Path(tokens)
    shards = [*sorted(directory.glob("train_*.bin")), *sorted(directory.glob("val_*.bin"))]
    if not shards:
        raise BadConfig(
            f"--tokens {tokens}: found no train_*.bin and val_*.bin, expected a directory that"
            " `mpretrain tokenize` wrote"
        )
    digest = hashlib.sha256()
    for shard in shards:
        with open(shard, "rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def check(study, tokens):
    """The hash; refused where the study pins another."""
    found = hash_of(str(tokens))
    if study.corpus and found != study.corpus:
        raise BadConfig(
            f"{study.path}: corpus: found {found} in --tokens {tokens}, expected {study.corpus}"
        )
    return found
