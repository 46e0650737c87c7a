"""Certificates, and a browser for the tests of the admin page."""

from collections.abc import Iterator

import pytest

from tests.support.browser.browser import Browser, Page, chromium


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> object:
    """An authority, a server and its clients; skips the test where trustme is missing."""
    from tests.support.certificates import Certificates

    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests; each has a page that nothing was stored for."""
    running = Browser(chromium(), tmp_path_factory.mktemp("chromium"))
    yield running
    running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; a complaint of its console fails the test."""
    found = browser.page()
    yield found
    found.close()
    assert found.errors == []
