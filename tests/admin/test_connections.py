"""The end of the page's server."""

from nsqclient.admin import AdminSettings
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
