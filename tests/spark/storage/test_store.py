"""Features of folders and of obstore, the probe, and URLs. See also ``test_contract``."""

import errno
import os
import pickle
import stat
import time

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import StorageError, StorageFullError, StorageUnsuitableError
from nsqclient.spark.options import check_storage
from nsqclient.spark.storage import StoredObject, local, object_store, open_store, probe
from tests.support.servers.http_recorder import recording
from tests.support.servers.object_store import environment


class _Memory:
    url = "s3://old/x"

    def __init__(self, fault=""):
        self.objects = {}
        self._fault = fault

    def create(self, key, data):
        if self._fault == "taken" or key in self.objects and self._fault != "replaces":
            return False
        self.objects[key] = data
        return True

    def read(self, key):
        return self.objects[key]

    def list_objects(self, folder, after=""):
        if self._fault == "no list" or self._fault == "nothing after" and after:
            return []
        return [StoredObject(key, 1) for key in sorted(self.objects)
                if key > after or self._fault == "ignores after"]

    def delete(self, keys):
        for key in keys:
            self.objects.pop(key, None)


@pytest.mark.parametrize("fault, words", [
    ("replaces", "honours If-None-Match"), ("taken", "is said to be there"),
    ("no list", "does not list what it has just stored$"),
    ("nothing after", "does not list what it has just stored after a key"),
    ("ignores after", "does not list what it has just stored after a key"),
])
def test_the_probe_refuses_an_unsuitable_storage(fault, words):
    """Old servers with S3's protocol ignore the condition; OneLake lists nothing after a key."""
    store = _Memory(fault)
    with pytest.raises(StorageUnsuitableError, match=words) as failed:
        probe(store)
    assert "\n" not in str(failed.value)
    assert not store.objects


@pytest.mark.parametrize("url, words", [
    ("hdfs://node/x", "scheme 'hdfs' is not supported"),
    ("mnt/x", "give an absolute path"),
    ("file://host/mnt", "absolute path"), ("file:relative", "absolute path"),
    ("file:///", "absolute path"), ("s3:///x", "give a bucket, as in s3://bucket/prefix"),
    ("az:///x", "give a container, as in az://container/prefix"),
    ("s3://key:secret@bucket/x", "without user, password"),
    ("s3://bucket/x?secret=1", "without user, password"),
])
def test_a_wrong_url_is_refused_on_one_line(url, words):
    with pytest.raises(ConfigError, match=words) as failed:
        check_storage(url)
    assert "\n" not in str(failed.value) and "secret" not in str(failed.value)


@pytest.mark.parametrize("url, found", [
    ("file:///mnt/nsq/", ("file", "/mnt/nsq")), ("s3://b", ("s3", "b")),
    ("s3a://b/c/d/", ("s3", "b/c/d")),
])
def test_the_right_urls_are_understood(url, found):
    assert check_storage(url) == found


def test_a_conflict_is_tried_again():
    """S3's answer while another create of the key is under way."""
    conflict = 409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    answers = [conflict, conflict, (200, b"")]
    with recording() as server, environment(server.url):
        server.headers = {"ETag": '"x"'}
        server.answer = lambda request: answers.pop(0)
        assert open_store("s3://bucket/x").create("t/a", b"one")
    assert [request.method for request in server.requests] == ["PUT"] * 3


def test_a_storage_that_is_gone_is_noticed_within_seconds(s3_endpoint):
    with environment("http://127.0.0.1:1"):
        began = time.monotonic()
        with pytest.raises(StorageError, match="the request failed: "):
            probe(open_store("s3://bucket/x"))
        assert time.monotonic() - began < 60


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written: Not a directory"):
        probe(open_store(f"file://{tmp_path}/file/x"))
    with pytest.raises(StorageError, match="Not a directory"):
        open_store(f"file://{tmp_path}/file").create("a", b"")


