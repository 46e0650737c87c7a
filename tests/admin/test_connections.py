"""The start and the end of the page's server."""

import pytest

from nsqclient.admin import AdminSettings, app
from nsqclient.admin.app import AdminServer


def test_a_stop_whose_thread_has_ended_before_it_is_woken(monkeypatch, leak_guard):
    server = AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0)
    server.start()
    trigger, thread = server._server.trigger, server._thread
    pull = trigger._physical_pull

    def woken_by_another():
        pull()
        thread.join(20)
        pull()

    monkeypatch.setattr(trigger, "_physical_pull", woken_by_another)
    server.stop()
    assert not thread.is_alive()


def test_a_second_start_is_refused(leak_guard):
    with AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0) as server:
        address = server.address
        with pytest.raises(RuntimeError, match="already started"):
            server.start()
        assert server.address == address


@pytest.mark.parametrize("part", ["create_app", "create_server"])
def test_a_failed_start_leaves_nothing_open(monkeypatch, leak_guard, part):
    socks, listen = [], app.listen

    def listening(host, port):
        socks.append(listen(host, port))
        return socks[0]

    def fail(*args, **options):
        raise RuntimeError("no more threads")

    monkeypatch.setattr(app, "listen", listening)
    monkeypatch.setattr(app, part, fail)
    server = AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0)
    with pytest.raises(RuntimeError, match="no more threads"):
        server.start()
    assert socks[0].fileno() == -1
