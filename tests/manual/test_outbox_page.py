"""The page on the outbox: its recipe for Flask; test_frameworks.py follows the steps for Django."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqclient.devserver import Nsqd
from tests.manual.conftest import Cluster
from tests.support.docs.pages import commands_of, load, named, text_of
from tests.support.docs.terminal import Terminal
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import running_postgres
from tests.support.waiting import wait_until


def bodies(nsqd: Nsqd) -> list[bytes]:
    nsqd.create_topic("orders")
    return [message.body for message in nsqd.messages("orders")]


@pytest.mark.long
def test_the_commands_of_the_recipe_publish_an_order(terminal: Terminal, cluster: Cluster) -> None:
    (terminal.folder / "app.py").write_text(terminal.here(text_of(named("outbox Flask app"))))
    relay, run, post = commands_of(named("outbox Flask commands"))
    port = free_port()
    terminal.replace["127.0.0.1:5000"] = f"127.0.0.1:{port}"
    web = terminal.start(f"{run} --port {port}")
    web.wait_for("Running on")
    terminal.run(post)
    terminal.start(relay)
    wait_until(lambda: bodies(cluster.nsqd) == [b"a-1"], 40)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, leak_guard: None, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.sqlite3"
    else:
        with running_postgres() as server:
            yield f"postgresql+psycopg://nsq@/postgres?host={server.host}"


def test_the_recipe_publishes_what_is_committed_and_nothing_else(
    database: str, nsqd: Nsqd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that exists is rolled back with its message; an outage of nsqd keeps messages."""
    monkeypatch.setenv("FLASK_SQLALCHEMY_DATABASE_URI", database)
    monkeypatch.setenv("FLASK_NSQCLIENT__NSQD_TCP_ADDRESSES", f'["{nsqd.tcp_address}"]')
    monkeypatch.setenv("FLASK_NSQCLIENT__OPTIONS", '{"publish_timeout": 0.5}')
    (tmp_path / "recipe.py").write_text(text_of(named("outbox Flask app")))
    recipe = load(tmp_path / "recipe.py")
    app = recipe.create_app()

    def post(reference: str) -> int:
        return int(app.test_client().post("/orders", data={"reference": reference}).status_code)

    def publish() -> int:
        with app.app_context():
            return int(recipe.publish_batch())

    try:
        assert [post("a"), post("b"), post("a")] == [201, 201, 500]
        assert publish() == 2 and publish() == 0
        assert bodies(nsqd) == [b"a", b"b"]
        post("c")
        nsqd.stop()
        with pytest.raises(recipe.PublishError):
            publish()
        with app.app_context():
            rows = recipe.db.session.scalars(recipe.db.select(recipe.OutboxMessage)).all()
            assert [row.body for row in rows] == [b"c"]
    finally:
        with app.app_context():
            recipe.db.engine.dispose()
        recipe.nsq.close(app)