def test_files_of_a_folder_are_their_owners_alone(tmp_path):
    """They contain the bodies of messages."""
    store = open_store(f"file://{tmp_path}/s")
    store.create("t/a", b"one")
    modes = [stat.S_IMODE(os.stat(tmp_path / "s" / name).st_mode) for name in ("", "t", "t/a")]
    assert modes == [0o700, 0o700, 0o600]
    assert sorted(os.listdir(tmp_path / "s/t")) == ["a"]  # no temporary file


def test_a_link_whose_answer_was_lost_is_ours(tmp_path, monkeypatch):
    """NFS may report an error for a link that was made."""
    store = open_store(f"file://{tmp_path}/s")
    link = os.link

    def lose(*arguments):
        link(*arguments)
        raise FileExistsError

    monkeypatch.setattr(local.os, "link", lose)
    assert store.create("t/a", b"one") and not store.create("t/a", b"two")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_volume_without_hard_links_is_used(tmp_path, monkeypatch, code):
    def refuse(source, target):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local.os, "link", refuse)
    store = open_store(f"file://{tmp_path}/s")
    probe(store)
    assert store.create("t/a", b"one") and not store.create("t/a", b"two")
    assert os.listdir(tmp_path / "s/t") == ["a"] and store.read("t/a") == b"one"


def test_a_folder_that_is_deleted_between_two_steps_is_made_again(tmp_path, monkeypatch):
    """A folder is deleted with its last object."""
    store = open_store(f"file://{tmp_path}/s")
    link = os.link
    failed = []

    def lose(source, target):
        if not failed:
            failed.append(target)
            raise FileNotFoundError
        link(source, target)

    monkeypatch.setattr(local.os, "link", lose)
    assert store.create("t/a", b"one") and failed


def test_a_file_is_on_the_disk_when_it_was_created(tmp_path, monkeypatch):
    """The bytes are synced before the name."""
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda one: synced.append(
        os.readlink(f"/proc/self/fd/{one}")) or fsync(one))
    store = open_store(str(tmp_path / "log"))
    store.create("t/a", b"x")
    assert os.path.basename(synced[-2]).startswith(".tmp-")
    assert synced[-1] == str(tmp_path / "log" / "t")


def test_a_full_disk_says_what_is_missing(tmp_path, monkeypatch):
    """Some space is reserved for the objects that deletions need."""
    disk = os.statvfs(tmp_path)
    store = open_store(str(tmp_path / "log"))
    assert store.missing_space(10 ** 18) == 0  # nothing is stored yet
    store.create("t/a", b"x")
    free = disk.f_bavail * disk.f_frsize
    assert store.missing_space(0) == 0 < store.missing_space(free + 2 ** 30)

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local, "write_durably", full)
    with pytest.raises(StorageFullError, match="t/b cannot be written: No space left") as failed:
        store.create("t/b", b"xyz")
    assert pickle.loads(pickle.dumps(failed.value)).missing == 3


@pytest.mark.parametrize("url, set_up, words", [
    ("az://cont/x", {}, "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY"),
    ("az://cont/x", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "?"},
     "Invalid Access Key: .*: set AZURE_STORAGE_ACCOUNT_NAME"),
    ("gs://cont/x", {"GOOGLE_SERVICE_ACCOUNT": "/no/such/file"},
     "No such file or directory .*: set GOOGLE_APPLICATION_CREDENTIALS"),
])
def test_settings_that_are_missing_or_wrong_are_named(monkeypatch, url, set_up, words):
    for name in os.environ:
        if name.startswith(("AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in set_up.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words) as failed:
        open_store(url)
    assert "\n" not in str(failed.value) and "AWS" not in str(failed.value)


@pytest.mark.parametrize("scheme, variable", [
    ("s3", "AWS_ACCESS_KEY_ID"), ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
    ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
])
def test_missing_credentials_are_those_of_the_scheme(scheme, variable):
    error = ValueError("Error performing token request: GET http://169.254.169.254/metadata/x")
    assert variable in object_store._reason(error, f"{scheme}://bucket/x")
