"""The pages on Django, Flask and metrics, followed step by step as a newcomer would."""

from typing import Any

import prometheus_client
import pytest
import requests

from nsqclient.devserver import Nsqd
from tests.manual.conftest import Cluster
from tests.support.docs.pages import commands_of, named, text_of
from tests.support.docs.terminal import Terminal
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


@pytest.fixture
def django_project(empty_terminal: Terminal) -> Terminal:
    terminal = empty_terminal
    terminal.run(" && ".join(commands_of(named("Django project"))))
    terminal.folder = terminal.folder / "site1"
    [nsqd] = commands_of(named("Django nsqd"))
    terminal.serve(nsqd)
    for name, text in {
        "shop/models.py": text_of(named("Django models")),
        "shop/handlers.py": text_of(named("Django handler")),
        "shop/views.py": text_of(named("Django view")),
    }.items():
        (terminal.folder / name).write_text(text)
    with (terminal.folder / "site1" / "settings.py").open("a") as settings:
        settings.write(terminal.here(text_of(named("Django settings"))))
    return terminal


@pytest.mark.long
def test_the_steps_of_the_django_page_work(django_project: Terminal) -> None:
    terminal = django_project
    *migrations, consume = commands_of(named("Django worker"))
    for command in migrations:
        terminal.run(command)
    worker = terminal.start(consume)
    for line in text_of(named("Django worker")).splitlines()[-4:]:
        worker.wait_for(terminal.here(line))
    order, look = commands_of(named("Django order"))
    terminal.run(order)
    wait_until(lambda: terminal.run(look).strip() == "1", 40, "no receipt was written")
    assert worker.interrupt() == 0
    [both] = commands_of(named("Django worker flags"))
    second = terminal.start(both)
    for topic in ("orders", "refunds"):
        second.wait_for(f"consuming {topic} on channel receipts")
    assert second.interrupt() == 0


@pytest.mark.long
def test_the_steps_of_the_outbox_page_give_a_relay_that_publishes(
    django_project: Terminal, nsqd: Nsqd
) -> None:
    terminal = django_project
    terminal.replace["127.0.0.1:4150"] = nsqd.tcp_address
    with (terminal.folder / "site1" / "settings.py").open("a") as settings:
        settings.write(text_of(named("outbox settings")))
        settings.write(f"NSQCLIENT['NSQD_TCP_ADDRESSES'] = ['{nsqd.tcp_address}']\n")
    (terminal.folder / "shop/views.py").write_text(text_of(named("outbox view")))
    terminal.run("python manage.py makemigrations shop")
    migrate, run = commands_of(named("outbox relay"))
    terminal.run(migrate)
    relay = terminal.start(run)
    for line in text_of(named("outbox relay")).splitlines()[2:]:
        relay.wait_for(terminal.here(line))
    order, _ = commands_of(named("Django order"))
    terminal.run(order)
    nsqd.create_topic("orders")
    wait_until(lambda: [message.body for message in nsqd.messages("orders")]
               == [b'{"reference": "a-1"}'], 40)
    assert relay.interrupt() == 0
    look = terminal.folder / "look.py"
    look.write_text(text_of(named("outbox rows")))
    terminal.run("python manage.py shell -v 0 < look.py")


#: What pytest-django's fixture ``settings`` and the view of the page stand for.
DJANGO_TEST = """
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from nsqclient.devserver import Nsqd
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "site1.settings"
django.setup()
call_command("migrate", verbosity=0)
from django.http import HttpResponse
from django.urls import path
from shop.views import place_order
from site1 import urls
def orders(request):
    place_order(request.POST["reference"])
    return HttpResponse("ok")
urls.urlpatterns.append(path("orders", orders))
settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name]
settings.ALLOWED_HOSTS = ["testserver"]
{test}
with Nsqd() as nsqd:
    test_an_order_is_announced(nsqd, settings, Client())
"""


@pytest.mark.long
def test_the_test_of_the_django_page_passes(django_project: Terminal) -> None:
    terminal = django_project
    terminal.run("python manage.py makemigrations shop")
    program = terminal.folder / "page.py"
    program.write_text(DJANGO_TEST.format(test=text_of(named("Django test"))))
    terminal.run("python page.py")


def test_the_app_of_the_flask_page_works(terminal: Terminal, cluster: Cluster) -> None:
    (terminal.folder / "app.py").write_text(terminal.here(text_of(named("Flask app"))))
    consume, run, post = commands_of(named("Flask commands"))
    worker = terminal.start(consume)
    for line in text_of(named("Flask commands")).splitlines()[1:5]:
        worker.wait_for(terminal.here(line))
    port = free_port()
    terminal.replace["127.0.0.1:5000"] = f"127.0.0.1:{port}"
    web = terminal.start(f"{run} --port {port}")
    web.wait_for("Running on")
    assert terminal.run(post).strip() == ""
    worker.wait_for("scaling cat.png")
    cluster.nsqd.wait_until_empty("pictures", "thumbnails")
    assert worker.interrupt() == 0
    web.interrupt()


def test_the_prometheus_program_of_the_page_exports_its_consumer_and_producer(nsqd: Nsqd) -> None:
    port = free_port()
    program = text_of(named("Prometheus")).replace("9100", str(port)).replace(
        "127.0.0.1:4150", nsqd.tcp_address)
    assert program.count("start_http_server(") == 1
    program = program.replace("prometheus_client.start", "server, thread = prometheus_client.start")
    names: dict[str, Any] = {}
    exec(compile(program, "the page", "exec"), names)
    try:
        with names["producer"] as producer, names["consumer"]:
            producer.publish("orders", b"x")
            nsqd.wait_until_empty("orders", "mail")
            text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    finally:
        names["server"].shutdown()
        names["server"].server_close()
        names["thread"].join()
        prometheus_client.REGISTRY.unregister(names["metrics"])
    assert 'nsq_consumer_received_total{channel="mail",topic="orders"} 1.0' in text
