"""The stack of byte layers between the socket and the frames."""

from __future__ import annotations

from nsqclient.protocol.layers.stack import LayerStack


class _Tag:
    """Writes its name around what passes, so that the order of layers can be seen."""

    def __init__(self, name, own=b""):
        self.name = name
        self.own = own

    def decode(self, data):
        assert data.startswith(self.name + b"(") and data.endswith(b")"), data
        yield data[len(self.name) + 1:-1]

    def encode(self, data):
        return self.name + b"(" + data + b")"

    def has_output(self):
        return bool(self.own)

    def wire_output(self):
        own, self.own = self.own, b""
        return own


def _stack(*layers):
    stack = LayerStack()
    for layer in layers:
        assert not list(stack.push(layer))
    return stack


def test_the_first_layer_is_nearest_the_socket():
    stack = _stack(_Tag(b"tls"), _Tag(b"zip"))
    assert len(stack) == 2
    assert stack.encode(b"frame") == b"tls(zip(frame))"
    assert list(stack.decode(b"tls(zip(frame))")) == [b"frame"]


def test_push_takes_the_unread_bytes():
    """Bytes that were read too early go through the new layer, and only that one."""
    stack = _stack(_Tag(b"tls"))
    assert list(stack.push(_Tag(b"zip"), [b"zip(a)", b"zip(b)"])) == [b"a", b"b"]


def test_own_bytes_of_a_layer():
    """What a layer has to say goes through the layers under it, and not through itself."""
    stack = _stack(_Tag(b"tls", b"<hello>"), _Tag(b"zip", b"<dict>"))
    assert stack.has_output()
    assert stack.encode(b"") == b"tls(<dict>)<hello>"
    assert not stack.has_output()
    assert stack.encode(b"") == b""
    assert stack.encode(b"frame") == b"tls(zip(frame))"
