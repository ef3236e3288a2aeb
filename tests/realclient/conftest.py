"""What the tests with real clients share: each version resumes everything once."""

from __future__ import annotations

import functools

import pytest

from fabled.prune.values import Decline
from tests.realclient import images, running
from tests.realclient.clients import VERSIONS


@functools.cache
def _cannot(version):
    return running.cannot(version)


@pytest.fixture(scope="session", params=VERSIONS)
def version(request):
    """A version that can be run here."""
    reason = _cannot(request.param)
    if reason is not None:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def newest():
    """The newest version that was measured."""
    reason = _cannot(VERSIONS[0])
    if reason is not None:
        pytest.skip(reason)
    return VERSIONS[0]


class Verdicts:
    """Fixtures of one client, pruned in every way and resumed by one client, once."""

    def __init__(self, version, fixtures, folder, kinds):
        self._images = {}
        pairs = []
        for fixture in fixtures:
            place = folder / str(fixture)
            original = images.put(fixture.path, place / "original", fixture.session)
            made = {original.read_bytes(): original}
            for kind in kinds:
                image = images.pruned(original, place / kind, images.KINDS[kind])
                if not isinstance(image, Decline):
                    image = made.setdefault(image.read_bytes(), image)
                self._images[str(fixture), kind] = image
            # Where nothing was taken out, the original stands for itself, resumed once.
            pairs.append([original, *made.values()])
        self._verdicts = running.compare(version, pairs, folder)

    def image(self, fixture, kind):
        """The image's path; or why it was declined."""
        return self._images[str(fixture), kind]

    def __getitem__(self, wanted):
        fixture, kind = wanted
        image = self.image(fixture, kind)
        assert not isinstance(image, Decline), image.message
        return self._verdicts[image]


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory):
    """Asked for a client's version: how it resumed the fixtures of that version."""

    @functools.cache
    def of(version):
        folder = tmp_path_factory.mktemp(f"resumed-{version}")
        return Verdicts(version, images.fixtures(version), folder, tuple(images.KINDS))

    return of


@pytest.fixture(scope="session")
def newest_verdicts(tmp_path_factory):
    """How the newest client resumed the fixtures of an older version."""

    @functools.cache
    def of(version):
        folder = tmp_path_factory.mktemp(f"upgraded-{version}")
        kinds = ("transparent", "lean-all")
        return Verdicts(VERSIONS[0], images.fixtures(version), folder, kinds)

    return of
